//! The page of flags and commands.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};
use farm_operator::Program;

/// The page, as Markdown.
pub fn page() -> String {
    let mut program = Program::command();
    program.build();
    let mut page = "# Flags and commands\n\n\
        This page lists the flags of `farm-operator`, in the groups of `--help`, and its commands. The library gives every server the flags \
        of this page except those of a server without a cluster.\n"
        .to_owned();
    let mut groups: Vec<&str> = Vec::new();
    for argument in shown(&program) {
        let group = argument.get_help_heading().unwrap_or("Options");
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for group in groups {
        write!(page, "\n## {group}\n").unwrap();
        let is_in_group =
            |argument: &&Arg| argument.get_help_heading().unwrap_or("Options") == group;
        shown(&program).filter(is_in_group).for_each(|argument| describe(&mut page, argument));
    }
    page.push_str("\n## Commands\n");
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        let about = command.get_about().unwrap();
        write!(page, "\n### `farm-operator {}`\n\n{about}.\n", command.get_name()).unwrap();
        shown(command).for_each(|argument| describe(&mut page, argument));
    }
    page
}

/// The flags and arguments of a command, without those that every program has.
fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_shown = |argument: &&Arg| !matches!(argument.get_id().as_str(), "help" | "version");
    command.get_arguments().filter(is_shown)
}

fn describe(page: &mut String, argument: &Arg) {
    let values = argument.get_value_names().unwrap_or_default();
    let value = if argument.get_action().takes_values() && !values.is_empty() {
        format!(" <{}>", values.join("> <"))
    } else {
        String::new()
    };
    let name = match (argument.get_long(), argument.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long}{value}"),
        (Some(long), None) => format!("--{long}{value}"),
        (None, Some(short)) => format!("-{short}{value}"),
        (None, None) => value.trim_start().to_owned(),
    };
    let help = argument.get_long_help().or(argument.get_help()).unwrap().to_string();
    let mut paragraphs = help.split("\n\n").map(str::trim);
    let summary = paragraphs.next().unwrap().trim_end_matches('.');
    write!(page, "\n**`{name}`** {summary}.").unwrap();
    for paragraph in paragraphs {
        write!(page, " {}", paragraph.replace('\n', " ")).unwrap();
    }
    if let [default] = argument.get_default_values()
        && argument.get_action().takes_values()
    {
        write!(page, " Default: `{}`.", default.display()).unwrap();
    }
    if let Some(variable) = argument.get_env() {
        write!(page, " Environment: `{}`.", variable.display()).unwrap();
    }
    page.push('\n');
    let possible = argument.get_possible_values();
    if argument.get_action().takes_values()
        && possible.iter().any(|value| value.get_help().is_some())
    {
        page.push('\n');
        for value in possible {
            let help = value.get_help().unwrap();
            writeln!(page, "- `{}`: {help}", value.get_name()).unwrap();
        }
    }
}
