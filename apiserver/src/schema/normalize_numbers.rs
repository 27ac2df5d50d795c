//! Numbers of definitions as Go reads and writes them: `1.0` is `1`.

use serde_json::Value;

/// The same value, with numbers without a fraction as integers. Larger ones stay as they are
/// written.
pub fn normalize_numbers(value: &Value) -> Value {
    #[allow(clippy::cast_possible_truncation)] // checked to be small
    match value {
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(normalize_numbers).collect(),
        Value::Object(members) => Value::Object(
            members.iter().map(|(key, one)| (key.clone(), normalize_numbers(one))).collect(),
        ),
        other => other.clone(),
    }
}
