//! Limits on the memory of requests: trees of JSON, which are counted while they grow, and selectors.
//!
//! A tree uses up to 130 times the size of its JSON, and up to 240 times the size of its YAML (more with aliases). So
//! neither a limit on the size of bodies nor a limit on the number of requests limits memory. Every request has an
//! [`Account`]. The trees that the request parses, patches and defaults are charged to this account. A request that
//! exceeds the limit of one request is always rejected with 413. A request that exceeds the limit of all requests, or
//! of one user, is rejected with 429 until other requests release memory.

mod limiter;
mod memory_scale;

pub use limiter::{Busy, Limiter, Permit, Share};
pub use memory_scale::MemoryScale;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};

use crate::error::{ApiError, Reason};

/// The largest tree of one object, in bytes of memory. The largest object that is stored has 1.5 MiB of JSON. Its tree
/// is larger than this limit only if it is nested densely.
pub const TREE_LIMIT: usize = 16 << 20;
/// The memory limit of one request, in bytes: the object that was sent, the stored object, and the results of the
/// request.
const REQUEST_LIMIT: usize = 4 * TREE_LIMIT;
/// The memory limit of all requests, in bytes. In a small container it can be as small as `LEAST_TREES`, the limit of
/// one request.
const TREES: usize = 5 * TREE_LIMIT;
const LEAST_TREES: usize = REQUEST_LIMIT;
/// The memory limit of all requests of one user, in bytes.
const USER_LIMIT: usize = REQUEST_LIMIT;
/// The number of copies of a tree that was sent: one as it was sent, and one that is changed while the request is
/// processed.
const SENT: usize = 2;
/// The number of bytes by which a tree that is being read grows before it is charged.
const CHARGED: usize = 64 << 10;

/// The size of a value in a tree, in bytes.
const VALUE: usize = size_of::<Value>();
/// The size of a node of a map, in bytes. A node has capacity for eleven entries.
const NODE: usize = 640;
/// The number of entries in the first node of a map, and the smallest number of entries in each further node.
const FIRST_NODE: usize = 11;
const NEXT_NODE: usize = 5;
/// The initial capacity of a list, in items.
const FIRST_ITEMS: usize = 4;
/// The overhead of an allocation, in bytes.
const ALLOCATION: usize = 24;

/// The memory of a string besides its [`Value`], in bytes.
pub fn of_text(text: &str) -> usize {
    if text.is_empty() { 0 } else { text.len() + ALLOCATION }
}

/// The memory of the item at `index` in its list, without the memory of its content, in bytes. Lists have spare
/// capacity: up to as many items again, and a few items at first.
pub fn of_item(index: usize) -> usize {
    match index {
        0 => FIRST_ITEMS * VALUE + ALLOCATION,
        _ if index < FIRST_ITEMS => 0,
        _ => 2 * VALUE,
    }
}

/// The memory of the field at `index` in its object, without the memory of its name and its content, in bytes.
pub fn of_member(index: usize) -> usize {
    let is_in_new_node =
        index == 0 || (index >= FIRST_NODE && (index - FIRST_NODE).is_multiple_of(NEXT_NODE));
    if is_in_new_node { NODE } else { 0 }
}

/// The memory of a value with its content, without the [`Value`] itself, in bytes.
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

/// The memory of an object with its content, in bytes.
pub fn of_tree(tree: &Map<String, Value>) -> usize {
    let sizes = tree.iter().enumerate();
    sizes.map(|(index, (name, value))| of_member(index) + of_text(name) + of_value(value)).sum()
}

/// An upper limit of the memory of the tree of this JSON, in bytes, if most of the JSON consists of objects with few
/// fields.
pub fn of_json(json: &[u8]) -> usize {
    let objects = json.iter().filter(|byte| **byte == b'{').count();
    objects * (NODE + NODE / NEXT_NODE + ALLOCATION) + json.len()
}

/// The memory of all requests, with its limits.
#[derive(Clone, Debug)]
pub struct Quota(Limiter);

/// The memory limit for the trees of all requests, in bytes.
pub fn trees(portion: MemoryScale) -> usize {
    portion.between(LEAST_TREES, TREES)
}

impl Quota {
    /// A quota of `limit` bytes for trees. The limit of one user is the limit of one request.
    pub fn of_trees(limit: usize) -> Self {
        Self(Limiter::new(limit, Share::Weight(USER_LIMIT)))
    }

    /// A quota of `limit` bytes. The limit of one user is a quarter of it.
    pub fn new(limit: usize) -> Self {
        Self(Limiter::new(limit, Share::Part(4)))
    }

    /// The account of a request by this user. Only the limit of one request applies to members of `system:masters`, so
    /// that an operator can always send requests.
    pub fn account(&self, user: &str, is_master: bool) -> Account {
        Account::of((!is_master).then(|| self.0.empty(user)))
    }
}

/// The memory that one request uses. The memory is released when the last copy of the account is dropped.
#[derive(Clone, Debug)]
pub struct Account(Arc<Request>);

#[derive(Debug)]
struct Request {
    /// The user, if the limits of a quota apply.
    user: Option<Arc<str>>,
    charged: Mutex<Charged>,
}

#[derive(Debug)]
struct Charged {
    bytes: usize,
    permit: Option<Permit>,
}

