//! Generates random expressions of a given type.

use fastrand::Rng;

use super::schemas::Place;
use super::terms::{Bound, Function, Term, functions};

/// The types for free type variables.
const FREE: &[&str] = &["int", "string", "bool", "double", "string", "int"];

/// A generator of expressions.
pub struct Maker<'a> {
    pub rng: &'a mut Rng,
    /// The expressions in scope: paths into values, and variables of macros.
    pub places: Vec<Place>,
    /// The number of variables that were created so far.
    pub variables: usize,
}

impl Maker<'_> {
    /// Returns an expression of a type, at most `depth` levels deep.
    pub fn expression(&mut self, wanted: &Term, depth: usize) -> String {
        self.of(wanted, depth, "")
    }

    fn of(&mut self, wanted: &Term, depth: usize, within: &str) -> String {
        // A few expressions have a wrong type.
        if self.rng.u32(0..150) == 0 {
            let other = self.free();
            return self.of(&other, depth.min(1), within);
        }
        if depth == 0 {
            return self.leaf(wanted, within);
        }
        match self.rng.u32(0..20) {
            0..3 => self.leaf(wanted, within),
            3..8 => self.macros(wanted, depth).unwrap_or_else(|| self.call(wanted, depth)),
            // In Go, an optional value from a conditional is not the same value any more.
            8 if wanted.name != "optional_type" => {
                let condition = self.of(&Term::named("bool"), depth - 1, "");
                let (yes, no) = (self.of(wanted, depth - 1, ""), self.of(wanted, depth - 1, ""));
                format!("({condition} ? {yes} : {no})")
            }
            9 => self.taken_out(wanted, depth),
            _ => self.call(wanted, depth),
        }
    }

    /// Returns a call of a function with this result type.
    fn call(&mut self, wanted: &Term, depth: usize) -> String {
        let mut fitting: Vec<(&Function, Bound)> = Vec::new();
        for function in functions() {
            let mut bound = Bound::new();
            // Functions whose result has any type would always fit.
            let is_general = function.result.of.is_empty() && function.result.name.len() == 1;
            // Go cannot convert Kubernetes' own types back from an optional value.
            if function.name == "orValue" && wanted.name.contains('.') {
                continue;
            }
            if function.result.matches(wanted, &mut bound)
                && (!is_general || self.rng.u32(0..4) == 0)
            {
                fitting.push((function, bound));
            }
        }
        if fitting.is_empty() {
            return self.leaf(wanted, "");
        }
        // All overloads of a name count as one choice.
        let mut names: Vec<&str> =
            fitting.iter().map(|(function, _)| function.name.as_str()).collect();
        names.dedup();
        let name = names[self.rng.usize(0..names.len())].to_owned();
        fitting.retain(|(function, _)| function.name == name);
        let (function, mut bound) = fitting.swap_remove(self.rng.usize(0..fitting.len()));
        let mut arguments = Vec::new();
        for argument in &function.arguments {
            let free = Term::named(FREE[self.rng.usize(0..FREE.len())]);
            let argument = argument.filled(&mut bound, &mut || free.clone());
            arguments.push(self.of(&argument, depth - 1, &name));
        }
        let has_brackets = self.rng.u32(0..12) != 0;
        written(function, &arguments, has_brackets)
    }

    /// Returns a macro with this result type.
    fn macros(&mut self, wanted: &Term, depth: usize) -> Option<String> {
        let bool = Term::named("bool");
        if self.rng.u32(0..200) == 0 {
            // Kubernetes does not support `cel.bind`.
            let of = self.free();
            let value = self.of(&of, depth - 1, "");
            let name = self.variable();
            let inner = self.with(&[(&name, &of)], |maker| maker.of(wanted, depth - 1, ""));
            return Some(format!("cel.bind({name}, {value}, {inner})"));
        }
        let (range, items, two) = self.range(depth);
        let (first, second) = (self.variable(), self.variable());
        let int_or_key = match range.starts_with('{') {
            true => Term::named("string"),
            false => Term::named("int"),
        };
        let variables: Vec<(&str, &Term)> = match two {
            true => vec![(&first, &int_or_key), (&second, &items)],
            false => vec![(&first, &items)],
        };
        let names = variables.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        if *wanted == bool {
            if self.rng.u32(0..5) == 0 {
                return self.asked();
            }
            let inner = self.with(&variables, |maker| maker.of(&bool, depth - 1, ""));
            let name = match two {
                true => ["all", "exists", "existsOne"][self.rng.usize(0..3)],
                false => ["all", "exists", "exists_one"][self.rng.usize(0..3)],
            };
            return Some(format!("{range}.{name}({names}, {inner})"));
        }
        if wanted.name == "list" {
            let into = wanted.of[0].clone();
            let how = self.rng.u32(0..4);
            if !two && into == items && how == 0 {
                let inner = self.with(&variables, |maker| maker.of(&bool, depth - 1, ""));
                return Some(format!("{range}.filter({names}, {inner})"));
            }
            if !two && how == 1 && into == items {
                let inner = self.with(&variables, |maker| maker.leaf(&Term::named("int"), ""));
                return Some(format!("{range}.sortBy({names}, {inner})"));
            }
            let test = match how {
                2 => format!("{}, ", self.with(&variables, |maker| maker.of(&bool, depth - 1, ""))),
                _ => String::new(),
            };
            let inner = self.with(&variables, |maker| maker.of(&into, depth - 1, ""));
            let name = if two { "transformList" } else { "map" };
            return Some(format!("{range}.{name}({names}, {test}{inner})"));
        }
        if wanted.name == "map" && two && wanted.of[0].name == "int" && !range.starts_with('{') {
            let inner = self.with(&variables, |maker| maker.of(&wanted.of[1], depth - 1, ""));
            return Some(format!("{range}.transformMap({names}, {inner})"));
        }
        if wanted.name == "optional_type" {
            let of = self.free();
            let optional = self.of(&Term::optional(of.clone()), depth - 1, "");
            let inner = self.with(&[(&first, &of)], |maker| maker.of(&wanted.of[0], depth - 1, ""));
            return Some(format!("{optional}.optMap({first}, {inner})"));
        }
        None
    }

    /// Returns an expression to iterate over, the type of its elements, and whether the macro has two variables.
    fn range(&mut self, depth: usize) -> (String, Term, bool) {
        let lists: Vec<Place> =
            self.places.iter().filter(|place| place.term.name == "list").cloned().collect();
        let two = self.rng.u32(0..3) == 0;
        if !lists.is_empty() && self.rng.u32(0..4) != 0 {
            let place = &lists[self.rng.usize(0..lists.len())];
            return (place.text.clone(), place.term.of[0].clone(), two);
        }
        let items = self.free();
        let range = self.of(&Term::list(items.clone()), depth.min(1), "");
        let range = if range.contains(' ') && !range.starts_with(['[', '(']) {
            format!("({range})")
        } else {
            range
        };
        (range, items, two)
    }

    /// Returns a test whether a path exists (`has(…)`).
    fn asked(&mut self) -> Option<String> {
        let asked: Vec<String> =
            self.places.iter().filter_map(|place| place.asked.clone()).collect();
        (!asked.is_empty()).then(|| format!("({})", asked[self.rng.usize(0..asked.len())]))
    }

    /// Returns an expression that extracts a value of this type from a larger value.
    fn taken_out(&mut self, wanted: &Term, depth: usize) -> String {
        match self.rng.u32(0..4) {
            0 if !wanted.name.contains('.') => {
                let optional = self.of(&Term::optional(wanted.clone()), depth - 1, "");
                format!("{optional}.orValue({})", self.leaf(wanted, ""))
            }
            1 => format!("{}[0]", self.of(&Term::list(wanted.clone()), depth - 1, "")),
            2 => format!("dyn({})", self.of(wanted, depth - 1, "")),
            _ => {
                let guarded: Vec<Place> = self.fitting(wanted);
                let guarded: Vec<&Place> =
                    guarded.iter().filter(|place| place.asked.is_some()).collect();
                if guarded.is_empty() {
                    return self.leaf(wanted, "");
                }
                let place = guarded[self.rng.usize(0..guarded.len())];
                let asked = place.asked.clone().unwrap_or_default();
                format!("({asked} ? {} : {})", place.text, self.leaf(wanted, ""))
            }
        }
    }

    fn fitting(&self, wanted: &Term) -> Vec<Place> {
        self.places.iter().filter(|place| place.term == *wanted).cloned().collect()
    }

    /// Returns a path or a literal.
    fn leaf(&mut self, wanted: &Term, within: &str) -> String {
        let fitting = self.fitting(wanted);
        if !fitting.is_empty() && self.rng.u32(0..10) < 7 {
            return fitting[self.rng.usize(0..fitting.len())].text.clone();
        }
        match wanted.name.as_str() {
            "bool" => self.pick(&["true", "false"]),
            "int" => self.pick(&["0", "1", "2", "-1", "5", "100", "0x1F", "9223372036854775807"]),
            "uint" => self.pick(&["0u", "1u", "7u", "0xFFu"]),
            "double" => self.pick(&["0.0", "1.5", "-2.0", "1e3", ".5", "3.25"]),
            "string" => self.text(within),
            "bytes" => self.pick(&["b'abc'", "b''", "b'\\xc3\\xa9'", "bytes('x')"]),
            "null_type" => "null".to_owned(),
            "timestamp" => self.pick(&[
                "timestamp('2020-02-29T23:59:58.125Z')",
                "timestamp(0)",
                "timestamp('1999-12-31T00:00:00+02:00')",
            ]),
            "duration" => self.pick(&[
                "duration('1h30m')",
                "duration('1.5s')",
                "duration('-2m')",
                "duration('0s')",
            ]),
            "list" => {
                let count = self.rng.usize(0..4);
                let items: Vec<String> =
                    (0..count).map(|_| self.leaf(&wanted.of[0], within)).collect();
                format!("[{}]", items.join(", "))
            }
            "map" => match self.rng.u32(0..4) {
                0 => "{}".to_owned(),
                _ => format!(
                    "{{{}: {}}}",
                    self.leaf(&wanted.of[0], ""),
                    self.leaf(&wanted.of[1], "")
                ),
            },
            "optional_type" => match self.rng.u32(0..4) {
                0 => "optional.none()".to_owned(),
                1 => format!("optional.ofNonZeroValue({})", self.leaf(&wanted.of[0], "")),
                _ => format!("optional.of({})", self.leaf(&wanted.of[0], "")),
            },
            "type" => self.pick(&["int", "string", "bool", "double", "list", "map", "null_type"]),
            "dyn" | "A" | "V" | "K" | "T" => {
                let of = self.free();
                format!("dyn({})", self.leaf(&of, ""))
            }
            "net.IP" => {
                self.pick(&["ip('1.2.3.4')", "ip('::1')", "ip('fe80::1')", "ip('224.0.0.1')"])
            }
            "net.CIDR" => {
                self.pick(&["cidr('10.0.0.0/8')", "cidr('fe80::1/64')", "cidr('10.0.0.1/31')"])
            }
            "kubernetes.URL" => self.pick(&[
                "url('https://u:p@x.y:8443/a%20b?c=1&c=2')",
                "url('/a')",
                "url('http://[::1]/')",
            ]),
            "kubernetes.Quantity" => self.pick(&[
                "quantity('1Gi')",
                "quantity('100m')",
                "quantity('-5')",
                "quantity('1e3')",
            ]),
            "kubernetes.Semver" => {
                self.pick(&["semver('1.2.3')", "semver('0.0.1-rc.1')", "semver('v2.0', true)"])
            }
            "kubernetes.NamedFormat" => self.pick(&[
                "format.dns1123Label()",
                "format.uuid()",
                "format.date()",
                "format.labelValue()",
            ]),
            // Objects have no literals, so only existing paths fit.
            _ => match self.places.first() {
                Some(place) => place.text.clone(),
                None => "self".to_owned(),
            },
        }
    }

    /// Returns a string literal that mostly is a valid argument of the function `within`.
    fn text(&mut self, within: &str) -> String {
        let fitting: &[&str] = match within {
            "matches" | "find" | "findAll" => &["'[a-c]+'", "'^a.*$'", "'\\\\d'", "'(a|b)'", "'['"],
            "quantity" | "isQuantity" => &["'1Gi'", "'1.5'", "'x'", "'10m'"],
            "ip" | "isIP" | "ip.isCanonical" | "containsIP" => {
                &["'10.1.2.3'", "'::1'", "'::FFFF'", "'1.2.3'"]
            }
            "cidr" | "isCIDR" | "containsCIDR" => &["'10.1.0.0/16'", "'::/0'", "'1.2.3.4/33'"],
            "url" | "isURL" => &["'https://x.y/z'", "'/p?q=r'", "'a b'", "'x'"],
            "semver" | "isSemver" => &["'1.2.3'", "'v1.2'", "'01.2.3'", "'1.2.3-a+b'"],
            "timestamp" => &["'2020-01-02T03:04:05Z'", "'2020-01-02T03:04:05.5-07:00'", "'x'"],
            "duration" => &["'1h'", "'2m3.5s'", "'-1ms'", "'x'"],
            "int" | "uint" => &["'12'", "'-3'", "'x'", "'9223372036854775808'"],
            "double" => &["'1.5'", "'1e400'", "'x'", "'NaN'"],
            "bool" => &["'true'", "'FALSE'", "'x'"],
            "format" => &["'%s'", "'%d %s'", "'%.2f'", "'%x'", "'%%'", "'%b'", "'%q'", "'%e'"],
            "format.named" => &["'dns1123Label'", "'uri'", "'x'"],
            "getFullYear" | "getMonth" | "getDate" | "getDayOfMonth" | "getDayOfYear"
            | "getDayOfWeek" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => {
                &["'UTC'", "'Europe/Berlin'", "'+01:30'", "'-02:00'", "'x'"]
            }
            _ => &["''", "'a'", "'abc'", "\"é🦙\"", "'a,b'", "r'a\\b'", "'A b'", "'k'"],
        };
        self.pick(fitting)
    }

    fn pick(&mut self, some: &[&str]) -> String {
        some[self.rng.usize(0..some.len())].to_owned()
    }

    fn free(&mut self) -> Term {
        // Often the type of a path in scope.
        if !self.places.is_empty() && self.rng.bool() {
            return self.places[self.rng.usize(0..self.places.len())].term.clone();
        }
        Term::named(FREE[self.rng.usize(0..FREE.len())])
    }

    fn variable(&mut self) -> String {
        self.variables += 1;
        format!("v{}", self.variables)
    }

    /// Runs `make` with these variables in scope.
    fn with<T>(&mut self, variables: &[(&str, &Term)], make: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.places.len();
        for (name, term) in variables {
            // Each variable is added three times, so that it is chosen more often than other paths.
            for _ in 0..3 {
                self.places.push(Place {
                    text: (*name).to_owned(),
                    term: (*term).clone(),
                    asked: None,
                });
            }
        }
        let made = make(self);
        self.places.truncate(before);
        made
    }
}

