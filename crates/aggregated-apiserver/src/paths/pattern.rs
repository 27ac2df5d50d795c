//! Patterns of paths: literal segments and parameters.

use std::cmp::Ordering;

use super::PathValues;

/// Segments at the beginning of a path that kube-apiserver does not read as a resource.
const SPECIAL: [&str; 3] = [NAMESPACES, "watch", "proxy"];
const NAMESPACES: &str = "namespaces";
/// Segments that kube-apiserver reads as subresources of the namespace before them.
pub(crate) const OF_NAMESPACES: [&str; 2] = ["status", "finalize"];

/// A pattern, such as `/namespaces/{namespace}/forecasts/{city}`.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: &'static str,
    segments: Vec<Segment>,
}

/// A segment of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    Literal(&'static str),
    Parameter(&'static str),
}

impl Segment {
    fn parse(text: &'static str) -> Result<Self, String> {
        let is_name = |text: &str, others: &str| {
            !text.is_empty()
                && text.chars().all(|one| one.is_ascii_alphanumeric() || others.contains(one))
        };
        if let Some(name) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            return match is_name(name, "_") {
                true => Ok(Self::Parameter(name)),
                false => {
                    Err(format!("the name of the parameter {text} must have letters, digits and _"))
                }
            };
        }
        match is_name(text, "-._~") && ![".", ".."].contains(&text) {
            true => Ok(Self::Literal(text)),
            false => Err(format!("the segment {text:?} must have letters, digits, -, ., _ and ~")),
        }
    }
}

impl Pattern {
    /// Parses a pattern.
    pub fn parse(text: &'static str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('/') else {
            return Err("the path must begin with /".to_owned());
        };
        let segments = path.split('/').map(Segment::parse).collect::<Result<Vec<_>, _>>()?;
        if let Some(Segment::Literal(first @ ("watch" | "proxy"))) = segments.first() {
            return Err(format!("kube-apiserver does not read {first} as a resource"));
        }
        for (index, segment) in segments.iter().enumerate() {
            if let Segment::Parameter(name) = segment
                && segments[..index].contains(segment)
            {
                return Err(format!("two parameters have the name {name}"));
            }
        }
        Ok(Self { text, segments })
    }

    /// The text of the pattern.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// The number of segments.
    pub fn length(&self) -> usize {
        self.segments.len()
    }

    /// The names of the parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Parameter(name) => Some(*name),
            Segment::Literal(_) => None,
        })
    }

    /// Whether the paths are in a namespace. Subresources of a namespace are not.
    pub fn is_namespaced(&self) -> bool {
        let of_namespace =
            |segment: &Segment| OF_NAMESPACES.iter().any(|text| *segment == Segment::Literal(text));
        self.segments.first() == Some(&Segment::Literal(NAMESPACES))
            && self.segments.get(2).is_some_and(|segment| !of_namespace(segment))
    }

    /// Whether the paths name an object.
    pub fn has_name(&self) -> bool {
        self.written(1).is_some()
    }

    /// The segment of the resource, as in the pattern.
    pub fn resource(&self) -> &'static str {
        self.written(0).unwrap_or_default()
    }

    /// The segment of the subresource, as in the pattern, or an empty string.
    pub fn subresource(&self) -> &'static str {
        self.written(2).unwrap_or_default()
    }

    /// Whether paths of the pattern can have this resource.
    pub fn may_have_resource(&self, plural: &str) -> bool {
        let place = if self.is_namespaced() { 2 } else { 0 };
        self.segments.get(place).is_some_and(|segment| match segment {
            Segment::Literal(text) => *text == plural,
            Segment::Parameter(_) => true,
        })
    }

    /// A segment behind the namespace, as in the pattern.
    fn written(&self, index: usize) -> Option<&'static str> {
        let before = if self.is_namespaced() { 2 } else { 0 };
        self.text.split('/').nth(1 + before + index)
    }

    /// Whether both patterns match the same paths.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        let is_same = |pair: (&Segment, &Segment)| match pair {
            (Segment::Parameter(_), Segment::Parameter(_)) => true,
            (one, other) => one == other,
        };
        self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(is_same)
    }

    /// The order in which patterns are matched: literal segments before parameters, long patterns before short ones.
    pub fn precedence(&self, other: &Self) -> Ordering {
        let rank = |segment: &Segment| matches!(segment, Segment::Parameter(_));
        let ranks = self.segments.iter().zip(&other.segments);
        let first = ranks.map(|(one, other)| rank(one).cmp(&rank(other))).find(|it| it.is_ne());
        first.unwrap_or_else(|| other.segments.len().cmp(&self.segments.len()))
    }

    /// Returns the values of the parameters if a path matches. With `has_paths`, further segments are allowed.
    pub fn values(&self, path: &[&str], has_paths: bool) -> Option<PathValues> {
        let length = self.segments.len();
        if path.len() < length || (path.len() > length && !has_paths) {
            return None;
        }
        let mut values = Vec::new();
        for (index, (segment, &text)) in self.segments.iter().zip(path).enumerate() {
            match segment {
                Segment::Literal(literal) if *literal == text => {}
                Segment::Parameter(name) if is_value(path, index) => {
                    values.push((*name, text.to_owned()));
                }
                _ => return None,
            }
        }
        Some(PathValues(values))
    }
}

