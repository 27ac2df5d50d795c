//! Parses the definitions of registered kinds, and checks them for conflicts with each other.

use std::collections::HashMap;
use std::sync::Arc;

use super::group_versions;
use super::stored_definition::check_stored;
use crate::backend::Writes;
use crate::definition::{Backend, Kind as Registered, Kinds, LookupRights};
use crate::error::StartError;
use crate::kind::{Kind, ProtectedFields};
use crate::object::names::check_dns_1123_label;
use crate::served_kind::{ComputedFrom, LookupRight, SourceResource};

/// Parses all definitions and checks them for conflicts with each other and with group versions.
pub(super) fn parse(kinds: &Kinds) -> Result<Vec<Arc<Kind>>, StartError> {
    let mut parsed: Vec<Arc<Kind>> = Vec::new();
    let mut taken: HashMap<(String, String), String> = HashMap::new();
    for registered in kinds.iter() {
        let kind = parse_one(registered)?;
        check_names(&kind, &mut taken)?;
        check_rules(&kind)?;
        check_view(&kind, &parsed)?;
        check_subresources(&kind, registered)?;
        check_backend(&kind, registered, kinds.is_partial_allowed())?;
        parsed.push(Arc::new(kind));
    }
    group_versions::parse(kinds, &parsed)?;
    Ok(parsed)
}

/// Parses the definition of a kind with a backend that is added at run time. Its names are not checked.
pub(super) fn parse_backend_kind(registered: &Registered) -> Result<Kind, StartError> {
    let kind = parse_one(registered)?;
    check_rules(&kind)?;
    if kind.view.is_some() {
        return Err(fault(&kind, "spec.names", "is a view, which cannot be added at run time"));
    }
    check_backend(&kind, registered, false)?;
    Ok(kind)
}

/// Rejects a kind with a version that its rules in Rust do not validate.
fn check_rules(kind: &Kind) -> Result<(), StartError> {
    let Some(other) = kind.version_without_rules() else { return Ok(()) };
    let why = format!(
        "the rules in Rust validate only one version, so objects written in {other} would not be validated; convert between the versions in Rust, or do not serve {other}"
    );
    Err(fault(kind, "spec.versions", &why))
}

/// Parses the definition of a kind, and adds its code.
fn parse_one(registered: &Registered) -> Result<Kind, StartError> {
    let (definition, cells) = (&registered.definition, registered.cells.clone());
    let kind = match &registered.types {
        Some(types) => Kind::parse_built_in(definition, cells, types)?,
        None => Kind::parse(definition, cells)?,
    };
    if kind.versions.is_empty() {
        return Err(fault(
            &kind,
            "spec.versions",
            "no version is served; set served to true in one of them",
        ));
    }
    if !registered.faults.is_empty() {
        let faults = registered.faults.clone();
        return Err(StartError::Kind { kind: kind.qualified(), faults });
    }
    Ok(kind
        .with_rules(registered.rules.clone())
        .with_conversion(registered.conversion.clone())
        .with_strategy(registered.strategy.clone())
        .with_subresources(
            registered.built_in_subresources.clone(),
            registered.subresources.clone(),
        )
        .with_view(registered.view.clone())
        .with_visibility(registered.visibility.clone()))
}

/// Rejects a kind if one of its names is taken by an earlier kind of its group. A view may show a kind of its own group in
/// another version, with the same names.
fn check_names(
    kind: &Kind,
    taken: &mut HashMap<(String, String), String>,
) -> Result<(), StartError> {
    let names = &kind.names;
    let view = kind.view.as_ref();
    if view.is_some_and(|view| view.group == kind.group && view.plural == names.plural) {
        return Ok(());
    }
    let own = [
        ("spec.names.plural", &names.plural),
        ("spec.names.kind", &names.kind),
        ("spec.names.listKind", &names.list_kind),
    ];
    for (field, name) in own {
        let key = (kind.group.clone(), format!("{field}={name}"));
        if let Some(other) = taken.insert(key, kind.qualified()) {
            return Err(fault(kind, field, &format!("{name:?} is already used by {other}")));
        }
    }
    Ok(())
}

/// Rejects a view of a kind that hides objects from some users.
fn check_view(kind: &Kind, parsed: &[Arc<Kind>]) -> Result<(), StartError> {
    let Some(view) = &kind.view else { return Ok(()) };
    let is_shown = |kind: &&Arc<Kind>| kind.group == view.group && kind.names.plural == view.plural;
    let Some(shown) = parsed.iter().find(is_shown).filter(|shown| shown.hides()) else {
        return Ok(());
    };
    let why = format!(
        "is a view of {}, which has a Visibility: the view would show all objects to every user; remove the view or the Visibility",
        shown.qualified()
    );
    Err(fault(kind, "spec.names", &why))
}

