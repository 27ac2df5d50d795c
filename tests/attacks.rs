//! Attacks against the program: it stays alive and ready, its memory growth stays within the limit, it loses no object,
//! and honest users get responses meanwhile.
//!
//! Each attack runs against a new process and a new cluster. The attack comes from one address or one user. Honest
//! users come from another address, with their own connections and through the front proxy, and send requests during
//! the attack. One line reports the cost of each attack.
//!
//! By default only some attacks run; `ATTACKS=all` runs every one. `HONEST_SECONDS=1` sets the longest time that an
//! honest user may wait, for an otherwise idle machine. `FARM_OPERATOR` names a program other than the one of this
//! build.

#[path = "attacks/authentication.rs"]
mod authentication;
#[path = "attacks/cluster.rs"]
mod cluster;
#[path = "attacks/connections.rs"]
mod connections;
#[path = "attacks/frames.rs"]
mod frames;
#[path = "attacks/heads.rs"]
mod heads;
#[path = "attacks/honest.rs"]
mod honest;
#[path = "attacks/unread.rs"]
mod unread;
#[path = "attacks/wire.rs"]
mod wire;
#[path = "attacks/work.rs"]
mod work;
#[path = "attacks/world.rs"]
mod world;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::FutureExt;
use futures::future::BoxFuture;
use honest::Honest;
use libtest_mimic::{Arguments, Failed, Trial};
use unread::{DEAF, MANY, ONE, Unread};
use wire::Head;
use work::Sent;
use world::{GROUP, Who, World, llamas};

/// The allowed growth of the program, in MiB.
const GROWTH: usize = 128;
/// The allowed growth while a hundred users attack together. The memory of each of them is limited, and so is the sum.
const GROWTH_BY_CROWD: usize = 384;
/// The factor by which honest users may wait longer during such an attack.
const WAIT_IN_CROWD: u32 = 5;
/// The longest time that an honest user may wait, on a machine that runs other programs too.
const HONEST_WAIT: Duration = Duration::from_secs(10);
/// The time limit of an attack, including its setup.
const ATTACK: Duration = Duration::from_secs(120);
/// The number of rounds of an honest user during the attack.
const ROUNDS: usize = 20;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

/// The resources that an attacker holds, and a note about the result.
pub struct Held {
    note: String,
    _held: Box<dyn Any + Send>,
}

impl Held {
    fn new(note: String, held: impl Any + Send) -> Self {
        Self { note, _held: Box::new(held) }
    }
}

type Attack = fn(Arc<World>) -> BoxFuture<'static, Result<Held>>;

/// The attacks that the server does not withstand yet, with the reasons.
const NOT_YET: &[(&str, &str)] = &[
    ("unfinished_heads_of_the_front_proxy", "heads of the front proxy have no bound together"),
    ("small_headers_of_the_front_proxy", "heads of the front proxy have no bound together"),
    ("spelt_out_heads_of_the_front_proxy", "heads of the front proxy have no bound together"),
    ("head_of_3_mb_with_other_clients", "a head that is too large ends the connection"),
];

/// The attacks that run by default: the strongest of each family that the server withstands.
const ORDINARY: &[&str] = &[
    "silent_connections",
    "unfinished_heads_of_strangers",
    "repeated_headers_of_eve",
    "large_waiting_heads_of_one_user",
    "path_of_66_kb_with_other_clients",
    "requests_reset_by_one_user",
    "pings",
    "objects_unread_on_many",
    "refusals_unread",
    "creations_unread",
    "dense_json",
    "yaml_aliases",
    "websockets_unread",
    "questions_of_eve_through_the_front_proxy",
    "tokens_of_strangers",
];

