//! The nodes of YAML documents.

use std::collections::HashMap;
use std::io::{BufReader, Chain, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libyaml_safer::{Error, ErrorKind, EventData, Mark, Parser, ScalarStyle};

/// A document. Its nodes refer to each other by index.
pub struct Document {
    nodes: Vec<Node>,
    /// The root node; `None` if the input contains no document.
    pub root: Option<usize>,
}

/// A node.
pub struct Node {
    /// The line where the node starts, from 1 on.
    pub line: u64,
    pub content: Content,
}

/// The content of a node.
pub enum Content {
    /// A scalar; the tag is empty if it has none. A plain scalar is resolved by its text.
    Scalar { text: String, tag: String, is_plain: bool },
    /// A reference to the node of an anchor.
    Alias { name: String, target: usize },
    /// The elements of a list.
    Sequence(Vec<usize>),
    /// Alternating keys and values.
    Mapping(Vec<usize>),
}

/// The limits of a document.
#[derive(Clone, Copy)]
pub struct Limits {
    pub depth: usize,
    pub nodes: usize,
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// The size of the read buffer, in bytes.
const PIECE: usize = 4 << 10;

impl Document {
    /// Parses the first document.
    ///
    /// # Errors
    /// The message of go-yaml, without its prefix.
    pub fn first(bytes: &[u8], limits: Limits) -> Result<Self, String> {
        let document = Documents::of(bytes, limits)?.next()?;
        Ok(document.unwrap_or(Self { nodes: Vec::new(), root: None }))
    }

    /// The node of an index.
    pub fn node(&self, number: usize) -> &Node {
        &self.nodes[number]
    }
}

/// The input without its last line, if that line contains only spaces and has no line break. Such spaces are not a line
/// of a block scalar.
fn without_blank_end(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let is_blank = bytes[start..].iter().all(|byte| *byte == b' ');
    if is_blank { &bytes[..start] } else { bytes }
}

/// The documents of an input.
pub struct Documents<'a> {
    composer: Composer<'a>,
}

impl<'a> Documents<'a> {
    /// Starts to parse an input.
    ///
    /// # Errors
    /// Same as [`Document::first`].
    pub fn of(bytes: &'a [u8], limits: Limits) -> Result<Self, String> {
        let mut parser = Parser::new();
        let bytes = without_blank_end(bytes);
        // The parser expects a line break at the end.
        let is_ended = bytes.ends_with(b"\n") || bytes.ends_with(b"\r");
        let end: &[u8] = if is_ended { b"" } else { b"\n" };
        parser.set_input(BufReader::with_capacity(PIECE, bytes.chain(end)));
        let marked = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        let mut composer = Composer {
            bytes,
            added: (!is_ended).then_some(marked.len() as u64),
            parser,
            limits,
            nodes: Vec::new(),
            anchors: HashMap::new(),
        };
        // The start of the stream.
        composer.next()?;
        Ok(Self { composer })
    }

    /// Parses the next document; `None` after the last one.
    ///
    /// # Errors
    /// Same as [`Document::first`].
    pub fn next(&mut self) -> Result<Option<Document>, String> {
        let composer = &mut self.composer;
        composer.anchors.clear();
        let (EventData::DocumentStart { version_directive, .. }, line) = composer.next()? else {
            return Ok(None);
        };
        if version_directive.is_some_and(|version| (version.major, version.minor) != (1, 1)) {
            let problem = "found incompatible YAML document".to_owned();
            return Err(match line {
                ..=1 => problem,
                line => format!("line {}: {problem}", line - 1),
            });
        }
        let event = composer.next()?;
        let root = composer.node(event, 0)?;
        composer.next()?;
        Ok(Some(Document { nodes: std::mem::take(&mut composer.nodes), root: Some(root) }))
    }
}

struct Composer<'a> {
    bytes: &'a [u8],
    /// The position of the line break that was added to the input.
    added: Option<u64>,
    parser: Parser<BufReader<Chain<&'a [u8], &'static [u8]>>>,
    limits: Limits,
    nodes: Vec<Node>,
    anchors: HashMap<String, usize>,
}

/// An event, and the line where it starts.
type Event = (EventData, u64);

