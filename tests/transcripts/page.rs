//! The steps of the page: files to write, and commands to run.

use anyhow::{Context, Result};

pub enum Step {
    /// A code block behind a paragraph that ends with the name of a file and a colon.
    File { name: String, content: String },
    /// A line that begins with `$` in a `console` block, and the lines behind it.
    Command { command: String, expected: String },
}

/// The steps in the order of the page.
pub fn steps(page: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut lines = page.lines();
    let mut last = "";
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            last = if line.is_empty() { last } else { line };
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if language == "console" {
            steps.extend(commands(&block)?);
        } else if let Some(name) = file(last) {
            let content = block.iter().flat_map(|line| [line, "\n"]).collect();
            steps.push(Step::File { name: name.to_owned(), content });
        }
        last = "";
    }
    Ok(steps)
}

/// The name of the file at the end of a paragraph, as in "`src/main.rs`:".
fn file(paragraph: &str) -> Option<&str> {
    paragraph.strip_suffix("`:")?.rsplit_once('`').map(|(_, name)| name)
}

fn commands(block: &[&str]) -> Result<Vec<Step>> {
    let mut commands: Vec<(String, Vec<&str>)> = Vec::new();
    for line in block {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command.to_owned(), Vec::new()));
        } else {
            let (_, expected) = commands.last_mut().context("a console block begins with $")?;
            expected.push(line);
        }
    }
    let step = |(command, expected): (String, Vec<&str>)| Step::Command {
        command,
        expected: expected.join("\n"),
    };
    Ok(commands.into_iter().map(step).collect())
}