/// Every attack.
const ATTACKS: &[(&str, Attack)] = &[
    // Connections.
    ("silent_connections", |w| connections::silent(w, 1_500).boxed()),
    ("stalled_handshakes", |w| connections::stalled_handshakes(w, 1_400).boxed()),
    ("idle_strangers", |w| connections::idle(w, Who::Stranger, 1_000).boxed()),
    ("idle_eve", |w| connections::idle(w, Who::Eve, 1_000).boxed()),
    ("idle_eve_after_a_request", |w| connections::idle_after_a_request(w, Who::Eve, 1_000).boxed()),
    ("only_settings", |w| connections::only_settings(w, Who::Eve, 1_000).boxed()),
    ("half_prefaces", |w| connections::half_prefaces(w, Who::Stranger, 900).boxed()),
    ("slow_prefaces", |w| connections::slow_prefaces(w, 300).boxed()),
    ("handshakes_of_strangers", |w| connections::handshakes(w, Who::Stranger).boxed()),
    ("handshakes_of_eve", |w| connections::handshakes(w, Who::Eve).boxed()),
    ("short_connections", |w| connections::come_and_go(w, Who::Stranger).boxed()),
    ("unfinished_heads_of_strangers", |w| {
        connections::unfinished_heads(w, Who::Stranger, 900, 30_000).boxed()
    }),
    ("unfinished_heads_of_eve", |w| {
        connections::unfinished_heads(w, Who::Eve, 900, 30_000).boxed()
    }),
    ("unfinished_heads_of_the_front_proxy", |w| {
        connections::unfinished_heads(w, Who::FrontProxy, 300, 1_900_000).boxed()
    }),
    ("slow_bodies_of_strangers", |w| connections::slow_bodies(w, Who::Stranger, 500).boxed()),
    ("slow_bodies_of_eve", |w| connections::slow_bodies(w, Who::Eve, 800).boxed()),
    ("half_closed", |w| connections::half_closed(w, Who::Eve, 800).boxed()),
    ("pipelined_refusals", |w| {
        let path = format!("{}/{}", llamas("default"), "x".repeat(4_000));
        connections::pipelined(w, Who::Eve, 400, path, 1_000).boxed()
    }),
    ("pipelined_openapi", |w| {
        connections::pipelined(w, Who::Eve, 400, "/openapi/v2".to_owned(), 1_000).boxed()
    }),
    ("pipelined_strangers", |w| {
        connections::pipelined(w, Who::Stranger, 400, "/readyz".to_owned(), 2_000).boxed()
    }),
    // Heads.
    ("repeated_headers_of_strangers", |w| heads::repeated(w, Who::Stranger, 900, 16_000).boxed()),
    ("repeated_headers_of_eve", |w| heads::repeated(w, Who::Eve, 900, 16_000).boxed()),
    ("repeated_headers_of_the_front_proxy", |w| {
        heads::repeated(w, Who::FrontProxy, 250, 16_000).boxed()
    }),
    ("repeated_headers_within_the_limit", |w| {
        heads::repeated(w, Who::FrontProxy, 250, 500).boxed()
    }),
    ("small_headers_of_strangers", |w| heads::small(w, Who::Stranger, 900, 900).boxed()),
    ("small_headers_of_eve", |w| heads::small(w, Who::Eve, 900, 900).boxed()),
    ("small_headers_of_the_front_proxy", |w| heads::small(w, Who::FrontProxy, 250, 60_000).boxed()),
    ("spelt_out_heads_of_strangers", |w| heads::spelt_out(w, Who::Stranger, 900, 28_000).boxed()),
    ("spelt_out_heads_of_eve", |w| heads::spelt_out(w, Who::Eve, 900, 28_000).boxed()),
    ("spelt_out_heads_of_the_front_proxy", |w| {
        heads::spelt_out(w, Who::FrontProxy, 250, 1_900_000).boxed()
    }),
    ("dribbled_heads", |w| heads::dribbled(w, Who::Eve, 500).boxed()),
    ("announced_bodies", |w| heads::announced(w, Who::Eve, 800).boxed()),
    ("continuation_frames_without_headers", |w| {
        heads::continuations(w, Who::Stranger, Vec::new()).boxed()
    }),
    ("continuations_of_headers", |w| {
        let head = Head::default().with("x", &"y".repeat(16_000));
        heads::continuations(w, Who::Stranger, head.0).boxed()
    }),
    ("continuations_of_the_front_proxy", |w| {
        let head = Head::default().with("x", &"y".repeat(16_000));
        heads::continuations(w, Who::FrontProxy, head.0).boxed()
    }),
    ("large_waiting_heads_of_unauthenticated_clients", |w| {
        heads::waiting(w, Who::Stranger, 100, 100, 28_000).boxed()
    }),
    ("large_waiting_heads_of_one_user", |w| heads::waiting(w, Who::Eve, 10, 1_000, 28_000).boxed()),
    ("large_waiting_heads_of_the_front_proxy", |w| {
        heads::waiting(w, Who::FrontProxy, 1, 1_000, 1_900_000).boxed()
    }),
    ("large_heads_of_watches", |w| {
        let head = Head::of("GET", &format!("{}?watch=1", llamas("default")), Who::Eve);
        let head = head.with("x", &"y".repeat(31_000));
        heads::heads(w, Who::Eve, 10, 1_000, head, true).boxed()
    }),
    ("many_headers", |w| {
        let mut head = Head::of("GET", &llamas("default"), Who::Eve);
        for number in 0..750 {
            head = head.with(&format!("x-{number}"), "");
        }
        heads::heads(w, Who::Eve, 10, 1_000, head, true).boxed()
    }),
    ("long_paths", |w| {
        let path = format!("{}/{}", llamas("default"), "x".repeat(9 << 10));
        heads::heads(w, Who::Eve, 10, 1_000, Head::of("GET", &path, Who::Eve), true).boxed()
    }),
    ("many_parameters", |w| {
        let path = format!("{}?{}", llamas("default"), "&".repeat(8_000));
        heads::heads(w, Who::Eve, 10, 1_000, Head::of("GET", &path, Who::Eve), true).boxed()
    }),
    ("long_audit_ids", |w| {
        let head = Head::of("GET", &llamas("default"), Who::Eve);
        let head = head.with("audit-id", &"a".repeat(31_000));
        heads::heads(w, Who::Eve, 10, 1_000, head, true).boxed()
    }),
    ("many_impersonations", |w| {
        let mut head = Head::of("GET", &llamas("default"), Who::Eve);
        head = head.with("impersonate-user", "a");
        for number in 0..500 {
            head = head.with("impersonate-group", &format!("g{number}"));
        }
        heads::heads(w, Who::Eve, 10, 1_000, head, true).boxed()
    }),
    ("many_groups_from_the_front_proxy", |w| {
        let mut head = Head::of("GET", &llamas("default"), Who::FrontProxy);
        for number in 0..20_000 {
            head = head.with("x-remote-group", &format!("group-{number}"));
        }
        heads::heads(w, Who::FrontProxy, 1, 500, head, true).boxed()
    }),
    ("many_extras_from_the_front_proxy", |w| {
        let mut head = Head::of("GET", &llamas("default"), Who::FrontProxy);
        for number in 0..20_000 {
            head = head.with(&format!("x-remote-extra-{number}"), "%41%42");
        }
        heads::heads(w, Who::FrontProxy, 1, 500, head, true).boxed()
    }),
    ("path_of_9_kib_with_other_clients", |w| {
        let path = format!("{}/{}", llamas("default"), "x".repeat(9 << 10));
        heads::beside_others(w, Head::of("GET", &path, Who::FrontProxy)).boxed()
    }),
    ("path_of_66_kb_with_other_clients", |w| {
        let path = format!("{}?{}", llamas("default"), "x".repeat(66_000));
        heads::beside_others(w, Head::of("GET", &path, Who::FrontProxy)).boxed()
    }),
    ("head_of_900_kb_with_other_clients", |w| {
        let head = Head::of("GET", &llamas("default"), Who::FrontProxy);
        heads::beside_others(w, head.with("x", &"y".repeat(900_000))).boxed()
    }),
    ("head_of_3_mb_with_other_clients", |w| {
        let head = Head::of("GET", &llamas("default"), Who::FrontProxy);
        heads::beside_others(w, head.with("x", &"y".repeat(3_000_000))).boxed()
    }),
    ("unusual_path_with_other_clients", |w| {
        let head = Head::of("GET", "/apis/\u{1}\\ <>%zz", Who::FrontProxy);
        heads::beside_others(w, head).boxed()
    }),
    ("table_sizes", |w| heads::table_sizes(w, Who::Eve).boxed()),
    // Frames.
    ("requests_reset_by_unauthenticated_clients", |w| {
        frames::resets(w, Who::Stranger, 1, 100_000, llamas("default")).boxed()
    }),
    ("requests_reset_by_one_user", |w| {
        frames::resets(w, Who::Eve, 1, 100_000, llamas("default")).boxed()
    }),
    ("requests_reset_on_many_connections", |w| {
        frames::resets(w, Who::Eve, 32, 10_000, llamas("default")).boxed()
    }),
    ("requests_reset_by_the_front_proxy", |w| {
        frames::resets(w, Who::FrontProxy, 1, 100_000, llamas("default")).boxed()
    }),
    ("watches_reset_by_one_user", |w| {
        let path = format!("{}?watch=1", llamas("default"));
        frames::resets(w, Who::FrontProxy, 1, 50_000, path).boxed()
    }),
    ("resets_provoked_from_the_server", |w| frames::made_resets(w, Who::Eve, 50_000).boxed()),
    ("pings", |w| frames::flood(w, Who::Stranger, 8, frames::pings(), true).boxed()),
    ("pings_unread", |w| frames::flood(w, Who::Stranger, 8, frames::pings(), false).boxed()),
    ("pongs", |w| frames::flood(w, Who::Stranger, 8, frames::pongs(), true).boxed()),
    ("settings", |w| frames::flood(w, Who::Stranger, 8, frames::many_settings(), true).boxed()),
    ("settings_unread", |w| {
        frames::flood(w, Who::Stranger, 8, frames::many_settings(), false).boxed()
    }),
    ("window_updates", |w| frames::flood(w, Who::Stranger, 8, frames::windows(0), true).boxed()),
    ("window_updates_of_a_stream", |w| {
        frames::flood(w, Who::Eve, 8, frames::windows(1), true).boxed()
    }),
    ("priorities", |w| frames::flood(w, Who::Stranger, 8, frames::priorities(), true).boxed()),
    ("unknown_frames", |w| frames::flood(w, Who::Stranger, 8, frames::unknown(), true).boxed()),
    ("goaways", |w| frames::flood(w, Who::Stranger, 8, frames::goaways(), true).boxed()),
    ("empty_data", |w| frames::empty_data(w, Who::Eve).boxed()),
    ("nonsense", |w| frames::nonsense(w, Who::Stranger).boxed()),
    ("toggled_windows", |w| frames::toggled_windows(w, Who::Eve, 1).boxed()),
    ("toggled_windows_on_many", |w| frames::toggled_windows(w, Who::Eve, 8).boxed()),
    ("windows_byte_by_byte", |w| frames::byte_by_byte(w, Who::Eve).boxed()),
    // Unread responses.
    ("unread_objects_on_one_connection", |w| unread::objects(w, ONE).boxed()),
    ("objects_unread_on_many", |w| unread::objects(w, MANY).boxed()),
    ("objects_unread_by_the_deaf", |w| unread::objects(w, DEAF).boxed()),
    ("objects_unread_by_the_front_proxy", |w| {
        unread::objects(w, Unread { who: Who::FrontProxy, ..ONE }).boxed()
    }),
    ("objects_unread_by_a_deaf_front_proxy", |w| {
        unread::objects(w, Unread { who: Who::FrontProxy, ..DEAF }).boxed()
    }),
    ("objects_pipelined", |w| {
        async {
            w.fill("pasture", 1, unread::LARGE).await?;
            w.begin()?;
            let path = format!("{}/large-0", llamas("pasture"));
            connections::pipelined(w, Who::Eve, 400, path, 100).await
        }
        .boxed()
    }),
    ("lists_unread", |w| unread::lists(w, MANY, "application/json").boxed()),
    ("unread_lists_on_one_connection", |w| unread::lists(w, ONE, "application/json").boxed()),
    ("lists_unread_as_yaml", |w| unread::lists(w, MANY, "application/yaml").boxed()),
    ("lists_unread_as_tables", |w| unread::lists(w, MANY, TABLE).boxed()),
    ("lists_unread_by_the_deaf", |w| unread::lists(w, DEAF, "application/json").boxed()),
    ("lists_unread_compressed", |w| unread::compressed_lists(w, MANY).boxed()),
    ("watches_unread", |w| unread::watches(w, MANY, "application/json", 1_000_000).boxed()),
    ("watches_unread_as_tables", |w| unread::watches(w, MANY, TABLE, 1_000_000).boxed()),
    ("watches_unread_as_metadata", |w| unread::watches(w, MANY, METADATA, 1_000_000).boxed()),
    ("watches_unread_by_the_deaf", |w| unread::watches(w, DEAF, METADATA, 1_000_000).boxed()),
    ("watches_unread_as_yaml", |w| unread::watches(w, MANY, "application/yaml", 1_000_000).boxed()),
    ("refusals_unread", |w| {
        let path = format!("{}/{}", llamas("default"), "x".repeat(4_000));
        unread::path(w, MANY, path).boxed()
    }),
    ("refusals_unread_by_strangers", |w| {
        let path = format!("{}/{}", llamas("default"), "x".repeat(4_000));
        unread::path(w, Unread { who: Who::Stranger, ..MANY }, path).boxed()
    }),
    ("discovery_unread", |w| unread::path(w, MANY, GROUP.to_owned()).boxed()),
    ("openapi_v2_unread", |w| unread::path(w, MANY, "/openapi/v2".to_owned()).boxed()),
    ("openapi_v3_unread", |w| unread::path(w, MANY, format!("/openapi/v3{GROUP}")).boxed()),
    ("metrics_unread", |w| unread::path(w, MANY, "/metrics".to_owned()).boxed()),
    ("metrics_unread_by_the_deaf", |w| unread::path(w, DEAF, "/metrics".to_owned()).boxed()),
    ("health_unread_by_strangers", |w| {
        unread::path(w, Unread { who: Who::Stranger, ..MANY }, "/readyz?verbose".to_owned()).boxed()
    }),
    ("health_unread_by_deaf_strangers", |w| {
        unread::path(w, Unread { who: Who::Stranger, ..DEAF }, "/readyz?verbose".to_owned()).boxed()
    }),
    ("creations_unread", |w| unread::creations(w, 10, 100).boxed()),
    ("deletions_unread", |w| unread::deletions(w, 10, 100).boxed()),
    // Work.
    ("dense_json", |w| work::at_once(w, Who::Eve, 100, work::dense_json()).boxed()),
    ("dense_json_by_the_front_proxy", |w| {
        work::at_once(w, Who::FrontProxy, 100, work::dense_json()).boxed()
    }),
    ("deep_json", |w| work::at_once(w, Who::Eve, 100, work::deep_json()).boxed()),
    ("escapes", |w| work::at_once(w, Who::Eve, 100, work::escapes()).boxed()),
    ("duplicate_fields", |w| work::at_once(w, Who::Eve, 100, work::duplicates()).boxed()),
    ("unknown_fields", |w| work::at_once(w, Who::Eve, 100, work::unknown_fields()).boxed()),
    ("long_names", |w| work::at_once(w, Who::Eve, 100, work::long_name()).boxed()),
    ("many_labels", |w| work::at_once(w, Who::Eve, 100, work::metadata("labels")).boxed()),
    ("many_annotations", |w| {
        work::at_once(w, Who::Eve, 100, work::metadata("annotations")).boxed()
    }),
    ("many_finalizers", |w| work::at_once(w, Who::Eve, 100, work::finalizers()).boxed()),
    ("many_managed_fields", |w| work::at_once(w, Who::Eve, 100, work::managed_fields()).boxed()),
    ("dense_yaml", |w| work::at_once(w, Who::Eve, 50, work::large_yaml()).boxed()),
    ("yaml_text", |w| work::at_once(w, Who::Eve, 50, work::yaml_text()).boxed()),
    ("yaml_lists", |w| work::at_once(w, Who::Eve, 50, work::yaml_lists()).boxed()),
    ("yaml_flow", |w| work::at_once(w, Who::Eve, 50, work::yaml_flow()).boxed()),
    ("yaml_aliases", |w| work::at_once(w, Who::Eve, 50, work::yaml_aliases()).boxed()),
    ("merge_patches", |w| work::at_once(w, Who::Eve, 100, work::merge_patch()).boxed()),
    ("json_patches_with_copies", |w| {
        work::at_once(w, Who::Eve, 50, work::json_patch_copies()).boxed()
    }),
    ("json_patches_at_the_front", |w| {
        work::at_once(w, Who::Eve, 50, work::json_patch_fronts()).boxed()
    }),
    ("json_patches_with_tests", |w| {
        work::at_once(w, Who::Eve, 50, work::json_patch_tests()).boxed()
    }),
    ("bodies_of_strangers", |w| work::at_once(w, Who::Stranger, 100, work::dense_json()).boxed()),
    ("tables_of_a_full_store", |w| {
        work::on_a_full_store(w, 50, Sent::get(llamas("pasture"), TABLE)).boxed()
    }),
    ("yaml_of_a_full_store", |w| {
        work::on_a_full_store(w, 50, Sent::get(llamas("pasture"), "application/yaml")).boxed()
    }),
    ("lists_of_a_full_store", |w| {
        work::on_a_full_store(w, 50, Sent::get(llamas("pasture"), "application/json")).boxed()
    }),
    ("long_accepts", |w| {
        let accept: &str = Box::leak("application/x;q=0.1,".repeat(1_500).into_boxed_str());
        work::at_once(w, Who::Eve, 300, Sent::get(llamas("default"), accept)).boxed()
    }),
    ("pages", |w| work::pages(w).boxed()),
    ("many_watches", |w| {
        work::watches(w, Who::Eve, (5, 1_000), String::new(), "application/json", 0).boxed()
    }),
    ("watches_with_label_selectors", |w| {
        let query = format!("labelSelector=a%20in%20({})", "abc,".repeat(7_500));
        work::watches(w, Who::Eve, (5, 200), query, "application/json", 0).boxed()
    }),
    ("watches_with_many_terms", |w| {
        let query = format!("labelSelector={}c", "a!=b,".repeat(6_000));
        work::watches(w, Who::Eve, (5, 200), query, "application/json", 0).boxed()
    }),
    ("watches_with_field_selectors", |w| {
        let query = format!("fieldSelector={}", "metadata.name!=b,".repeat(1_700));
        work::watches(w, Who::Eve, (5, 200), query, "application/json", 0).boxed()
    }),
    ("watches_of_a_full_store", |w| {
        let query = "resourceVersion=0".to_owned();
        work::watches(w, Who::Eve, (5, 200), query, "application/json", 100).boxed()
    }),
    ("watches_of_a_full_store_as_tables", |w| {
        let query = "resourceVersion=0".to_owned();
        work::watches(w, Who::Eve, (5, 200), query, TABLE, 100).boxed()
    }),
    ("short_watches", |w| work::short_watches(w).boxed()),
    ("changes_of_a_large_object", |w| work::changes(w, 1_000_000).boxed()),
    ("changes_of_a_small_object", |w| work::changes(w, 1).boxed()),
    ("a_store_filled_to_its_limit", |w| {
        work::full_store(w, &[1_000_000, 100_000, 10_000, 1_000]).boxed()
    }),
    ("many_small_objects", |w| work::full_store(w, &[1]).boxed()),
    ("websockets_unread", |w| work::websockets(w, 500, Vec::new()).boxed()),
    ("websockets_with_large_announced_frames", |w| {
        let announced = [&[0x82, 0xff][..], &(1_u64 << 30).to_be_bytes(), &[0; 4], &[7; 16_000]];
        work::websockets(w, 500, announced.concat()).boxed()
    }),
    ("websockets_with_pings", |w| {
        let ping = [0x89, 0x84, 0, 0, 0, 0, 1, 2, 3, 4].repeat(5_000);
        work::websockets(w, 500, ping).boxed()
    }),
    // A hundred users, each within the per-user limits.
    ("large_waiting_heads_of_many_users", |w| {
        heads::waiting(w, Who::Crowd, 100, 100, 28_000).boxed()
    }),
    ("requests_reset_by_many_users", |w| {
        frames::resets(w, Who::Crowd, 100, 1_000, llamas("default")).boxed()
    }),
    ("requests_reset_by_many_front_proxies", |w| {
        frames::resets(w, Who::FrontProxy, 10, 10_000, llamas("default")).boxed()
    }),
    ("objects_unread_by_a_crowd", |w| {
        unread::objects(w, Unread { who: Who::Crowd, ..MANY }).boxed()
    }),
    ("lists_unread_by_a_crowd", |w| {
        unread::lists(w, Unread { who: Who::Crowd, ..MANY }, "application/yaml").boxed()
    }),
    ("watches_unread_by_a_crowd", |w| {
        unread::watches(w, Unread { who: Who::Crowd, ..MANY }, TABLE, 1_000_000).boxed()
    }),
    ("refusals_unread_by_a_crowd", |w| {
        let path = format!("{}/{}", llamas("default"), "x".repeat(4_000));
        unread::path(w, Unread { who: Who::Crowd, ..MANY }, path).boxed()
    }),
    ("dense_json_by_a_crowd", |w| work::at_once(w, Who::Crowd, 300, work::dense_json()).boxed()),
    ("dense_yaml_by_a_crowd", |w| work::at_once(w, Who::Crowd, 150, work::large_yaml()).boxed()),
    ("many_managed_fields_by_a_crowd", |w| {
        work::at_once(w, Who::Crowd, 300, work::managed_fields()).boxed()
    }),
    ("json_patches_with_copies_of_many_users", |w| {
        work::at_once(w, Who::Crowd, 150, work::json_patch_copies()).boxed()
    }),
    ("watches_of_a_crowd", |w| {
        let query = format!("labelSelector=a%20in%20({})", "abc,".repeat(1_500));
        work::watches(w, Who::Crowd, (100, 100), query, "application/json", 0).boxed()
    }),
    // Authentication.
    ("tokens_of_strangers", |w| {
        authentication::questions(w, Who::Stranger, (100, 100), true).boxed()
    }),
    ("questions_of_strangers", |w| {
        authentication::questions(w, Who::Stranger, (100, 100), false).boxed()
    }),
    ("questions_of_eve", |w| authentication::questions(w, Who::Eve, (100, 100), false).boxed()),
    ("questions_of_eve_through_the_front_proxy", |w| {
        authentication::questions(w, Who::FrontProxy, (10, 1_000), false).boxed()
    }),
    ("tokens_of_eve", |w| authentication::questions(w, Who::Eve, (100, 100), true).boxed()),
    ("forged_certificates", |w| {
        let attack = authentication::made_up_certificates(Arc::clone(&w), 300);
        authentication::quietly(w, attack).boxed()
    }),
    ("refused_strangers", |w| {
        let header = ("x-a", "a".to_owned());
        let attack = authentication::refused(Arc::clone(&w), Who::Stranger, header);
        authentication::quietly(w, attack).boxed()
    }),
    ("refused_headers_of_a_front_proxy", |w| {
        let header = ("x-remote-user", "admin".to_owned());
        let attack = authentication::refused(Arc::clone(&w), Who::Stranger, header);
        authentication::quietly(w, attack).boxed()
    }),
    ("long_tokens", |w| {
        let header = ("authorization", format!("Bearer {}", "t".repeat(20_000)));
        let attack = authentication::refused(Arc::clone(&w), Who::Stranger, header);
        authentication::quietly(w, attack).boxed()
    }),
];

