//! `TracingConfiguration` of `apiserver.config.k8s.io`: the endpoint of the collector and the sampling rate.

use serde::Deserialize;
use serde_json::Value;

/// The supported API versions, which all have the same fields.
const API_VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];
const KIND: &str = "TracingConfiguration";
/// The default endpoint: the port on which collectors listen for OTLP over gRPC.
const ENDPOINT: &str = "localhost:4317";
const MILLION: u32 = 1_000_000;

/// The endpoint of the collector and the sampling rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfiguration {
    /// The endpoint of the collector, as a URL for the gRPC client.
    pub(super) endpoint: String,
    /// The number of traces that are sampled, per million traces that begin here.
    pub(super) sampling_rate_per_million: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    endpoint: Option<String>,
    sampling_rate_per_million: Option<i32>,
}

impl TracingConfiguration {
    /// Parses a configuration from YAML or JSON.
    /// # Errors
    /// Returns the problem and its location in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let one_line = |text: String| text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        let options = serde_saphyr::options! { with_snippet: false };
        let value: Value = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| one_line(format!("it is not valid YAML: {error}")))?;
        if !value.is_object() {
            return Err(format!("it must be a {KIND}, but it is not an object"));
        }
        let file: File = serde_path_to_error::deserialize(value)
            .map_err(|error| one_line(format!("{}: {}", error.path(), error.inner())))?;
        if !API_VERSIONS.contains(&file.api_version.as_str()) || file.kind != KIND {
            let (version, kind) = (&file.api_version, &file.kind);
            let expected = API_VERSIONS[0];
            return Err(format!(
                "it must be a {KIND} of {expected}, but it is a {kind} of {version}"
            ));
        }
        let rate = file.sampling_rate_per_million.unwrap_or(0);
        let rate = u32::try_from(rate).ok().filter(|&rate| rate <= MILLION).ok_or_else(|| {
            format!("samplingRatePerMillion: {rate} is not between 0 and {MILLION}")
        })?;
        let endpoint = url(file.endpoint.as_deref().unwrap_or(ENDPOINT))?;
        Ok(Self { endpoint, sampling_rate_per_million: rate })
    }

    /// Whether a trace that begins here is sampled. The decision depends on the identifier of the trace, same as in
    /// other programs. A trace that is sampled at some rate is therefore also sampled at every larger rate.
    pub(super) fn samples(&self, trace: u128) -> bool {
        #[allow(clippy::cast_possible_truncation)] // the lower 64 of 128 bits
        let chance = (trace as u64) >> 1;
        let rate = u128::from(self.sampling_rate_per_million);
        u128::from(chance) * u128::from(MILLION) < rate << 63
    }
}

/// Converts an endpoint to a URL. Like kube-apiserver, it accepts a host and a port without scheme or with the scheme
/// `dns`, and sockets.
fn url(endpoint: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("endpoint: {endpoint:?} {why}"));
    let Some((scheme, rest)) = endpoint.split_once("//") else {
        return match endpoint.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(format!("unix://{path}")),
            Some(_) => wrong("must contain the absolute path of a socket"),
            None => authority(endpoint).map_or_else(|| wrong("must be a host and a port"), Ok),
        };
    };
    match scheme {
        // In `dns://SERVER/HOST:PORT`, the DNS server is optional.
        "dns:" => {
            let (_, host) = rest.split_once('/').unwrap_or(("", rest));
            authority(host).map_or_else(|| wrong("must be a host and a port"), Ok)
        }
        "unix:" if rest.starts_with('/') => Ok(endpoint.to_owned()),
        "unix:" => wrong("must contain the absolute path of a socket"),
        _ => {
            wrong("has a scheme that is not supported; use dns, unix or no scheme, all without TLS")
        }
    }
}

/// Returns the URL of a host and a port.
fn authority(text: &str) -> Option<String> {
    let authority: http::uri::Authority = text.parse().ok()?;
    (authority.port_u16().is_some() && !authority.as_str().contains('@'))
        .then(|| format!("http://{authority}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";

    #[test]
    fn tracing_configurations_of_kube_apiserver_are_accepted() {
        let none = TracingConfiguration::parse(HEAD).unwrap();
        assert_eq!(none.endpoint, "http://localhost:4317");
        assert_eq!(none.sampling_rate_per_million, 0);
        for (endpoint, url) in [
            ("127.0.0.1:4317", "http://127.0.0.1:4317"),
            ("'[::1]:4317'", "http://[::1]:4317"),
            ("dns:///collector.traces:4317", "http://collector.traces:4317"),
            ("dns://8.8.8.8/collector:4317", "http://collector:4317"),
            ("unix:///run/otel.sock", "unix:///run/otel.sock"),
            ("unix:/run/otel.sock", "unix:///run/otel.sock"),
        ] {
            let text = format!("{HEAD}endpoint: {endpoint}\nsamplingRatePerMillion: 1000000");
            let read = TracingConfiguration::parse(&text).unwrap();
            assert_eq!((read.endpoint.as_str(), read.sampling_rate_per_million), (url, MILLION));
        }
        let old = HEAD.replace("/v1", "/v1alpha1");
        assert!(TracingConfiguration::parse(&old).is_ok());
    }

    #[test]
    fn tracing_configuration_errors_name_the_field_on_one_line() {
        for (text, expected) in [
            ("- a", "is not an object"),
            (":\n :", "it is not valid YAML"),
            ("apiVersion: v1\nkind: Pod", "it must be a TracingConfiguration of"),
            (&format!("{HEAD}endpont: a"), "endpont: unknown field `endpont`"),
            (&format!("{HEAD}samplingRatePerMillion: -1"), "samplingRatePerMillion: -1 is not"),
            (&format!("{HEAD}samplingRatePerMillion: 1000001"), "is not between 0 and 1000000"),
            (
                &format!("{HEAD}samplingRatePerMillion: many"),
                "samplingRatePerMillion: invalid type",
            ),
            (&format!("{HEAD}endpoint: https://a:1"), "scheme that is not supported"),
            (&format!("{HEAD}endpoint: unix-abstract://a"), "scheme that is not supported"),
            (&format!("{HEAD}endpoint: collector"), "must be a host and a port"),
            (&format!("{HEAD}endpoint: 'a b:1'"), "must be a host and a port"),
            (&format!("{HEAD}endpoint: unix://run"), "absolute path of a socket"),
        ] {
            let error = TracingConfiguration::parse(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn traces_are_sampled_by_their_trace_id() {
        let of = |rate| TracingConfiguration {
            endpoint: String::new(),
            sampling_rate_per_million: rate,
        };
        for trace in [1, u128::MAX, 1 << 64, u128::from(u64::MAX) >> 1] {
            assert!(!of(0).samples(trace) && of(MILLION).samples(trace), "{trace}");
        }
        let half = of(MILLION / 2);
        assert!(half.samples(0x7fff_ffff_ffff_ffff) && !half.samples(0x8000_0000_0000_0000));
    }
}
