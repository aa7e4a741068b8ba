//! `tollgate completions` and `tollgate man`: what shells and `man` know of the commands, made from the commands
//! themselves.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

use crate::client::output::{Format, Printer};

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// The folder for the pages of all commands. Without it, the command prints the page of `tollgate` itself
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// By which variable a shell's script asks for completions.
const ASKS: &str = "TOLLGATE_COMPLETE";

/// Answers a shell's script, and ends the process; does nothing where no script asks.
pub(crate) fn complete(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(ASKS).complete();
}

/// Prints a script to be read by a shell. It asks this binary at each press of the key, so that it knows the names of
/// what there is.
///
/// # Errors
/// Those of writing.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    let shell = args.shell.to_string();
    let known = Shells::builtins();
    let writer = known.completer(&shell).with_context(|| format!("{shell} has no script"))?;
    writer.write_registration(ASKS, "tollgate", "tollgate", "tollgate", &mut script)?;
    Printer::stdout(Format::Table).text(&String::from_utf8(script)?)
}

/// Prints the manual page, or writes all of them.
///
/// # Errors
/// Those of writing.
pub(crate) fn man(args: &ManArgs, command: Command) -> anyhow::Result<()> {
    let Some(folder) = &args.output else {
        return Printer::stdout(Format::Table).text(&page(command)?);
    };
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_pages(&command, "tollgate", folder)
}

/// Writes the page of a command, and those of the commands below it.
fn write_pages(command: &Command, name: &str, folder: &std::path::Path) -> anyhow::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, &format!("{name}-{}", below.get_name()), folder)?;
    }
    // clap wants a name that lives as long as the process, and there are as many as commands.
    let named = command.clone().name(&*name.to_owned().leak());
    let file = folder.join(format!("{name}.1"));
    fs::write(&file, page(named)?).with_context(|| format!("cannot write {}", file.display()))
}

fn page(command: Command) -> anyhow::Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(String::from_utf8(page)?)
}
