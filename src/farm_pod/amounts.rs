//! Amounts of resources: `cpu`, `memory` and others, each exact.

use std::fmt;

use aggregated_apiserver::types::Quantity;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::compact::{List, Text};

/// Amounts of resources as the strings of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Written {
    cpu: Option<Text>,
    memory: Option<Text>,
    others: List<(Text, Text)>,
}

impl Written {
    /// Every resource that has an amount.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let common = [("cpu", &self.cpu), ("memory", &self.memory)];
        let common = common.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)));
        common.chain(self.others.iter().map(|(name, text)| (&**name, &**text)))
    }

    /// The amount of a resource, if it has one. An invalid quantity is omitted; kube-apiserver rejects such objects.
    pub fn get(&self, resource: &str) -> Option<Quantity> {
        let mut of_name = self.iter().filter(|(name, _)| *name == resource);
        of_name.next().and_then(|(_, text)| Quantity::parse(text).ok())
    }

    /// Parses the amounts.
    pub fn read(&self) -> Amounts {
        let read = self
            .iter()
            .filter_map(|(name, text)| Some((name.to_owned(), Quantity::parse(text).ok()?)));
        Amounts(read.collect())
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("amounts of resources")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Written, A::Error> {
                let mut written = Written::default();
                let mut others = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "cpu" => written.cpu = Some(map.next_value()?),
                        "memory" => written.memory = Some(map.next_value()?),
                        _ => others.push((name.into_boxed_str(), map.next_value()?)),
                    }
                }
                written.others = List::from(others);
                Ok(written)
            }
        }

        // Deserialized as a struct: memory accounting then counts the common fields as part of the object that contains
        // them, not as nodes of a map.
        deserializer.deserialize_struct("Amounts", &[], Reader)
    }
}

/// The amount of each resource.
#[derive(Clone, Debug, Default)]
pub struct Amounts(Vec<(String, Quantity)>);

impl Amounts {
    /// The amount of this resource, if it has one.
    pub fn get(&self, resource: &str) -> Option<Quantity> {
        self.iter().find(|(name, _)| *name == resource).map(|(_, amount)| amount)
    }

    /// Every resource, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, resource: &str, amount: Quantity) {
        match self.0.iter_mut().find(|(name, _)| *name == resource) {
            Some((_, known)) => *known = amount,
            None => self.0.push((resource.to_owned(), amount)),
        }
    }

    /// Adds the amounts of `others`, resource by resource.
    pub fn add(&mut self, others: &Self) {
        for (resource, amount) in others.iter() {
            let sum = self.get(resource).map_or(amount, |known| known.plus(amount));
            self.set(resource, sum);
        }
    }

    /// Raises each resource to the larger of the two amounts.
    pub fn raise(&mut self, others: &Self) {
        for (resource, amount) in others.iter() {
            if self.get(resource).is_none_or(|known| known.nanos() < amount.nanos()) {
                self.set(resource, amount);
            }
        }
    }
}

/// The number of billionths in one unit.
pub const NANOS: i128 = 1_000_000_000;

/// Converts a number of billionths of a processor to a quantity, for example `250m`. Fractions of a thousandth are
/// rounded up.
pub fn processors(nanos: i128) -> Quantity {
    let thousandths = nanos.saturating_add(999_999) / 1_000_000;
    read(&format!("{thousandths}m"))
}

/// Converts a number of billionths of a byte to a quantity, for example `128Mi`.
pub fn bytes(nanos: i128) -> Quantity {
    let bytes = nanos / NANOS;
    match bytes % 1024 {
        0 => read(&format!("{}Ki", bytes / 1024)),
        _ => read(&bytes.to_string()),
    }
}

fn read(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or(Quantity::from_whole(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sums_are_written_as_people_do() {
        let written = |amount: Quantity| amount.to_string();
        assert_eq!(written(processors(0)), "0");
        assert_eq!(written(processors(1)), "1m");
        assert_eq!(written(processors(1_500_000_000)), "1500m");
        assert_eq!(written(processors(2 * NANOS)), "2");
        assert_eq!(written(bytes((256 << 20) * NANOS)), "256Mi");
        assert_eq!(written(bytes(1_000 * NANOS)), "1k");
        assert_eq!(written(bytes(0)), "0");
    }

    fn amounts(json: serde_json::Value) -> Amounts {
        serde_json::from_value::<Written>(json).unwrap().read()
    }

    fn texts(amounts: &Amounts) -> Vec<String> {
        amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
    }

    #[test]
    fn are_added_and_raised() {
        let mut sum = amounts(json!({"cpu": "100m", "memory": "1Gi"}));
        sum.add(&amounts(json!({"cpu": "1", "example.com/gpu": "2"})));
        assert_eq!(texts(&sum), ["cpu=1100m", "memory=1Gi", "example.com/gpu=2"]);
        sum.raise(&amounts(json!({"cpu": "1", "memory": "2Gi", "pods": "1"})));
        assert_eq!(texts(&sum), ["cpu=1100m", "memory=2Gi", "example.com/gpu=2", "pods=1"]);
    }

    #[test]
    fn invalid_quantities_are_omitted() {
        assert_eq!(texts(&amounts(json!({"cpu": "much", "memory": "1"}))), ["memory=1"]);
    }
}
