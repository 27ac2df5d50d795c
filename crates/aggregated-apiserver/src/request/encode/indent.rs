//! Indented JSON, with two spaces per level.

/// Indents JSON that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct Indenter {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// Whether the previous token opened a bracket.
    opened: bool,
}

impl Indenter {
    /// Returns the next piece, indented. Whitespace between tokens is removed.
    pub(super) fn indent(&mut self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(json.len() * 2);
        for &byte in json {
            if self.in_text {
                out.push(byte);
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_text = false,
                    _ => {}
                }
                continue;
            }
            let closes = matches!(byte, b'}' | b']');
            if byte.is_ascii_whitespace() {
                continue;
            }
            if closes {
                self.depth = self.depth.saturating_sub(1);
            }
            // A line break precedes the first element, and a closing bracket that follows an element.
            if self.opened != closes {
                self.line(&mut out);
            }
            self.opened = false;
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    self.opened = true;
                    out.push(byte);
                }
                b',' => {
                    out.push(byte);
                    self.line(&mut out);
                }
                b':' => out.extend_from_slice(b": "),
                b'"' => {
                    self.in_text = true;
                    out.push(byte);
                }
                other => out.push(other),
            }
        }
        out
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn chunks_are_indented_like_the_whole_document() {
        let value =
            json!({"a": [1, {"b": {}}, []], "c": "x\\\"y, [", "d": [[null]], "e": {"f": true}});
        let compact = value.to_string();
        for size in 1..compact.len() {
            let mut indenter = Indenter::default();
            let out: Vec<u8> =
                compact.as_bytes().chunks(size).flat_map(|piece| indenter.indent(piece)).collect();
            assert_eq!(
                String::from_utf8(out).unwrap(),
                serde_json::to_string_pretty(&value).unwrap()
            );
        }
        assert_eq!(Indenter::default().indent(b"5"), b"5");
    }
}
