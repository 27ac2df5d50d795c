use std::fs;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tempfile::tempdir;

use super::*;

const GCM_32: &str = "lx9E5wQKYA21UFhcEb6lSbyJB3RcnKXuzIWx6VHXtZM=";
const GCM_24: &str = "fHSg+fyieF5bn45OxS7AorlHSwalLw/r";
const GCM_16: &str = "NzTYJyj+LKGQL0bzzJx/IQ==";
const BOX: &str = "JvhWfyVpGCKUw/pbn5yyJwtVTu9ii0wUnPgqQoiP9K4=";

/// Formats the keys of a provider, given as names and secrets.
fn keys(provider: &str, keys: &[(&str, &str)]) -> String {
    let keys = keys.iter().map(|(name, secret)| format!("{{name: {name}, secret: {secret}}}"));
    let keys: Vec<String> = keys.collect();
    format!("{provider}: {{keys: [{}]}}", keys.join(", "))
}

/// Formats a configuration of rules, given as resources and providers.
fn configuration(rules: &[(&str, &[String])]) -> String {
    let mut text =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
            .to_owned();
    for (resources, providers) in rules {
        text += &format!("- resources: [{resources}]\n  providers:\n");
        for provider in *providers {
            text += &format!("  - {provider}\n");
        }
    }
    text
}

fn read(text: &str) -> Result<Encryption, String> {
    let folder = tempdir().unwrap();
    let file = folder.path().join("encryption.yaml");
    fs::write(&file, text).unwrap();
    Encryption::read(&file)
}

fn encryption(rules: &[(&str, &[String])]) -> Encryption {
    read(&configuration(rules)).unwrap()
}

/// An encryption with keys of the provider `aesgcm`. The first key encrypts, and all of them decrypt. If `reads_plain`,
/// the last provider is `identity`.
pub(crate) fn with_keys(names: &[&str], reads_plain: bool) -> Arc<Encryption> {
    let secret = |name: &str| match name {
        "one" => GCM_32,
        _ => GCM_16,
    };
    let named: Vec<(&str, &str)> = names.iter().map(|name| (*name, secret(name))).collect();
    let mut providers = vec![keys("aesgcm", &named)];
    providers.extend(reads_plain.then(identity));
    Arc::new(encryption(&[("'*.*'", &providers)]))
}

fn identity() -> String {
    "identity: {}".to_owned()
}

