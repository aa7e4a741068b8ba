//! What the system says of this process, from `/proc`; nothing where there is none.

use std::fs;

/// Time in `/proc` is counted in hundredths of a second on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// The process at a glance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Process {
    /// Processor time used, in seconds.
    pub(crate) cpu_s: f64,
    /// Memory that is resident, in bytes.
    pub(crate) resident_bytes: u64,
    /// Open files and connections.
    pub(crate) open_fds: u64,
    /// The most files and connections that may be open.
    pub(crate) max_fds: u64,
    /// Since the Unix epoch, in seconds.
    pub(crate) start_s: f64,
}

impl Process {
    /// Reads it.
    pub(crate) fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The second field is a name in brackets; the first one after it is the third.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let resident_kb: u64 = number_after(&status, "VmRSS:")?;
        let system = fs::read_to_string("/proc/stat").ok()?;
        let boot_s: u64 = number_after(&system, "btime")?;
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        Some(Self {
            cpu_s: (ticks(14)? + ticks(15)?) / TICKS_PER_S,
            resident_bytes: resident_kb * 1024,
            // The folder that is being read is open, too.
            open_fds: (fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1),
            max_fds: number_after(&limits, "Max open files").unwrap_or(u64::MAX),
            start_s: boot_s as f64 + ticks(22)? / TICKS_PER_S,
        })
    }
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn this_process_is_what_the_system_says() {
        let before = Process::read().unwrap();
        let files: Vec<_> = (0..20).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let after = Process::read().unwrap();
        assert!(after.open_fds >= before.open_fds + 10, "{before:?} {after:?}");
        assert!(after.open_fds <= after.max_fds && after.cpu_s >= before.cpu_s);
        assert!((1 << 20..1 << 32).contains(&after.resident_bytes), "{after:?}");
        let now_s = tollgate_clock::Clock::system().wall_us() as f64 / 1e6;
        assert!(now_s - after.start_s < 3_600.0 && after.start_s < now_s + 1.0, "{after:?}");
        drop(files);
    }
}
