//! Conversion of llamas between the two versions.
//!
//! A float represents the value of a quantity, but neither its notation nor more than 17 digits. So `v1alpha` stores
//! the quantities in an annotation if they differ from those that the floats convert to. If a client changes a float,
//! the quantity in the annotation no longer matches it and is discarded.

use std::collections::BTreeMap;

use aggregated_apiserver::Convert;
use aggregated_apiserver::types::Quantity as Amount;
use aggregated_apiserver::versions::ConversionError;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{v1, v1alpha};

/// The annotation of a llama of `v1alpha` that contains the spec of `v1`.
const QUANTITIES: &str = "farm.example.com/quantities";

impl Convert<v1::Llama> for v1alpha::Llama {
    fn into_hub(self) -> Result<v1::Llama, ConversionError> {
        let Self { mut metadata, spec } = self;
        let written = take_quantities(&mut metadata.annotations);
        let (weight, height) = written.map(|spec| (spec.weight, spec.height)).unzip();
        let spec = v1::LlamaSpec {
            weight: restored(spec.weight, weight),
            height: restored(spec.height, height),
        };
        Ok(v1::Llama { metadata, spec })
    }

    fn from_hub(hub: v1::Llama) -> Result<Self, ConversionError> {
        let v1::Llama { mut metadata, spec: written } = hub;
        let spec = v1alpha::LlamaSpec {
            weight: to_float(&written.weight)?,
            height: to_float(&written.height)?,
        };
        let made =
            v1::LlamaSpec { weight: to_quantity(spec.weight), height: to_quantity(spec.height) };
        // An annotation that a client has sent in `v1` has no meaning and is removed.
        take_quantities(&mut metadata.annotations);
        if made != written {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert(QUANTITIES.to_owned(), serde_json::to_string(&written)?);
        }
        Ok(Self { metadata, spec })
    }
}

fn take_quantities(annotations: &mut Option<BTreeMap<String, String>>) -> Option<v1::LlamaSpec> {
    let written = annotations.as_mut()?.remove(QUANTITIES)?;
    if annotations.as_ref().is_some_and(BTreeMap::is_empty) {
        *annotations = None;
    }
    serde_json::from_str(&written).ok()
}

/// Converts a float to the quantity that it was computed from, if that is known.
fn restored(float: f64, written: Option<Quantity>) -> Quantity {
    let fits = |written: &Quantity| {
        written.0.len() <= v1::LONGEST && to_float(written).is_ok_and(|read| read == float)
    };
    written.filter(fits).unwrap_or_else(|| to_quantity(float))
}

/// Converts a float to the shortest decimal that parses as the same float.
fn to_quantity(float: f64) -> Quantity {
    let plain = float.to_string();
    Quantity(if plain.len() <= v1::LONGEST { plain } else { format!("{float:e}") })
}

/// Converts a quantity to the nearest float.
fn to_float(quantity: &Quantity) -> Result<f64, ConversionError> {
    let text = quantity.0.as_str();
    let nanos = Amount::parse(text).map_err(ConversionError::new)?.nanos();
    // A number without a suffix is parsed exactly, whatever its size.
    let float: f64 = text.parse().or_else(|_| format!("{nanos}e-9").parse())?;
    Ok(float.clamp(f64::MIN, f64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aggregated_apiserver::versions::check_round_trips;
    use kube::ResourceExt;

    fn of_v1alpha(weight: f64, height: f64) -> v1alpha::Llama {
        v1alpha::Llama::new("a", v1alpha::LlamaSpec { weight, height })
    }

    fn of_v1(weight: &str, height: &str) -> v1::Llama {
        let quantity = |text: &str| Quantity(text.to_owned());
        v1::Llama::new("a", v1::LlamaSpec { weight: quantity(weight), height: quantity(height) })
    }

    #[test]
    fn a_llama_stays_itself() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut floats: Vec<f64> = (0..1_000).map(|_| f64::from_bits(random.u64(..))).collect();
        floats.retain(|float| float.is_finite());
        floats.extend((0..1_000).map(|_| f64::from(random.i32(..)) / 1_000.0));
        floats.extend([0.0, 0.1, 45.5, 1e-300, f64::MAX, f64::MIN, f64::MIN_POSITIVE]);
        let of_versions = floats.iter().map(|&float| of_v1alpha(float, -float));
        let of_hubs = [
            "0",
            "45.5",
            "45500m",
            "-0.25",
            "+3",
            "5.",
            ".5",
            "1e3",
            "1E-3",
            "12Ki",
            "7E",
            "1e999",
            "0.1234567890123456789",
            "99999999999999999999999",
            "1n",
        ];
        let of_hubs = of_hubs.map(|text| of_v1(text, "1.1"));
        check_round_trips(of_versions, of_hubs).unwrap();
    }

    #[test]
    fn quantities_written_differently_from_floats_are_stored_in_an_annotation() {
        let kept = |llama: v1::Llama| {
            let llama = v1alpha::Llama::from_hub(llama).unwrap();
            (llama.spec.weight, llama.annotations().get(QUANTITIES).cloned())
        };
        assert_eq!(kept(of_v1("45.5", "1.1")), (45.5, None));
        let written = r#"{"weight":"45500m","height":"1.1"}"#.to_owned();
        assert_eq!(kept(of_v1("45500m", "1.1")), (45.5, Some(written)));
        assert_eq!(kept(of_v1("1Ki", "1.1")).0, 1024.0);
        assert_eq!(kept(of_v1("1n", "1.1")).0, 1e-9);
        assert!(v1alpha::Llama::from_hub(of_v1("nan", "1.1")).is_err());
        assert!(v1alpha::Llama::from_hub(of_v1("heavy", "1.1")).is_err());
    }

    #[test]
    fn a_changed_float_replaces_the_quantity_of_the_annotation() {
        let mut llama = v1alpha::Llama::from_hub(of_v1("45500m", "1100m")).unwrap();
        llama.spec.weight = 46.0;
        let llama = llama.into_hub().unwrap();
        assert_eq!(llama.spec, of_v1("46", "1100m").spec);
        assert!(llama.metadata.annotations.is_none());
        // Clients may write any value into the annotation.
        let mut llama = of_v1alpha(45.5, 1.1);
        for text in ["", "[]", r#"{"weight":"x","height":"45.5"}"#] {
            llama.annotations_mut().insert(QUANTITIES.to_owned(), text.to_owned());
            assert_eq!(llama.clone().into_hub().unwrap().spec, of_v1("45.5", "1.1").spec);
        }
    }
}
