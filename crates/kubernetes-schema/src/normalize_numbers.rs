//! Numbers as Go decodes and encodes them: `1.0` is `1`.

use serde_json::Value;

/// Returns the value with integers instead of numbers without a fraction. Numbers from 1e15 on are not changed.
pub fn normalize_numbers(value: &Value) -> Value {
    let mut value = value.clone();
    normalize_numbers_in_place(&mut value);
    value
}

/// Converts the numbers of a value that have no fraction to integers.
pub fn normalize_numbers_in_place(value: &mut Value) {
    #[allow(clippy::cast_possible_truncation)] // the range is checked
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
