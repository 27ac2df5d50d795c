use super::super::occupant::OVERDUE;
use super::*;
use crate::request::ConnectionPriority;

const PATIENCE: Duration = Duration::from_secs(10);

struct World {
    places: ConnectionSlots,
    taken: Vec<(ConnectionSlot, Arc<Occupant>)>,
}

fn occupant(address: &str, is_known: bool) -> Arc<Occupant> {
    let standing = ConnectionPriority::default();
    if is_known {
        standing.mark_authenticated();
    }
    Occupant::new(address.parse().unwrap(), standing)
}

/// Sends a request and receives its response.
fn use_once(occupant: &Arc<Occupant>) {
    occupant.standing().mark_used();
    drop(occupant.begin());
}

impl World {
    fn new(limit: usize) -> Self {
        Self { places: ConnectionSlots::new(limit, 10, Whose::Networks), taken: Vec::new() }
    }

    /// Opens a connection and uses it for a request. Returns whether the connection gets a place.
    fn take(&mut self, address: &str, is_known: bool) -> bool {
        let occupant = occupant(address, is_known);
        let place = self.places.take(&occupant);
        let is_taken = place.is_some();
        use_once(&occupant);
        self.taken.extend(place.map(|place| (place, occupant)));
        is_taken
    }

    /// The positions of the evicted connections.
    fn evicted(&self) -> Vec<usize> {
        let taken = self.taken.iter().enumerate();
        taken.filter(|(_, (_, one))| one.is_evicted()).map(|(at, _)| at).collect()
    }
}

#[tokio::test]
async fn each_network_leaves_connection_slots_for_further_networks() {
    let places = ConnectionSlots::new(100, 0, Whose::Networks);
    let mut held = Vec::new();
    let mut counts = Vec::new();
    for network in 1..=4 {
        let before = held.len();
        for _ in 0..100 {
            let connection = occupant(&format!("10.0.0.{network}"), true);
            if let Some(place) = places.take(&connection) {
                held.push((place, connection.begin()));
            }
        }
        counts.push(held.len() - before);
    }
    assert_eq!(counts, [75, 19, 5, 1]);
}

#[tokio::test]
async fn the_oldest_stranger_of_the_busiest_network_gives_way() {
    let mut world = World::new(4);
    assert!(world.take("10.0.0.1", false) && world.take("10.0.0.2", true));
    assert!(world.take("10.0.0.2", false) && world.take("10.0.0.2", false));
    assert!(world.take("10.0.0.3", false));
    assert_eq!(world.evicted(), [2]);
    // A connection counts as authenticated as soon as it is.
    world.taken[3].1.standing().mark_authenticated();
    world.taken[0].1.standing().mark_authenticated();
    assert!(world.take("10.0.0.4", true));
    assert_eq!(world.evicted(), [2, 4]);
}

#[tokio::test]
async fn a_known_connection_gives_way_to_a_network_with_fewer_alone() {
    let mut world = World::new(4);
    for address in ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"] {
        assert!(world.take(address, true));
    }
    assert!(!world.take("10.0.0.1", false), "its network has as many as any");
    assert!(world.take("10.0.0.3", false));
    assert_eq!(world.evicted(), [0]);
    // When the evicted connection ends, the place of the newcomer stays taken.
    drop(world.taken.remove(0));
    assert!(world.take("10.0.0.4", true), "the newcomer before was a stranger");
    assert_eq!(world.evicted(), [3]);
}

#[tokio::test]
async fn a_request_evicts_the_least_recently_used_idle_connection_of_its_network() {
    let mut world = World::new(4);
    for _ in 0..3 {
        assert!(world.take("10.0.0.1", true));
    }
    use_once(&world.taken[0].1);
    let newcomer = occupant("10.0.0.1", true);
    assert!(world.places.take(&newcomer).is_none());
    let _request = newcomer.begin();
    assert!(world.places.take(&newcomer).is_some());
    assert_eq!(world.evicted(), [1], "the least recently used");
}

