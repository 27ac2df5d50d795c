//! Flocks, whose versions cannot be converted consistently.

use aggregated_apiserver::versions::ConversionError;
use aggregated_apiserver::{Convert, Stored, Versions};
use kube::ResourceExt;

#[rustfmt::skip] // it would indent the attribute more each time
macro_rules! flock {
    ($module:ident, $version:literal, $short_name:literal) => {
        pub mod $module {
            use kube::CustomResource;
            use schemars::JsonSchema;
            use serde::{Deserialize, Serialize};

            #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
            #[kube(
                group = "example.com",
                version = $version,
                kind = "Flock",
                namespaced,
                shortname = $short_name
            )]
            pub struct FlockSpec {}
        }
    };
}

flock!(v1, "v1", "fl");
flock!(v1beta, "v1beta", "fl");
flock!(v1alpha, "v1alpha", "fk");

impl Stored for v1::Flock {
    fn versions() -> Versions<Self> {
        Versions::new().storage_version::<v1alpha::Flock>().storage_version::<v1beta::Flock>()
    }
}

macro_rules! convert {
    ($module:ident) => {
        impl Convert<v1::Flock> for $module::Flock {
            fn into_hub(self) -> Result<v1::Flock, ConversionError> {
                Ok(v1::Flock::new(&self.name_any(), v1::FlockSpec {}))
            }

            fn from_hub(hub: v1::Flock) -> Result<Self, ConversionError> {
                Ok(Self::new(&hub.name_any(), $module::FlockSpec {}))
            }
        }
    };
}

convert!(v1alpha);
convert!(v1beta);