/// Values that kube-apiserver 1.36 has written to etcd with these keys.
#[test]
fn values_encrypted_by_kube_apiserver_are_decrypted() {
    for (provider, key, collection, place, value, kind) in [
        (
            "aesgcm",
            ("first", GCM_32),
            "configmaps",
            "/registry/configmaps/default/a",
            "azhzOmVuYzphZXNnY206djE6Zmlyc3Q68llWRKKTLE9zNjNbiFPnrBKlQZbBOUREk5BVidH3FkBtBa0ZKhAYq9wrzAHQIIBdlkT1mXU/E9x/PkJyhX2WSkarA5ZUyaIwAB+iXCBoOPWPLJHhFRLEw0Pg2v1S2XaK1TTPPncgNteutBpit/m7EVbMjcNq3MI0HryQuVmI/cyLqKyIHYYkvVbczHJ97lYn+KLdi4jWBNIX0dFHWLu2CLRO0YWHVTvgGgyoIt4I+fQXxjDyVDd0Kz34+oQGMSGnk2sZllKcBTOyfqBnK43u4joE",
            "ConfigMap",
        ),
        (
            "aesgcm",
            ("middle", GCM_24),
            "secrets",
            "/registry/secrets/default/a",
            "azhzOmVuYzphZXNnY206djE6bWlkZGxlOp5+ORgs0l93q5zmlN9BII/RgF0njB0XKqoACl9zznxqfB5LPh6Of6vAZe3f4tQ6vE8EOEYXUZ9Ts0IGApO3i+SK1b9fAnqjKyDDFslOQcH3ZnsOTAO0h6tw6Gdi4018AMlw9fHSowlIvgPK0aqwqa7BAhfWiIqjj8hj+ZTULNn2013V2Bz5Zih0BR4A83GNpv39WyXU3AqODXPen7NMIOUqIPPuRBPGt6o3X/fyzhOo/2Ip7/csxDFYB5EXtvp0Sql1Rz1HyE/0zcUL/lReSyR4/sS5s2eKFqYI4WAVa+Avp4Jg",
            "Secret",
        ),
        (
            "aesgcm",
            ("short", GCM_16),
            "serviceaccounts",
            "/registry/serviceaccounts/default/a",
            "azhzOmVuYzphZXNnY206djE6c2hvcnQ6NZMBcbX2AG13K6fL/fisbShGbmlBHHZrDJHrIBHFJ4g2ZpqE2Hi7BEsi7+q9SlNF96gt3j5wlyIdeb3B41NyYB9YRKKS4QA+rDShfjnYw8lEiAiLtahJSllMk4gDDvsJxlTlvlACw2rnLVLlzot5jjF6+52wL777y0BqyJi4OM/t4Q==",
            "ServiceAccount",
        ),
        (
            "secretbox",
            ("box", BOX),
            "leases.coordination.k8s.io",
            "/registry/leases/default/a",
            "azhzOmVuYzpzZWNyZXRib3g6djE6Ym94OoHtPxOPmUGQrHHyemhnm4+rmMckebYU7iDgV0lEx2N37cwX471u2FgrYGaBhOW4N3Hqqm+prGddRdwefKbGHix2X8OWsImpf9a//5G7y5dSarYz4RHVrMnkraPuKdOSgRjuRFMA9tz91hxJ54a6d9EvYDpDuEK2RdsegOnTOTRiJW6v+rjQTWPbQU3JREvFOVeb3RwMxhqrKRyh",
            "Lease",
        ),
    ] {
        let encryption = encryption(&[(collection, &[keys(provider, &[key])])]);
        let value = STANDARD.decode(value).unwrap();
        let opened = encryption.open(collection, place, &value).unwrap();
        assert!(opened.plain.starts_with(b"k8s\0"), "{collection}");
        assert!(opened.plain.windows(kind.len()).any(|part| part == kind.as_bytes()));
        assert!(!opened.is_stale);
        // A value of another location is rejected, if the cipher binds values to locations.
        let elsewhere = encryption.open(collection, "/registry/elsewhere", &value);
        assert_eq!(elsewhere.is_err(), provider == "aesgcm", "{collection}");
        // Any change of a value is detected.
        for place_of_change in [value.len() - 1, value.len() / 2, 30] {
            let mut changed = value.clone();
            changed[place_of_change] ^= 1;
            assert!(encryption.open(collection, place, &changed).is_err(), "{collection}");
        }
        for length in 0..value.len() {
            let cut = encryption.open(collection, place, &value[..length]);
            assert!(cut.is_err(), "{collection} of {length} bytes");
        }
    }
}

