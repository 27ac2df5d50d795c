//! The streams that a client asks for.

use crate::upgrade::Refused;

/// The streams of a command, from the query of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the client sends input.
    pub stdin: bool,
    /// Whether the client receives output.
    pub stdout: bool,
    /// Whether the client receives error output. Never together with `tty`, because a terminal has one output.
    pub stderr: bool,
    /// Whether the command runs in a terminal, which has a size.
    pub tty: bool,
}

impl Options {
    /// Parses the parameters `stdin`, `stdout`, `stderr` and `tty` of kube-apiserver, of which every value but `false`
    /// and `0` is true, and the parameters `input`, `output` and `error` of kubelet, of which `1` is true.
    ///
    /// # Errors
    /// 400 if the query asks for no stream.
    pub fn from_query(query: &str) -> Result<Self, Refused> {
        let first = |name: &str| {
            form_urlencoded::parse(query.as_bytes()).find(|(one, _)| one == name).map(|(_, v)| v)
        };
        let is_set = |name: &str| {
            first(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
        };
        let is_one = |name: &str| first(name).is_some_and(|value| value == "1");
        let tty = is_set("tty");
        let options = Self {
            stdin: is_set("stdin") || is_one("input"),
            stdout: is_set("stdout") || is_one("output"),
            stderr: (is_set("stderr") || is_one("error")) && !tty,
            tty,
        };
        if !options.stdin && !options.stdout && !options.stderr {
            let message = "you must specify at least 1 of stdin, stdout, stderr";
            return Err(Refused::bad_request(message));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> [bool; 4] {
        let options = Options::from_query(query).unwrap();
        [options.stdin, options.stdout, options.stderr, options.tty]
    }

    #[test]
    fn parameters_of_both_servers_are_parsed() {
        assert_eq!(
            parse("command=cat&stdin=true&stdout=1&stderr=false"),
            [true, true, false, false]
        );
        assert_eq!(parse("stdin&stdout=FALSE"), [true, false, false, false]);
        assert_eq!(parse("input=1&output=1&error=1&tty=0"), [true, true, true, false]);
        assert_eq!(parse("output=1&input=true"), [false, true, false, false]);
    }

    #[test]
    fn a_terminal_has_no_error_output() {
        assert_eq!(parse("stdin=true&stdout=true&stderr=true&tty=true"), [true, true, false, true]);
    }

    #[test]
    fn a_query_without_streams_is_refused() {
        for query in ["", "tty=true", "stdin=false&stdout=0", "tty=1&stderr=1"] {
            let refused = Options::from_query(query).unwrap_err();
            assert_eq!(refused.message, "you must specify at least 1 of stdin, stdout, stderr");
            assert_eq!(refused.status, http::StatusCode::BAD_REQUEST);
        }
    }
}
