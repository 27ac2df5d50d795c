//! The file of static tokens, in the format of kube-apiserver's `--token-auth-file`: each line has a token, a user, a
//! uid and, in quotes, groups.

use std::fs;
use std::path::Path;

use aggregated_apiserver::User;

use crate::reviews::Tokens;

/// The group of authenticated users.
const AUTHENTICATED: &str = "system:authenticated";

/// Reads a file of tokens.
///
/// # Errors
/// The reason for which the file cannot be read, with the line.
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
        let fields = fields(line);
        let (token, name, uid, groups) = match fields.as_slice() {
            [token, name, uid] => (token, name, uid, ""),
            [token, name, uid, groups] => (token, name, uid, groups.as_str()),
            _ => return fault("must be token,user,uid or token,user,uid,\"group,group\""),
        };
        if token.is_empty() || name.is_empty() {
            return fault("must have a token and a user");
        }
        if tokens.iter().any(|(known, _)| known == token) {
            return fault("has the same token as an earlier line");
        }
        let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
        let groups = groups.map(str::to_owned).chain([AUTHENTICATED.to_owned()]);
        let user = User {
            name: name.clone(),
            uid: Some(uid.clone()).filter(|uid| !uid.is_empty()),
            groups: groups.collect(),
            ..User::default()
        };
        tokens.push((token.clone(), user));
    }
    Ok(tokens)
}

/// The fields of a CSV line. A field in quotes may contain commas.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field) = (Vec::new(), String::new());
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            other => field.push(other),
        }
    }
    fields.push(field);
    fields.iter().map(|field| field.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let tokens = parse("# words\n\nabc,jane,1,\"a, b\"\ndef,joe,\n").unwrap();
        assert_eq!(tokens[0].0, "abc");
        assert_eq!(tokens[0].1.groups, ["a", "b", AUTHENTICATED]);
        assert_eq!(tokens[1].1.uid, None);
        for (text, expected) in [
            ("abc", "line 1: must be token,user,uid or token,user,uid,\"group,group\""),
            (
                "a,b,c,dev,system:masters",
                "line 1: must be token,user,uid or token,user,uid,\"group,group\"",
            ),
            ("a,b,c\n,b,c", "line 2: must have a token and a user"),
            ("a,b,c\na,d,e", "line 2: has the same token as an earlier line"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }
}
