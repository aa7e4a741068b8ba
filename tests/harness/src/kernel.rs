//! What the kernel knows of a process: CPU time, memory, bytes written. Linux only.

use std::{fs, io};

/// Ticks a second of the times in `/proc/PID/stat`: the same on every Linux, as part of its interface.
const TICKS: f64 = 100.0;

/// The fields of `/proc/PID/stat` that are needed.
struct Stat {
    parent: u32,
    own_ticks: f64,
    /// Of children that have ended and were waited for.
    reaped_ticks: f64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may hold anything, but ends with the last parenthesis.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let ticks = |from: usize| {
        fields.get(from..from + 2)?.iter().map(|field| field.parse::<f64>().ok()).sum::<Option<f64>>()
    };
    Some(Stat { parent: fields.get(1)?.parse().ok()?, own_ticks: ticks(11)?, reaped_ticks: ticks(13)? })
}

/// The process that started this one.
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid).map(|stat| stat.parent)
}

/// The name of its program, cut to 15 characters.
pub fn program(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim().to_owned())
}

/// CPU seconds, user and system, of a process and its children, also those that have ended. Zero where it has gone.
pub fn cpu_s(pid: u32) -> f64 {
    let Some(own) = stat(pid) else { return 0.0 };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let children = pids.filter_map(stat).filter(|child| child.parent == pid);
    let children: f64 = children.map(|child| child.own_ticks + child.reaped_ticks).sum();
    (own.own_ticks + own.reaped_ticks + children) / TICKS
}

/// Memory that is resident, in bytes; none where the process has ended.
pub fn rss_bytes(pid: u32) -> Option<u64> {
    memory(pid, "VmRSS:")
}

/// The most memory that was resident since [`reset_peak`], in bytes.
pub fn peak_bytes(pid: u32) -> Option<u64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// How many files it has open.
///
/// # Errors
/// A process that has ended.
pub fn open_files(pid: u32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Forgets the peak: from now on it counts anew.
///
/// # Errors
/// A process of another user.
pub fn reset_peak(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// Bytes that it has sent to the disk.
pub fn written_bytes(pid: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_kernel_answers_about_this_process() {
        let own = std::process::id();
        let (before, start) = (cpu_s(own), Instant::now());
        while start.elapsed().as_millis() < 200 {}
        assert!(cpu_s(own) >= before + 0.1);
        assert!(peak_bytes(own).unwrap() >= rss_bytes(own).unwrap() && rss_bytes(own).unwrap() > 1 << 20);
        assert!(parent(own).is_some() && program(own).is_some());
        assert_eq!(cpu_s(u32::MAX), 0.0);
    }
}
