//! Numbers of definitions as Go reads and writes them: `1.0` is `1`.

use serde_json::Value;

/// The same value, with numbers without a fraction as whole numbers.
pub fn whole(value: &Value) -> Value {
    #[allow(clippy::cast_possible_truncation)] // checked to be small
    match value {
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(whole).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(key, one)| (key.clone(), whole(one))).collect())
        }
        other => other.clone(),
    }
}
