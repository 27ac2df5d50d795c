//! Primary expressions: literals, names, lists, maps, messages, and expressions in brackets.

use super::{BEGINNING, Parser, RESERVED, Read, Stop};
use crate::ast::{Element, Entry, Expr, Kind, Literal};
use crate::lexer::Word;
use crate::unescape::unescape;

impl Parser<'_> {
    pub(super) fn primary(&mut self) -> Read<Expr> {
        if !self.begins_expression() {
            return self.unexpected(BEGINNING);
        }
        let token = self.token().clone();
        match token.kind {
            Word::Sign("(") => {
                self.at += 1;
                self.open += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                self.open -= 1;
                Ok(inner)
            }
            Word::Sign("[") => self.list(),
            Word::Sign("{") => self.map(),
            Word::Ident(_) | Word::Sign(".") => self.name(),
            _ => self.literal(),
        }
    }

    /// Parses a variable, a function call, or a message with its fields.
    fn name(&mut self) -> Read<Expr> {
        let start = self.token().start;
        let leading = self.take(".").map_or("", |_| ".");
        let token = self.token().clone();
        let Word::Ident(name) = &token.kind else {
            self.complain("mismatched input", "IDENTIFIER");
            return Err(Stop);
        };
        if let Some(end) = self.message_name_end() {
            return self.message(leading, end);
        }
        self.at += 1;
        if RESERVED.contains(&&**name) {
            return Ok(self.fault(start, format!("reserved identifier: {name}")));
        }
        let name = format!("{leading}{name}");
        match self.take("(") {
            Some(offset) => {
                let id = self.id(offset);
                let arguments = self.arguments()?;
                Ok(self.call_or_macro(id, &name, None, arguments))
            }
            None => Ok(self.expr(token.start, Kind::Ident(name.into()))),
        }
    }

    /// The end of the message name at this position, if there is one: `a.b.C {`.
    fn message_name_end(&self) -> Option<usize> {
        let kind = |at: usize| self.tokens.get(at).map(|token| &token.kind);
        let mut at = self.at + 1;
        while kind(at) == Some(&Word::Sign(".")) && matches!(kind(at + 1), Some(Word::Ident(_))) {
            at += 2;
        }
        (kind(at) == Some(&Word::Sign("{"))).then_some(at)
    }

    fn message(&mut self, leading: &str, end: usize) -> Read<Expr> {
        let parts = self.tokens[self.at..end].iter().map(|token| self.text(token));
        let name = format!("{leading}{}", parts.collect::<String>());
        let id = self.id(self.tokens[end].start);
        self.at = end + 1;
        self.open += 1;
        let mut fields = Vec::new();
        while self.take("}").is_none() {
            let token = self.token().clone();
            let Word::Ident(field) = token.kind else {
                self.complain("mismatched input", "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}");
                return Err(Stop);
            };
            self.at += 1;
            let offset = self.expect(":")?;
            let field_id = self.id(offset);
            let value = self.expression()?;
            fields.push((field_id, field, value));
            if self.take(",").is_none() && !self.is("}") {
                self.complain("mismatched input", "{'}', ','}");
                return Err(Stop);
            }
        }
        self.open -= 1;
        Ok(Expr { id, kind: Kind::Struct { name: name.into(), fields } })
    }

    fn list(&mut self) -> Read<Expr> {
        let start = self.token().start;
        let id = self.id(start);
        self.at += 1;
        self.open += 1;
        let mut elements = Vec::new();
        while self.take("]").is_none() {
            let is_optional = self.take("?").is_some();
            let value = self.expression()?;
            elements.push(Element { value, is_optional });
            if self.take(",").is_none() && !self.is("]") {
                self.complain("mismatched input", "{']', ','}");
                return Err(Stop);
            }
        }
        self.open -= 1;
        Ok(Expr { id, kind: Kind::List(elements) })
    }

    fn map(&mut self) -> Read<Expr> {
        let start = self.token().start;
        let id = self.id(start);
        self.at += 1;
        self.open += 1;
        let mut entries = Vec::new();
        while self.take("}").is_none() {
            let is_optional = self.take("?").is_some();
            let key = self.expression()?;
            let colon = self.expect(":")?;
            self.id(colon);
            let value = self.expression()?;
            entries.push(Entry { key, value, is_optional });
            if self.take(",").is_none() && !self.is("}") {
                self.complain("mismatched input", "{'}', ','}");
                return Err(Stop);
            }
        }
        self.open -= 1;
        Ok(Expr { id, kind: Kind::Map(entries) })
    }

    fn literal(&mut self) -> Read<Expr> {
        let start = self.token().start;
        let sign = self.take("-").map_or("", |_| "-");
        let token = self.token().clone();
        let text = self.text(&token);
        self.at += 1;
        let parsed = match token.kind {
            Word::Sign("true") => Ok(Literal::Bool(true)),
            Word::Sign("false") => Ok(Literal::Bool(false)),
            Word::Sign("null") => Ok(Literal::Null),
            Word::Int => signed(sign, &text).map(Literal::Int).ok_or("invalid int literal".into()),
            Word::Uint => unsigned(&text).map(Literal::Uint).ok_or("invalid uint literal".into()),
            Word::Float => match format!("{sign}{text}").parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Literal::Double(number)),
                _ => Err("invalid double literal".to_owned()),
            },
            Word::String => unescape(&text, false)
                .map(|bytes| Literal::String(String::from_utf8_lossy(&bytes).into())),
            Word::Bytes => unescape(&text[1..], true).map(|bytes| Literal::Bytes(bytes.into())),
            _ => {
                self.at -= 1;
                return self.unexpected(BEGINNING);
            }
        };
        Ok(match parsed {
            Ok(literal) => self.expr(start, Kind::Literal(literal)),
            Err(why) => self.fault(start, why),
        })
    }
}

fn signed(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

fn unsigned(text: &str) -> Option<u64> {
    let text = &text[..text.len() - 1];
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
