//! Memory that requests take: trees of JSON, counted while they grow, and selectors.
//!
//! A tree takes up to 130 times its text in JSON, and up to 240 times in YAML (more with aliases),
//! so neither a bound on bodies nor one on requests bounds memory. Every request has an
//! [`Account`]. What it parses, patches and fills in is charged there; what exceeds the limit of one
//! request is refused for good (413), what exceeds that of all, or of one user, until there is room
//! (429).

mod places;
mod portion;

pub use places::{Place, Places};
pub use portion::Portion;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Uri};
use serde_json::{Map, Value};

use crate::error::{ApiError, Reason};

/// The largest tree of one object, in bytes of memory. An object of 1.5 MiB, which is
/// as much as is kept, takes more only if it is nested densely.
pub const TREE_LIMIT: usize = 16 << 20;
/// What one request may take: what was sent, what is there, what becomes of both.
const REQUEST_LIMIT: usize = 4 * TREE_LIMIT;
/// What all requests may take; in a small container one of them.
const TREES: usize = 5 * TREE_LIMIT;
const LEAST_TREES: usize = REQUEST_LIMIT;
/// What the requests of one user may take.
const USER_LIMIT: usize = REQUEST_LIMIT;
/// What is sent stands there twice: as it was sent, and as it is changed on its way.
const SENT: usize = 2;
/// What a tree that is being read may grow before it is charged.
const CHARGED: usize = 64 << 10;

/// A value in a tree, wherever it is.
const VALUE: usize = size_of::<Value>();
/// A node of a map: it has room for eleven members.
const NODE: usize = 640;
/// Members in the first node of a map, and in each one that follows, at least.
const FIRST_NODE: usize = 11;
const NEXT_NODE: usize = 5;
/// Items for which a list has room at first.
const FIRST_ITEMS: usize = 4;
/// What an allocation takes besides its bytes.
const ALLOCATION: usize = 24;

/// What a text takes besides its value.
pub fn of_text(text: &str) -> usize {
    if text.is_empty() { 0 } else { text.len() + ALLOCATION }
}

/// What the item at `index` takes of its list, besides what is in it: lists have room
/// for as many again, and at first for a few.
pub fn of_item(index: usize) -> usize {
    match index {
        0 => FIRST_ITEMS * VALUE + ALLOCATION,
        _ if index < FIRST_ITEMS => 0,
        _ => 2 * VALUE,
    }
}

/// What the member at `index` takes of its object, besides its name and what is in it.
pub fn of_member(index: usize) -> usize {
    let is_in_new_node =
        index == 0 || (index >= FIRST_NODE && (index - FIRST_NODE).is_multiple_of(NEXT_NODE));
    if is_in_new_node { NODE } else { 0 }
}

