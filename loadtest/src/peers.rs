//! `peers`: runs other programs that do the same work, in turn, and prints their figures in one table.
//!
//! A peer is a file that names a command and says where in the JSON of its last line the figures are. Peers are not part of
//! this project: one that is not installed is named as such, and the others run.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

/// Arguments of `peers`.
#[derive(Args, Debug)]
pub(crate) struct PeersArgs {
    /// Names of peers, or files; all where none is given
    #[arg(value_name = "PEER")]
    peers: Vec<String>,

    /// How often each runs, in turn with the others
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,

    /// Where the peers are installed; `{folder}` in their files
    #[arg(long, value_name = "FOLDER", env = "TOLLGATE_PEERS", default_value = ".")]
    folder: PathBuf,
}

/// A file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Peer {
    about: String,
    /// Files without which it is not installed.
    needs: Vec<String>,
    /// Program and arguments; its last line of output is a JSON object.
    command: Vec<String>,
    /// More variables of its environment.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// From a figure's name to where it is found.
    figures: BTreeMap<String, Found>,
}

/// A figure: the sum of some fields, times a factor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Found {
    /// Paths such as `late_ms.p50`.
    sum: Vec<String>,
    #[serde(default = "one")]
    times: f64,
}

fn one() -> f64 {
    1.0
}

const FIGURES: [(&str, usize); 6] = [
    ("events_per_s", 0),
    ("late_p50_ms", 1),
    ("late_p99_ms", 1),
    ("cpu_s", 2),
    ("wal_bytes", 0),
    ("peak_mib", 0),
];

/// Runs peers.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn run(args: &PeersArgs) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let mut peers = Vec::new();
    for path in paths(&args.peers)? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let place = || format!("cannot read the peer {}", path.display());
        let text = std::fs::read_to_string(&path).with_context(place)?;
        let peer: Peer = serde_saphyr::from_str(&text).with_context(place)?;
        let missing =
            peer.needs.iter().map(|need| fill(need, &args.folder)).find(|need| !Path::new(need).exists());
        match missing {
            Some(missing) => writeln!(out, "{name}: not installed: {missing} is missing ({})", peer.about)?,
            None => peers.push((name, peer)),
        }
    }
    write!(out, "{:<20}", "")?;
    FIGURES.iter().try_for_each(|(figure, _)| write!(out, " {figure:>13}"))?;
    writeln!(out)?;
    for round in 1..=args.rounds {
        for (name, peer) in &peers {
            match peer.run(&args.folder) {
                Ok(said) => writeln!(out, "{:<20}{}", format!("{name} {round}"), peer.line(&said))?,
                Err(error) => writeln!(out, "{name} {round}: {error:#}")?,
            }
            out.flush()?;
        }
    }
    Ok(())
}

fn paths(names: &[String]) -> anyhow::Result<Vec<PathBuf>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers"));
    if !names.is_empty() {
        let here = |name: &String| {
            let file = folder.join(format!("{name}.yaml"));
            if file.exists() { file } else { PathBuf::from(name) }
        };
        return Ok(names.iter().map(here).collect());
    }
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    all.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    all.sort();
    Ok(all)
}

fn fill(text: &str, folder: &Path) -> String {
    text.replace("{folder}", &folder.to_string_lossy())
}

impl Peer {
    fn run(&self, folder: &Path) -> anyhow::Result<Value> {
        let mut words = self.command.iter().map(|word| fill(word, folder));
        let program = words.next().context("command: a program is needed")?;
        let environment = self.environment.iter().map(|(name, value)| (name, fill(value, folder)));
        let done = Command::new(&program)
            .args(words)
            .envs(environment)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start {program}"))?;
        if !done.status.success() {
            bail!("it ended with {}", done.status);
        }
        let text = String::from_utf8_lossy(&done.stdout);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).context("it printed nothing")?;
        serde_json::from_str(last).with_context(|| format!("its last line is no JSON: {last}"))
    }

    fn line(&self, said: &Value) -> String {
        let shown = FIGURES.iter().map(|(figure, decimals)| match self.figure(figure, said) {
            Some(value) => format!(" {value:>13.decimals$}"),
            None => format!(" {:>13}", "-"),
        });
        shown.collect()
    }

    fn figure(&self, name: &str, said: &Value) -> Option<f64> {
        let Found { sum, times } = self.figures.get(name)?;
        let at = |path: &String| path.split('.').try_fold(said, |value, key| value.get(key))?.as_f64();
        Some(sum.iter().map(at).sum::<Option<f64>>()? * times)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_peer_can_be_read() {
        let paths = paths(&[]).unwrap();
        assert!(!paths.is_empty());
        for path in paths {
            let peer: Peer = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let known = |figure: &String| FIGURES.iter().any(|(name, _)| name == figure);
            assert!(peer.figures.keys().all(known), "{}", path.display());
        }
    }

    #[test]
    fn figures_are_found() {
        let text = "{about: a, needs: [], command: [echo, '{\"a\": {\"b\": 2}, \"c\": 3}'],
            figures: {cpu_s: {sum: [a.b, c], times: 2}, peak_mib: {sum: [d]}}}";
        let peer: Peer = serde_saphyr::from_str(text).unwrap();
        let said = peer.run(Path::new(".")).unwrap();
        assert_eq!(peer.figure("cpu_s", &said), Some(10.0));
        assert_eq!(peer.figure("peak_mib", &said), None);
    }
}
