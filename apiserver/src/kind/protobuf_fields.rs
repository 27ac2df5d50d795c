//! What a body in protobuf needs to be read: the numbers of fields, with the
//! names and types that they have in JSON.

use std::collections::HashMap;

/// The fields of messages.
#[derive(Debug, Default)]
pub struct ProtobufFields {
    messages: HashMap<String, HashMap<u32, ProtobufField>>,
}

/// One field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtobufField {
    /// Its name in JSON.
    pub name: String,
    /// A type of protobuf, or a message.
    pub of: String,
    /// How often it may be there.
    pub count: FieldCount,
    /// Whether nothing (`0`, `false`, an empty text) is a value, and not the
    /// same as absent.
    pub keeps_nothing: bool,
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

impl ProtobufFields {
    /// Reads a table: a line is a message, a number, the name of a field, `list`,
    /// `map` or `inline`, a type, and `!` if nothing is a value.
    ///
    /// # Errors
    /// The line that says something else.
    pub fn parse(table: &str) -> Result<Self, String> {
        let mut messages: HashMap<String, HashMap<u32, ProtobufField>> = HashMap::new();
        for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let fault = || format!("no line of protobuf fields: {line:?}");
            let words: Vec<&str> = line.split(' ').collect();
            let [message, number, name, rest @ ..] = words.as_slice() else { return Err(fault()) };
            let (count, rest) = match rest {
                ["list", rest @ ..] => (FieldCount::List, rest),
                ["map", rest @ ..] => (FieldCount::Map, rest),
                ["inline", rest @ ..] => (FieldCount::Inline, rest),
                rest => (FieldCount::One, rest),
            };
            let (of, keeps_nothing) = match rest {
                [of] => (*of, false),
                [of, "!"] => (*of, true),
                _ => return Err(fault()),
            };
            let number = number.parse().map_err(|_| fault())?;
            let (name, of) = ((*name).to_owned(), of.to_owned());
            let field = ProtobufField { name, of, count, keeps_nothing };
            messages.entry((*message).to_owned()).or_default().insert(number, field);
        }
        Ok(Self { messages })
    }

    /// The fields of a message, if it is known.
    pub fn message(&self, name: &str) -> Option<&HashMap<u32, ProtobufField>> {
        self.messages.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let fields = ProtobufFields::parse(
            "# words\nPod 1 metadata ObjectMeta\nPodSpec 2 containers list Container\nPodSpec 3 replicas int32 !\n",
        )
        .unwrap();
        let spec = fields.message("PodSpec").unwrap();
        assert_eq!((&*spec[&2].name, spec[&2].count), ("containers", FieldCount::List));
        assert!(spec[&3].keeps_nothing && !spec[&2].keeps_nothing);
        assert!(fields.message("Foo").is_none());
        for odd in ["Pod", "Pod x metadata ObjectMeta", "Pod 1 metadata list", "Pod 1 a b c"] {
            assert_eq!(
                ProtobufFields::parse(odd).unwrap_err(),
                format!("no line of protobuf fields: {odd:?}")
            );
        }
    }
}
