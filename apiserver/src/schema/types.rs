//! The fields of Kubernetes' own types, as Go has them: what bodies in protobuf
//! need to be read, and what becomes of an object when Go reads it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

/// The fields of what clients send to every kind: options and scales.
const COMMON: &str = include_str!("meta_types.txt");

static COMMON_TABLE: LazyLock<Arc<FieldTable>> =
    LazyLock::new(|| Arc::new(FieldTable::parse("").unwrap_or_default()));

/// The fields of messages.
#[derive(Debug, Default)]
pub struct FieldTable {
    messages: HashMap<String, Message>,
}

/// The fields of one message.
#[derive(Debug, Default)]
pub struct Message {
    by_number: HashMap<u32, Field>,
    /// Where the field of a name is found.
    numbers: BTreeMap<String, u32>,
    /// Messages whose fields are fields of this one.
    inlined: Vec<String>,
}

/// One field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in JSON.
    pub name: String,
    /// A type of protobuf, or a message.
    pub of: String,
    /// How often it may be there.
    pub count: FieldCount,
    /// When it is there.
    pub presence: Presence,
    /// What its type is called in Go.
    pub go_type: String,
}

/// How often a field may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldCount {
    /// Once.
    One,
    /// Any number of times: a list.
    List,
    /// Any number of times, each with a key: an object.
    Map,
    /// Once, and its members are members of what it is in.
    Inline,
}

/// When a field is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// When it is something: not `0`, not `false`, not empty.
    Something,
    /// When it was given: nothing is a value.
    Given,
    /// Always.
    Always,
}

impl FieldTable {
    /// The fields of what clients send to every kind.
    pub fn common() -> Arc<Self> {
        Arc::clone(&COMMON_TABLE)
    }

    /// Reads a table, and adds the fields of what is common to all kinds.
    ///
    /// A line is a message, a number, the name of a field, `list`,
    /// `map` or `inline`, a type, `*` if nothing is a value or `+` if it is always
    /// there, and its type in Go if that is not called as it is expected to be. A
    /// message alone has no fields.
    ///
    /// # Errors
    /// The line that says something else.
    pub fn parse(table: &str) -> Result<Self, String> {
        let mut messages: HashMap<String, Message> = HashMap::new();
        let lines = COMMON.lines().chain(table.lines());
        for line in lines.filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let fault = || format!("no line of fields: {line:?}");
            let words: Vec<&str> = line.split(' ').collect();
            if let [message] = words.as_slice() {
                messages.entry((*message).to_owned()).or_default();
                continue;
            }
            let [message, number, name, rest @ ..] = words.as_slice() else { return Err(fault()) };
            let (count, rest) = match rest {
                ["list", rest @ ..] => (FieldCount::List, rest),
                ["map", rest @ ..] => (FieldCount::Map, rest),
                ["inline", rest @ ..] => (FieldCount::Inline, rest),
                rest => (FieldCount::One, rest),
            };
            let [of, rest @ ..] = rest else { return Err(fault()) };
            let (presence, rest) = match rest {
                ["*", rest @ ..] => (Presence::Given, rest),
                ["+", rest @ ..] => (Presence::Always, rest),
                rest => (Presence::Something, rest),
            };
            let go_type = match rest {
                [] => go_type(count, of),
                [given] => (*given).to_owned(),
                _ => return Err(fault()),
            };
            let number = number.parse().map_err(|_| fault())?;
            let (name, of) = ((*name).to_owned(), (*of).to_owned());
            let message = messages.entry((*message).to_owned()).or_default();
            if count == FieldCount::Inline {
                message.inlined.push(of.clone());
            } else {
                message.numbers.insert(name.clone(), number);
            }
            message.by_number.insert(number, Field { name, of, count, presence, go_type });
        }
        Ok(Self { messages })
    }

    /// The message that a kind is. One of a name that the core group has too is
    /// called behind its group: `events.Event`.
    pub fn kind(&self, group: &str, kind: &str) -> Option<&str> {
        let group = group.split('.').next().unwrap_or_default();
        let found = self.messages.get_key_value(&format!("{group}.{kind}"));
        found.or_else(|| self.messages.get_key_value(kind)).map(|(name, _)| name.as_str())
    }

    /// The fields of a message, if it is known.
    pub fn message(&self, name: &str) -> Option<&Message> {
        self.messages.get(name)
    }

    /// The field of a name, also if another message brings it along; and which
    /// messages do, from the outermost on.
    pub fn field<'a>(
        &'a self,
        message: &'a Message,
        name: &str,
    ) -> Option<(&'a Field, Vec<&'a str>)> {
        let own = message.numbers.get(name).and_then(|number| message.by_number.get(number));
        if let Some(field) = own {
            return Some((field, Vec::new()));
        }
        message.inlined.iter().find_map(|inlined| {
            let (field, mut through) = self.field(self.messages.get(inlined)?, name)?;
            through.insert(0, inlined);
            Some((field, through))
        })
    }

    /// All fields, also those that other messages bring along.
    pub fn fields<'a>(&'a self, message: &'a Message) -> Vec<&'a Field> {
        let own = message.numbers.values().filter_map(|number| message.by_number.get(number));
        let mut fields: Vec<&Field> = own.collect();
        for inlined in message.inlined.iter().filter_map(|name| self.messages.get(name)) {
            fields.extend(self.fields(inlined));
        }
        fields
    }
}

impl Message {
    /// The field of a number.
    pub fn numbered(&self, number: u32) -> Option<&Field> {
        self.by_number.get(&number)
    }
}

/// What Go calls a type, mostly.
fn go_type(count: FieldCount, of: &str) -> String {
    let of = match of.rsplit('.').next().unwrap_or(of) {
        "double" => "float64".to_owned(),
        "bytes" => "[]uint8".to_owned(),
        of if of.starts_with(char::is_lowercase) => of.to_owned(),
        of => format!("v1.{of}"),
    };
    match count {
        FieldCount::List => format!("[]{of}"),
        FieldCount::Map => format!("map[string]{of}"),
        FieldCount::One | FieldCount::Inline => of,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let fields = FieldTable::parse(
            "# words\nPod 1 metadata ObjectMeta +\nPodSpec 2 containers list Container\nPodSpec 3 replicas int32 *\nPodSpec 4 - inline More\nMore 1 policy string v1.Policy\nEmpty\n",
        )
        .unwrap();
        let spec = fields.message("PodSpec").unwrap();
        let containers = spec.numbered(2).unwrap();
        assert_eq!((&*containers.name, containers.count), ("containers", FieldCount::List));
        assert_eq!(
            (&*containers.go_type, containers.presence),
            ("[]v1.Container", Presence::Something)
        );
        assert_eq!(fields.field(spec, "replicas").unwrap().0.presence, Presence::Given);
        let (policy, through) = fields.field(spec, "policy").unwrap();
        assert_eq!((&*policy.go_type, through), ("v1.Policy", vec!["More"]));
        assert!(fields.field(spec, "-").is_none());
        let names: Vec<&str> = fields.fields(spec).iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["containers", "replicas", "policy"]);
        assert!(fields.message("Foo").is_none() && fields.message("Empty").is_some());
        assert_eq!((fields.kind("", "Pod"), fields.kind("apps", "Foo")), (Some("Pod"), None));
        for odd in ["Pod 1", "Pod x metadata ObjectMeta", "Pod 1 metadata list", "Pod 1 a b c d"] {
            assert_eq!(FieldTable::parse(odd).unwrap_err(), format!("no line of fields: {odd:?}"));
        }
    }
}
