//! A kind with two versions that Rust code converts: alpacas, whose weight was a float and is now a quantity.
//!
//! `cargo run -p aggregated-apiserver --example two_versions -- --kubeconfig ~/.kube/config` serves each version behind
//! an APIService. With `manifests` in front, the program prints everything to deploy instead.

use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::types::Quantity;
use aggregated_apiserver::versions::ConversionError;
use aggregated_apiserver::{ApiServer, Convert, Kinds, ServeArgs, Stored, Versions, start_logging};
use clap::{Parser, Subcommand};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WrittenQuantity;

mod v1 {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// An alpaca.
    #[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "farm.example.com",
        version = "v1",
        kind = "Alpaca",
        namespaced,
        printcolumn(name = "Weight", type_ = "string", json_path = ".spec.weight"),
        printcolumn(name = "Height", type_ = "string", json_path = ".spec.height")
    )]
    pub(crate) struct AlpacaSpec {
        /// The weight in kilograms: `45.5`, or `45500m`.
        pub(crate) weight: Quantity,
        /// The height in metres.
        pub(crate) height: Quantity,
    }
}

mod v1alpha {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// An alpaca.
    #[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "farm.example.com",
        version = "v1alpha",
        kind = "Alpaca",
        namespaced,
        deprecated,
        printcolumn(name = "Weight", type_ = "number", json_path = ".spec.weight"),
        printcolumn(name = "Height", type_ = "number", json_path = ".spec.height")
    )]
    pub(crate) struct AlpacaSpec {
        /// The weight in kilograms.
        pub(crate) weight: f64,
        /// The height in metres.
        pub(crate) height: f64,
    }
}

impl Stored for v1::Alpaca {
    /// The storage version is still the old one: the previous release knows no other, and runs beside this one during
    /// an update.
    fn versions() -> Versions<Self> {
        Versions::new().storage_version::<v1alpha::Alpaca>()
    }
}

impl Convert<v1::Alpaca> for v1alpha::Alpaca {
    fn into_hub(self) -> Result<v1::Alpaca, ConversionError> {
        let spec = v1::AlpacaSpec {
            weight: to_quantity(self.spec.weight),
            height: to_quantity(self.spec.height),
        };
        Ok(v1::Alpaca { metadata: self.metadata, spec })
    }

    fn from_hub(hub: v1::Alpaca) -> Result<Self, ConversionError> {
        let spec = v1alpha::AlpacaSpec {
            weight: to_float(&hub.spec.weight.0)?,
            height: to_float(&hub.spec.height.0)?,
        };
        Ok(Self { metadata: hub.metadata, spec })
    }
}

/// Converts a float to the shortest decimal that parses as the same float.
fn to_quantity(float: f64) -> WrittenQuantity {
    WrittenQuantity(float.to_string())
}

/// Converts a quantity to a float. Fails if the float would have another value.
fn to_float(text: &str) -> Result<f64, ConversionError> {
    let nanos = Quantity::parse(text).map_err(ConversionError::new)?.nanos();
    // The whole part and the fraction are separate, because parsing a decimal is more exact than dividing floats.
    let (whole, rest) = (nanos / 1_000_000_000, (nanos % 1_000_000_000).abs());
    let sign = if nanos < 0 && whole == 0 { "-" } else { "" };
    let float: f64 = format!("{sign}{whole}.{rest:09}").parse()?;
    let read_again = Quantity::parse(&to_quantity(float).0).map_err(ConversionError::new)?;
    if read_again.nanos() != nanos {
        return Err(ConversionError::new(format!("{text} has more digits than v1alpha keeps")));
    }
    Ok(float)
}

#[derive(Parser)]
#[command(name = "two_versions", about = "Serves alpacas in two versions, kept in memory")]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Print everything to deploy, as YAML
    Manifests(ManifestOptions),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = Program::parse();
    let server = ApiServer::new("alpacas", Kinds::new().stored::<v1::Alpaca>());
    match program.command {
        Some(Command::Manifests(options)) => print!("{}", server.manifests(&options)?),
        None => {
            start_logging(&program.serve);
            server.run(&program.serve).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aggregated_apiserver::versions::check_round_trips;

    fn of_version(weight: f64) -> v1alpha::Alpaca {
        v1alpha::Alpaca::new("a", v1alpha::AlpacaSpec { weight, height: 0.9 })
    }

    fn of_hub(weight: &str) -> v1::Alpaca {
        let quantity = |text: &str| WrittenQuantity(text.to_owned());
        v1::Alpaca::new("a", v1::AlpacaSpec { weight: quantity(weight), height: quantity("0.9") })
    }

    #[test]
    fn an_alpaca_stays_itself() {
        let mut random = fastrand::Rng::with_seed(5);
        let of_versions: Vec<_> = (0..1_000)
            .map(|_| of_version(f64::from(random.i32(-1_000_000..1_000_000)) / 1_000.0))
            .collect();
        let of_hubs = ["0", "45.5", "-0.25", "31.4", "120"].map(of_hub);
        check_round_trips(of_versions, of_hubs).unwrap();
    }

    #[test]
    fn a_quantity_with_more_digits_than_a_float_is_rejected() {
        let more = of_hub("12345678901234.123456789");
        let refused = v1alpha::Alpaca::from_hub(more).unwrap_err().to_string();
        assert_eq!(refused, "12345678901234.123456789 has more digits than v1alpha keeps");
        assert!(v1alpha::Alpaca::from_hub(of_hub("heavy")).is_err());
        assert_eq!(v1alpha::Alpaca::from_hub(of_hub("45500m")).unwrap().spec.weight, 45.5);
    }
}
