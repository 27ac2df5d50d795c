//! The parser, which builds the syntax tree of an expression.

mod operations;
mod primary;

use std::sync::Arc;

use crate::ast::{Call, Expr, Id, Kind, Literal, operators};
use crate::lexer::{Token, Word, tokens};
use crate::macros;
use crate::source::{Faults, Place, Source};

/// The largest number of characters in an expression, same as in kube-apiserver.
const LONGEST: usize = 100_000;
/// The largest depth of nested expressions, same as in kube-apiserver.
const DEEPEST: usize = 250;

/// Reserved words, which cannot be names of variables.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The syntax tree of an expression, with the positions of its parts.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub root: Expr,
    /// The offset of each expression, by its number.
    pub offsets: Vec<usize>,
}

/// Parses an expression. Errors are reported to `faults`.
pub(crate) fn parse(source: &Source, faults: &mut Faults) -> Option<Parsed> {
    if source.chars.len() > LONGEST {
        let size = source.chars.len();
        let message =
            format!("expression code point size exceeds limit: size: {size}, limit {LONGEST}");
        faults.push(Place::NOWHERE, message);
        return None;
    }
    let tokens = tokens(source, faults);
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        offsets: Vec::new(),
        faults,
        brackets: 0,
        operators: 0,
        open: 0,
        copied: 0,
        height: 0,
    };
    let root = parser.whole().ok()?;
    let Parser { offsets, faults, .. } = parser;
    faults.is_empty().then_some(Parsed { root, offsets })
}

/// An error after which parsing cannot continue. The error has been reported.
#[derive(Debug)]
struct Stop;

type Read<T> = Result<T, Stop>;

/// The tokens that can begin an expression.
const BEGINNING: &str = "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER";
const BEGINNING_OR_END: &str = "'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER";
const BEGINNING_OR_OPTIONAL: &str = "'[', '{', '(', '.', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER";

/// The state of the parser.
pub(crate) struct Parser<'a> {
    source: &'a Source,
    tokens: Vec<Token>,
    at: usize,
    offsets: Vec<usize>,
    faults: &'a mut Faults,
    /// The number of expressions around the present one.
    brackets: usize,
    /// The number of operators, fields and calls that the present expression is an operand of.
    operators: usize,
    /// The number of open brackets.
    open: usize,
    /// The number of nodes that macros have copied.
    copied: usize,
    /// The depth of the last expression in kube-apiserver's counting. It counts operators except logical ones, fields,
    /// indices and method calls, but not brackets.
    height: usize,
}