/// Formats a call; operators are written between their operands.
fn written(function: &Function, arguments: &[String], has_brackets: bool) -> String {
    let bracketed = |text: String| if has_brackets { format!("({text})") } else { text };
    match (function.name.as_str(), arguments) {
        // Without brackets the result may have syntax errors, and the servers report more than one for it.
        ("_?_:_", [condition, yes, no]) => format!("({condition} ? {yes} : {no})"),
        ("_[_]", [of, at]) => format!("{of}[{at}]"),
        ("_[?_]", [of, at]) => format!("{of}[?{at}]"),
        ("@in", [one, of]) => bracketed(format!("{one} in {of}")),
        ("!_", [of]) => format!("!{of}"),
        ("-_", [of]) => format!("-({of})"),
        (operator, [left, right]) if operator.starts_with('_') && operator.ends_with('_') => {
            bracketed(format!("{left} {} {right}", operator.trim_matches('_')))
        }
        (name, [target, arguments @ ..]) if function.is_member => {
            format!("{target}.{name}({})", arguments.join(", "))
        }
        (name, arguments) => format!("{name}({})", arguments.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_expressions_use_fields_macros_and_functions() {
        let mut rng = Rng::with_seed(1);
        let place = Place { text: "self.x".to_owned(), term: Term::named("int"), asked: None };
        let mut maker = Maker { rng: &mut rng, places: vec![place], variables: 0 };
        let made: Vec<String> =
            (0..200).map(|_| maker.expression(&Term::named("bool"), 3)).collect();
        for part in ["self.x", ".all(", "?", "quantity(", "duration", ".matches("] {
            assert!(made.iter().any(|text| text.contains(part)), "{part}");
        }
    }
}
