//! Random inputs: valid inputs with a few changes, as JSON trees and as bytes.

use std::panic;
use std::sync::{Mutex, Once, PoisonError};

use fastrand::Rng;
use serde_json::{Map, Value};

/// Strings that have a meaning somewhere, or almost have one.
pub const TEXTS: &[&str] = &[
    "",
    "a",
    "metadata",
    "0",
    "-1",
    "1.5Gi",
    "1e3",
    "100m",
    "9e999999999",
    "-0.000000000000000000001Ki",
    "2026-01-01T00:00:00Z",
    "2026-02-30T24:60:60.999999999+24:00",
    "0001-01-01T00:00:00Z",
    "10000-01-01T00:00:00Z",
    "1h2m3s",
    "a in (b, c), !d, e!=f",
    "a=b,c==d",
    "metadata.name=a,spec.colour!=red",
    "((",
    "\\",
    "~0~1/-",
    "/spec/list/0",
    "/metadata/labels/a~1b",
    "{.spec.list[*].a}",
    ".spec.free[?(@.a==\"b\")].c",
    "$..['a','b'][0:2:1]",
    "..",
    "[-1:]",
    "^[a-z]{1,63}$",
    "(a*)*b",
    "\u{feff}\u{0}\u{d7ff}\u{10ffff}",
    "é",
    "::1/128",
    "a@b.c",
    "http://a:b@[::1%25x]:99999/%zz",
    "x-kubernetes-list-type",
    "true",
    "null",
    "application/json",
    "Table",
    "9223372036854775808",
    "18446744073709551616",
    "NaN",
];

const BYTES: &[&str] = &[
    "{", "}", "[", "]", ",", ":", "\"", "\\u0000", "\\ud800", "&a ", "*a", "- ", "\n", "? ", "!!",
    "|", "%", "=", ";q=0.5", "(", ")", "~1", "..", "\u{0}", "1e400", "-", "<<: ", "#",
];

/// The maximum nesting depth of generated values.
const DEPTH: u32 = 4;
/// The maximum length of an input, in bytes; longer ones are truncated. Another test covers the cost of large inputs.
const LENGTH: usize = 8_000;

