//! What the demo prints.

use std::io::Write;
use std::net::SocketAddr;

use tollgate_proto::v1;

use super::DemoArgs;
use super::consumer::Measured;

/// How it goes.
pub(super) struct Progress {
    pub(super) waiting: u64,
    pub(super) held: u64,
    pub(super) total: u32,
    pub(super) until_launch_us: i64,
}

/// What is about to happen.
pub(super) fn intro(
    args: &DemoArgs,
    small_events: u32,
    service: SocketAddr,
    consumer: SocketAddr,
    work_mean_ms: u64,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "Tollgate serves gRPC on http://{service}, with a temporary SQLite file.")?;
    writeln!(
        out,
        "A consumer on http://{consumer}/work takes each event, works for about {work_mean_ms} ms, and releases it."
    )?;
    writeln!(
        out,
        "Two schedules are due in three seconds: nightly-backup ({} events) and tenant-sync ({small_events} events).",
        args.events
    )?;
    writeln!(
        out,
        "Their policy has {} tokens: never more than {} events at the consumer.\n",
        args.tokens, args.tokens
    )?;
    Ok(())
}

/// One line of progress; on a terminal it replaces the one before.
pub(super) fn progress(progress: &Progress, measured: &Measured, terminal: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let line = if progress.until_launch_us > 0 {
        format!("due in {:.1} s", progress.until_launch_us as f64 / 1e6)
    } else {
        let latest = measured.lateness_us.last().copied().unwrap_or_default();
        format!(
            "waiting {:>5}   in flight {:>4}   done {:>5} of {}   the last one came {:.1} s after its launch time",
            progress.waiting,
            progress.held,
            measured.released,
            progress.total,
            latest as f64 / 1e6
        )
    };
    if terminal {
        write!(out, "\r\x1b[2K{line}")?;
    } else {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(())
}

/// The progress is over.
pub(super) fn progress_end(terminal: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", if terminal { "\n" } else { "" })?;
    Ok(())
}

/// Where to look at what has happened.
pub(super) fn held(service: SocketAddr) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "\nIt stays up: look at the console, http://{service}/, or ask it, such as\n  \
         tollgate status --server http://{service}\n  tollgate history nightly-backup --server http://{service}\n\
         Ctrl-C ends it, and removes what it has stored."
    )?;
    out.flush()?;
    Ok(())
}

/// What the consumer measured, and whether every promise was kept.
pub(super) fn summary(
    measured: &Measured,
    args: &DemoArgs,
    total: u32,
    runs: &[v1::Run],
) -> anyhow::Result<bool> {
    let mut lateness = measured.lateness_us.clone();
    lateness.sort_unstable();
    // The first ones found a free token: their lateness is Tollgate's own.
    let mut unthrottled: Vec<i64> = measured.lateness_us.iter().take(args.tokens as usize).copied().collect();
    unthrottled.sort_unstable();
    let finished = runs.iter().filter(|run| run.state() == v1::RunState::Finished).count();
    let mut out = std::io::stdout().lock();
    writeln!(out, "What the consumer measured")?;
    writeln!(out, "  most in flight at once    {:>9}   (limit {})", measured.in_flight_max, args.tokens)?;
    writeln!(out, "  events delivered          {:>9}   of {total}", measured.events)?;
    writeln!(out, "  delivered twice           {:>9}", measured.duplicates)?;
    writeln!(out, "  before the launch time    {:>9}", measured.early)?;
    writeln!(out, "  released                  {:>9}   of {total}", measured.released)?;
    writeln!(
        out,
        "  lateness with a free token  p50 {} ms, p99 {} ms",
        millis(percentile(&unthrottled, 50)),
        millis(percentile(&unthrottled, 99))
    )?;
    writeln!(
        out,
        "  lateness with the wait for a token  p50 {} ms, p99 {} ms",
        millis(percentile(&lateness, 50)),
        millis(percentile(&lateness, 99))
    )?;
    writeln!(out, "  runs finished             {finished:>9}   of 2\n")?;
    let broken = broken(measured, args, total, finished);
    for promise in &broken {
        writeln!(out, "BROKEN: {promise}")?;
    }
    if broken.is_empty() {
        writeln!(out, "Every promise was kept.")?;
    }
    Ok(broken.is_empty())
}

fn broken(measured: &Measured, args: &DemoArgs, total: u32, finished: usize) -> Vec<String> {
    let mut broken = Vec::new();
    if measured.in_flight_max > args.tokens {
        broken.push(format!("{} events in flight, {} allowed", measured.in_flight_max, args.tokens));
    }
    if measured.events != u64::from(total) {
        broken.push(format!("{} events of {total} delivered", measured.events));
    }
    if measured.early > 0 {
        broken.push(format!("{} events came before their launch time", measured.early));
    }
    if measured.duplicates > 0 {
        broken.push(format!("{} deliveries too many, with no failure to excuse them", measured.duplicates));
    }
    if measured.released != u64::from(total) || finished != 2 {
        broken
            .push(format!("{} events of {total} released, {finished} runs of 2 finished", measured.released));
    }
    broken.extend(measured.release_problems.iter().take(5).map(|p| format!("a release was refused: {p}")));
    broken
}

fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied().unwrap_or_default()
}

fn millis(us: i64) -> String {
    format!("{:.1}", us as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Measured {
        Measured { events: 540, released: 540, deliveries: 540, in_flight_max: 10, ..Measured::default() }
    }

    #[test]
    fn each_broken_promise_is_told() {
        let args = DemoArgs { events: 500, tokens: 10, hold: false };
        assert!(broken(&good(), &args, 540, 2).is_empty());
        assert_eq!(broken(&Measured { in_flight_max: 11, ..good() }, &args, 540, 2).len(), 1);
        assert_eq!(broken(&Measured { events: 539, ..good() }, &args, 540, 2).len(), 1);
        assert_eq!(broken(&Measured { early: 1, ..good() }, &args, 540, 2).len(), 1);
        assert_eq!(broken(&Measured { duplicates: 1, ..good() }, &args, 540, 2).len(), 1);
        assert_eq!(broken(&Measured { released: 1, ..good() }, &args, 540, 2).len(), 1);
        assert_eq!(broken(&good(), &args, 540, 1).len(), 1);
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let sorted: Vec<i64> = (1..=100).collect();
        assert_eq!((percentile(&sorted, 50), percentile(&sorted, 99)), (50, 99));
        assert_eq!(percentile(&[], 99), 0);
    }
}
