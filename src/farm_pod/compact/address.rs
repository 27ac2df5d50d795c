//! The address of a Pod: almost always four bytes.

use std::net::Ipv4Addr;

use serde::de::{Deserialize, Deserializer};

use super::{Text, parsed};

/// An address, or no address.
#[derive(Clone, Debug)]
pub struct Address(Form);

#[derive(Clone, Debug)]
enum Form {
    Four(Ipv4Addr),
    /// The string of the document; an empty string means no address.
    Other(Text),
}

impl Address {
    /// The address as in the document, if there is one.
    pub fn text(&self) -> Option<String> {
        match &self.0 {
            Form::Four(address) => Some(address.to_string()),
            Form::Other(text) if text.is_empty() => None,
            Form::Other(text) => Some(text.to_string()),
        }
    }
}

impl Default for Address {
    fn default() -> Self {
        Self(Form::Other(Text::default()))
    }
}

impl From<&str> for Address {
    fn from(text: &str) -> Self {
        // Other notations are stored as strings; `Ipv4Addr` parses only the canonical one.
        text.parse().map_or_else(|_| Self(Form::Other(text.into())), |four| Self(Form::Four(four)))
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(parsed(deserializer, |text| Some(Self::from(text)))?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_preserves_the_string_it_was_parsed_from() {
        for text in [
            "10.1.2.3",
            "255.255.255.255",
            "fd00::1",
            "FD00::1",
            "::ffff:10.1.2.3",
            "010.1.2.3",
            "10.1",
            "x",
        ] {
            let address: Address = serde_json::from_value(text.into()).unwrap();
            assert_eq!(address.text().as_deref(), Some(text));
        }
        for none in [serde_json::json!(""), serde_json::json!(null)] {
            assert_eq!(serde_json::from_value::<Address>(none).unwrap().text(), None);
        }
        assert_eq!(Address::default().text(), None);
        assert_eq!(size_of::<Address>(), 16);
    }
}
