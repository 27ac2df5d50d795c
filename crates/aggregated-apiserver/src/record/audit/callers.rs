//! The caller in an event. The JSON is the same in all events of a caller, so each thread caches it for recent callers.

use std::cell::RefCell;
use std::sync::Arc;

use http::HeaderValue;

use super::event::{Addresses, write_user};
use super::text::Json;
use crate::user::User;

/// The number of callers that a thread caches. Callers with the same index replace each other.
const PLACES: usize = 16;
/// The longest JSON and the largest user that are cached, in bytes.
const LONGEST: usize = 1 << 10;
/// The largest size of the cache of a thread, in bytes: the JSON of each caller, and the values that it was generated
/// from.
pub(super) const REMEMBERED: usize = 3 * PLACES * LONGEST;

thread_local! {
    static CALLERS: RefCell<[Option<Box<Remembered>>; PLACES]> = const { RefCell::new([const { None }; PLACES]) };
}

/// The user of a request, with its addresses and its user agent.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub user: Option<&'a Arc<User>>,
    pub impersonated: Option<&'a User>,
    pub source_ips: &'a Addresses,
    pub user_agent: Option<&'a HeaderValue>,
}

struct Remembered {
    user: Arc<User>,
    source_ips: Addresses,
    user_agent: Option<HeaderValue>,
    text: Vec<u8>,
}

impl Caller<'_> {
    /// Appends the fields of an event that describe the caller.
    pub(super) fn write(&self, line: &mut Vec<u8>) {
        // The cache is not available in a thread that ends, and not used for impersonated users.
        let user = self.user.filter(|_| self.impersonated.is_none());
        let is_written = user.is_some_and(|user| {
            CALLERS.try_with(|callers| self.write_remembered(user, line, callers)).unwrap_or(false)
        });
        if !is_written {
            self.make(line);
        }
    }

    fn write_remembered(
        &self,
        user: &Arc<User>,
        line: &mut Vec<u8>,
        callers: &RefCell<[Option<Box<Remembered>>; PLACES]>,
    ) -> bool {
        let Ok(mut callers) = callers.try_borrow_mut() else { return false };
        let Some(place) = callers.get_mut(place(user)) else { return false };
        if let Some(known) = place
            && known.is_of(user, self)
        {
            line.extend_from_slice(&known.text);
            return true;
        }
        let begin = line.len();
        self.make(line);
        let text = line.get(begin..).unwrap_or_default();
        if text.len() <= LONGEST && user.size() <= LONGEST {
            *place = Some(Box::new(Remembered {
                user: Arc::clone(user),
                source_ips: self.source_ips.clone(),
                user_agent: self.user_agent.and_then(apart),
                text: text.to_owned(),
            }));
        }
        true
    }

    fn make(&self, line: &mut Vec<u8>) {
        line.raw(r#","user":"#);
        match self.user {
            Some(user) => write_user(line, user),
            None => line.raw("{}"),
        }
        if let Some(user) = self.impersonated {
            line.raw(r#","impersonatedUser":"#);
            write_user(line, user);
        }
        self.source_ips.write(line);
        if let Some(agent) = self.user_agent.filter(|agent| !agent.is_empty()) {
            line.raw(r#","userAgent":"#);
            line.header(agent);
        }
    }
}

impl Remembered {
    fn is_of(&self, user: &Arc<User>, caller: &Caller<'_>) -> bool {
        (Arc::ptr_eq(&self.user, user) || self.user == *user)
            && self.source_ips == *caller.source_ips
            && self.user_agent.as_ref() == caller.user_agent
    }
}

/// Returns a copy of a header in memory of its own.
pub fn apart(header: &HeaderValue) -> Option<HeaderValue> {
    HeaderValue::from_bytes(header.as_bytes()).ok()
}

/// The index of a user in the cache.
fn place(user: &User) -> usize {
    let mix = |sum: usize, byte: &u8| sum.wrapping_mul(31).wrapping_add(usize::from(*byte));
    // The names of ServiceAccounts differ at their ends.
    user.name.as_bytes().iter().rev().take(32).fold(user.groups.len(), mix) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(caller: &Caller<'_>) -> String {
        let (mut line, mut made) = (Vec::new(), Vec::new());
        caller.write(&mut line);
        caller.make(&mut made);
        assert_eq!(line, made, "what is remembered is what would be made");
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn audit_callers_that_differ_in_any_field_have_different_json() {
        let users = [
            User { name: "jane".into(), ..User::default() },
            User { name: "jane".into(), uid: Some("1".into()), ..User::default() },
            User { name: "jane".into(), groups: vec!["a".into()], ..User::default() },
            User { name: "jane".into(), groups: vec!["b".into()], ..User::default() },
            User {
                name: "jane".into(),
                extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
                ..User::default()
            },
            User { name: "ann\"".into(), ..User::default() },
        ]
        .map(Arc::new);
        let agents =
            [None, Some(HeaderValue::from_static("a")), Some(HeaderValue::from_static("b"))];
        let addresses = ["1.2.3.4", "1.2.3.5"].map(|text| Addresses {
            forwarded: vec![text.parse().unwrap()],
            peer: text.parse().ok(),
        });
        let other = User { name: "other".into(), ..User::default() };
        let mut all = std::collections::HashSet::new();
        for _ in 0..2 {
            for user in [None].into_iter().chain(users.iter().map(Some)) {
                for (user_agent, source_ips) in
                    agents.iter().flat_map(|agent| addresses.iter().map(move |ips| (agent, ips)))
                {
                    for impersonated in [None, Some(&other)] {
                        let user_agent = user_agent.as_ref();
                        let caller = Caller { user, impersonated, source_ips, user_agent };
                        // Each caller is written twice: generated, and from the cache.
                        all.insert(written(&caller));
                        all.insert(written(&caller));
                    }
                }
            }
        }
        assert_eq!(all.len(), 7 * 3 * 2 * 2);
    }

    /// Writes an event of a user without an address. Returns its JSON, and whether it is cached afterwards.
    fn cached(user: User) -> (String, bool) {
        let user = Arc::new(user);
        let source_ips = &Addresses::default();
        let caller = Caller { user: Some(&user), impersonated: None, source_ips, user_agent: None };
        let json = written(&caller);
        let is_cached =
            CALLERS.with_borrow(|callers| callers.iter().flatten().any(|one| one.user == user));
        (json, is_cached)
    }

    #[test]
    fn audit_callers_are_cached_up_to_a_length() {
        let named = |length| User { name: "l".repeat(length), ..User::default() };
        let (_, of_short) = cached(named(LONGEST / 2));
        let (_, of_long) = cached(named(2 * LONGEST));
        assert!(of_short && !of_long);
    }

    /// The JSON of many groups is short, but each group has a string of its own in memory.
    #[test]
    fn audit_callers_with_many_short_groups_are_not_cached() {
        let with_groups = |count| {
            let groups = vec!["g".to_owned(); count];
            User { name: "many".into(), groups, ..User::default() }
        };
        assert!(cached(with_groups(2)).1);
        let (json, is_cached) = cached(with_groups(LONGEST / 8));
        assert!(json.len() <= LONGEST && !is_cached);
    }
}
