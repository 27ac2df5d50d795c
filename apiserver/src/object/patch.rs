//! The JSON of an object as what differs from that of another one: of objects that are alike only one text is kept whole.
//!
//! Two texts are alike if they are the same but for scalars. A patch says which scalars of the one stand in the other in place of
//! which.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Range;

use crate::object::Labels;

/// What stands before each scalar: where the one begins that it replaces, how long that is, and how long it is itself.
type Head = [u8; 8];

fn head(start: usize, replaced: usize, length: usize) -> Option<Head> {
    let [a, b, c, d] = u32::try_from(start).ok()?.to_le_bytes();
    let [e, f] = u16::try_from(replaced).ok()?.to_le_bytes();
    let [g, h] = u16::try_from(length).ok()?.to_le_bytes();
    Some([a, b, c, d, e, f, g, h])
}

/// What a head says.
fn read([a, b, c, d, e, f, g, h]: Head) -> (usize, usize, usize) {
    let start = u32::from_le_bytes([a, b, c, d]) as usize;
    (start, usize::from(u16::from_le_bytes([e, f])), usize::from(u16::from_le_bytes([g, h])))
}

/// What makes `text` of `base`, if they are alike, and all that differs stands at `from` or behind. Nothing if it would take more
/// than half of the text.
pub(super) fn between(base: &[u8], text: &[u8], from: usize) -> Option<Box<[u8]>> {
    let (mut of_base, mut of_text) = (Scalars::of(base), Scalars::of(text));
    let (mut in_base, mut in_text) = (0, 0);
    let mut patch = Vec::new();
    loop {
        match (of_base.next(), of_text.next()) {
            (Some(one), Some(other)) => {
                if base.get(in_base..one.start)? != text.get(in_text..other.start)? {
                    return None;
                }
                let (replaced, own) = (base.get(one.clone())?, text.get(other.clone())?);
                if replaced != own {
                    if one.start < from {
                        return None;
                    }
                    patch.extend_from_slice(&head(one.start, replaced.len(), own.len())?);
                    patch.extend_from_slice(own);
                }
                (in_base, in_text) = (one.end, other.end);
            }
            (None, None) => break,
            _ => return None,
        }
    }
    let is_alike = base.get(in_base..)? == text.get(in_text..)?;
    // Nor may an object hold a base that is much larger than it is.
    let is_worth = 2 * patch.len() <= text.len() && base.len() <= 2 * text.len();
    (is_alike && is_worth).then(|| patch.into_boxed_slice())
}

/// A number that texts have in common which are alike, and whose objects have the same labels; others hardly ever.
pub(super) fn form(text: &[u8], labels: &Labels, hasher: &RandomState) -> u64 {
    let mut hash = hasher.build_hasher();
    let mut at = 0;
    for scalar in Scalars::of(text) {
        text.get(at..scalar.start).hash(&mut hash);
        at = scalar.end;
    }
    text.get(at..).hash(&mut hash);
    labels.iter().for_each(|label| label.hash(&mut hash));
    hash.finish()
}

/// The pieces that a text is made of: those of the base, and between them those of the patch.
pub(super) struct Pieces<'a> {
    base: &'a [u8],
    patch: &'a [u8],
    /// How much of the base has been taken.
    at: usize,
    /// What comes next, before more of the base.
    own: Option<&'a [u8]>,
}

impl<'a> Pieces<'a> {
    pub fn of(base: &'a [u8], patch: &'a [u8]) -> Self {
        Self { base, patch, at: 0, own: None }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(own) = self.own.take() {
            return Some(own);
        }
        let Some((head, rest)) = self.patch.split_first_chunk() else {
            let last = self.base.get(self.at..).filter(|last| !last.is_empty());
            self.at = self.base.len();
            return last;
        };
        let (start, replaced, length) = read(*head);
        let (own, patch) = rest.split_at_checked(length)?;
        let piece = self.base.get(self.at..start)?;
        (self.own, self.patch, self.at) = (Some(own), patch, start + replaced);
        Some(piece)
    }
}

