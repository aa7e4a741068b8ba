//! A file of policies and schedules, as varied as a real installation's: cron texts of every launch class, intervals,
//! many zones.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, ensure};
use chrono_tz::TZ_VARIANTS;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// What to write.
#[derive(clap::Args)]
pub(crate) struct GenerateArgs {
    /// How many schedules
    #[arg(long, default_value_t = 10_000)]
    schedules: u32,
    /// Over how many time zones they are spread
    #[arg(long, default_value_t = 40)]
    zones: usize,
    /// How many policies they share
    #[arg(long, default_value_t = 20)]
    policies: u32,
    /// Where their events go
    #[arg(long, default_value = "http://127.0.0.1:8080/work")]
    url: String,
    /// The same seed makes the same file
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Writes the file.
///
/// # Errors
/// Numbers that make no sense, a file that cannot be written.
pub(crate) fn run(args: &GenerateArgs) -> anyhow::Result<()> {
    ensure!((1..=TZ_VARIANTS.len()).contains(&args.zones), "--zones: 1 to {} exist", TZ_VARIANTS.len());
    ensure!(args.policies > 0, "--policies: at least 1");
    let file = File::create(&args.out).with_context(|| format!("cannot write {}", args.out.display()))?;
    let mut out = BufWriter::new(file);
    let mut random = StdRng::seed_from_u64(args.seed);
    // Evenly over the alphabet, so that every continent is there.
    let zones: Vec<&str> =
        (0..args.zones).map(|i| TZ_VARIANTS[i * TZ_VARIANTS.len() / args.zones].name()).collect();
    for policy in 0..args.policies {
        let limit = random.random_range(5..=200);
        writeln!(out, "---\nkind: Policy\nid: policy-{policy}\nmaxInFlight: {limit}")?;
    }
    for schedule in 0..args.schedules {
        write_schedule(&mut out, &mut random, args, schedule, zones[schedule as usize % zones.len()])?;
    }
    out.flush()?;
    Ok(())
}

fn write_schedule(
    out: &mut impl Write,
    random: &mut StdRng,
    args: &GenerateArgs,
    schedule: u32,
    zone: &str,
) -> anyhow::Result<()> {
    writeln!(out, "---\nkind: Schedule\nid: schedule-{schedule}")?;
    writeln!(out, "triggers: [{}]\ntimeZone: {zone}", trigger(random))?;
    writeln!(out, "events: {}", [1, 1, 1, 10, 500].choose(random).unwrap_or(&1))?;
    // One in five has no policy, as with Druva.
    if random.random_ratio(4, 5) {
        writeln!(out, "policy: policy-{}", random.random_range(0..args.policies))?;
    }
    writeln!(out, "target: {{http: {{url: {:?}}}}}\npayload: {{schedule: {schedule}}}", args.url)?;
    Ok(())
}

fn trigger(random: &mut StdRng) -> String {
    let (minute, hour) = (random.random_range(0..60), random.random_range(0..24));
    let text = match random.random_range(0..10) {
        0 => {
            return format!(
                "{{interval: {{every: {}s}}}}",
                [60, 120, 300, 600, 900, 3600].choose(random).unwrap_or(&60)
            );
        }
        1 => format!("{minute} * * * *"),
        2 => format!("{minute} {hour} * * MON-FRI"),
        3 => format!("{minute} {hour} * * {}", random.random_range(0..7)),
        4 => format!("{minute} {hour} {} * *", random.random_range(1..29)),
        5 => format!("{minute} {hour} L * *"),
        6 => format!("{minute} {hour} * {} FRI#L", random.random_range(1..13)),
        _ => format!("{minute} {hour} * * *"),
    };
    format!("{{cron: {text:?}}}")
}
