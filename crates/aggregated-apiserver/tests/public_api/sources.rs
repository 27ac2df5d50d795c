//! The modules of a crate, read from its files.

use std::path::Path;

use syn::{Attribute, Item, ItemMod, Meta};

/// A module: its path within the crate, and its items. Items of tests are omitted.
pub struct Module {
    pub path: Vec<String>,
    pub items: Vec<Item>,
}

/// Reads the modules of a crate from its `src` directory.
pub fn read(source: &Path) -> Vec<Module> {
    let mut modules = Vec::new();
    walk(&source.join("lib.rs"), source, Vec::new(), &mut modules);
    modules
}

fn walk(file: &Path, directory: &Path, path: Vec<String>, modules: &mut Vec<Module>) {
    let text = std::fs::read_to_string(file).unwrap();
    let parsed = syn::parse_file(&text).unwrap();
    enter(parsed.items, directory, path, modules);
}

fn enter(items: Vec<Item>, directory: &Path, path: Vec<String>, modules: &mut Vec<Module>) {
    let items: Vec<Item> = items.into_iter().filter(|item| !is_test(attributes(item))).collect();
    for item in &items {
        let Item::Mod(ItemMod { ident, content, .. }) = item else { continue };
        let name = ident.to_string();
        let path = [path.as_slice(), std::slice::from_ref(&name)].concat();
        match content {
            Some((_, items)) => enter(items.clone(), &directory.join(&name), path, modules),
            None => {
                let file = directory.join(format!("{name}.rs"));
                walk(&file, &directory.join(&name), path, modules);
            }
        }
    }
    modules.push(Module { path, items });
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item exists only in tests or documentation tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            matches!(list.tokens.to_string().as_str(), "test" | "doctest")
        }
        _ => false,
    })
}