/// Rejects subresources of the user that cannot be served.
fn check_subresources(kind: &Kind, registered: &Registered) -> Result<(), StartError> {
    let own = ["status", "scale", "finalize"];
    let built_in = kind.subresource_handlers.iter().map(|handler| handler.name());
    let mut taken: Vec<&str> = own.into_iter().chain(built_in).collect();
    for subresource in &registered.subresources {
        let name = subresource.name();
        let why = match () {
            () if taken.contains(&name) => "the name is already used",
            () if !check_dns_1123_label(name).is_empty() => "the name must be a DNS label",
            () if subresource.methods().next().is_none() => "no method has a handler",
            () if matches!(registered.backend, Backend::Reviewed(_)) => "a review has no objects",
            () => {
                taken.push(name);
                continue;
            }
        };
        return Err(fault(kind, &format!("subresource {name:?}"), why));
    }
    Ok(())
}

/// Rejects a definition that its backend does not support.
fn check_backend(
    kind: &Kind,
    registered: &Registered,
    is_partial_allowed: bool,
) -> Result<(), StartError> {
    match &registered.backend {
        Backend::Stored { .. } | Backend::Virtual(_) => {
            check_stored(kind, &registered.definition, is_partial_allowed)
        }
        Backend::Direct(backend) => {
            check_stored(kind, &registered.definition, is_partial_allowed)?;
            let is_read_only = backend.writes() == Writes::default();
            let unsupported = [
                (!kind.subresource_handlers.is_empty(), "a handler of a subresource"),
                (kind.view.is_some(), "a view"),
                (registered.rules.is_some() && is_read_only, "rules in Rust without writes"),
            ];
            match unsupported.iter().find(|(is_set, _)| *is_set) {
                Some((_, what)) => {
                    let why = format!("is a direct kind, which cannot have {what}; remove it");
                    Err(fault(kind, "spec.names", &why))
                }
                None => Ok(()),
            }
        }
        Backend::Computed { sources, rights, .. } => {
            for source in sources {
                check_scope(kind, source, rights)?;
            }
            computed_from(kind, sources, rights).map(drop)
        }
        Backend::Elsewhere if registered.subresources.is_empty() => {
            Err(fault(kind, "spec.names", "has neither objects nor subresources"))
        }
        Backend::Elsewhere => {
            let unsupported = [
                (registered.visibility.is_some(), "a visibility"),
                (registered.rules.is_some(), "rules in Rust"),
                (!registered.cells.is_empty(), "columns in Rust"),
            ];
            let Some((_, what)) = unsupported.iter().find(|(is_set, _)| *is_set) else {
                return Ok(());
            };
            let why = format!("has no objects here, so it cannot have {what}; remove it");
            Err(fault(kind, "spec.names", &why))
        }
        Backend::Reviewed(_) => Ok(()),
    }
}

/// Checks that the scopes of a computed kind and its source fit together.
fn check_scope(
    kind: &Kind,
    source: &SourceResource,
    rights: &LookupRights,
) -> Result<(), StartError> {
    let SourceResource { resource, namespaced, own_namespace, .. } = source;
    let is_in_namespace = |right: &LookupRight| right.in_namespace;
    let why = match source.objects_in_any_namespace {
        false if *namespaced == kind.is_namespaced() => return Ok(()),
        false => format!("must be the scope of {resource}, because the kind is computed from it"),
        true if !kind.is_namespaced() => {
            "must be Namespaced, because its FAN_OUT is AnyNamespace".to_owned()
        }
        true if *namespaced && own_namespace.is_none() => format!(
            "FAN_OUT is AnyNamespace, so OPTIONS must select the {resource} of one namespace"
        ),
        true if rights.demanded.iter().chain(&rights.protected).any(is_in_namespace) => {
            "FAN_OUT is AnyNamespace, so no field can be protected in a namespace".to_owned()
        }
        true => return Ok(()),
    };
    Err(fault(kind, "spec.scope", &why))
}

/// The sources of a computed kind, and the permissions that its readers need.
pub(super) fn computed_from(
    kind: &Kind,
    sources: &[SourceResource],
    rights: &LookupRights,
) -> Result<ComputedFrom, StartError> {
    let LookupRights { demanded, protected, shown, faults } = rights;
    let mut faults = faults.clone();
    let by_right: Vec<_> = protected.iter().map(|right| right.fields.clone()).collect();
    let fields = ProtectedFields::parse(kind, &by_right);
    let fields = fields.map_err(|more| faults.extend(more)).unwrap_or_default();
    faults.extend(ProtectedFields::faults_of_shown(kind, shown));
    if !faults.is_empty() {
        return Err(StartError::Kind { kind: kind.qualified(), faults });
    }
    Ok(ComputedFrom {
        sources: sources.to_vec(),
        demanded: demanded.clone(),
        protected: protected.clone(),
        fields: Arc::new(fields),
    })
}

