//! The JSON of an object as a patch of the JSON of a similar object. Of similar objects, only one JSON is stored whole.
//!
//! Two JSON texts are alike if they differ only in scalars. A patch lists the scalars of the base that differ, and
//! their replacements.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Range;

/// Appends a number, with seven bits in a byte and the low bits first. The high bit marks that more bytes follow.
fn write(number: usize, patch: &mut Vec<u8>) {
    let mut rest = number;
    while rest >= 0x80 {
        patch.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    patch.push(rest as u8);
}

/// Removes the number from the beginning of `patch`. Returns `None` if the patch is damaged.
fn take_number(patch: &mut &[u8]) -> Option<usize> {
    let mut number = 0_usize;
    for (shift, byte) in (0..usize::BITS).step_by(7).zip(patch.iter()) {
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            *patch = patch.get(shift as usize / 7 + 1..)?;
            return Some(number);
        }
    }
    None
}

/// The lengths of the common prefix of two byte strings and of the common suffix behind that prefix.
fn common(one: &[u8], other: &[u8]) -> (usize, usize) {
    let same = |(one, other): &(&u8, &u8)| one == other;
    let front = one.iter().zip(other).take_while(same).count();
    let left = one.len().min(other.len()) - front;
    let back = one.iter().rev().zip(other.iter().rev()).take(left).take_while(same).count();
    (front, back)
}

/// The patch that turns `base` into `text`. `None` if they are not alike, or if they differ in front of the offset
/// `from` of the base. Also `None` if the patch would be larger than a quarter of the text, because a text that stays
/// whole is then a better base for similar texts.
///
/// For a scalar that differs, the patch contains only the part that differs. For the scalar at the offset `whole` of
/// the text, it contains the whole scalar.
///
/// A patch is a sequence of pieces. Three numbers precede each piece: the distance between the end of the range that
/// the previous piece replaces and the start of the range that this piece replaces, the length of the replaced range,
/// and the length of the piece.
pub(super) fn between(
    base: &[u8],
    text: &[u8],
    from: usize,
    whole: Option<usize>,
) -> Option<Box<[u8]>> {
    // An object does not hold a base that is more than twice as large as itself.
    if base.len() > 2 * text.len() {
        return None;
    }
    let (mut of_base, mut of_text) = (Scalars::of(base), Scalars::of(text));
    let (mut in_base, mut in_text, mut behind) = (0, 0, 0);
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
                    let is_whole = whole.is_some_and(|whole| other.contains(&whole));
                    let (front, back) = if is_whole { (0, 0) } else { common(replaced, own) };
                    let own = own.get(front..own.len() - back)?;
                    let start = one.start + front;
                    write(start - behind, &mut patch);
                    behind = one.end - back;
                    write(behind - start, &mut patch);
                    write(own.len(), &mut patch);
                    patch.extend_from_slice(own);
                    if 4 * patch.len() > text.len() {
                        return None;
                    }
                }
                (in_base, in_text) = (one.end, other.end);
            }
            (None, None) => break,
            _ => return None,
        }
    }
    let is_alike = base.get(in_base..)? == text.get(in_text..)?;
    is_alike.then(|| patch.into_boxed_slice())
}

/// A hash that is equal for texts that are alike. For other texts it is hardly ever equal.
pub(super) fn form(text: &[u8], hasher: &RandomState) -> u64 {
    let mut hash = hasher.build_hasher();
    let mut at = 0;
    for scalar in Scalars::of(text) {
        text.get(at..scalar.start).hash(&mut hash);
        at = scalar.end;
    }
    text.get(at..).hash(&mut hash);
    hash.finish()
}

/// The pieces of a patched text: those of the base, with those of the patch between them.
pub(super) struct Pieces<'a> {
    base: &'a [u8],
    patch: &'a [u8],
    /// The number of bytes of the base that have been returned or replaced.
    at: usize,
    /// The next piece of the patch, which is returned before more of the base.
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
        if self.patch.is_empty() {
            let last = self.base.get(self.at..).filter(|last| !last.is_empty());
            self.at = self.base.len();
            return last;
        }
        let mut patch = self.patch;
        let same = take_number(&mut patch)?;
        let (replaced, length) = (take_number(&mut patch)?, take_number(&mut patch)?);
        let (own, patch) = patch.split_at_checked(length)?;
        let start = self.at.checked_add(same)?;
        let piece = self.base.get(self.at..start)?;
        (self.own, self.patch, self.at) = (Some(own), patch, start.checked_add(replaced)?);
        Some(piece)
    }
}

