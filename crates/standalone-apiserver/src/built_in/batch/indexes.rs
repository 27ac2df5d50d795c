//! Lists of indexes of Pods: `1,3-5`.

use crate::built_in::checks::quote;

/// The first and the last index of an interval.
type Interval = (i64, i64);

/// Parses a list, and returns its number of indexes.
///
/// # Errors
/// The reason, if the list is malformed, or contains an index that is not less than `completions`.
pub(super) fn count(list: &str, completions: i32) -> Result<i64, String> {
    if list.is_empty() {
        return Ok(0);
    }
    let (mut total, mut last) = (0, None);
    for text in list.split(',') {
        let (from, to) = interval(text, completions)?;
        if let Some(last) = last.filter(|last| *last >= from) {
            return Err(format!("non-increasing order, previous: {last}, current: {from}"));
        }
        total += to - from + 1;
        last = Some(to);
    }
    Ok(total)
}

fn interval(text: &str, completions: i32) -> Result<Interval, String> {
    let index = |text: &str| {
        let number = text.parse::<i64>();
        let number = number
            .map_err(|_| format!("cannot convert string to integer for index: {}", quote(text)))?;
        if number >= i64::from(completions) {
            return Err(format!("too large index: {}", quote(text)));
        }
        Ok(number)
    };
    match text.split('-').collect::<Vec<_>>().as_slice() {
        [one] => index(one).map(|one| (one, one)),
        [from, to] => {
            let (from, to) = (index(from)?, index(to)?);
            if from >= to {
                return Err(format!("non-increasing order, previous: {from}, current: {to}"));
            }
            Ok((from, to))
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            quote(text)
        )),
    }
}

/// The first index that is in both lists. Malformed intervals are skipped.
pub(super) fn overlap(one: &str, other: &str, completions: i32) -> Option<i64> {
    let read = |list: &str| -> Vec<Interval> {
        list.split(',').filter_map(|text| interval(text, completions).ok()).collect()
    };
    let (one, other) = (read(one), read(other));
    let (mut first, mut second) = (one.iter().peekable(), other.iter().peekable());
    while let (Some((from, to)), Some((other_from, other_to))) = (first.peek(), second.peek()) {
        if from <= other_to && other_from <= to {
            return Some(*from.max(other_from));
        }
        if from <= other_from {
            first.next();
        } else {
            second.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        for (list, expected) in [("", Ok(0)), ("0", Ok(1)), ("0,2-4", Ok(4))] {
            assert_eq!(count(list, 5), expected, "{list}");
        }
        for list in ["5", "a", "1-2-3", "2-1", "3,2", "1,,2"] {
            assert!(count(list, 5).is_err(), "{list}");
        }
    }

    #[test]
    fn overlaps() {
        assert_eq!(overlap("0-2,4", "3", 5), None);
        assert_eq!(overlap("0-2,4", "4", 5), Some(4));
        assert_eq!(overlap("x,1-3", "2", 5), Some(2));
        assert_eq!(overlap("", "2", 5), None);
    }
}