pub(super) fn fault(kind: &Kind, field: &str, message: &str) -> StartError {
    StartError::Kind { kind: kind.qualified(), faults: vec![format!("{field}: {message}")] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::SourceOptions;
    use crate::definition::{Computed, FanOut, FieldPermissions, Lookup, Stored};
    use k8s_openapi::api::core::v1::{Node, Pod, Secret};
    use kube::{CustomResource, CustomResourceExt};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Foo", namespaced)]
    struct FooSpec {
        #[schemars(regex(pattern = "(?=a)"))]
        text: String,
    }

    impl Stored for Foo {}

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Bar", namespaced, status = "BarStatus")]
    struct BarSpec {}

    #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
    struct BarStatus {}

    impl Stored for Bar {}

    impl Computed for Bar {
        type Source = Pod;
        type Related = ();

        fn compute(_: &Pod, (): &()) -> Option<Self> {
            None
        }
    }

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Baz", namespaced)]
    struct BazSpec {}

    impl Computed for Baz {
        type Source = Node;
        type Related = ();

        fn compute(_: &Node, (): &()) -> Option<Self> {
            None
        }
    }

    macro_rules! spread {
        ($kind:ident $spec:ident $name:literal, $source:ty, $options:expr, $scope:literal) => {
            #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
            #[kube(group = "example.com", version = "v1", kind = $name)]
            struct $spec {
                text: Option<String>,
            }

            impl Computed for $kind {
                type Source = $source;
                type Related = Lookup<Secret>;

                const OPTIONS: SourceOptions = $options;
                const FAN_OUT: FanOut = FanOut::AnyNamespace;

                fn field_permissions() -> FieldPermissions {
                    match $scope {
                        "protected" => {
                            FieldPermissions::new().protects_in_namespace::<Secret>(["spec.text"])
                        }
                        _ => FieldPermissions::new().protects::<Secret>(["spec.text"]),
                    }
                }
            }
        };
    }

    const ALL: SourceOptions = SourceOptions::ALL;
    const ONE: SourceOptions = SourceOptions::ALL.in_namespace("default");

    spread!(OfNodes OfNodesSpec "OfNodes", Node, ALL, "");
    spread!(OfPods OfPodsSpec "OfPods", Pod, ALL, "");
    spread!(OfOne OfOneSpec "OfOne", Pod, ONE, "");
    spread!(Guarded GuardedSpec "Guarded", Pod, ONE, "protected");

    /// A definition in namespaces.
    fn computed_in_namespaces<K: Computed>() -> Kinds {
        let mut kind = crate::definition::Kind::computed::<K>();
        "Namespaced".clone_into(&mut kind.definition.spec.scope);
        Kinds::new().kind(kind)
    }

    #[test]
    fn objects_in_any_namespace_need_sources_in_one_place() {
        check(
            &Kinds::new().computed::<OfNodes>(),
            "kind ofnodeses.example.com: spec.scope: must be Namespaced, because its FAN_OUT is AnyNamespace",
        );
        check(
            &computed_in_namespaces::<OfPods>(),
            "kind ofpodses.example.com: spec.scope: FAN_OUT is AnyNamespace, so OPTIONS must select the pods of one namespace",
        );
        check(
            &computed_in_namespaces::<Guarded>(),
            "kind guardeds.example.com: spec.scope: FAN_OUT is AnyNamespace, so no field can be protected in a namespace",
        );
        parse(&computed_in_namespaces::<OfNodes>()).unwrap();
        parse(&computed_in_namespaces::<OfOne>()).unwrap();
    }

    fn check(kinds: &Kinds, expected: &str) {
        assert_eq!(parse(kinds).unwrap_err().to_string(), expected);
    }

    #[test]
    fn invalid_kinds_prevent_the_server_from_starting() {
        check(
            &Kinds::new().computed::<Bar>().computed::<Bar>(),
            "kind bars.example.com: spec.names.plural: \"bars\" is already used by bars.example.com",
        );
        check(
            &Kinds::new().stored::<Foo>(),
            "kind foos.example.com: spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[text].pattern: Invalid value: \"(?=a)\": must be a valid regular expression, but isn't: error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
        );
        assert!(parse(&Kinds::new().stored::<Bar>()).is_ok());
        let mut unserved = Bar::crd();
        unserved.spec.versions[0].served = false;
        let unserved = serde_json::to_string(&unserved).unwrap();
        check(
            &Kinds::new().crds_from_yaml(&unserved).unwrap(),
            "kind bars.example.com: spec.versions: no version is served; set served to true in one of them",
        );
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "quxes.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"kind": "Qux", "plural": "quxes"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": {
                        "size": {"type": "integer", "maximum": 5, "default": 7},
                    }}},
                }}}],
            },
        });
        check(
            &Kinds::new().crds_from_yaml(&definition.to_string()).unwrap(),
            "kind quxes.example.com: spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[size].default: Invalid value: 7:  in body should be less than or equal to 5",
        );
        check(
            &Kinds::new().computed::<Baz>(),
            "kind bazes.example.com: spec.scope: must be the scope of nodes, because the kind is computed from it",
        );
    }
}
