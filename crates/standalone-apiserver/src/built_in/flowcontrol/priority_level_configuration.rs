//! PriorityLevelConfigurations.

use std::collections::BTreeSet;

use aggregated_apiserver::{FieldError, Validation};
use k8s_openapi::api::flowcontrol::v1::{
    ExemptPriorityLevelConfiguration, LimitResponse, LimitedPriorityLevelConfiguration,
    PriorityLevelConfiguration, PriorityLevelConfigurationSpec, QueuingConfiguration,
};
use serde_json::Value;

use super::bootstrap::{EXEMPT, mandatory_level};
use super::flow_schema::strategy;
use crate::built_in::cell_texts::NONE;
use crate::built_in::checks::{FieldErrors, is_same, quote, to_json};
use crate::built_in::row::{Column, Row, Subresources};

/// The annotation that only older versions of the API have.
const ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
const DEFAULT_SHARES: i32 = 30;
/// The defaults of queuing: the hand size, the number of queues and the largest length of a queue.
const DEFAULT_QUEUING: (i32, i32, i32) = (8, 64, 50);
const MOST_QUEUES: i32 = 10_000_000;
/// The number of bits that shuffle sharding can use.
const HASH_BITS: f64 = 60.0;

pub(crate) fn row() -> Row<PriorityLevelConfiguration> {
    let rules = Validation::new()
        .prepare(|level, _| prepare(level))
        .validate(|level, _, _| validate(level))
        .validate_status(|level, _, _| validate_status(level));
    Row { subresources: Subresources::Status, columns: columns(), rules, ..Row::new(strategy()) }
}

fn columns() -> Vec<Column<PriorityLevelConfiguration>> {
    let queuing = |heading, count: fn(&QueuingConfiguration) -> Option<i32>| {
        Column::computed(heading, move |level: &PriorityLevelConfiguration, _| {
            let response = limited(level).and_then(|limited| limited.limit_response.as_ref());
            let queuing = response.and_then(|response| response.queuing.as_ref());
            or_none(queuing.map(|queuing| count(queuing).unwrap_or_default()))
        })
    };
    vec![
        Column::computed("Type", |level: &PriorityLevelConfiguration, _| {
            level.spec.as_ref().map(|spec| spec.type_.clone()).unwrap_or_default()
        }),
        Column::computed("NominalConcurrencyShares", |level: &PriorityLevelConfiguration, _| {
            let shares = |limited: &LimitedPriorityLevelConfiguration| {
                limited.nominal_concurrency_shares.unwrap_or_default()
            };
            or_none(limited(level).map(shares))
        }),
        queuing("Queues", |queuing| queuing.queues),
        queuing("HandSize", |queuing| queuing.hand_size),
        queuing("QueueLengthLimit", |queuing| queuing.queue_length_limit),
        Column::age(),
    ]
}

fn limited(level: &PriorityLevelConfiguration) -> Option<&LimitedPriorityLevelConfiguration> {
    level.spec.as_ref().and_then(|spec| spec.limited.as_ref())
}

fn or_none(count: Option<i32>) -> Value {
    count.map_or_else(|| NONE.into(), Value::from)
}

fn prepare(level: &mut PriorityLevelConfiguration) {
    let Some(spec) = &mut level.spec else { return };
    if let Some(exempt) = &mut spec.exempt {
        exempt.nominal_concurrency_shares.get_or_insert(0);
        exempt.lendable_percent.get_or_insert(0);
    }
    let Some(limited) = &mut spec.limited else { return };
    limited.nominal_concurrency_shares.get_or_insert(DEFAULT_SHARES);
    limited.lendable_percent.get_or_insert(0);
    let queuing = limited.limit_response.as_mut().and_then(|response| response.queuing.as_mut());
    if let Some(queuing) = queuing {
        let (hand_size, queues, length) = DEFAULT_QUEUING;
        for (field, default) in [
            (&mut queuing.hand_size, hand_size),
            (&mut queuing.queues, queues),
            (&mut queuing.queue_length_limit, length),
        ] {
            if field.unwrap_or_default() == 0 {
                *field = Some(default);
            }
        }
    }
}

