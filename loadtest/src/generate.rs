//! Decides which policies and schedules a generated file has.
//!
//! In: counts and a seed. Out: YAML documents as `tollgate apply` reads them; the same seed gives the same file. Schedules
//! are as users write them: mostly at round times of the day, many in the night, some weekly or monthly, some intervals.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Zones with and without clock changes, on both hemispheres, with offsets of whole and broken hours.
pub(crate) const ZONES: [&str; 48] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Lord_Howe",
    "America/Los_Angeles",
    "Europe/London",
    "Asia/Kathmandu",
    "America/Santiago",
    "Africa/Cairo",
    "Asia/Beirut",
    "America/Nuuk",
    "Pacific/Apia",
    "Australia/Sydney",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Pacific/Chatham",
    "America/St_Johns",
    "Europe/Dublin",
    "Europe/Paris",
    "Europe/Madrid",
    "Europe/Rome",
    "Europe/Warsaw",
    "Europe/Athens",
    "Europe/Istanbul",
    "Europe/Kyiv",
    "Europe/Helsinki",
    "Asia/Dubai",
    "Asia/Karachi",
    "Asia/Dhaka",
    "Asia/Yangon",
    "Asia/Bangkok",
    "Asia/Singapore",
    "Asia/Hong_Kong",
    "Asia/Shanghai",
    "Asia/Seoul",
    "Australia/Adelaide",
    "Australia/Perth",
    "Pacific/Auckland",
    "Pacific/Honolulu",
    "America/Anchorage",
    "America/Denver",
    "America/Chicago",
    "America/Mexico_City",
    "America/Bogota",
    "Africa/Johannesburg",
];

const DAYS: [&str; 7] = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];

/// Arguments of `generate`.
#[derive(Args, Debug)]
pub(crate) struct GenerateArgs {
    /// How many schedules
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    schedules: u32,

    /// How many policies they share
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    policies: u32,

    /// Over how many time zones
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=48))]
    zones: u32,

    /// The most events of one trigger
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    events_max: u32,

    /// Where the events go
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9099/")]
    target: String,

    /// Another seed makes another file
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The file; - means standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
}

/// Writes the file.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn run(args: &GenerateArgs) -> anyhow::Result<()> {
    if args.out.as_os_str() == "-" {
        return write(args, std::io::stdout().lock()).context("cannot write to standard output");
    }
    let place = || format!("cannot write {}", args.out.display());
    let file = File::create(&args.out).with_context(place)?;
    write(args, file).with_context(place)
}

fn write(args: &GenerateArgs, out: impl Write) -> anyhow::Result<()> {
    let (mut out, mut random) = (BufWriter::new(out), StdRng::seed_from_u64(args.seed));
    for number in 0..args.policies {
        let limit = *[5, 10, 25, 50, 100, 250].choose(&mut random).unwrap_or(&10);
        writeln!(out, "---\nkind: Policy\nid: policy-{number:04}\nmaxInFlight: {limit}")?;
    }
    for number in 0..args.schedules {
        schedule(args, number, &mut random, &mut out)?;
    }
    Ok(out.flush()?)
}

fn schedule(
    args: &GenerateArgs,
    number: u32,
    random: &mut StdRng,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let zones = usize::try_from(args.zones)?.min(ZONES.len());
    // In turn and not by lot, so that every zone is there however few the schedules are.
    let zone = ZONES[usize::try_from(number)? % zones];
    // Small batches are common, large ones rare.
    let events = f64::from(args.events_max).powf(random.random::<f64>()).floor();
    writeln!(out, "---\nkind: Schedule\nid: schedule-{number:06}\ntimeZone: {zone}\nevents: {events}")?;
    writeln!(out, "triggers:\n- {}", trigger(random))?;
    if random.random_bool(0.9) {
        writeln!(out, "policy: policy-{:04}", random.random_range(0..args.policies))?;
    }
    if random.random_bool(0.2) {
        writeln!(out, "priority: {}", random.random_range(0..=9))?;
    }
    writeln!(out, "payload: {{tenant: {}, job: import}}", random.random_range(0..1_000))?;
    writeln!(out, "target: {{http: {{url: \"{}\"}}}}", args.target)?;
    Ok(())
}

fn trigger(random: &mut StdRng) -> String {
    let minute = match random.random_range(0..10) {
        0..5 => 0,
        5..8 => random.random_range(0..4) * 15,
        _ => random.random_range(0..60),
    };
    let hour = if random.random_bool(0.6) { random.random_range(0..6) } else { random.random_range(0..24) };
    let day = random.random_range(1..=28);
    let weekday = DAYS[random.random_range(0..DAYS.len())];
    match random.random_range(0..100) {
        0..40 => format!("cron: '{minute} {hour} * * *'"),
        40..50 => format!("cron: '{minute} {hour} * * MON-FRI'"),
        50..60 => format!("cron: '{minute} {hour} * * {weekday}'"),
        60..66 => format!("cron: '{minute} {hour} {day} * *'"),
        66..68 => format!("cron: '{minute} {hour} L * *'"),
        68..70 => format!("cron: '{minute} {hour} * * {weekday}#{}'", random.random_range(1..=4)),
        70..72 => format!("cron: '{minute} {hour} {day} {} *'", random.random_range(1..=12)),
        72..80 => format!("cron: '{minute} * * * *'"),
        80..85 => format!("fields: {{hour: \"3,6,9\", minute: \"{minute}\"}}"),
        85..88 => "cron: '*/15 * * * *'".to_owned(),
        88..94 => format!("interval: {{every: {}m}}", random.random_range(5..=720)),
        _ => format!("interval: {{every: {}s}}", random.random_range(60..=3_600)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        args: GenerateArgs,
    }

    fn text(flags: &[&str]) -> String {
        let line = Flags::try_parse_from([&["x"], flags].concat()).unwrap();
        let mut out = Vec::new();
        write(&line.args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_seed_decides_everything() {
        let flags = ["--schedules", "500", "--policies", "7"];
        let one = text(&flags);
        assert_eq!(one, text(&flags));
        assert_ne!(one, text(&[&flags[..], &["--seed", "2"]].concat()));
        assert_eq!((one.matches("kind: Schedule").count(), one.matches("kind: Policy").count()), (500, 7));
    }

    #[test]
    fn every_zone_is_used() {
        let text = text(&["--schedules", "48", "--zones", "48"]);
        assert!(ZONES.iter().all(|zone| text.contains(&format!("timeZone: {zone}\n"))));
    }
}