#[test]
fn the_first_key_encrypts_and_all_keys_decrypt() {
    const FOOS: &str = "foos.example.com";
    let only = |providers: &[String]| encryption(&[(FOOS, providers)]);
    let plain = only(&[identity()]);
    let first = only(&[keys("aesgcm", &[("one", GCM_32)]), identity()]);
    let rotated = only(&[
        keys("aesgcm", &[("two", GCM_16), ("one", GCM_32)]),
        keys("secretbox", &[("one", BOX)]),
    ]);
    let boxed = only(&[keys("secretbox", &[("one", BOX)]), keys("aesgcm", &[("two", GCM_16)])]);
    let undone = only(&[identity(), keys("aesgcm", &[("one", GCM_32)])]);
    let seal = |by: &Encryption| by.seal(FOOS, "foos/a", b"text".to_vec()).unwrap();
    let open = |by: &Encryption, value: &[u8]| {
        let opened = by.open(FOOS, "foos/a", value)?;
        assert_eq!(&*opened.plain, b"text");
        Ok::<_, String>(opened.is_stale)
    };
    assert_eq!(seal(&plain), b"text");
    assert_eq!(seal(&Encryption::default()), b"text");
    assert!(seal(&first).starts_with(b"k8s:enc:aesgcm:v1:one:"));
    assert!(seal(&rotated).starts_with(b"k8s:enc:aesgcm:v1:two:"));
    assert!(seal(&boxed).starts_with(b"k8s:enc:secretbox:v1:one:"));
    assert_ne!(seal(&first), seal(&first), "no number is used twice");
    assert_eq!(open(&first, &seal(&first)), Ok(false));
    assert_eq!(open(&first, &seal(&plain)), Ok(true));
    assert_eq!(open(&rotated, &seal(&first)), Ok(true));
    assert_eq!(open(&rotated, &seal(&boxed)), Ok(true));
    assert_eq!(open(&boxed, &seal(&rotated)), Ok(true));
    assert_eq!(open(&undone, &seal(&first)), Ok(true));
    assert_eq!(open(&undone, &seal(&plain)), Ok(false));
    assert_eq!(open(&Encryption::default(), &seal(&plain)), Ok(false));
    // The message for a missing key names the key.
    let missing = |provider, key| {
        Err(format!(
            "it is encrypted with the key {key:?} of {provider}, which is not configured for it"
        ))
    };
    assert_eq!(open(&plain, &seal(&first)), missing("aesgcm", "one"));
    assert_eq!(open(&Encryption::default(), &seal(&boxed)), missing("secretbox", "one"));
    assert_eq!(open(&first, &seal(&rotated)), missing("aesgcm", "two"));
    let of_same_name = only(&[keys("aesgcm", &[("one", GCM_24)]), identity()]);
    assert_eq!(
        open(&of_same_name, &seal(&first)).unwrap_err(),
        "it is encrypted with the key \"one\" of aesgcm, but the key of this name has another secret"
    );
    assert_eq!(
        open(&rotated, &seal(&plain)).unwrap_err(),
        "it is not encrypted, and identity is not among its providers"
    );
}

#[test]
fn the_first_rule_for_a_collection_counts() {
    let key = |name| [keys("aesgcm", &[(name, GCM_32)])];
    let encryption = encryption(&[
        ("foos.example.com, secrets", &key("named")),
        ("pods.", &key("core-named")),
        ("'*.example.com'", &key("group")),
        ("'*.'", &key("core")),
        ("'*.*'", &key("all")),
    ]);
    for (collection, expected) in [
        ("foos.example.com", "named"),
        ("secrets", "named"),
        ("pods", "core-named"),
        ("bars.example.com", "group"),
        ("configmaps", "core"),
        ("foos.other.example.com", "all"),
    ] {
        let value = encryption.seal(collection, "a", Vec::new()).unwrap();
        let prefix = format!("k8s:enc:aesgcm:v1:{expected}:");
        assert!(value.starts_with(prefix.as_bytes()), "{collection}");
    }
}

