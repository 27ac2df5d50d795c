//! Numbers as Go reads and writes them: `1.0` is `1`.

use serde_json::Value;

/// The same value, with numbers without a fraction as integers. Larger ones stay as they are
/// written.
pub fn normalize_numbers(value: &Value) -> Value {
    let mut value = value.clone();
    normalize_numbers_in_place(&mut value);
    value
}

/// Makes integers of the numbers of a value that have no fraction.
pub fn normalize_numbers_in_place(value: &mut Value) {
    #[allow(clippy::cast_possible_truncation)] // checked to be small
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15);
            if let Some(float) = whole {
                *value = (float as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers_in_place),
        Value::Object(members) => members.values_mut().for_each(normalize_numbers_in_place),
        _ => {}
    }
}
