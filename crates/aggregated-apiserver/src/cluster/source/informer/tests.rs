//! Tests of the objects and memory limits of an informer.

use super::*;
use crate::cluster::source::shared_limit::SharedLimit;

#[test]
fn after_an_overflow_objects_are_relisted_with_memory_reserved_for_indexes() {
    let informer = SourceInformer::<String>::alone(32_000);
    let key = Key::of_text("a");
    let free = informer.free_bytes(&key);
    informer.charge(0, 8_000);
    assert_eq!(informer.free_bytes(&key), free - 8_000);
    informer.exceed("it is too much".to_owned());
    // An index without objects uses no memory.
    informer.charge(8_000, 0);
    assert_eq!(informer.free_bytes(&key), free - 8_000 - 32_000 / SLACK);
    informer.exceed("it is too much".to_owned());
    assert_eq!(informer.free_bytes(&key), free - 8_000 - 32_000 / SLACK);
    informer.complete(&HashSet::new());
    assert_eq!(informer.free_bytes(&key), free);
}

/// Objects with the same name share one key, for any type and in any order of arrival.
#[test]
fn informers_share_the_string_of_equal_keys() {
    let all = Arc::new(SharedLimit::within(100_000));
    let informer = |name: &str| {
        let informer =
            Arc::new(SourceInformer::<String>::new(80_000, all.of_type(name.to_owned())));
        let weak: Weak<dyn StoresKeys> = Arc::downgrade(&(Arc::clone(&informer) as _));
        all.add_informer(weak);
        informer
    };
    let (one, other) = (informer("ones"), informer("others"));
    let text = |informer: &SourceInformer<String>, key: &str| {
        let stored = informer.stored_key(&Key::of_text(key));
        stored.map(|stored| stored.text().as_ptr())
    };
    one.set(Key::of_text("n/a"), Some("a".to_owned()));
    other.set(Key::of_text("n/b"), Some("b".to_owned()));
    for key in ["n/a", "n/b"] {
        for informer in [&one, &other] {
            informer.set(Key::of_text(key), Some("c".to_owned()));
        }
        assert!(text(&one, key).is_some() && text(&one, key) == text(&other, key));
    }
    let stored = text(&one, "n/a");
    one.set(Key::of_text("n/a"), None);
    assert_eq!((text(&one, "n/a"), text(&other, "n/a")), (None, stored));
    drop(one);
    other.set(Key::of_text("n/a"), Some("d".to_owned()));
    assert_eq!(text(&other, "n/a"), stored);
}

/// A type may use the memory that the other types leave, and releases it when its objects are removed.
#[test]
fn source_types_have_a_common_memory_limit() {
    let all = Arc::new(SharedLimit::within(100_000));
    let informer = |name: &str| SourceInformer::<String>::new(80_000, all.of_type(name.to_owned()));
    let (one, other) = (informer("ones"), informer("others"));
    let key = Key::of_text("a");
    let set = |informer: &SourceInformer<String>, content: u64, bytes: usize| {
        let reading = Reading { object: String::new(), bytes, hash: content, content };
        informer.replace(key.clone(), Some(reading));
    };
    assert_eq!(other.free_bytes(&key), 80_000 - PER_OBJECT);
    assert_eq!(other.explain_excess(), "they take more than 0 MiB of memory");
    set(&one, 1, 50_000);
    assert_eq!(other.free_bytes(&key), 50_000 - 2 * PER_OBJECT);
    let most = "objects of all types take more than 0 MiB of memory together, most of it ones (1 MiB), others (0 MiB)";
    assert_eq!(other.explain_excess(), most);
    set(&one, 2, 30_000);
    one.charge(0, 10_000);
    assert_eq!(other.free_bytes(&key), 60_000 - 2 * PER_OBJECT);
    set(&other, 3, 20_000);
    // The memory of the current object does not count against its replacement.
    assert_eq!(other.free_bytes(&key), 60_000 - 2 * PER_OBJECT);
    other.replace(key.clone(), None);
    one.exceed("it is too much".to_owned());
    one.charge(10_000, 0);
    assert_eq!(all.left(), 100_000);
    set(&one, 4, 30_000);
    one.complete(&HashSet::new());
    assert_eq!(all.left(), 100_000);
    set(&one, 5, 30_000);
    one.charge(0, 10_000);
    drop(one);
    assert_eq!(all.left(), 100_000);
}
