//! The public items among the modules of a crate: those of the root, those of public modules, and what both re-export.

use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens;
use syn::{Fields, ImplItem, Item, TraitItem, Type, UseTree, Visibility};

use crate::sources::Module;

/// One line for each public item: its path in the API, then its signature.
pub fn listing(modules: &[Module]) -> String {
    let mut lines = BTreeSet::new();
    for (module, name, source) in exports(modules) {
        let path: String = module.path.iter().map(|name| format!("{name}::")).collect();
        let described = describe(&sources(modules, module, &source), &source);
        assert!(!described.is_empty() || is_foreign(&source), "{path}::{name}: {source}");
        if described.is_empty() {
            lines.insert(format!("{path}{name} (of another crate)"));
        }
        lines.extend(described.into_iter().map(|line| format!("{path}{name}{line}")));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// The public names: the module and the name with which a user names them, and the name of the item that is defined.
fn exports(modules: &[Module]) -> Vec<(&Module, String, String)> {
    let mut exports = Vec::new();
    for module in modules.iter().filter(|module| is_public(modules, &module.path)) {
        for item in &module.items {
            match item {
                Item::Use(item) if is_pub(&item.vis) => {
                    for (source, name) in names(&item.tree) {
                        exports.push((module, name, source));
                    }
                }
                item => {
                    if let Some(name) = defined(item) {
                        exports.push((module, name.clone(), name));
                    }
                }
            }
        }
    }
    exports
}

/// The modules that may define an item: those in the module that exports it, if one of them does, and otherwise all.
fn sources<'a>(modules: &'a [Module], exporter: &Module, name: &str) -> Vec<&'a Module> {
    let defines =
        |module: &&Module| module.items.iter().any(|item| defined(item).as_deref() == Some(name));
    let inner = |module: &&Module| module.path.starts_with(&exporter.path);
    if modules.iter().filter(inner).any(|module| defines(&module)) {
        modules.iter().filter(inner).collect()
    } else {
        modules.iter().collect()
    }
}

/// Whether a module and all modules around it are public.
fn is_public(modules: &[Module], path: &[String]) -> bool {
    (1..=path.len()).all(|length| {
        let (parent, name) = (&path[..length - 1], &path[length - 1]);
        let parent = modules.iter().find(|module| module.path == parent).unwrap();
        parent.items.iter().any(|item| match item {
            Item::Mod(item) => item.ident == name && is_pub(&item.vis),
            _ => false,
        })
    })
}

fn is_pub(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The names of a `use` item: the original name, and the name under which it is exported.
fn names(tree: &UseTree) -> Vec<(String, String)> {
    match tree {
        UseTree::Path(path) => names(&path.tree),
        UseTree::Name(name) => vec![(name.ident.to_string(), name.ident.to_string())],
        UseTree::Rename(rename) => vec![(rename.ident.to_string(), rename.rename.to_string())],
        UseTree::Group(group) => group.items.iter().flat_map(names).collect(),
        UseTree::Glob(_) => Vec::new(),
    }
}

/// The name of a public item that is defined here.
fn defined(item: &Item) -> Option<String> {
    let (visibility, name) = match item {
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        Item::Const(item) => (&item.vis, &item.ident),
        Item::Static(item) => (&item.vis, &item.ident),
        Item::Fn(item) => (&item.vis, &item.sig.ident),
        _ => return None,
    };
    is_pub(visibility).then(|| name.to_string())
}

/// Whether the item comes from another crate or is a module.
fn is_foreign(name: &str) -> bool {
    let first = name.chars().next().unwrap_or_default();
    first.is_uppercase() || first.is_lowercase()
}

/// The lines of the items of this name, without the path: the kind of the item, its fields, variants and methods.
fn describe(modules: &[&Module], name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut methods: BTreeMap<String, ()> = BTreeMap::new();
    for item in modules.iter().flat_map(|module| &module.items) {
        match item {
            Item::Impl(item) if item.trait_.is_none() && is_type(&item.self_ty, name) => {
                for member in &item.items {
                    if let ImplItem::Fn(function) = member
                        && is_pub(&function.vis)
                    {
                        methods.insert(format!("::{}", text(&function.sig)), ());
                    }
                    if let ImplItem::Const(constant) = member
                        && is_pub(&constant.vis)
                    {
                        let of = text(&constant.ty);
                        methods.insert(format!("::const {}: {of}", constant.ident), ());
                    }
                }
            }
            item if defined(item).as_deref() == Some(name) => lines.extend(of_item(item)),
            _ => {}
        }
    }
    lines.extend(methods.into_keys());
    lines
}

fn is_type(of: &Type, name: &str) -> bool {
    match of {
        Type::Path(path) => path.path.segments.last().is_some_and(|segment| segment.ident == name),
        _ => false,
    }
}

fn of_item(item: &Item) -> Vec<String> {
    match item {
        Item::Struct(item) => {
            let head = format!(": struct{}", text(&item.generics));
            std::iter::once(head).chain(fields(&item.fields)).collect()
        }
        Item::Enum(item) => {
            let head = format!(": enum{}", text(&item.generics));
            let variants =
                item.variants.iter().map(|variant| format!("::{}", text(&variant.ident)));
            std::iter::once(head).chain(variants).collect()
        }
        Item::Trait(item) => {
            let supertraits = text(&item.supertraits);
            let head = format!(": trait{} {supertraits}", text(&item.generics));
            let members = item.items.iter().filter_map(|member| match member {
                TraitItem::Fn(function) => Some(format!("::{}", text(&function.sig))),
                TraitItem::Type(of) => Some(format!("::type {}", of.ident)),
                TraitItem::Const(of) => Some(format!("::const {}: {}", of.ident, text(&of.ty))),
                _ => None,
            });
            std::iter::once(head.trim_end().to_owned()).chain(members).collect()
        }
        Item::Type(item) => vec![format!(" = {}", text(&item.ty))],
        Item::Const(item) => vec![format!(": const {}", text(&item.ty))],
        Item::Static(item) => vec![format!(": static {}", text(&item.ty))],
        Item::Fn(item) => vec![format!(": {}", text(&item.sig))],
        _ => Vec::new(),
    }
}

fn fields(fields: &Fields) -> Vec<String> {
    let public = fields.iter().filter(|field| is_pub(&field.vis));
    public
        .enumerate()
        .map(|(index, field)| {
            let name = field.ident.as_ref().map_or(index.to_string(), ToString::to_string);
            format!(".{name}: {}", text(&field.ty))
        })
        .collect()
}

/// The tokens with the spaces of usual Rust.
fn text(tokens: &impl ToTokens) -> String {
    let spaced = tokens.to_token_stream().to_string();
    let mut text = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" < ", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" :", ":"),
        ("& ", "&"),
        (" ( ", "("),
        ("( ", "("),
        (" )", ")"),
        (" (", "("),
        (",)", ")"),
        ("- >", "->"),
        (" ;", ";"),
    ] {
        text = text.replace(from, to);
    }
    text.replace(")->", ") ->").replace("->(", "-> (")
}
