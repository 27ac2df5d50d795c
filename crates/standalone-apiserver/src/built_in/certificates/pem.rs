//! PEM, with the rules of Go: text before and after blocks is ignored, and so are blocks that cannot be decoded.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// A block of PEM data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The type, such as `CERTIFICATE`.
    pub(super) of: String,
    /// Whether lines before the content have headers.
    pub(super) has_headers: bool,
    /// The decoded content.
    pub(super) content: Vec<u8>,
}

/// Returns the blocks of PEM data.
pub(super) fn blocks(data: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines().peekable();
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        let Some(of) = marked(line, BEGIN) else { continue };
        let (mut content, mut has_headers, mut is_ended) = (String::new(), false, false);
        while let Some(line) = lines.peek() {
            if marked(line, BEGIN).is_some() {
                break;
            }
            let line = lines.next().unwrap_or_default();
            if let Some(ended) = marked(line, END) {
                is_ended = ended == of;
                break;
            }
            if content.is_empty() && line.contains(':') {
                has_headers = true;
            } else {
                content.extend(line.chars().filter(|c| !c.is_ascii_whitespace()));
            }
        }
        if let (true, Ok(content)) = (is_ended, STANDARD.decode(&content)) {
            blocks.push(Block { of: of.to_owned(), has_headers, content });
        }
    }
    blocks
}

/// The type in a line that begins or ends a block.
fn marked<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.trim_end().strip_prefix(mark)?.strip_suffix(DASHES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_within_other_text() {
        let text = "x\n-----BEGIN A-----\nk: v\n\nAAE\n C\n-----END A-----\r\n-----BEGIN B-----\n-----END C-----\n-----BEGIN D-----\n!\n-----END D-----\n-----BEGIN E-----\n-----END E-----";
        let block = |of: &str, has_headers, content: &[u8]| Block {
            of: of.to_owned(),
            has_headers,
            content: content.to_vec(),
        };
        let expected = [block("A", true, &[0, 1, 2]), block("E", false, &[])];
        assert_eq!(blocks(text.as_bytes()), expected);
        assert_eq!(blocks(b"\xff"), []);
    }
}
