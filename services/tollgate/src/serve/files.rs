//! How many connections a process may have, by the number of files that the system lets it open.
//!
//! Each connection is an open file, and so are those to the store, and what lookups, logs and the listener need. Many systems
//! give a process 1,024 at first and far more if it asks. Invariant: what is derived here never adds up to more than there
//! is; what the settings say goes before it, with a warning where that is too much.

use crate::config::ServeConfig;

/// The most open files that are asked for.
const WANTED: u64 = 1_048_576;
/// What a process is taken to have where nobody can say.
const USUAL: u64 = 1_024;
/// For lookups, logs, the listener and other files that are opened now and then.
const OWN: usize = 160;
/// The most that are derived: of callers, and to targets.
const MOST: (usize, usize) = (10_000, 8_192);

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Files {
    /// Of callers.
    pub(super) connections_max: usize,
    /// To HTTP targets, in use at once. Half as many more are idle, or carry SQS calls.
    pub(super) targets_max: usize,
}

/// Raises the limit of open files as far as the system lets it, and divides it.
pub(super) fn divide(config: &ServeConfig) -> Files {
    let limit = rlimit::increase_nofile_limit(WANTED).or_else(|error| {
        tracing::warn!(%error, "the limit of open files cannot be raised");
        rlimit::Resource::NOFILE.get_soft()
    });
    let limit = usize::try_from(limit.unwrap_or(USUAL)).unwrap_or(usize::MAX);
    let (files, is_enough) = divided(limit, config);
    let Files { connections_max, targets_max } = files;
    if is_enough {
        tracing::info!(limit, connections_max, target_connections_max = targets_max, "open files");
    } else {
        tracing::warn!(
            limit,
            connections_max,
            target_connections_max = targets_max,
            "the process may open too few files for its connections: raise its limit (ulimit -n, LimitNOFILE), or lower \
             connections_max and target_connections_max"
        );
    }
    files
}

/// What of a limit is whose, and whether it is enough for what the settings want, and for a small service.
fn divided(limit: usize, config: &ServeConfig) -> (Files, bool) {
    let own = OWN + 2 * config.store_connections as usize;
    let room = limit.saturating_sub(own);
    let connections_max = config.connections_max.unwrap_or((room / 2).clamp(1, MOST.0));
    let left = room.saturating_sub(connections_max);
    let targets_max = config.target_connections_max.unwrap_or((left * 2 / 3).clamp(1, MOST.1));
    let all = own + connections_max + targets_max + targets_max / 2;
    (Files { connections_max, targets_max }, all <= limit && limit >= 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_derived_fits_and_what_is_set_stands() {
        let config = ServeConfig::default();
        for limit in [512, 1_024, 4_096, 20_000, 1_048_576] {
            let (files, is_enough) = divided(limit, &config);
            assert!(
                is_enough && files.connections_max >= 100 && files.targets_max >= 50,
                "{limit}: {files:?}"
            );
        }
        let (files, _) = divided(1_048_576, &config);
        assert_eq!(files, Files { connections_max: MOST.0, targets_max: MOST.1 });
        assert!(!divided(200, &config).1);
        let set = ServeConfig { connections_max: Some(5_000), target_connections_max: Some(7), ..config };
        assert_eq!(divided(1_024, &set), (Files { connections_max: 5_000, targets_max: 7 }, false));
        assert!(divided(8_192, &set).1);
    }
}