fn validate(level: &PriorityLevelConfiguration) -> FieldErrors {
    let mut faults = Vec::new();
    let annotations = level.metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key(ZERO_SHARES)) {
        let why = format!("annotation '{ZERO_SHARES}' is forbidden");
        faults.push(FieldError::forbidden("metadata.annotations", &why));
    }
    let name = level.metadata.name.as_deref().unwrap_or_default();
    let nothing = PriorityLevelConfigurationSpec::default();
    let spec = level.spec.as_ref().unwrap_or(&nothing);
    check_spec(name, spec, &mut faults);
    if let Some(mandatory) = mandatory_level(name).and_then(|level| level.spec.as_ref()) {
        let is_exempt = name == EXEMPT;
        let mut compared = spec.clone();
        if is_exempt {
            compared.exempt.clone_from(&mandatory.exempt);
        }
        if !is_same(&compared, mandatory) {
            let part = if is_exempt { " except the 'spec.exempt' field" } else { "" };
            let why = format!("spec of '{name}'{part} must equal the fixed value");
            faults.push(FieldError::invalid("spec", to_json(spec), &why));
        }
    }
    faults.extend(validate_status(level));
    faults
}

fn validate_status(level: &PriorityLevelConfiguration) -> FieldErrors {
    let conditions = level.status.as_ref().and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default().iter();
    let mut faults = Vec::new();
    check_conditions(conditions.map(|condition| condition.type_.as_deref()), &mut faults);
    faults
}

/// Checks the types of conditions.
pub(super) fn check_conditions<'a>(
    types: impl Iterator<Item = Option<&'a str>>,
    faults: &mut FieldErrors,
) {
    let mut seen = BTreeSet::new();
    for (index, of) in types.map(Option::unwrap_or_default).enumerate() {
        let at = format!("status.conditions[{index}].type");
        if !seen.insert(of) {
            faults.push(FieldError::duplicate(&at, quote(of)));
        }
        if of.is_empty() {
            faults.push(FieldError::required(at, ""));
        }
    }
}

fn check_spec(name: &str, spec: &PriorityLevelConfigurationSpec, faults: &mut FieldErrors) {
    let PriorityLevelConfigurationSpec { exempt, limited, type_ } = spec;
    if (name == EXEMPT) != (type_ == "Exempt") {
        let why = "must be 'Exempt' if and only if `name` is 'exempt'";
        faults.push(FieldError::invalid("spec.type", quote(type_), why));
    }
    match type_.as_str() {
        "Exempt" => {
            if limited.is_some() {
                let why = "must be nil if the type is not Limited";
                faults.push(FieldError::forbidden("spec.limited", why));
            }
            if let Some(exempt) = exempt {
                check_exempt(exempt, faults);
            }
        }
        "Limited" => {
            if exempt.is_some() {
                let why = "must be nil if the type is Limited";
                faults.push(FieldError::forbidden("spec.exempt", why));
            }
            match limited {
                None => {
                    let why = "must not be empty when type is Limited";
                    faults.push(FieldError::required("spec.limited", why));
                }
                Some(limited) => check_limited(limited, faults),
            }
        }
        "" => faults.push(FieldError::required("spec.type", "")),
        other => {
            let all = ["Exempt", "Limited"];
            faults.push(FieldError::not_supported("spec.type", quote(other), &all));
        }
    }
}

fn check_exempt(exempt: &ExemptPriorityLevelConfiguration, faults: &mut FieldErrors) {
    check_shares("spec.exempt", exempt.nominal_concurrency_shares, faults);
    check_percent("spec.exempt", exempt.lendable_percent, faults);
}

fn check_limited(limited: &LimitedPriorityLevelConfiguration, faults: &mut FieldErrors) {
    const AT: &str = "spec.limited";
    check_shares(AT, limited.nominal_concurrency_shares, faults);
    let nothing = LimitResponse::default();
    check_response(limited.limit_response.as_ref().unwrap_or(&nothing), faults);
    check_percent(AT, limited.lendable_percent, faults);
    if let Some(percent) = limited.borrowing_limit_percent.filter(|percent| *percent < 0) {
        let why = "if specified, must be a non-negative integer";
        faults.push(FieldError::invalid(format!("{AT}.borrowingLimitPercent"), percent, why));
    }
}

fn check_shares(at: &str, shares: Option<i32>, faults: &mut FieldErrors) {
    if let Some(shares) = shares.filter(|shares| *shares < 0) {
        let at = format!("{at}.nominalConcurrencyShares");
        faults.push(FieldError::invalid(at, shares, "must be a non-negative integer"));
    }
}

fn check_percent(at: &str, percent: Option<i32>, faults: &mut FieldErrors) {
    if let Some(percent) = percent.filter(|percent| !(0..=100).contains(percent)) {
        let why = "must be between 0 and 100, inclusive";
        faults.push(FieldError::invalid(format!("{at}.lendablePercent"), percent, why));
    }
}