impl Composer<'_> {
    fn next(&mut self) -> Result<Event, String> {
        // The parser panics at a comma after a tag in a flow collection, and at some escapes in tags. It is not used
        // after a panic.
        let parsed = catch_unwind(AssertUnwindSafe(|| self.parser.parse()));
        let Ok(parsed) = parsed else {
            return Err("did not find expected whitespace or line break".to_owned());
        };
        match parsed {
            Ok(mut event) => {
                if let EventData::Scalar { value, style, .. } = &mut event.data
                    && matches!(style, ScalarStyle::Literal | ScalarStyle::Folded)
                    && self.added.is_some_and(|added| event.end_mark.index > added)
                    && value.ends_with('\n')
                {
                    value.pop();
                }
                Ok((event.data, event.start_mark.line + 1))
            }
            Err(error) => Err(message(&error, self.bytes, self.added)),
        }
    }

    /// Adds the node that starts with an event.
    fn node(&mut self, (event, line): Event, depth: usize) -> Result<usize, String> {
        let Limits { depth: deepest, nodes } = self.limits;
        if depth >= deepest {
            return Err(format!("nests deeper than {deepest}"));
        }
        if self.nodes.len() >= nodes {
            return Err(format!("more than {nodes} keys and values in one document"));
        }
        let number = self.nodes.len();
        let mut add = |anchor: Option<String>, content| {
            if let Some(anchor) = anchor {
                self.anchors.insert(anchor, number);
            }
            self.nodes.push(Node { line, content });
        };
        match event {
            EventData::Alias { anchor: name } => {
                let target = self.anchors.get(&name).copied();
                let target = target.ok_or_else(|| format!("unknown anchor '{name}' referenced"))?;
                self.nodes.push(Node { line, content: Content::Alias { name, target } });
            }
            EventData::Scalar { anchor, tag, value, plain_implicit, .. } => {
                let tag = tag.unwrap_or_default();
                add(anchor, Content::Scalar { text: value, tag, is_plain: plain_implicit });
            }
            EventData::SequenceStart { anchor, .. } => {
                add(anchor, Content::Sequence(Vec::new()));
                let children = self.children(depth)?;
                self.nodes[number].content = Content::Sequence(children);
            }
            EventData::MappingStart { anchor, .. } => {
                add(anchor, Content::Mapping(Vec::new()));
                let children = self.children(depth)?;
                self.nodes[number].content = Content::Mapping(children);
            }
            _ => return Err("attempted to parse unknown event".to_owned()),
        }
        Ok(number)
    }

    fn children(&mut self, depth: usize) -> Result<Vec<usize>, String> {
        let mut children = Vec::new();
        loop {
            match self.next()? {
                (EventData::SequenceEnd | EventData::MappingEnd, _) => return Ok(children),
                event => children.push(self.node(event, depth + 1)?),
            }
        }
    }
}

/// An error of the parser in the format of go-yaml. The line is that of the problem, or else of its context. The first
/// line is omitted.
fn message(error: &Error, bytes: &[u8], added: Option<u64>) -> String {
    let problem = match error.kind() {
        ErrorKind::Reader | ErrorKind::Io => match error.problem() {
            "invalid UTF-8" | "invalid byte order marker" | "I/O error" => invalid_utf8(bytes),
            problem => problem,
        },
        _ => error.problem(),
    };
    // A line break that was added starts no line within a quoted scalar; elsewhere the end of the input does.
    let is_quoted = error.problem() == "found unexpected end of stream";
    let is_added = |mark: &Mark| is_quoted && added.is_some_and(|added| mark.index > added);
    let line = |mark: Option<Mark>| mark.map_or(0, |mark| mark.line - u64::from(is_added(&mark)));
    let line = match (line(error.problem_mark()), line(error.context_mark())) {
        (0, of_context) => of_context,
        (line, _) => line + u64::from(error.kind() == ErrorKind::Scanner),
    };
    match line {
        0 => problem.to_owned(),
        line => format!("line {line}: {problem}"),
    }
}

fn invalid_utf8(bytes: &[u8]) -> &'static str {
    let at = std::str::from_utf8(bytes).err().map_or(0, |error| error.valid_up_to());
    let width = match bytes.get(at) {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    match bytes.get(at + 1..at + width) {
        None => "incomplete UTF-8 octet sequence",
        Some(rest) if rest.iter().any(|byte| byte & 0xc0 != 0x80) => "invalid trailing UTF-8 octet",
        Some(_) if width == 3 && bytes[at] == 0xed => "invalid Unicode character",
        Some(_) => "invalid length of a UTF-8 sequence",
    }
}