pub struct Chance {
    pub rng: Rng,
}

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed) }
    }

    /// Returns true with the probability 1 / `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.rng.usize(..times) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.rng.usize(..from.len())]
    }

    pub fn text(&mut self) -> String {
        match self.rng.u32(..6) {
            0 => format!("{}{}", self.pick(TEXTS), self.pick(TEXTS)),
            1 => self.pick(TEXTS).repeat(self.rng.usize(..40)),
            2 => {
                let text = self.pick(TEXTS);
                String::from_utf8_lossy(&self.damaged(text.as_bytes())).into_owned()
            }
            _ => self.pick(TEXTS).to_owned(),
        }
    }

    /// Generates a JSON value.
    pub fn value(&mut self, depth: u32) -> Value {
        let kinds = if depth >= DEPTH { 6 } else { 9 };
        match self.rng.u32(..kinds) {
            0 => Value::Null,
            1 => self.rng.bool().into(),
            2 => self.rng.i64(-2..3).into(),
            3 => self.pick(&[&0.5, &1e308, &-0.0, &9_007_199_254_740_993.0]).to_owned().into(),
            4 => self.pick(&[&i64::MIN, &i64::MAX, &i64::from(i32::MAX), &-1]).to_owned().into(),
            5 => self.text().into(),
            6 => (0..self.rng.usize(..4)).map(|_| self.value(depth + 1)).collect(),
            7 => {
                let members =
                    (0..self.rng.usize(..4)).map(|_| (self.text(), self.value(depth + 1)));
                Value::Object(members.collect())
            }
            _ => (0..self.rng.usize(..120)).fold(Value::Null, |inner, _| vec![inner].into()),
        }
    }

    /// Changes a few places of a tree.
    pub fn change(&mut self, tree: &mut Value) {
        for _ in 0..self.rng.usize(..4) {
            let steps = self.rng.usize(..10);
            self.change_below(tree, steps);
        }
    }

    fn change_below(&mut self, tree: &mut Value, steps: usize) {
        match tree {
            Value::Object(members) if steps > 0 && !members.is_empty() => {
                let at = self.rng.usize(..members.len());
                if steps == 1 || self.once_in(8) {
                    return self.change_member(members, at);
                }
                if let Some(inner) = members.values_mut().nth(at) {
                    self.change_below(inner, steps - 1);
                }
            }
            Value::Array(items) if steps > 0 && !items.is_empty() => {
                let at = self.rng.usize(..items.len());
                match self.rng.u32(..12) {
                    0 => drop(items.remove(at)),
                    1 => {
                        let item = items[at].clone();
                        items.extend(vec![item; self.rng.usize(..5)]);
                    }
                    _ => self.change_below(&mut items[at], steps - 1),
                }
            }
            Value::String(text) if self.rng.bool() => *text = self.text(),
            other => *other = self.value(0),
        }
    }

    fn change_member(&mut self, members: &mut Map<String, Value>, at: usize) {
        let Some((name, value)) = members.iter().nth(at) else { return };
        let (name, value) = (name.clone(), value.clone());
        match self.rng.u32(..4) {
            0 => drop(members.remove(&name)),
            1 => drop(members.insert(self.text(), value)),
            2 => drop(members.insert(name, Value::Null)),
            _ => drop(members.insert(name, self.value(0))),
        }
    }

    /// Returns the bytes with a few of them changed, cut, moved or repeated.
    pub fn damaged(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..self.rng.usize(..4) {
            let at = self.rng.usize(..=bytes.len());
            let end = self.rng.usize(at..=bytes.len());
            match self.rng.u32(..7) {
                0 => bytes.insert(at, self.rng.u8(..)),
                1 if at < bytes.len() => bytes[at] ^= 1 << self.rng.u32(..8),
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at..end)),
                4 => {
                    let piece = bytes[at..end].repeat(self.rng.usize(..5));
                    bytes.splice(at..at, piece);
                }
                5 => drop(bytes.splice(at..at, self.pick(BYTES).bytes())),
                _ => drop(bytes.splice(at..end, self.pick(TEXTS).bytes())),
            }
            bytes.truncate(LENGTH);
        }
        bytes
    }
}

/// A number from the environment: `FUZZ_SEED`, the first seed, or `FUZZ_INPUTS`, the total number of inputs.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// The default number of inputs, over all subjects of a program.
const INPUTS: u64 = 50_000;

/// Counts the inputs that a program accepted and those that it rejected.
#[derive(Debug, Default)]
pub struct Outcomes {
    accepted: u64,
    rejected: u64,
}

impl Outcomes {
    pub fn count(&mut self, is_accepted: bool) {
        *if is_accepted { &mut self.accepted } else { &mut self.rejected } += 1;
    }

    /// Fails unless both outcomes occurred in more than one of 20 inputs. With fewer accepted inputs, most would never
    /// reach the code that they are for. With fewer rejected inputs, hardly any would be invalid.
    pub fn assert_both_are_frequent(&self) {
        self.assert_accepted(20);
        assert!(self.rejected * 20 > self.accepted + self.rejected, "{self:?}");
    }

    /// Fails unless the program accepted more than one of this number of inputs.
    pub fn assert_accepted(&self, inputs: u64) {
        assert!(self.accepted * inputs > self.accepted + self.rejected, "{self:?}");
    }
}

/// The seeds of a subject that gets `share` percent of the inputs.
pub fn seeds(share: u64) -> impl Iterator<Item = u64> {
    let (first, inputs) =
        (number("FUZZ_SEED").unwrap_or(0), number("FUZZ_INPUTS").unwrap_or(INPUTS));
    (0..inputs * share / 100).map(move |index| first.wrapping_add(index))
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records the panics of all threads from now on, because a request that panics still gets a response.
pub fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // A failing test reports its own panic.
            if !info.location().is_some_and(|at| at.file().contains("tests/")) {
                PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            }
            before(info);
        }));
    });
}

/// Fails if there was a panic.
pub fn assert_no_panic(said: impl FnOnce() -> String) {
    let panics = std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(panics.is_empty(), "{}: {panics:?}", said());
}
