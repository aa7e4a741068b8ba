//! Seeds of a target, and ever more inputs made from them.
//!
//! In: a target and its corpus folder. A panic of the target fails the test; the input is written beside the build, to
//! be added to the corpus. The corpus is replayed first, so what was found once is found at once if it comes back.
//!
//! - `TOLLGATE_FUZZ_SECONDS`: how long each target is mutated; a fixed number of inputs by default.
//! - `TOLLGATE_FUZZ_SEED`: repeats a run; a run prints its own.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::targets::INPUT_MAX_BYTES;

/// Inputs that gave a new answer are kept, up to so many.
const POOL_MAX: usize = 5_000;
const BYTES: [u8; 12] = [0, 1, b'\n', b' ', b'"', b'-', b'/', b':', 0x7f, 0x80, 0xc0, 0xff];
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "59",
    "60",
    "255",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999999999",
];

/// Replays the corpus, then mutates it. `words` are worth inserting.
pub(crate) fn run(name: &str, target: fn(&[u8]) -> u64, words: &[&str], count: u64) {
    let seed = number("TOLLGATE_FUZZ_SEED").unwrap_or_else(rand::random);
    let seconds = number("TOLLGATE_FUZZ_SECONDS");
    let corpus = corpus(name);
    let (mut pool, mut seen) = (Vec::new(), HashSet::new());
    for (path, data) in corpus {
        let answer =
            checked(target, &data).unwrap_or_else(|| panic!("{name}: {} fails again", path.display()));
        seen.insert(answer);
        pool.push(data);
    }
    let replayed = pool.len();
    let (start, mut done) = (Instant::now(), 0);
    let goes_on = |done: u64| match seconds {
        Some(seconds) => start.elapsed() < Duration::from_secs(seconds),
        None => done < count,
    };
    let mut random = StdRng::seed_from_u64(seed);
    while goes_on(done) {
        let mut data = pool[random.random_range(0..pool.len())].clone();
        for _ in 0..random.random_range(1..=6) {
            mutate(&mut data, &pool, words, &mut random);
        }
        data.truncate(INPUT_MAX_BYTES);
        match checked(target, &data) {
            Some(answer) if seen.insert(answer) && pool.len() < POOL_MAX => pool.push(data),
            Some(_) => {}
            None => panic!(
                "{name}: TOLLGATE_FUZZ_SEED={seed}, input {done}: kept as {}",
                keep(name, &data).display()
            ),
        }
        done += 1;
    }
    #[expect(clippy::print_stdout, reason = "says how to repeat a run")]
    {
        println!(
            "{name}: {replayed} seeds, {done} mutations in {:.1} s, {} kinds of answers, TOLLGATE_FUZZ_SEED={seed}",
            start.elapsed().as_secs_f32(),
            seen.len()
        );
    }
}

/// What the target says; none where it panics.
fn checked(target: fn(&[u8]) -> u64, data: &[u8]) -> Option<u64> {
    catch_unwind(AssertUnwindSafe(|| target(data))).ok()
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}: not a whole number")))
}

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no seeds", folder.display());
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn keep(name: &str, data: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}-{}", data.len()));
    std::fs::write(&path, data).unwrap();
    path
}

/// One small change.
fn mutate(data: &mut Vec<u8>, pool: &[Vec<u8>], words: &[&str], random: &mut StdRng) {
    let at = random.random_range(0..=data.len());
    let end = (at + random.random_range(1..=16_usize)).min(data.len());
    match random.random_range(0..10) {
        0 if at < data.len() => data[at] ^= 1 << random.random_range(0..8),
        1 if at < data.len() => data[at] = BYTES[random.random_range(0..BYTES.len())],
        2 => data.insert(at, random.random()),
        3 => drop(data.drain(at..end)),
        4 => drop(data.splice(at..at, data[at..end].to_vec())),
        5 => {
            let other = &pool[random.random_range(0..pool.len())];
            let from = random.random_range(0..=other.len());
            let to = random.random_range(from..=other.len());
            drop(data.splice(at..end, other[from..to].iter().copied()));
        }
        6 | 7 if !words.is_empty() => {
            let word = words[random.random_range(0..words.len())];
            drop(data.splice(at..at, word.bytes()));
        }
        8 => {
            let digits = data[at..].iter().take_while(|b| b.is_ascii_digit()).count();
            let number = NUMBERS[random.random_range(0..NUMBERS.len())];
            drop(data.splice(at..at + digits, number.bytes()));
        }
        // Rare, as large inputs are slow.
        9 if random.random_ratio(1, 50) && at < end => {
            let piece = data[at..end].to_vec();
            let many = piece.iter().copied().cycle().take(INPUT_MAX_BYTES - at.min(INPUT_MAX_BYTES));
            drop(data.splice(at..end, many.collect::<Vec<u8>>()));
        }
        9 if random.random_ratio(1, 5) => data.truncate(at.max(1)),
        _ => {}
    }
}