/// The ranges of the scalars in JSON, without the names of fields. The JSON has no whitespace between tokens, like all
/// JSON that this crate encodes.
struct Scalars<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scalars<'a> {
    fn of(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The end of the string that begins at `start`.
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
        patched_whole(base, text, None)
    }

    fn patched_whole(base: &str, text: &str, whole: Option<usize>) -> Option<usize> {
        let patch = between(base.as_bytes(), text.as_bytes(), 0, whole)?;
        let pieces: Vec<&[u8]> = Pieces::of(base.as_bytes(), &patch).collect();
        assert_eq!(String::from_utf8(pieces.concat()).unwrap(), text);
        Some(patch.len())
    }

    #[test]
    fn only_json_that_differs_in_scalars_is_patched() {
        let base = r#"{"a":{"b":"one","c":[1,true,null]},"d":"\"q\\","e":{},"long":"the same in both of them, and of some length"}"#;
        let with = |from: &str, to: &str| base.replacen(from, to, 1);
        assert_eq!(patched(base, base), Some(0));
        assert_eq!(patched(base, &with("one", "another")), Some(3 + 7));
        assert_eq!(patched(base, &with("one", "")), Some(3));
        assert_eq!(patched(base, &with("one", "once")), Some(3 + 1));
        assert_eq!(patched(base, &with("one", "oone")), Some(3 + 1));
        assert_eq!(patched(base, &with("[1,", "[-1.5e-7,")), Some(3 + 7));
        assert_eq!(patched(base, &with("true", "\"a:{[\\\"\"")), Some(3 + 8));
        assert_eq!(patched(base, &with(r#""\"q\\""#, "null")), Some(3 + 4));
        assert_eq!(patched(base, &with("the same in", "the other in")), Some(3 + 5));
        assert_eq!(patched(base, &with("\"b\"", "\"x\"")), None);
        assert_eq!(patched(base, &with("[1,", "[1,1,")), None);
        assert_eq!(patched(base, &with("{}", "[]")), None);
        assert_eq!(patched(base, &with("\"one\"", "{}")), None);
        let long = with("one", &"long".repeat(100));
        assert_eq!((patched(base, &long), patched(&long, base)), (None, None));
        assert_eq!(between(base.as_bytes(), with("one", "two").as_bytes(), 20, None), None);
        let (inside, elsewhere) = (base.find("one"), base.find("the same"));
        assert_eq!(patched_whole(base, &with("one", "once"), inside), Some(3 + 6));
        assert_eq!(patched_whole(base, &with("one", "once"), elsewhere), Some(3 + 1));
        for (one, other) in [("", ""), ("1", "2"), ("{}", "{}"), ("[", "["), ("\"", "\"a")] {
            patched(one, other);
        }
    }

    /// Any patched text is equal to the original, and both texts have the same hash if there is a patch.
    #[test]
    fn random_json_is_restored_from_a_patch() {
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
            let of = |text: &str| form(text.as_bytes(), &hasher);
            if patched(&object, &other).is_some() {
                assert_eq!(of(&object), of(&other));
                shared += 1;
            }
        }
        assert!(shared > 500, "{shared}");
    }

    /// A damaged patch does not cause a panic.
    #[test]
    fn damage_is_no_panic() {
        let (base, text) =
            (r#"{"a":"b","c":[1,2,3,4,5,6,7,8,9]}"#, r#"{"a":"d","c":[1,2,3,4,5,6,7,8,9]}"#);
        let patch = between(base.as_bytes(), text.as_bytes(), 0, None).unwrap();
        for place in 0..patch.len() {
            for change in [1, 2, 0x7f, 0x80, 0xff] {
                let mut damaged = patch.clone();
                damaged[place] ^= change;
                assert!(Pieces::of(base.as_bytes(), &damaged).count() < 9);
                assert!(Pieces::of(base.as_bytes(), &damaged[..place]).count() < 9);
            }
        }
    }
}