#[test]
fn invalid_encryption_configurations_are_reported_without_secrets() {
    let with = |providers: &str| configuration(&[("foos.example.com", &[providers.to_owned()])]);
    let resources = |names: &str| configuration(&[(names, &[identity()])]);
    let header = configuration(&[]);
    let of_aesgcm = |key: &str| with(&format!("aesgcm: {{keys: [{key}]}}"));
    for (text, expected) in [
        (String::new(), "resources[0]"),
        ("{".to_owned(), "it is not valid YAML, at line 1"),
        ("a: [".to_owned(), "it is not valid YAML, at line 1"),
        (header.clone() + "  []", "resources must not be empty"),
        (
            header.replace("EncryptionConfiguration", "Pod") + "  []",
            "it must be an EncryptionConfiguration of apiserver.config.k8s.io/v1",
        ),
        (
            header.replace("/v1", "/v2") + "  []",
            "it must be an EncryptionConfiguration of apiserver.config.k8s.io/v1",
        ),
        (
            with("identity: {}") + "colour: SECRET",
            "unknown field, expected one of `apiVersion`, `kind`, `resources`",
        ),
        (configuration(&[("", &[identity()])]), "resources[0] must have resources and providers"),
        (
            configuration(&[("foos", &["".to_owned()])])
                .replace("providers:\n  - \n", "providers: []\n"),
            "resources[0] must have resources and providers",
        ),
        (
            resources("'*'"),
            "resources[0].resources[0] must name a group: `*.` is the core group, and `*.*` is every resource",
        ),
        (
            resources("foos.example.com, 'foos.*'"),
            "resources[0].resources[1] must be a resource such as `llamas.farm.example.com`, or `*.` and a group, or `*.*`",
        ),
        (resources("Foos"), "resources[0].resources[0] must be in lower case"),
        (
            with("{}"),
            "resources[0].providers[0] is none of the providers that are known here: aesgcm, secretbox, kms, identity",
        ),
        (
            with("aescbc: {keys: [{name: a, secret: SECRET}]}"),
            "resources[0].providers[0] is none of the providers that are known here: aesgcm, secretbox, kms, identity",
        ),
        (
            with("kms: {name: a, endpoint: 'unix:///a'}"),
            "resources[0].providers[0].kms.apiVersion must be v2",
        ),
        (
            with("kms: {apiVersion: v1, name: a, endpoint: 'unix:///a'}"),
            "resources[0].providers[0].kms.apiVersion must be v2",
        ),
        (
            with("kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', cachesize: 1}"),
            "resources[0].providers[0].kms.cachesize must not be set, because v2 does not have it",
        ),
        (
            with("kms: {apiVersion: v2, name: 'a:b', endpoint: 'unix:///a'}"),
            "resources[0].providers[0].kms.name must not be empty or contain a colon",
        ),
        (
            with("kms: {apiVersion: v2, name: a, endpoint: 'https://SECRET'}"),
            "resources[0].providers[0].kms.endpoint must be a Unix socket such as unix:///run/kms.sock",
        ),
        (
            with("kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', timeout: 0s}"),
            "resources[0].providers[0].kms.timeout must be a duration such as 3s, at most 1m",
        ),
        (
            with("{identity: {}, aesgcm: {keys: []}}"),
            "resources[0].providers[0] must be one provider",
        ),
        (with("aesgcm: {keys: []}"), "resources[0].providers[0].aesgcm.keys must not be empty"),
        (
            with("aesgcm: {keys: SECRET}"),
            "resources[0].providers[0].aesgcm.keys has a value of the wrong type for an EncryptionConfiguration",
        ),
        (
            of_aesgcm("SECRET"),
            "resources[0].providers[0].aesgcm.keys[0] has a value of the wrong type for an EncryptionConfiguration",
        ),
        (
            of_aesgcm("{name: a}"),
            "resources[0].providers[0].aesgcm.keys[0]: missing field `secret`",
        ),
        (
            of_aesgcm("{name: '', secret: SECRET}"),
            "resources[0].providers[0].aesgcm.keys[0].name must not be empty",
        ),
        (
            of_aesgcm("{name: a, secret: SECRET*}"),
            "resources[0].providers[0].aesgcm.keys[0].secret must be base64",
        ),
        (
            of_aesgcm("{name: a, secret: U0VDUkVU}"),
            "resources[0].providers[0].aesgcm.keys[0].secret must be 16, 24 or 32 bytes, in base64",
        ),
        (
            of_aesgcm("{name: a, 'secret:SECRET': null}"),
            "unknown field at resources[0].providers[0].aesgcm.keys[0], expected `name` or `secret`",
        ),
        (resources("pods, '*.'"), "resources[0].resources[1] overlaps with resources[0]"),
        (
            resources("'*.*', foos.example.com"),
            "resources[0].resources[1] overlaps with resources[0]",
        ),
        (
            resources("foos.example.com, pods, foos.example.com"),
            "resources[0].resources[2] overlaps with resources[0]",
        ),
        (
            with("secretbox: {keys: [{name: a, secret: U0VDUkVU}]}"),
            "resources[0].providers[0].secretbox.keys[0].secret must be 32 bytes, in base64",
        ),
        (
            of_aesgcm(&format!("{{name: a, secret: {GCM_16}}}, {{name: a, secret: {GCM_32}}}")),
            "resources[0].providers[0].aesgcm.keys[1].name must not be the name of another key",
        ),
    ] {
        let why = read(&text).unwrap_err();
        assert!(!why.contains("SECRET") && !why.contains("U0VDUkVU"), "{why}");
        if !text.is_empty() {
            assert_eq!(why, expected, "{text}");
        }
    }
    // The same configuration in JSON.
    let json = format!(
        r#"{{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{{"resources":["foos"],"providers":[{{"secretbox":{{"keys":[{{"name":"a","secret":"{BOX}"}}]}}}}]}}]}}"#
    );
    assert_eq!(format!("{:?}", read(&json).unwrap()), "Encryption of 1 rules");
}