/// Where the scalars of a text of JSON are that are no names of members. The text has no spaces, as all that is encoded here.
struct Scalars<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scalars<'a> {
    fn of(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The end of the string that begins here.
    fn end_of_string(&self, start: usize) -> usize {
        let mut end = start + 1;
        while let Some(byte) = self.text.get(end) {
            match byte {
                b'"' => return end + 1,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        self.text.len()
    }
}

impl Iterator for Scalars<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let start = self.at;
            match self.text.get(start)? {
                b'{' | b'}' | b'[' | b']' | b',' | b':' => self.at += 1,
                b'"' => {
                    self.at = self.end_of_string(start);
                    if self.text.get(self.at) != Some(&b':') {
                        return Some(start..self.at);
                    }
                }
                _ => {
                    let rest = self.text.get(start..)?;
                    let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']'));
                    self.at = start + length.unwrap_or(rest.len());
                    return Some(start..self.at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn patched(base: &str, text: &str) -> Option<usize> {
        let patch = between(base.as_bytes(), text.as_bytes(), 0)?;
        let pieces: Vec<&[u8]> = Pieces::of(base.as_bytes(), &patch).collect();
        assert_eq!(String::from_utf8(pieces.concat()).unwrap(), text);
        Some(patch.len())
    }

    #[test]
    fn what_is_alike_differs_in_scalars() {
        let base = r#"{"a":{"b":"one","c":[1,true,null]},"d":"\"q\\","e":{},"long":"the same in both of them, and of some length"}"#;
        let with = |from: &str, to: &str| base.replacen(from, to, 1);
        assert_eq!(patched(base, base), Some(0));
        assert_eq!(patched(base, &with("one", "another")), Some(8 + 9));
        assert_eq!(patched(base, &with("one", "")), Some(8 + 2));
        assert_eq!(patched(base, &with("[1,", "[-1.5e-7,")), Some(8 + 7));
        assert_eq!(patched(base, &with("true", "\"a:{[\\\"\"")), Some(8 + 8));
        assert_eq!(patched(base, &with(r#""\"q\\""#, "null")), Some(8 + 4));
        assert_eq!(patched(base, &with("\"b\"", "\"x\"")), None);
        assert_eq!(patched(base, &with("[1,", "[1,1,")), None);
        assert_eq!(patched(base, &with("{}", "[]")), None);
        assert_eq!(patched(base, &with("\"one\"", "{}")), None);
        let long = with("one", &"long".repeat(100));
        assert_eq!((patched(base, &long), patched(&long, base)), (None, None));
        assert_eq!(between(base.as_bytes(), with("one", "two").as_bytes(), 20), None);
        for (one, other) in [("", ""), ("1", "2"), ("{}", "{}"), ("[", "["), ("\"", "\"a")] {
            patched(one, other);
        }
    }

    /// Whatever is made of a text, it is read from its patch as it was, and has the form of the other if there is one.
    #[test]
    fn any_text_is_read_as_it_was() {
        let mut random = fastrand::Rng::with_seed(3);
        let hasher = RandomState::new();
        let scalar = |random: &mut fastrand::Rng| match random.u8(0..5) {
            0 => json!(random.i32(..)),
            1 => json!(random.bool()),
            2 => json!(null),
            3 => json!("\"\\ü:{}[],"),
            _ => json!(random.u8(0..3).to_string()),
        };
        let mut shared = 0;
        for _ in 0..2_000 {
            let mut object =
                json!({"same": "x".repeat(60), "other": "z".repeat(60), "m": {}, "l": []});
            for index in 0..random.usize(0..6) {
                object["m"][format!("k\"{index}")] = scalar(&mut random);
            }
            object["l"] =
                Value::Array((0..random.usize(0..4)).map(|_| scalar(&mut random)).collect());
            let mut other = object.clone();
            match random.u8(0..4) {
                0 => other["m"]["more"] = scalar(&mut random),
                1 => other["l"] = json!([scalar(&mut random)]),
                _ => other["same"] = json!("y".repeat(random.usize(0..9))),
            }
            let (object, other) = (object.to_string(), other.to_string());
            let of = |text: &str| form(text.as_bytes(), &Labels::default(), &hasher);
            if patched(&object, &other).is_some() {
                assert_eq!(of(&object), of(&other));
                shared += 1;
            }
        }
        assert!(shared > 500, "{shared}");
    }

    /// No patch that is damaged is a panic.
    #[test]
    fn damage_is_no_panic() {
        let (base, text) =
            (r#"{"a":"b","c":[1,2,3,4,5,6,7,8,9]}"#, r#"{"a":"d","c":[1,2,3,4,5,6,7,8,9]}"#);
        let patch = between(base.as_bytes(), text.as_bytes(), 0).unwrap();
        for place in 0..patch.len() {
            for change in [1, 2, 0x80] {
                let mut damaged = patch.clone();
                damaged[place] ^= change;
                assert!(Pieces::of(base.as_bytes(), &damaged).count() < 9);
                assert!(Pieces::of(base.as_bytes(), &damaged[..place]).count() < 9);
            }
        }
    }
}
