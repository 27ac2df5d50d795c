//! Operators and their operands, by increasing precedence.

use super::{Parser, Read};
use crate::ast::{Call, Expr, Id, Kind, operators};
use crate::lexer::Word;

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Read<Expr> {
        self.brackets += 1;
        self.deeper()?;
        let beside = std::mem::take(&mut self.height);
        let condition = self.alternatives()?;
        let result = match self.take("?") {
            None => condition,
            Some(offset) => {
                let id = self.id(offset);
                let yes = self.alternatives()?;
                self.expect(":")?;
                let no = self.expression()?;
                self.height += 1;
                self.call_or_macro(id, operators::CONDITIONAL, None, vec![condition, yes, no])
            }
        };
        self.brackets -= 1;
        self.height = self.height.max(beside);
        Ok(result)
    }

    fn alternatives(&mut self) -> Read<Expr> {
        let mut terms = Terms::new(self.conjunction()?);
        while let Some(offset) = self.take("||") {
            let next = self.conjunction()?;
            terms.add(self.id(offset), next);
        }
        Ok(terms.balanced(operators::OR))
    }

    fn conjunction(&mut self) -> Read<Expr> {
        let mut terms = Terms::new(self.relation()?);
        while let Some(offset) = self.take("&&") {
            let next = self.relation()?;
            terms.add(self.id(offset), next);
        }
        Ok(terms.balanced(operators::AND))
    }

    fn relation(&mut self) -> Read<Expr> {
        const RELATIONS: [(&str, &str); 7] = [
            ("<", "_<_"),
            ("<=", "_<=_"),
            (">=", "_>=_"),
            (">", "_>_"),
            ("==", operators::EQUALS),
            ("!=", operators::NOT_EQUALS),
            ("in", operators::IN),
        ];
        self.binary(&RELATIONS, Self::sum)
    }

    fn sum(&mut self) -> Read<Expr> {
        self.binary(&[("+", operators::ADD), ("-", "_-_")], Self::product)
    }

    fn product(&mut self) -> Read<Expr> {
        self.binary(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
    }

    /// Parses operators of the same precedence and their operands, which associate to the left.
    fn binary(
        &mut self,
        signs: &[(&str, &str)],
        operand: fn(&mut Self) -> Read<Expr>,
    ) -> Read<Expr> {
        let before = self.operators;
        let beside = std::mem::take(&mut self.height);
        let mut left = operand(self)?;
        while let Some((sign, function)) = signs.iter().find(|(sign, _)| self.is(sign)) {
            self.operators += 1;
            self.deeper()?;
            let offset = self.take(sign).unwrap_or_default();
            let id = self.id(offset);
            let right = operand(self)?;
            self.height += 1;
            left = self.call_or_macro(id, function, None, vec![left, right]);
        }
        self.operators = before;
        self.height = self.height.max(beside);
        Ok(left)
    }

    fn unary(&mut self) -> Read<Expr> {
        let sign = if self.is("!") { "!" } else { "-" };
        if !self.is(sign) {
            return self.member();
        }
        let next = self.tokens.get(self.at + 1).map(|token| &token.kind);
        if sign == "-" && matches!(next, Some(Word::Int | Word::Float)) {
            return self.member();
        }
        let start = self.token().start;
        let mut count = 0;
        while self.is(sign) {
            self.at += 1;
            count += 1;
        }
        let id = self.id(start);
        let operand = self.member()?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        let function = if sign == "!" { operators::NOT } else { operators::NEGATE };
        Ok(self.call_or_macro(id, function, None, vec![operand]))
    }
}

/// Terms of `&&` or `||`, which become a balanced tree.
struct Terms {
    terms: Vec<Option<Expr>>,
    ids: Vec<Id>,
}

impl Terms {
    fn new(first: Expr) -> Self {
        Self { terms: vec![Some(first)], ids: Vec::new() }
    }

    fn add(&mut self, id: Id, term: Expr) {
        self.ids.push(id);
        self.terms.push(Some(term));
    }

    fn balanced(mut self, function: &str) -> Expr {
        let last = self.ids.len();
        match last {
            0 => self.term(0),
            _ => self.between(0, last - 1, function),
        }
    }

    fn term(&mut self, at: usize) -> Expr {
        let taken = self.terms.get_mut(at).and_then(Option::take);
        taken.unwrap_or(Expr { id: 0, kind: Kind::Unspecified })
    }

    fn between(&mut self, low: usize, high: usize, function: &str) -> Expr {
        let middle = (low + high).div_ceil(2);
        let left = match middle == low {
            true => self.term(middle),
            false => self.between(low, middle - 1, function),
        };
        let right = match middle == high {
            true => self.term(middle + 1),
            false => self.between(middle + 1, high, function),
        };
        let call = Call { function: function.into(), target: None, arguments: vec![left, right] };
        Expr { id: self.ids[middle], kind: Kind::Call(Box::new(call)) }
    }
}