fn main() {
    let mut arguments = Arguments::from_args();
    // Sequentially, because the attacks measure one machine.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for &(name, attack) in ATTACKS {
        let not_yet = NOT_YET.iter().find(|(listed, _)| *listed == name);
        let is_ordinary = ORDINARY.contains(&name) && not_yet.is_none();
        let kind = not_yet.map_or("", |(_, why)| why);
        let trial = Trial::test(name, move || run(name, attack));
        trials.push(trial.with_kind(kind).with_ignored_flag(!wants_all() && !is_ordinary));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Whether every attack runs, with its full duration.
fn wants_all() -> bool {
    std::env::var_os("ATTACKS").is_some_and(|which| which == "all")
}

fn run(name: &str, attack: Attack) -> Result<(), Failed> {
    let fault = |error: anyhow::Error| Failed::from(format!("{error:#}"));
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let outcome = runtime.block_on(check(name, attack));
    // Attackers that are still waiting are dropped.
    runtime.shutdown_background();
    outcome.map_err(fault)
}

/// Runs an attack, and reports its cost.
async fn check(name: &str, attack: Attack) -> Result<()> {
    let world = World::start().await?;
    let honest = Honest::start(&world).await?;
    world.begin()?;
    let attacked = tokio::time::timeout(ATTACK, tokio::spawn(attack(Arc::clone(&world)))).await;
    honest.wait_for_rounds(ROUNDS).await;
    let alive = world.ensure_alive();
    let grown = world.grown().unwrap_or_default();
    let seen = honest.end().await;
    let later = world.ensure_alive();
    let held = attacked.context("the attack took too long")??;
    let note = held.as_ref().map_or_else(|error| format!("{error:#}"), |held| held.note.clone());
    let (longest, waited_for, mut faults, rounds) = match seen {
        Ok(seen) => (seen.longest, seen.waited_for, seen.faults, seen.rounds),
        Err(error) => (Duration::ZERO, String::new(), vec![format!("{error:#}")], 0),
    };
    faults.extend([alive, later].into_iter().filter_map(Result::err).map(|e| format!("{e:#}")));
    faults.extend(held.as_ref().err().map(|error| format!("the attack: {error:#}")));
    let (most, longest_wait) = match name.ends_with("a_crowd") {
        true => (GROWTH_BY_CROWD, honest_wait()? * WAIT_IN_CROWD),
        false => (GROWTH, honest_wait()?),
    };
    if grown > most {
        faults.push(format!("it has grown by {grown} MiB"));
    }
    if longest > longest_wait {
        faults.push(format!("an honest user has waited {longest:.1?} for {waited_for}"));
    }
    let verdict = if faults.is_empty() { "ok" } else { "FAILED" };
    println!(
        "{name}: {grown} MiB, {longest:.2?} ({waited_for}, {rounds} rounds), {verdict} [{note}]"
    );
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(())
}

/// The longest time that an honest user may wait.
fn honest_wait() -> Result<Duration> {
    match std::env::var("HONEST_SECONDS") {
        Ok(seconds) => Ok(Duration::from_secs(seconds.parse().context("HONEST_SECONDS")?)),
        Err(_) => Ok(HONEST_WAIT),
    }
}