fn check_response(response: &LimitResponse, faults: &mut FieldErrors) {
    const AT: &str = "spec.limited.limitResponse";
    let at = format!("{AT}.queuing");
    match (response.type_.as_str(), &response.queuing) {
        ("Reject", None) => {}
        ("Reject", Some(_)) => {
            let why = "must be nil if limited.limitResponse.type is not Limited";
            faults.push(FieldError::forbidden(at, why));
        }
        ("Queue", None) => {
            let why = "must not be empty if limited.limitResponse.type is Limited";
            faults.push(FieldError::required(at, why));
        }
        ("Queue", Some(queuing)) => check_queuing(queuing, &at, faults),
        ("", _) => faults.push(FieldError::required(format!("{AT}.type"), "")),
        (other, _) => {
            let all = ["Queue", "Reject"];
            faults.push(FieldError::not_supported(format!("{AT}.type"), quote(other), &all));
        }
    }
}

fn check_queuing(queuing: &QueuingConfiguration, at: &str, faults: &mut FieldErrors) {
    const POSITIVE: &str = "must be positive";
    let mut check = |field: &str, value: i32, why: &str| {
        faults.push(FieldError::invalid(format!("{at}.{field}"), value, why));
    };
    let length = queuing.queue_length_limit.unwrap_or_default();
    if length <= 0 {
        check("queueLengthLimit", length, POSITIVE);
    }
    let queues = queuing.queues.unwrap_or_default();
    if queues <= 0 {
        check("queues", queues, POSITIVE);
    } else if queues > MOST_QUEUES {
        check("queues", queues, &format!("must not be greater than {MOST_QUEUES}"));
    }
    let hand_size = queuing.hand_size.unwrap_or_default();
    let bits = (f64::from(queues).log2() * f64::from(hand_size)).ceil();
    if hand_size <= 0 {
        check("handSize", hand_size, POSITIVE);
    } else if hand_size > queues {
        let why = format!("should not be greater than queues ({queues})");
        check("handSize", hand_size, &why);
    } else if bits > HASH_BITS {
        let why = format!(
            "required entropy bits of deckSize {queues} and handSize {hand_size} should not be greater than {HASH_BITS}"
        );
        check("handSize", hand_size, &why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::flowcontrol::bootstrap;
    use crate::built_in::testing::{cells, now, object, prepared, texts};
    use serde_json::json;

    fn faults(level: Value) -> Vec<String> {
        texts(&validate(&object(level)))
    }

    fn limited(response: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {
            "type": "Limited", "limited": {"limitResponse": response},
        }})
    }

    #[test]
    fn the_levels_of_the_start_are_valid_and_have_all_defaults() {
        let mut count = 0;
        for object in bootstrap::objects(now()) {
            if object["kind"] == "PriorityLevelConfiguration" {
                assert_eq!(prepared(prepare, object.clone()), object);
                assert_eq!(faults(object), [] as [&str; 0]);
                count += 1;
            }
        }
        assert_eq!(count, 8);
    }

    #[test]
    fn invalid_levels_are_rejected() {
        let queue = |queuing: Value| limited(json!({"type": "Queue", "queuing": queuing}));
        let at = "spec.limited.limitResponse.queuing";
        for (level, expected) in [
            (limited(json!({"type": "Reject"})), vec![]),
            (
                queue(json!({"queues": 64, "handSize": 11, "queueLengthLimit": 0})),
                vec![
                    format!("{at}.queueLengthLimit: Invalid value: 0: must be positive"),
                    format!("{at}.handSize: Invalid value: 11: required entropy bits of deckSize 64 and handSize 11 should not be greater than 60"),
                ],
            ),
            (
                queue(json!({"queues": 4, "handSize": 5, "queueLengthLimit": 1})),
                vec![format!("{at}.handSize: Invalid value: 5: should not be greater than queues (4)")],
            ),
            (
                json!({"metadata": {"name": "exempt"}, "spec": {"type": "Limited"}}),
                vec![
                    "spec.type: Invalid value: \"Limited\": must be 'Exempt' if and only if `name` is 'exempt'".to_owned(),
                    "spec.limited: Required value: must not be empty when type is Limited".to_owned(),
                    "spec: Invalid value: {\"type\":\"Limited\"}: spec of 'exempt' except the 'spec.exempt' field must equal the fixed value".to_owned(),
                ],
            ),
        ] {
            assert_eq!(faults(level.clone()), expected, "{level}");
        }
    }

    #[test]
    fn a_level_is_printed_as_a_table_row() {
        let filled = prepared(prepare, limited(json!({"type": "Queue", "queuing": {}})));
        assert_eq!(
            cells(columns(), filled),
            json!({
                "Type": "Limited", "NominalConcurrencyShares": 30, "Queues": 64, "HandSize": 8,
                "QueueLengthLimit": 50, "Age": "<unknown>",
            })
        );
    }
}
