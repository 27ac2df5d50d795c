//! The requests, their results, and a check that the results are consistent. Every response contains a revision, so the
//! order of all writes is known, and each response is compared with it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// The object of a name: the revision and the value of its last write, or `None`.
pub type Found = Option<(u64, u64)>;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Reads the object.
    Get,
    /// Creates the object with this value.
    Create(u64),
    /// If the object has this revision, replaces its value.
    Replace(u64, u64),
    /// If the object has this revision, deletes it.
    Delete(u64),
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The object, or its absence.
    Found(Found),
    /// The write succeeded, with this revision; the response to a deletion contains none.
    Written(Option<u64>),
    /// 409.
    Conflict,
    /// 404.
    Missing,
    /// The write certainly did not happen.
    NotDone,
    /// The outcome is not known.
    Unknown,
}

/// A request and its result.
#[derive(Clone, Debug)]
pub struct Record {
    pub name: String,
    pub ask: Ask,
    pub answer: Answer,
    pub asked: Instant,
    pub answered: Instant,
}

/// A change that a watch has reported: the revision, and the new value, or `None` for a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub number: u64,
    pub name: String,
    pub says: Option<u64>,
}

/// A list that was read because a watch could not continue from a compacted revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The last revision that the watch had reported.
    pub after: u64,
    /// The revision of the list, after which the watch continues.
    pub number: u64,
    /// Names, with the revisions and values of their last writes.
    pub items: BTreeMap<String, (u64, u64)>,
}

impl Listed {
    /// Whether the list replaced the event of this revision.
    fn hides(&self, number: u64) -> bool {
        self.after < number && number <= self.number
    }
}

/// The observations of a client that follows all changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub changes: Vec<Change>,
    pub lists: Vec<Listed>,
}

impl Seen {
    fn hides(&self, number: u64) -> bool {
        self.lists.iter().any(|list| list.hides(number))
    }
}

/// Merges the changes of all watches. Checks that each watch has reported exactly the changes that its lists do not
/// replace. Also checks that each list is the result of the changes, applied to the objects in `begin`.
pub fn merge(begin: &BTreeMap<String, (u64, u64)>, seen: &[Seen]) -> Result<Vec<Change>> {
    let mut all: BTreeMap<u64, &Change> = BTreeMap::new();
    for change in seen.iter().flat_map(|one| &one.changes) {
        let same = all.entry(change.number).or_insert(change);
        ensure!(*same == change, "{same:?} was shown as {change:?}");
    }
    for (index, one) in seen.iter().enumerate() {
        let expected = all.values().filter(|change| !one.hides(change.number));
        let (mut expected, mut shown) = (expected.copied(), one.changes.iter());
        loop {
            match (expected.next(), shown.next()) {
                (None, None) => break,
                (expected, shown) => {
                    ensure!(expected == shown, "{index} has shown {shown:?} for {expected:?}");
                }
            }
        }
    }
    let lists: Vec<&Listed> = seen.iter().flat_map(|one| &one.lists).collect();
    // If all lists overlap somewhere, one of them ends there.
    for list in &lists {
        let is_known = seen.iter().any(|one| !one.hides(list.number));
        ensure!(is_known, "nobody has seen what was written before {}", list.number);
    }
    for list in lists {
        let mut items = begin.clone();
        for (number, change) in all.range(..=list.number) {
            match change.says {
                Some(says) => items.insert(change.name.clone(), (*number, says)),
                None => items.remove(&change.name),
            };
        }
        ensure!(items == list.items, "{list:?} was listed where there was {items:?}");
    }
    Ok(all.into_values().cloned().collect())
}

/// The position of a write in the order of all changes, with its request.
struct Placed<'a> {
    number: u64,
    record: &'a Record,
}

/// Compares the results of requests with the changes.
pub fn check(changes: &[Change], records: &[Record]) -> Result<()> {
    let mut by_name: BTreeMap<&str, Vec<(u64, Option<u64>)>> = BTreeMap::new();
    let mut saying: HashMap<u64, u64> = HashMap::new();
    let mut newest = 0;
    for Change { number, name, says } in changes {
        ensure!(*number > newest, "{name} at {number} comes after {newest}");
        newest = *number;
        by_name.entry(name).or_default().push((*number, *says));
        if let Some(says) = says {
            ensure!(saying.insert(*says, *number).is_none(), "{says} is said twice");
        }
    }
    let placed = place(records, &by_name, &saying)?;
    real_time(&placed)?;
    // If several requests may have made the same deletion, the earliest one may have been it.
    let mut begun: HashMap<u64, Instant> = HashMap::new();
    for Placed { number, record } in &placed {
        let begun = begun.entry(*number).or_insert(record.asked);
        *begun = record.asked.min(*begun);
    }
    let floors = Floors::of(&placed);
    for record in records {
        let history = by_name.get(&*record.name).map_or(&[][..], Vec::as_slice);
        // All changes up to this revision were acknowledged before the request.
        let floor = floors.before(&record.name, record.asked);
        // A response cannot contain a change that was requested after the response, nor a later one.
        let is_possible =
            |number: &u64| begun.get(number).is_none_or(|begun| *begun < record.answered);
        // All states that the object may have had during the request.
        let first = history.partition_point(|(number, _)| *number <= floor);
        let before = first.checked_sub(1).and_then(|last| history.get(last));
        let found = |(number, says): &(u64, Option<u64>)| says.map(|says| (*number, says));
        let mut states: Vec<Found> = vec![before.and_then(found)];
        let later = history[first..].iter().take_while(|(number, _)| is_possible(number));
        states.extend(later.map(found));
        let is_right = match (record.ask, record.answer) {
            (_, Answer::Written(_) | Answer::NotDone | Answer::Unknown) => true,
            (_, Answer::Found(found)) => states.contains(&found),
            (Ask::Create(_), Answer::Conflict) => states.iter().any(Option::is_some),
            (Ask::Replace(at, _) | Ask::Delete(at), Answer::Conflict) => {
                states.iter().any(|state| state.is_some_and(|(number, _)| number != at))
            }
            (_, Answer::Missing) => states.contains(&None),
            (Ask::Get, Answer::Conflict) => false,
        };
        ensure!(is_right, "{record:?} cannot be: there was one of {states:?}");
    }
    Ok(())
}