/// Covers requests, and connections whose first request is not overdue.
#[tokio::test(start_paused = true)]
async fn a_connection_with_a_request_never_gives_way() {
    let mut world = World::new(4);
    for address in ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"] {
        assert!(world.take(address, false));
    }
    let requests: Vec<_> = world.taken.iter().map(|(_, one)| one.begin()).collect();
    for address in ["10.0.0.1", "10.0.0.3"] {
        let newcomer = occupant(address, true);
        assert!(world.places.wait(&newcomer, PATIENCE).await.is_none());
    }
    drop(requests);
    drop(world.taken.drain(..));
    let held: Vec<_> = ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"]
        .map(|address| world.places.take(&occupant(address, false)).unwrap())
        .into();
    let newcomer = occupant("10.0.0.3", true);
    assert!(world.places.take(&newcomer).is_none(), "they are in their handshakes");
    let began = Instant::now();
    let place = world.places.wait(&newcomer, PATIENCE).await;
    assert!(place.is_some() && began.elapsed() < OVERDUE + Duration::from_secs(1));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn connections_wait_in_order_and_only_behind_their_own_network() {
    let mut world = World::new(4);
    for _ in 0..3 {
        assert!(world.take("10.0.0.1", true));
    }
    let requests: Vec<_> = world.taken.iter().map(|(_, one)| one.begin()).collect();
    let places = world.places.clone();
    let wait = |name: &'static str| {
        let places = places.clone();
        tokio::spawn(async move {
            let place = places.wait(&occupant("10.0.0.1", true), PATIENCE).await;
            (name, place)
        })
    };
    let first = wait("first");
    tokio::task::yield_now().await;
    let second = wait("second");
    tokio::task::yield_now().await;
    assert!(world.take("10.0.0.2", true), "another network has a place of its own");
    assert!(places.take(&occupant("10.0.0.1", true)).is_none());
    drop(world.taken.remove(0));
    let (name, held) = first.await.unwrap();
    assert!(name == "first" && held.is_some() && !second.is_finished());
    drop(held);
    assert!(second.await.unwrap().1.is_some());
    drop(requests);
}

#[tokio::test(start_paused = true)]
async fn waiting_connections_are_limited_and_leave_no_table_entries() {
    let mut world = World::new(4);
    for _ in 0..3 {
        assert!(world.take("10.0.0.1", true));
    }
    let requests: Vec<_> = world.taken.iter().map(|(_, one)| one.begin()).collect();
    let places = world.places.clone();
    let wait = |address: &'static str| {
        let places = places.clone();
        tokio::spawn(async move { places.wait(&occupant(address, true), PATIENCE).await })
    };
    let waiting: Vec<_> = (0..20).map(|_| wait("10.0.0.1")).collect();
    sleep(Duration::from_secs(1)).await;
    let refused = waiting.iter().filter(|one| one.is_finished()).count();
    assert_eq!(refused, 12, "eight of ten may be of one network");
    // Connections that stop waiting leave no entries behind.
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    sleep(Duration::from_secs(1)).await;
    assert!(places.table().waiting.is_empty() && places.table().waiting_by_network.is_empty());
    drop(requests);
    world.taken.clear();
    assert!(places.table().taken.is_empty() && places.table().by_network.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_connection_has_its_full_request_timeout_after_waiting_for_a_slot() {
    let places = ConnectionSlots::new(1, 10, Whose::Networks);
    let (first, second) = (occupant("10.0.0.1", false), occupant("10.0.0.1", false));
    let held = places.take(&first).unwrap();
    let began = Instant::now();
    let place = places.wait(&second, PATIENCE).await.unwrap();
    assert!(first.is_evicted() && began.elapsed() >= OVERDUE);
    assert!(!second.may_give_way());
    drop((held, place));
}

#[tokio::test]
async fn of_a_front_proxy_the_least_recently_used_without_a_request_gives_way() {
    let places = ConnectionSlots::new(4, 10, Whose::FrontProxy);
    let connection = |is_multiplexed: bool| {
        let connection = occupant("10.0.0.1", true);
        if is_multiplexed {
            connection.mark_multiplexed();
        }
        let place = places.take(&connection);
        use_once(&connection);
        place.map(|place| (connection, place))
    };
    let single: Vec<_> = (0..3).map(|_| connection(false).unwrap()).collect();
    let requests: Vec<_> = single.iter().map(|(one, _)| one.begin()).collect();
    assert!(connection(false).is_none(), "one place is for connections of HTTP/2");
    let multiplexed = connection(true).unwrap();
    drop(requests);
    use_once(&single[0].0);
    assert!(connection(true).is_some());
    let evicted =
        [&single[0], &single[1], &single[2], &multiplexed].map(|(one, _)| one.is_evicted());
    assert_eq!(evicted, [false, true, false, false]);
}

#[test]
fn ipv6_addresses_of_one_64_bit_prefix_are_one_network() {
    assert_eq!(
        network("2001:db8::1:2".parse().unwrap()),
        network("2001:db8::".parse::<IpAddr>().unwrap())
    );
    assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), "10.0.0.1".parse::<IpAddr>().unwrap());
}