/// What a value takes, with all that is in it, but for its place.
pub fn of_value(value: &Value) -> usize {
    match value {
        Value::Object(members) => of_tree(members),
        Value::Array(items) => {
            let sizes = items.iter().enumerate();
            sizes.map(|(index, item)| of_item(index) + of_value(item)).sum()
        }
        Value::String(text) => of_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// What an object takes, with all that is in it.
pub fn of_tree(tree: &Map<String, Value>) -> usize {
    let sizes = tree.iter().enumerate();
    sizes.map(|(index, (name, value))| of_member(index) + of_text(name) + of_value(value)).sum()
}

/// What a tree of this JSON takes at most, if most of it are objects of few members.
pub fn of_json(json: &[u8]) -> usize {
    let objects = json.iter().filter(|byte| **byte == b'{').count();
    objects * (NODE + NODE / NEXT_NODE + ALLOCATION) + json.len()
}

/// What the head of a request takes.
pub fn of_head(uri: &Uri, headers: &HeaderMap) -> usize {
    /// What a header takes besides its name and its value.
    const HEADER: usize = 100;
    let headers = headers.iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER);
    headers.sum::<usize>() + uri.path().len() + uri.query().map_or(0, str::len)
}

/// What all requests take.
#[derive(Clone, Debug)]
pub struct Quota {
    taken: Arc<Mutex<Taken>>,
    limit: usize,
    user_limit: usize,
}

/// What the trees of all requests may take, in bytes.
pub fn trees(portion: Portion) -> usize {
    portion.between(LEAST_TREES, TREES)
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_user: HashMap<String, usize>,
}

impl Quota {
    /// So many bytes of trees, of which a user may take what one request may.
    pub fn of_trees(limit: usize) -> Self {
        Self { taken: Arc::default(), limit, user_limit: USER_LIMIT }
    }

    /// So many bytes, of which a user may take a quarter.
    pub fn new(limit: usize) -> Self {
        Self { taken: Arc::default(), limit, user_limit: limit / 4 }
    }

    /// The account of a request by this user. A master is held to the limit of one request
    /// and to no other, so that an operator gets through.
    pub fn account(&self, user: &str, is_master: bool) -> Account {
        let quota = (!is_master).then(|| (self.clone(), user.to_owned()));
        Account(Arc::new(Request { quota, taken: Mutex::new(0) }))
    }

    fn take(&self, user: &str, bytes: usize) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Taken { all, by_user } = &mut *taken;
        if *all + bytes > self.limit {
            return false;
        }
        match by_user.get_mut(user) {
            Some(of_user) if *of_user + bytes > self.user_limit => return false,
            Some(of_user) => *of_user += bytes,
            None if bytes > self.user_limit => return false,
            None => drop(by_user.insert(user.to_owned(), bytes)),
        }
        *all += bytes;
        true
    }

    fn give_back(&self, user: &str, bytes: usize) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(bytes);
        let Some(of_user) = taken.by_user.get_mut(user) else { return };
        *of_user = of_user.saturating_sub(bytes);
        if *of_user == 0 {
            taken.by_user.remove(user);
        }
    }
}

/// What one request takes. It is given back when the last copy of the account is dropped.
#[derive(Clone, Debug)]
pub struct Account(Arc<Request>);

#[derive(Debug)]
struct Request {
    quota: Option<(Quota, String)>,
    taken: Mutex<usize>,
}

impl Account {
    /// An account that is held to the limit of one request alone: of objects that no
    /// client has sent.
    pub fn own() -> Self {
        Self(Arc::new(Request { quota: None, taken: Mutex::new(0) }))
    }

    /// Takes so many bytes, until the account is dropped.
    ///
    /// # Errors
    /// 413 when the request takes too much, 429 when others take the room.
    pub fn take(&self, bytes: usize) -> Result<(), ApiError> {
        if bytes == 0 {
            return Ok(());
        }
        let Request { quota, taken } = &*self.0;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        if *taken + bytes > REQUEST_LIMIT {
            return Err(too_large());
        }
        if let Some((quota, user)) = quota
            && !quota.take(user, bytes)
        {
            return Err(ApiError::too_many_requests().bounded_by("memory"));
        }
        *taken += bytes;
        Ok(())
    }

    /// Gives back what was taken and is not needed any more.
    pub fn give_back(&self, bytes: usize) {
        let Request { quota, taken } = &*self.0;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = bytes.min(*taken);
        *taken -= bytes;
        if let Some((quota, user)) = quota.as_ref().filter(|_| bytes > 0) {
            quota.give_back(user, bytes);
        }
    }

    /// Whose it is; `None` if it is held to the limit of one request alone, as a master's.
    pub fn user(&self) -> Option<&str> {
        self.0.quota.as_ref().map(|(_, user)| user.as_str())
    }

    /// Takes so many bytes, of whatever there is, as long as they are held.
    ///
    /// # Errors
    /// As `take`.
    pub fn reserve(&self, bytes: usize) -> Result<Room, ApiError> {
        self.take(bytes)?;
        Ok(Room { account: self.clone(), bytes })
    }

    /// Takes room for a tree of so many bytes, as long as it is held.
    ///
    /// # Errors
    /// As `take`; 413 when the tree is too large.
    pub fn room(&self, tree: usize) -> Result<Room, ApiError> {
        let mut room = Room { account: self.clone(), bytes: 0 };
        room.grow_to(tree)?;
        Ok(room)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let taken = *self.taken.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((quota, user)) = self.quota.as_ref().filter(|_| taken > 0) {
            quota.give_back(user, taken);
        }
    }
}