/// The revision up to which all changes were acknowledged, by name and time.
struct Floors<'a>(HashMap<&'a str, Vec<(Instant, u64)>>);

impl<'a> Floors<'a> {
    fn of(placed: &[Placed<'a>]) -> Self {
        let mut floors: HashMap<&str, Vec<(Instant, u64)>> = HashMap::new();
        for Placed { number, record } in placed {
            if matches!(record.answer, Answer::Written(_)) {
                floors.entry(&record.name).or_default().push((record.answered, *number));
            }
        }
        for floors in floors.values_mut() {
            floors.sort_unstable();
            let mut highest = 0;
            for (_, number) in floors {
                highest = highest.max(*number);
                *number = highest;
            }
        }
        Self(floors)
    }

    fn before(&self, name: &str, asked: Instant) -> u64 {
        let floors = self.0.get(name).map_or(&[][..], Vec::as_slice);
        let count = floors.partition_point(|(answered, _)| *answered < asked);
        count.checked_sub(1).map_or(0, |last| floors[last].1)
    }
}

/// Finds the change of each write, and checks that no rejected write has made a change.
fn place<'a>(
    records: &'a [Record],
    by_name: &BTreeMap<&str, Vec<(u64, Option<u64>)>>,
    saying: &HashMap<u64, u64>,
) -> Result<Vec<Placed<'a>>> {
    let mut placed = Vec::new();
    let mut explained = HashSet::new();
    for record in records {
        let history = by_name.get(&*record.name).map_or(&[][..], Vec::as_slice);
        let position =
            |at: u64| history.iter().position(|(number, says)| *number == at && says.is_some());
        let (made, before) = match record.ask {
            Ask::Get => continue,
            Ask::Create(says) => (saying.get(&says).copied(), None),
            Ask::Replace(at, says) => (saying.get(&says).copied(), Some(at)),
            Ask::Delete(at) => {
                let next = position(at).and_then(|position| history.get(position + 1));
                // Another request may have deleted the object; the first record explains the deletion.
                let made = next.filter(|(_, says)| says.is_none()).map(|(number, _)| *number);
                (made, Some(at))
            }
        };
        match (record.answer, made) {
            (Answer::Written(told), made) => {
                let made = made.with_context(|| format!("{record:?} is lost"))?;
                ensure!(told.is_none_or(|told| told == made), "{record:?} was made at {made}");
                // The write has replaced the expected revision.
                let own = history.iter().position(|(number, _)| *number == made);
                let own = own.with_context(|| format!("{record:?} is of another name"))?;
                let previous = own.checked_sub(1).and_then(|index| history.get(index));
                let previous = previous.and_then(|(number, says)| says.map(|_| *number));
                ensure!(previous == before, "{record:?} has replaced {previous:?}");
                ensure!(explained.insert(made), "{record:?} was made by another one, too");
                placed.push(Placed { number: made, record });
            }
            (Answer::Unknown, Some(made)) => {
                if !matches!(record.ask, Ask::Delete(_)) {
                    explained.insert(made);
                }
                placed.push(Placed { number: made, record });
            }
            (Answer::Unknown, None) => {}
            (_, Some(made)) if !matches!(record.ask, Ask::Delete(_)) => {
                anyhow::bail!("{record:?} was made at {made}");
            }
            _ => {}
        }
    }
    Ok(placed)
}

