//! The machine under a process: how slow its disk is, whether it is full, what its wall clock shows.
//!
//! A small library, compiled from `machine.c` and loaded before libc, reads what is set here.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

const SLOW_US: u64 = 0;
const FULL: u64 = 1;
const OFFSET_US: u64 = 2;

/// Files that may be open.
const FILES: u64 = 8_192;

/// Compiles the library into a folder.
///
/// # Errors
/// A machine without a C compiler.
pub fn compile(folder: &Path) -> Result<PathBuf> {
    let library = folder.join("machine.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/machine.c");
    let status = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .args([source, "-ldl"])
        .status()
        .context("cc does not start; a C compiler is needed")?;
    ensure!(status.success(), "cc could not compile {source}");
    Ok(library)
}

/// Sees to it that this process can take as many connections as a fault makes.
///
/// # Errors
/// A limit that cannot be raised.
pub fn allow_connections() -> Result<()> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    if soft.is_some_and(|soft| soft < FILES) {
        let status = Command::new("prlimit")
            .args(["--pid", &std::process::id().to_string(), &format!("--nofile={FILES}:")])
            .status()
            .context("prlimit does not start; it raises the limit of open files")?;
        ensure!(status.success(), "the limit of open files cannot be raised to {FILES}");
    }
    Ok(())
}

/// What one process or group of processes runs on.
#[derive(Debug)]
pub struct Machine {
    library: PathBuf,
    path: PathBuf,
    file: fs::File,
}

impl Machine {
    /// A machine in order.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn new(library: &Path, path: PathBuf) -> Result<Self> {
        let file = fs::OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        let machine = Self { library: library.to_owned(), path, file };
        for field in [SLOW_US, FULL, OFFSET_US] {
            machine.set(field, 0)?;
        }
        Ok(machine)
    }

    /// Variables for processes that run on it.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("TOLLGATE_FAULT_MACHINE", self.path.display().to_string()),
        ]
    }

    /// How much is added to each fsync, in milliseconds.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn slow_disk(&self, ms: i64) -> Result<()> {
        self.set(SLOW_US, ms * 1_000)
    }

    /// No file grows any more.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn full_disk(&self, full: bool) -> Result<()> {
        self.set(FULL, full.into())
    }

    /// The wall clock is off by so much, in microseconds.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn clock_offset(&self, us: i64) -> Result<()> {
        self.set(OFFSET_US, us)
    }

    fn set(&self, field: u64, value: i64) -> Result<()> {
        self.file
            .write_all_at(&value.to_ne_bytes(), field * 8)
            .context("the machine's file cannot be written")
    }
}