/// Room for a tree, until it is dropped.
#[derive(Debug)]
pub struct Room {
    account: Account,
    bytes: usize,
}

impl Room {
    /// Makes room for a tree of so many bytes.
    ///
    /// # Errors
    /// As `Account::room`.
    pub fn grow_to(&mut self, tree: usize) -> Result<(), ApiError> {
        if tree > TREE_LIMIT {
            return Err(too_large());
        }
        let more = tree.saturating_sub(self.bytes);
        self.account.take(more)?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

/// A tree that is being read. What it takes is charged in steps, to its request: taking
/// room for every value by itself would be slow.
#[derive(Debug)]
pub struct Growth {
    account: Account,
    /// What the tree takes so far, and what of it is not yet charged.
    tree: usize,
    owed: usize,
}

impl Growth {
    /// A tree of which nothing has been read.
    pub fn new(account: Account) -> Self {
        Self { account, tree: 0, owed: 0 }
    }

    /// The account to which the tree is charged.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// What the tree takes so far, in bytes of memory.
    pub fn tree(&self) -> usize {
        self.tree
    }

    /// Counts what was read, in bytes of memory.
    ///
    /// # Errors
    /// As `Account::room`.
    pub fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.tree += bytes;
        self.owed += bytes;
        if self.owed > CHARGED { self.settle() } else { Ok(()) }
    }

    /// Counts a part of the tree that has been charged already.
    pub fn add_charged(&mut self, bytes: usize) {
        self.tree += bytes;
    }

    /// Charges the rest.
    ///
    /// # Errors
    /// As `grow`.
    pub fn settle(&mut self) -> Result<(), ApiError> {
        let owed = std::mem::take(&mut self.owed);
        if self.tree > TREE_LIMIT {
            return Err(too_large());
        }
        self.account.take(SENT * owed)
    }

    /// Gives back what was charged for the tree; answers with the account to read it anew.
    pub fn give_back(&self) -> Account {
        self.account.give_back(SENT * self.tree);
        self.account.clone()
    }
}

/// What is said of a tree that is too large.
fn too_large() -> ApiError {
    let message = format!(
        "Request entity too large: it takes more than {TREE_LIMIT} bytes of memory, because of many small objects and lists in each other"
    );
    ApiError::new(Reason::RequestEntityTooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dense_objects_take_much() {
        assert!(of_value(&json!({"": {"": {}}})) >= 2 * NODE);
        assert!(of_value(&json!("abc")) < 40);
        assert!(of_value(&json!([0])) >= 4 * VALUE);
        assert!(of_value(&json!([0, 0, 0])) < 250);
        let wide: Map<String, Value> = (0..1_000).map(|n| (n.to_string(), json!(0))).collect();
        // Nodes are half full if they are filled in order.
        assert!((100..200).contains(&(of_tree(&wide) / 1_000)));
    }

    #[test]
    fn what_is_taken_is_given_back() {
        let status = |refused: Result<(), ApiError>| refused.unwrap_err().reason().status();
        let quota = Quota::of_trees(trees(Portion::ALL));
        let (jane, joe) = (quota.account("jane", false), quota.account("joe", false));
        jane.take(REQUEST_LIMIT).unwrap();
        assert_eq!(status(jane.take(1)), 413);
        let other = quota.account("jane", false);
        assert_eq!(status(other.take(1)), 429);
        let mut room = joe.room(TREE_LIMIT / 4).unwrap();
        assert_eq!(status(room.grow_to(TREE_LIMIT + 1)), 413);
        room.grow_to(TREE_LIMIT / 2).unwrap();
        joe.take(TREE_LIMIT / 2).unwrap();
        let jim = quota.account("jim", false);
        assert_eq!(status(jim.take(1)), 429);
        drop(room);
        jim.take(TREE_LIMIT / 2).unwrap();
        quota.account("root", true).take(REQUEST_LIMIT).unwrap();
        drop((jane, joe, jim));
        other.take(REQUEST_LIMIT).unwrap();
        drop(other);
        assert!(quota.taken.lock().unwrap().by_user.is_empty());
    }
}
