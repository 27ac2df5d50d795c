//! The selectors and the configuration of devices, which classes and claims have.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::resource::v1::{DeviceSelector, OpaqueDeviceConfiguration};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::Value;

use super::checks::check_each;
use crate::built_in::checks::{FieldErrors, quote};
use crate::built_in::core::persistent_volume::check_driver_name;

/// The largest numbers of selectors and configurations.
const SELECTORS: usize = 32;
pub(super) const CONFIGURATIONS: usize = 32;
const LONGEST_EXPRESSION: usize = 10 << 10;
const LONGEST_PARAMETERS: usize = 10 << 10;

/// The error of an empty expression.
const EMPTY: &str = "compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Checks selectors. Expressions are not compiled.
pub(super) fn check_selectors(
    selectors: Option<&Vec<DeviceSelector>>,
    at: &str,
    faults: &mut FieldErrors,
) {
    check_each(selectors, SELECTORS, at, faults, |selector, at, faults| match &selector.cel {
        None => faults.push(FieldError::required(format!("{at}.cel"), "")),
        Some(cel) if cel.expression.is_empty() => {
            faults.push(FieldError::invalid(format!("{at}.cel.expression"), quote(""), EMPTY));
        }
        Some(cel) if cel.expression.len() > LONGEST_EXPRESSION => {
            let at = format!("{at}.cel.expression");
            faults.push(FieldError::too_long(at, LONGEST_EXPRESSION as u64));
        }
        Some(_) => {}
    });
}

/// Checks the configuration of a driver. The size of `stored` parameters is not checked.
pub(super) fn check_opaque(
    opaque: Option<&OpaqueDeviceConfiguration>,
    stored: bool,
    at: &str,
    faults: &mut FieldErrors,
) {
    let at = format!("{at}.opaque");
    let Some(opaque) = opaque else { return faults.push(FieldError::required(at, "")) };
    check_driver_name(&format!("{at}.driver"), &opaque.driver, faults);
    check_object(&opaque.parameters, stored, &format!("{at}.parameters"), faults);
}

/// Checks that a value is a JSON object of limited size.
pub(super) fn check_object(value: &RawExtension, stored: bool, at: &str, faults: &mut FieldErrors) {
    let is_large = || value.0.to_string().len() > LONGEST_PARAMETERS;
    match &value.0 {
        Value::Null => faults.push(FieldError::required(at, "")),
        _ if !stored && is_large() => {
            faults.push(FieldError::too_long(at, LONGEST_PARAMETERS as u64));
        }
        Value::Object(_) => {}
        _ => {
            let why = "must be a valid JSON object";
            faults.push(FieldError::invalid(at, "\"<value omitted>\"", why));
        }
    }
}