/// Whether a segment can be the value of a parameter. kube-apiserver reads some segments in another way, so a handler
/// would act on another resource than the one that was authorized.
fn is_value(path: &[&str], index: usize) -> bool {
    let text = path[index];
    match index {
        _ if ["", ".", ".."].contains(&text) => false,
        0 => !SPECIAL.contains(&text),
        2 => path[0] != NAMESPACES || !OF_NAMESPACES.contains(&text),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pattern: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
        let path: Vec<&str> = path.split('/').collect();
        Pattern::parse(pattern).unwrap().values(&path, false).map(|values| values.0)
    }

    #[test]
    fn parameters_match_one_segment() {
        let pattern = "/namespaces/{namespace}/{resource}/{name}/{metric}";
        let expected = [("namespace", "n"), ("resource", "pods"), ("name", "*"), ("metric", "m")];
        let expected = expected.map(|(name, value)| (name, value.to_owned())).to_vec();
        assert_eq!(values(pattern, "namespaces/n/pods/*/m"), Some(expected));
        for path in [
            "namespaces/n/pods/*",
            "namespaces/n/pods/*/m/x",
            "namespaces//pods/*/m",
            "namespaces/n/../*/m",
            "namespaces/n/pods/./m",
            "namespaces/n/status/a/m",
        ] {
            assert_eq!(values(pattern, path), None, "{path}");
        }
    }

    #[test]
    fn parameters_match_no_segment_that_kube_apiserver_reads_in_another_way() {
        for path in ["namespaces/n/m", "watch/n/m", "proxy/n/m"] {
            assert_eq!(values("/{resource}/{name}/{metric}", path), None, "{path}");
        }
        assert!(values("/{resource}/{name}/{metric}", "nodes/namespaces/watch").is_some());
    }

    #[test]
    fn patterns_have_the_resource_of_their_paths() {
        for (text, resource, subresource, is_namespaced) in [
            ("/namespaces/{n}/pods/{name}/{metric}", "pods", "{metric}", true),
            ("/namespaces/{n}/{metric}", "{metric}", "", true),
            ("/namespaces/{n}/status", "namespaces", "status", false),
            ("/namespaces/{n}", "namespaces", "", false),
            ("/nodes/{name}/{metric}", "nodes", "{metric}", false),
        ] {
            let pattern = Pattern::parse(text).unwrap();
            let expected = (resource, subresource, is_namespaced);
            let found = (pattern.resource(), pattern.subresource(), pattern.is_namespaced());
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn literal_segments_precede_parameters() {
        let parse = |text| Pattern::parse(text).unwrap();
        let mut patterns = ["/{a}", "/{a}/b", "/x/{b}", "/x/b", "/x"].map(parse);
        patterns.sort_by(Pattern::precedence);
        assert_eq!(patterns.map(|one| one.text), ["/x/b", "/x/{b}", "/x", "/{a}/b", "/{a}"]);
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for text in [
            "", "a", "/", "/a//b", "/a/", "/{}", "/{a-b}", "/a b", "/..", "/{a}/{a}", "/watch/a",
            "/{*a}",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
