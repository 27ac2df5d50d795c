//! Amounts of resources, by the name of the resource.

use std::collections::{BTreeMap, BTreeSet};

use crate::kind::{Kind, ObjectScopes, ObjectUsage, QuotaUsage};
use crate::schema::Quantity;

/// The amounts of resources that quotas limit. Resources with the amount zero are omitted, except in a status.
#[derive(Clone, Debug, Default)]
pub struct Amounts(BTreeMap<String, Quantity>);

impl PartialEq for Amounts {
    /// Whether both have the same resources with the same amounts, in any notation.
    fn eq(&self, other: &Self) -> bool {
        let same =
            |((name, amount), (other, of_other)): ((&String, &Quantity), (&String, &Quantity))| {
                name == other && amount.nanos() == of_other.nanos()
            };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}

impl FromIterator<(String, Quantity)> for Amounts {
    fn from_iter<T: IntoIterator<Item = (String, Quantity)>>(amounts: T) -> Self {
        Self(amounts.into_iter().collect())
    }
}

impl Amounts {
    /// The number of objects of a collection.
    pub fn counted(collection: &str, count: usize) -> Self {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        Self([(count_name(collection), Quantity::from_whole(count))].into())
    }

    /// The amounts by which this exceeds `others`.
    #[must_use]
    pub fn beyond(mut self, others: &Self) -> Self {
        for (name, amount) in &mut self.0 {
            *amount = amount.less(others.get(name));
        }
        self.0.retain(|_, amount| amount.nanos() > 0);
        self
    }

    /// The amount of a resource; zero if it has none.
    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_else(|| Quantity::from_whole(0))
    }

    /// Whether there is an amount of this resource, which may be zero.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// The names of the resources.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn set(&mut self, name: &str, amount: Quantity) {
        match self.0.get_mut(name) {
            Some(before) => *before = amount,
            None => drop(self.0.insert(name.to_owned(), amount)),
        }
    }

    pub fn add(&mut self, others: &Self) {
        for (name, amount) in others.iter() {
            self.set(name, self.get(name).plus(amount));
        }
    }

    pub fn subtract(&mut self, others: &Self) {
        for (name, amount) in others.iter() {
            let rest = self.get(name).less(amount);
            match rest.nanos() {
                0 => drop(self.0.remove(name)),
                _ => self.set(name, rest),
            }
        }
    }

    /// The amounts of the resources that `names` has.
    #[must_use]
    pub fn masked(&self, names: &Self) -> Self {
        // A quota has few names. A namespace can have as many resources as its objects have StorageClasses.
        let masked = names.names().filter_map(|name| self.0.get_key_value(name));
        masked.map(|(name, amount)| (name.clone(), *amount)).collect()
    }
}

/// The usage of one object, or of none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    pub amounts: Amounts,
    pub scopes: ObjectScopes,
}

impl Usage {
    /// The usage of an object of a collection.
    ///
    /// # Errors
    /// The evaluator of the kind cannot read the object.
    pub fn of(collection: &str, usage: QuotaUsage, json: &[u8]) -> Result<Self, serde_json::Error> {
        let one = Quantity::from_whole(1);
        let count = (count_name(collection), one);
        Ok(match usage {
            QuotaUsage::Exempt => Self::default(),
            QuotaUsage::Count => Self::unscoped([count]),
            QuotaUsage::CountAs(alias) => Self::unscoped([count, (alias.to_owned(), one)]),
            QuotaUsage::Evaluated(evaluator) => {
                let ObjectUsage { mut amounts, scopes } = evaluator.usage(json)?;
                amounts.retain(|_, amount| amount.nanos() > 0);
                amounts.insert(count.0, one);
                Self { amounts: Amounts(amounts), scopes }
            }
        })
    }

    /// The usage of a stored object of a collection. If the evaluator of the kind cannot read the object, only the object
    /// is counted.
    pub fn of_stored(collection: &str, usage: QuotaUsage, json: &[u8]) -> Self {
        Self::of(collection, usage, json).unwrap_or_else(|error| {
            tracing::debug!("cannot compute the quota usage of an object of {collection}: {error}");
            Self::unscoped([(count_name(collection), Quantity::from_whole(1))])
        })
    }

    fn unscoped<const N: usize>(amounts: [(String, Quantity); N]) -> Self {
        Self { amounts: Amounts(amounts.into()), scopes: ObjectScopes::default() }
    }
}

/// The resources that objects of a kind can use.
#[derive(Clone, Debug)]
pub struct CoveredResources {
    count: String,
    usage: QuotaUsage,
}

impl CoveredResources {
    pub fn of(kind: &Kind) -> Self {
        Self::of_collection(&kind.collection(), kind.strategy.quota_usage)
    }

    /// The resources that objects of a collection can use.
    pub fn of_collection(collection: &str, usage: QuotaUsage) -> Self {
        Self { count: count_name(collection), usage }
    }

    /// Whether objects of the kind can use this resource.
    pub fn contain(&self, resource: &str) -> bool {
        match self.usage {
            QuotaUsage::Exempt => false,
            QuotaUsage::Count => resource == self.count,
            QuotaUsage::CountAs(alias) => resource == self.count || resource == alias,
            QuotaUsage::Evaluated(evaluator) => {
                resource == self.count || evaluator.covers(resource)
            }
        }
    }

    /// The resources of a quota that objects of the kind can use.
    pub fn among<'a>(&self, hard: &'a Amounts) -> BTreeSet<&'a str> {
        hard.names().filter(|name| self.contain(name)).collect()
    }
}

fn count_name(collection: &str) -> String {
    format!("count/{collection}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(amounts: &[(&str, &str)]) -> Amounts {
        let amounts = amounts.iter();
        amounts
            .map(|(name, amount)| ((*name).to_owned(), Quantity::parse(amount).unwrap()))
            .collect()
    }

    #[test]
    fn masked_amounts_are_those_of_the_named_resources() {
        let all = amounts(&[("cpu", "100m"), ("memory", "1Gi"), ("pods", "0")]);
        let masked = all.masked(&amounts(&[("a", "1"), ("memory", "1"), ("pods", "2")]));
        assert_eq!(masked, amounts(&[("memory", "1Gi"), ("pods", "0")]));
    }

    #[test]
    fn sums_of_amounts_have_no_zeros() {
        let mut sum = Amounts::default();
        sum.add(&amounts(&[("cpu", "100m"), ("memory", "1Gi")]));
        sum.add(&amounts(&[("cpu", "0.9"), ("pods", "1")]));
        assert_eq!(sum, amounts(&[("cpu", "1"), ("memory", "1024Mi"), ("pods", "1")]));
        let beyond = sum.clone().beyond(&amounts(&[("cpu", "2"), ("memory", "1Mi")]));
        assert_eq!(beyond, amounts(&[("memory", "1023Mi"), ("pods", "1")]));
        sum.subtract(&amounts(&[("memory", "1Gi"), ("pods", "7"), ("others", "1")]));
        assert_eq!(sum, amounts(&[("cpu", "1000m")]));
        assert_ne!(sum, amounts(&[("cpu", "1"), ("memory", "0")]));
    }
}