impl Account {
    /// An account for objects that no client has sent. Only the limit of one request applies to it.
    pub fn own() -> Self {
        Self::of(None)
    }

    fn of(permit: Option<Permit>) -> Self {
        let user = permit.as_ref().map(|permit| Arc::clone(permit.user()));
        Self(Arc::new(Request { user, charged: Mutex::new(Charged { bytes: 0, permit }) }))
    }

    fn charged(&self) -> MutexGuard<'_, Charged> {
        self.0.charged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges `bytes` until the account is dropped.
    ///
    /// # Errors
    /// 413 if the request exceeds its limit; 429 if all requests, or the requests of the user, exceed theirs.
    pub fn take(&self, bytes: usize) -> Result<(), ApiError> {
        if bytes == 0 {
            return Ok(());
        }
        let mut charged = self.charged();
        if charged.bytes + bytes > REQUEST_LIMIT {
            return Err(too_large());
        }
        if charged.permit.as_mut().is_some_and(|permit| !permit.try_grow(bytes)) {
            return Err(ApiError::too_many_requests().bounded_by("memory"));
        }
        charged.bytes += bytes;
        Ok(())
    }

    /// Releases bytes that were charged and are no longer needed.
    pub fn give_back(&self, bytes: usize) {
        let mut charged = self.charged();
        charged.bytes = charged.bytes.saturating_sub(bytes);
        if let Some(permit) = &mut charged.permit {
            permit.shrink(bytes);
        }
    }

    /// The user of the request. `None` if only the limit of one request applies, for example to members of
    /// `system:masters`.
    pub fn user(&self) -> Option<&str> {
        self.0.user.as_deref()
    }

    /// Charges `bytes` for any purpose, until the result is dropped.
    ///
    /// # Errors
    /// Same as [`Account::take`].
    pub fn reserve(&self, bytes: usize) -> Result<Room, ApiError> {
        self.take(bytes)?;
        Ok(Room { account: self.clone(), bytes })
    }

    /// Charges the memory of a tree of `tree` bytes, until the result is dropped.
    ///
    /// # Errors
    /// Same as [`Account::take`]; 413 if the tree is too large.
    pub fn room(&self, tree: usize) -> Result<Room, ApiError> {
        let mut room = Room { account: self.clone(), bytes: 0 };
        room.grow_to(tree)?;
        Ok(room)
    }
}

/// The memory that is charged for a tree, until this value is dropped.
#[derive(Debug)]
pub struct Room {
    account: Account,
    bytes: usize,
}

impl Room {
    /// Increases the charged memory to that of a tree of `tree` bytes.
    ///
    /// # Errors
    /// Same as [`Account::room`].
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

/// A tree that is being read. Its memory is charged to its request in steps, because charging every value separately
/// would be slow.
#[derive(Debug)]
pub struct Growth {
    account: Account,
    /// The memory of the tree so far, and the part of it that is not charged yet, in bytes.
    tree: usize,
    owed: usize,
}

impl Growth {
    /// A tree of which no value has been read yet.
    pub fn new(account: Account) -> Self {
        Self { account, tree: 0, owed: 0 }
    }

    /// The account to which the tree is charged.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The memory of the tree so far, in bytes.
    pub fn tree(&self) -> usize {
        self.tree
    }

    /// Counts values that were read, in bytes of memory.
    ///
    /// # Errors
    /// Same as [`Account::room`].
    pub fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.tree += bytes;
        self.owed += bytes;
        if self.owed > CHARGED { self.settle() } else { Ok(()) }
    }

    /// Counts a part of the tree that is charged already.
    pub fn add_charged(&mut self, bytes: usize) {
        self.tree += bytes;
    }

    /// Charges the memory that is not charged yet.
    ///
    /// # Errors
    /// Same as [`Growth::grow`].
    pub fn settle(&mut self) -> Result<(), ApiError> {
        let owed = std::mem::take(&mut self.owed);
        if self.tree > TREE_LIMIT {
            return Err(too_large());
        }
        self.account.take(SENT * owed)
    }

    /// Releases the memory that was charged for the tree. Returns the account, to which the tree can be charged when it
    /// is read again.
    pub fn give_back(&self) -> Account {
        self.account.give_back(SENT * self.tree);
        self.account.clone()
    }
}

/// The error for a tree that is too large.
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
    fn memory_estimates_cover_the_nodes_of_dense_objects() {
        assert!(of_value(&json!({"": {"": {}}})) >= 2 * NODE);
        assert!(of_value(&json!("abc")) < 40);
        assert!(of_value(&json!([0])) >= 4 * VALUE);
        assert!(of_value(&json!([0, 0, 0])) < 250);
        let wide: Map<String, Value> = (0..1_000).map(|n| (n.to_string(), json!(0))).collect();
        // Nodes are half full if they are filled in order.
        assert!((100..200).contains(&(of_tree(&wide) / 1_000)));
    }

    #[test]
    fn request_memory_is_returned_to_the_quota() {
        let status = |refused: Result<(), ApiError>| refused.unwrap_err().reason().code();
        let quota = Quota::of_trees(trees(MemoryScale::ALL));
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
        assert_eq!(quota.0.used(), 0);
    }
}
