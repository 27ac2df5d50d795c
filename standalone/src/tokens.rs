//! Tokens of callers, as kube-apiserver's `--token-auth-file` has them: a line
//! each of token, user, uid and, in quotes, groups.

use std::fs;
use std::path::Path;

use aggregated_apiserver::User;

use crate::reviews::Tokens;

/// Reads a file of tokens.
///
/// # Errors
/// When it cannot be read; names the line.
pub(crate) fn read(file: &Path) -> Result<Tokens, String> {
    parse(&fs::read_to_string(file).map_err(|error| error.to_string())?)
}

fn parse(text: &str) -> Result<Tokens, String> {
    let mut tokens: Tokens = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fault = |why: &str| Err(format!("line {}: {why}", index + 1));
        let mut fields = line.splitn(4, ',').map(str::trim);
        let (Some(token), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next())
        else {
            return fault("must be token,user,uid or token,user,uid,\"group,group\"");
        };
        if token.is_empty() || name.is_empty() {
            return fault("has no token, or no user");
        }
        if tokens.iter().any(|(known, _)| known == token) {
            return fault("has a token that was given before");
        }
        let groups = fields.next().unwrap_or_default().trim_matches('"');
        let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
        let user = User {
            name: name.to_owned(),
            uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()),
            groups: groups.map(str::to_owned).collect(),
            ..User::default()
        };
        tokens.push((token.to_owned(), user));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let tokens = parse("# words\n\nabc,jane,1,\"a, b\"\ndef,joe,\n").unwrap();
        assert_eq!(tokens[0].0, "abc");
        assert_eq!(tokens[0].1.groups, ["a", "b"]);
        assert_eq!(tokens[1].1.uid, None);
        for (text, expected) in [
            ("abc", "line 1: must be token,user,uid or token,user,uid,\"group,group\""),
            ("a,b,c\n,b,c", "line 2: has no token, or no user"),
            ("a,b,c\na,d,e", "line 2: has a token that was given before"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }
}
