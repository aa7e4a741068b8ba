//! `tollgate init`: writes a file to start from, a policy, a schedule and an alert with what each field means.
//!
//! In: where to. Out: a file that `apply` takes as it is. Invariant: a file that is there is not overwritten without --force.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::usage::Usage;

/// The file as it is written.
pub(crate) const TEMPLATE: &str = include_str!("init/template.yaml");

/// Arguments of `init`.
#[derive(Args, Clone, Debug)]
pub(crate) struct InitArgs {
    /// The file to write; - means standard output
    #[arg(value_name = "FILE", default_value = "tollgate.yaml")]
    file: PathBuf,

    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,
}

/// Writes the file, and says what to do with it.
///
/// # Errors
/// A file that is there already; a folder that cannot be written to.
pub(crate) fn run(args: &InitArgs) -> anyhow::Result<()> {
    let InitArgs { file, force } = args;
    let mut out = std::io::stdout().lock();
    if file.as_os_str() == "-" {
        return Ok(out.write_all(TEMPLATE.as_bytes())?);
    }
    let mut options = OpenOptions::new();
    options.write(true);
    if *force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let shown = file.display();
    let mut opened = match options.open(file) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(Usage(format!(
                "{shown} exists already; name another file, or overwrite it with --force"
            ))
            .into());
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = file.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
            return Err(Usage(format!(
                "cannot write {shown}: there is no folder {folder}; make it, or name another"
            ))
            .into());
        }
        opened => opened.with_context(|| format!("cannot write {shown}"))?,
    };
    opened.write_all(TEMPLATE.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    writeln!(
        out,
        "{shown} written. Edit it, then\n  tollgate apply -f {shown} --dry-run    # checks it, and changes nothing\n  \
         tollgate apply -f {shown}"
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(file: &std::path::Path, force: bool) -> InitArgs {
        InitArgs { file: file.to_owned(), force }
    }

    #[test]
    fn the_file_has_one_of_each_kind_and_nothing_wrong() {
        let (mut entries, mut wrong) = (Vec::new(), Vec::new());
        tollgate_files::parse(&"tollgate.yaml".into(), TEMPLATE, "default", &mut entries, &mut wrong);
        assert_eq!(wrong, [] as [&str; 0]);
        assert_eq!(tollgate_files::wrong_values(&entries, 10), [] as [&str; 0]);
        let names: Vec<&str> = entries.iter().map(tollgate_files::FileEntry::name).collect();
        let expected = ["policies/imports", "schedules/nightly-import", "alerts/on-call"];
        assert_eq!(names, expected.map(|name| format!("namespaces/default/{name}")));
        assert!(TEMPLATE.lines().filter(|line| line.contains('#')).count() > 20, "it explains nothing");
    }

    #[test]
    fn a_file_is_overwritten_with_force_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        run(&at(&file, false)).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), TEMPLATE);
        std::fs::write(&file, "mine").unwrap();
        let refused = run(&at(&file, false)).unwrap_err();
        assert!(refused.to_string().contains("exists already") && refused.is::<Usage>(), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        run(&at(&file, true)).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), TEMPLATE);
        let nowhere = run(&at(&folder.path().join("no/a.yaml"), false)).unwrap_err();
        assert!(nowhere.to_string().contains("there is no folder"), "{nowhere}");
    }
}
