//! kubectl, as people use it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A call of kubectl.
#[derive(Debug)]
pub struct Kubectl {
    command: Command,
    input: Option<String>,
}

/// What kubectl printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// On standard output.
    pub output: String,
    /// On standard error.
    pub errors: String,
    /// Whether it ended well.
    pub succeeded: bool,
}

impl Kubectl {
    pub(crate) fn new<I, S>(program: &Path, kubeconfig: &Path, home: &Path, arguments: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(program);
        // Its caches of discovery are its own.
        command.env("HOME", home).env("KUBECONFIG", kubeconfig).args(arguments);
        Self { command, input: None }
    }

    /// The same call with something on its standard input.
    #[must_use]
    pub fn input(mut self, input: &str) -> Self {
        self.input = Some(input.to_owned());
        self
    }

    /// The command, for those who read what it prints while it runs.
    pub fn into_command(self) -> Command {
        self.command
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn output(mut self) -> Result<Printed> {
        let input = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        self.command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().context("starting kubectl")?;
        if let (Some(input), Some(mut pipe)) = (self.input, child.stdin.take()) {
            pipe.write_all(input.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        Ok(Printed {
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
            succeeded: output.status.success(),
        })
    }

    /// Runs it to its end, which must be good; answers with its output.
    ///
    /// # Errors
    /// When it fails; with what it said.
    pub fn run(self) -> Result<String> {
        let call = format!("{:?}", self.command);
        let printed = self.output()?;
        if !printed.succeeded {
            bail!("{call}\n{}{}", printed.output, printed.errors);
        }
        Ok(printed.output)
    }
}