impl Parser<'_> {
    fn whole(&mut self) -> Read<Expr> {
        let root = self.expression()?;
        if self.token().kind != Word::End {
            let what = match self.tokens.get(self.at + 1).map(|token| &token.kind) {
                Some(Word::End) => "extraneous input",
                _ => "mismatched input",
            };
            self.complain(what, "<EOF>");
            return Err(Stop);
        }
        if self.height > DEEPEST && self.faults.is_empty() {
            self.faults.push(Place::NOWHERE, "max recursion depth exceeded".to_owned());
            return Err(Stop);
        }
        Ok(root)
    }

    /// The next token. The last token is the end.
    fn token(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.token().kind, Word::Sign(next) if next == sign)
    }

    /// Skips the next token if it is this operator or bracket, and returns its position.
    fn take(&mut self, sign: &str) -> Option<usize> {
        let start = self.token().start;
        self.is(sign).then(|| {
            self.at += 1;
            start
        })
    }

    fn text(&self, token: &Token) -> String {
        match token.kind {
            Word::End => "<EOF>".to_owned(),
            _ => self.source.chars[token.start..token.end].iter().collect(),
        }
    }

    /// Reports the next token as a syntax error, with the tokens that are expected.
    fn complain(&mut self, what: &str, expected: &str) {
        let token = self.token().clone();
        let text = self.text(&token);
        let is_empty = self.source.chars.is_empty();
        let place = if is_empty { Place::FIRST } else { self.source.place(token.start) };
        let message = format!("Syntax error: {what} '{text}' expecting {expected}");
        self.faults.push(place, message);
    }

    fn expect(&mut self, sign: &str) -> Read<usize> {
        if let Some(start) = self.take(sign) {
            return Ok(start);
        }
        let token = self.token().clone();
        if token.kind == Word::End && self.open == 1 && [")", "]"].contains(&sign) {
            let message = format!("Syntax error: missing '{sign}' at '<EOF>'");
            self.faults.push(self.source.place(token.start), message);
        } else {
            self.complain("mismatched input", &format!("'{sign}'"));
        }
        Err(Stop)
    }

    pub(crate) fn id(&mut self, offset: usize) -> Id {
        self.offsets.push(offset);
        self.offsets.len() - 1
    }

    pub(crate) fn expr(&mut self, offset: usize, kind: Kind) -> Expr {
        Expr { id: self.id(offset), kind }
    }

    /// Whether macros may copy this many more nodes. The limit depends on the length of the expression and is low,
    /// because a definition has many expressions.
    pub(crate) fn may_copy(&mut self, parts: usize) -> bool {
        const PER_CHARACTER: usize = 2;
        const MORE: usize = 1_000;
        self.copied = self.copied.saturating_add(parts);
        self.copied <= MORE + PER_CHARACTER * self.source.chars.len()
    }

    /// The offset of an expression.
    pub(crate) fn offset(&self, id: Id) -> usize {
        self.offsets[id]
    }

    /// Reports an error, and returns an expression in place of the invalid one.
    pub(crate) fn fault(&mut self, offset: usize, message: String) -> Expr {
        self.faults.push(self.source.place(offset), message);
        self.expr(offset, Kind::Unspecified)
    }

    /// Checks the depth limit. Brackets and operators are counted separately, same as in kube-apiserver.
    fn deeper(&mut self) -> Read<()> {
        if self.brackets > DEEPEST || self.operators > DEEPEST {
            let message = format!("expression recursion limit exceeded: {DEEPEST}");
            self.faults.push(Place::NOWHERE, message);
            return Err(Stop);
        }
        Ok(())
    }

    fn member(&mut self) -> Read<Expr> {
        let before = self.operators;
        let beside = std::mem::take(&mut self.height);
        let mut operand = self.primary()?;
        loop {
            if let Some(offset) = self.take(".") {
                self.operators += 1;
                self.deeper()?;
                operand = self.selection(operand, offset)?;
                self.height += 1;
            } else if let Some(offset) = self.take("[") {
                self.operators += 1;
                self.deeper()?;
                self.open += 1;
                let id = self.id(offset);
                let is_optional = self.take("?").is_some();
                if !is_optional && !self.begins_expression() {
                    return self.unexpected(BEGINNING_OR_OPTIONAL);
                }
                let index = self.expression()?;
                self.expect("]")?;
                self.open -= 1;
                let function = match is_optional {
                    true => operators::OPTIONAL_INDEX,
                    false => operators::INDEX,
                };
                operand = self.call_or_macro(id, function, None, vec![operand, index]);
                self.height += 1;
            } else {
                break;
            }
        }
        self.operators = before;
        self.height = self.height.max(beside);
        Ok(operand)
    }

    /// Parses the rest after a dot: a field, or a method call.
    fn selection(&mut self, operand: Expr, dot: usize) -> Read<Expr> {
        let is_optional = self.take("?").is_some();
        let token = self.token().clone();
        let name = match &token.kind {
            Word::Ident(name) => Arc::clone(name),
            Word::EscapedIdent => {
                let message = "unsupported syntax: '`'".to_owned();
                self.at += 1;
                return Ok(self.fault(token.start, message));
            }
            _ => {
                let found = self.text(&token);
                let found = if token.kind == Word::End { "" } else { &found };
                let place = match token.kind {
                    Word::End => self.source.place(dot + 1),
                    _ => self.source.place(token.start),
                };
                // The text since the dot.
                let read: String = self.source.chars[dot..token.start].iter().collect();
                let read = read.split_whitespace().collect::<String>();
                let message = match found {
                    "true" | "false" | "null" => {
                        format!("Syntax error: mismatched input '{found}' expecting IDENTIFIER")
                    }
                    _ => format!("Syntax error: no viable alternative at input '{read}{found}'"),
                };
                self.faults.push(place, message);
                return Err(Stop);
            }
        };
        self.at += 1;
        if is_optional {
            let field = Kind::Literal(Literal::String(name));
            let id = self.id(dot);
            let field = self.expr(token.start, field);
            let call = Call {
                function: operators::OPTIONAL_SELECT.into(),
                target: None,
                arguments: vec![operand, field],
            };
            return Ok(Expr { id, kind: Kind::Call(Box::new(call)) });
        }
        if let Some(offset) = self.take("(") {
            let id = self.id(offset);
            let arguments = self.arguments()?;
            return Ok(self.call_or_macro(id, &name, Some(operand), arguments));
        }
        let select = Kind::Select { operand: Box::new(operand), field: name, is_test: false };
        Ok(self.expr(dot, select))
    }

    fn begins_expression(&self) -> bool {
        match self.token().kind {
            Word::End | Word::EscapedIdent => false,
            Word::Sign(sign) => {
                ["[", "{", "(", ".", "-", "!", "true", "false", "null"].contains(&sign)
            }
            _ => true,
        }
    }

    /// Reports that another token was expected.
    fn unexpected<T>(&mut self, expected: &str) -> Read<T> {
        let after = self.tokens.get(self.at + 1).cloned();
        let goes_on = after.is_some_and(|after| match after.kind {
            Word::End | Word::EscapedIdent => false,
            Word::Sign(sign) => expected.contains(&format!("'{sign}'")),
            _ => true,
        });
        let what = if goes_on { "extraneous input" } else { "mismatched input" };
        self.complain(what, &format!("{{{expected}}}"));
        Err(Stop)
    }

    /// Parses arguments after the opening bracket.
    fn arguments(&mut self) -> Read<Vec<Expr>> {
        self.open += 1;
        let mut arguments = Vec::new();
        if self.take(")").is_none() {
            if !self.begins_expression() {
                return self.unexpected(BEGINNING_OR_END);
            }
            loop {
                arguments.push(self.expression()?);
                if self.take(",").is_none() {
                    break;
                }
            }
            self.expect(")")?;
        }
        self.open -= 1;
        Ok(arguments)
    }

    /// A call, or its expansion if it is the call of a macro.
    fn call_or_macro(
        &mut self,
        id: Id,
        function: &str,
        target: Option<Expr>,
        arguments: Vec<Expr>,
    ) -> Expr {
        match macros::expand(self, id, function, target, arguments) {
            Ok(expanded) => expanded,
            Err(call) => Expr { id, kind: Kind::Call(Box::new(call)) },
        }
    }
}
