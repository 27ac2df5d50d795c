//! Numbers as Go reads and writes them: `1.0` is `1`.

use serde_json::Value;

/// The same value, with numbers without a fraction as whole numbers.
pub fn whole(value: &Value) -> Value {
    let mut value = value.clone();
    make_whole(&mut value);
    value
}

/// Makes whole numbers of numbers without a fraction.
pub fn make_whole(value: &mut Value) {
    #[allow(clippy::cast_possible_truncation)] // checked to be small
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15);
            if let Some(float) = whole {
                *value = (float as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(members) => members.values_mut().for_each(make_whole),
        _ => {}
    }
}
