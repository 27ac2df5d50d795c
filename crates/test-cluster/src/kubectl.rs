//! Runs kubectl.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A kubectl command.
#[derive(Debug)]
pub struct Kubectl {
    command: Command,
    input: Option<String>,
}

/// The output of a kubectl command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// The standard output.
    pub output: String,
    /// The standard error.
    pub errors: String,
    /// Whether the exit status is 0.
    pub succeeded: bool,
}

impl Kubectl {
    pub(crate) fn new<I, S>(program: &Path, kubeconfig: &Path, home: &Path, arguments: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(program);
        // A home directory of its own separates its discovery cache from the user's.
        command.env("HOME", home).env("KUBECONFIG", kubeconfig).args(arguments);
        Self { command, input: None }
    }

    /// Sets the standard input.
    #[must_use]
    pub fn input(mut self, input: &str) -> Self {
        self.input = Some(input.to_owned());
        self
    }

    /// Returns the command, to read its output while it runs.
    pub fn into_command(self) -> Command {
        self.command
    }

    /// Runs the command to its end.
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

    /// Runs the command, which must succeed. Returns its standard output.
    ///
    /// # Errors
    /// When it fails. The error contains its output.
    pub fn run(self) -> Result<String> {
        let call = format!("{:?}", self.command);
        let printed = self.output()?;
        if !printed.succeeded {
            bail!("{call}\n{}{}", printed.output, printed.errors);
        }
        Ok(printed.output)
    }
}
