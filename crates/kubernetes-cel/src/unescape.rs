//! The content of string and bytes literals.

/// The string or the bytes of a literal, without its prefix `b`.
///
/// # Errors
/// An invalid escape sequence, with cel-go's message.
pub(crate) fn unescape(literal: &str, is_bytes: bool) -> Result<Vec<u8>, String> {
    let (body, is_raw) = match literal.strip_prefix(['r', 'R']) {
        Some(body) => (body, true),
        None => (literal, false),
    };
    // Every line break is read as `\n`.
    let body = body.replace("\r\n", "\n").replace('\r', "\n");
    let marks = if body.len() >= 6 && (body.starts_with("\"\"\"") || body.starts_with("'''")) {
        3
    } else {
        1
    };
    let body = body.get(marks..body.len() - marks).unwrap_or_default();
    if is_raw || !body.contains('\\') {
        return Ok(body.as_bytes().to_vec());
    }
    let mut bytes = Vec::with_capacity(body.len());
    let mut rest = body.chars();
    while let Some(char) = rest.next() {
        if char != '\\' {
            bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        escaped(&mut rest, is_bytes, &mut bytes)?;
    }
    Ok(bytes)
}

fn escaped(
    rest: &mut std::str::Chars<'_>,
    is_bytes: bool,
    bytes: &mut Vec<u8>,
) -> Result<(), String> {
    let Some(kind) = rest.next() else {
        return Err("unable to unescape string, found '\\' as last character".to_owned());
    };
    let simple = match kind {
        'a' => Some(7),
        'b' => Some(8),
        'f' => Some(12),
        'n' => Some(b'\n'),
        'r' => Some(b'\r'),
        't' => Some(b'\t'),
        'v' => Some(11),
        '\\' | '\'' | '"' | '`' | '?' => u8::try_from(kind).ok(),
        _ => None,
    };
    if let Some(simple) = simple {
        bytes.push(simple);
        return Ok(());
    }
    let (count, radix, digits) = match kind {
        'x' | 'X' => (2, 16, String::new()),
        'u' => (4, 16, String::new()),
        'U' => (8, 16, String::new()),
        '0'..='3' => (2, 8, String::from(kind)),
        _ => return Err("unable to unescape string".to_owned()),
    };
    if is_bytes && matches!(kind, 'u' | 'U') {
        return Err("unable to unescape string".to_owned());
    }
    let digits: String = digits.chars().chain(rest.by_ref().take(count)).collect();
    let code =
        u32::from_str_radix(&digits, radix).map_err(|_| "unable to unescape string".to_owned())?;
    if is_bytes {
        bytes.push(u8::try_from(code).unwrap_or_default());
        return Ok(());
    }
    let char = char::from_u32(code).ok_or("invalid unicode code point")?;
    bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(())
}
