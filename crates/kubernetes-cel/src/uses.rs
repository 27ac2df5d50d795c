//! The uses of a variable in an expression.

use std::sync::Arc;

use crate::ast::{Expr, Kind, Literal, operators};

/// The uses of one variable.
#[derive(Debug, Default)]
pub(crate) struct VariableUses {
    /// The selected fields.
    pub fields: Vec<Arc<str>>,
    /// Whether the whole variable is used, without a field or a key.
    pub is_whole: bool,
}

impl VariableUses {
    /// Adds the uses in an expression.
    pub(crate) fn add(&mut self, expr: &Expr, variable: &str) {
        const PARTS: [&str; 3] =
            [operators::INDEX, operators::OPTIONAL_INDEX, operators::OPTIONAL_SELECT];
        let is_it = |expr: &Expr| matches!(&expr.kind, Kind::Ident(name) if **name == *variable);
        let part = match &expr.kind {
            Kind::Select { operand, field, .. } if is_it(operand) => {
                self.fields.push(Arc::clone(field));
                return;
            }
            Kind::Call(call) if PARTS.contains(&&*call.function) => match &call.arguments[..] {
                [operand, part] if is_it(operand) => {
                    if let Kind::Literal(Literal::String(field)) = &part.kind
                        && *call.function == *operators::OPTIONAL_SELECT
                    {
                        self.fields.push(Arc::clone(field));
                    }
                    Some(part)
                }
                _ => None,
            },
            Kind::Ident(_) => {
                self.is_whole |= is_it(expr);
                return;
            }
            _ => None,
        };
        match part {
            Some(part) => self.add(part, variable),
            None => expr.children().into_iter().for_each(|child| self.add(child, variable)),
        }
    }
}