/// Checks that a write that was requested after the acknowledgement of another one follows it in the order.
fn real_time(placed: &[Placed<'_>]) -> Result<()> {
    let mut sorted: Vec<&Placed<'_>> =
        placed.iter().filter(|placed| matches!(placed.record.answer, Answer::Written(_))).collect();
    sorted.sort_by_key(|placed| placed.number);
    let mut latest: Option<&Placed<'_>> = None;
    for placed in sorted {
        if let Some(before) = latest {
            ensure!(
                before.record.asked <= placed.record.answered,
                "{:?} at {} was answered before {:?} at {} was asked for",
                placed.record,
                placed.number,
                before.record,
                before.number
            );
        }
        if latest.is_none_or(|latest| placed.record.asked > latest.record.asked) {
            latest = Some(placed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn record(ask: Ask, answer: Answer, (from, to): (u64, u64), epoch: Instant) -> Record {
        let at = |millis| epoch + Duration::from_millis(millis);
        Record { name: "a".to_owned(), ask, answer, asked: at(from), answered: at(to) }
    }

    #[test]
    fn impossible_request_histories_are_detected() {
        let epoch = Instant::now();
        let change = |number, says| Change { number, name: "a".to_owned(), says };
        let changes = [change(5, Some(1)), change(7, Some(2)), change(9, None)];
        let written = |number| Answer::Written(Some(number));
        let honest = vec![
            record(Ask::Create(1), written(5), (0, 10), epoch),
            record(Ask::Replace(5, 2), written(7), (20, 30), epoch),
            record(Ask::Get, Answer::Found(Some((7, 2))), (40, 50), epoch),
            record(Ask::Delete(7), Answer::Written(None), (60, 70), epoch),
            record(Ask::Get, Answer::Found(None), (80, 90), epoch),
        ];
        check(&changes, &honest).unwrap();
        let wrong = [
            // A lost write, a rejected write that happened, and a write with a wrong revision.
            (0, record(Ask::Create(4), written(5), (0, 10), epoch)),
            (0, record(Ask::Create(1), Answer::NotDone, (0, 10), epoch)),
            (0, record(Ask::Create(1), written(6), (0, 10), epoch)),
            // A write that replaced another revision, and one that happened too early.
            (1, record(Ask::Replace(4, 2), written(7), (20, 30), epoch)),
            (0, record(Ask::Create(1), written(5), (40, 50), epoch)),
            // Reads of an outdated state, of a future state, and of a missing object.
            (2, record(Ask::Get, Answer::Found(Some((5, 1))), (40, 50), epoch)),
            (2, record(Ask::Get, Answer::Found(None), (40, 50), epoch)),
            (4, record(Ask::Get, Answer::Found(Some((7, 2))), (80, 90), epoch)),
            (2, record(Ask::Get, Answer::Found(Some((8, 3))), (40, 50), epoch)),
            // Rejections without a reason.
            (2, record(Ask::Replace(7, 6), Answer::Conflict, (40, 50), epoch)),
            (2, record(Ask::Delete(7), Answer::Missing, (40, 50), epoch)),
            (4, record(Ask::Create(6), Answer::Conflict, (80, 90), epoch)),
        ];
        for (index, one) in wrong {
            let mut records = honest.clone();
            let text = format!("{one:?}");
            records[index] = one;
            assert!(check(&changes, &records).is_err(), "{text}");
        }
        let doubled = [change(5, Some(1)), change(5, Some(2))];
        assert!(check(&doubled, &[]).is_err());
    }

    #[test]
    fn missing_and_wrong_changes_in_watches_are_detected() {
        let change = |number, says| Change { number, name: "a".to_owned(), says };
        let list = |after, number, item: Option<(u64, u64)>| Listed {
            after,
            number,
            items: item.map(|item| ("a".to_owned(), item)).into_iter().collect(),
        };
        let seen = |changes: &[Change], lists: &[Listed]| Seen {
            changes: changes.to_vec(),
            lists: lists.to_vec(),
        };
        let all = [change(5, Some(1)), change(7, Some(2)), change(9, None), change(11, Some(3))];
        let whole = seen(&all, &[]);
        let gap = seen(&[all[0].clone(), all[3].clone()], &[list(5, 10, None)]);
        let early = seen(&all[2..], &[list(4, 8, Some((7, 2)))]);
        let honest = [whole.clone(), gap.clone(), early.clone()];
        for honest in [&honest[..], &honest[..1]] {
            assert_eq!(merge(&BTreeMap::new(), honest).unwrap(), all);
        }
        let wrong = [
            // A missing change, an additional change, and a wrong change.
            seen(&all[..3], &[]),
            seen(&[&all[..], &[change(12, None)]].concat(), &[]),
            seen(&[change(5, Some(4)), all[1].clone(), all[2].clone(), all[3].clone()], &[]),
            // A change that was also in the list, and one that is missing after the list.
            seen(&all[1..], &[list(4, 8, Some((7, 2)))]),
            seen(&all[3..], &[list(4, 8, Some((7, 2)))]),
            // Lists of a deleted object, of an outdated object, and without an existing object.
            seen(&all[3..], &[list(4, 10, Some((7, 2)))]),
            seen(&all[2..], &[list(4, 8, Some((5, 1)))]),
            seen(&all[2..], &[list(4, 8, None)]),
        ];
        for one in wrong {
            assert!(merge(&BTreeMap::new(), &[whole.clone(), one.clone()]).is_err(), "{one:?}");
        }
        // No watch has reported the changes between 5 and 8.
        assert!(merge(&BTreeMap::new(), &[gap, early]).is_err());
    }
}
