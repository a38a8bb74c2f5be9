//! Where programs run.
use super::team::Team;
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// A device that programs run on.
///
/// Only the CPU so far: a team of threads that the ops of a program share. CUDA devices join here.
#[derive(Clone)]
pub struct Device {
    team: Arc<Team>,
    name: String,
}

impl Device {
    /// The device called `name`: `auto` (the best there is) or `cpu`; `threads` 0 means every core.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when this build has no such device.
    pub fn open(name: &str, threads: usize) -> Result<Self> {
        match name {
            "auto" | "cpu" => Self::cpu(threads),
            other => Err(Error::new(ErrorKind::Device, format!("this build has no device `{other}`"))
                .remedy("use --device cpu, or --device auto for the best there is")),
        }
    }
    /// The CPU with `threads` threads; 0 means every core.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the threads cannot be started.
    pub fn cpu(threads: usize) -> Result<Self> {
        let threads =
            if threads == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { threads };
        let team = Team::new(threads)
            .map_err(|e| Error::new(ErrorKind::Device, "cannot start the CPU's threads").caused_by(e))?;
        Ok(Device { team: Arc::new(team), name: cpu_name() })
    }
    /// `cpu`.
    pub fn kind(&self) -> &'static str {
        "cpu"
    }
    /// The maker's name of it.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Threads of its team.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }
    /// [`install`](Self::install) for work of many short parallel pieces, such as a pass: threads stay awake between
    /// them, for waking one takes as long as many a piece.
    pub fn keep_awake<T>(&self, work: impl FnOnce() -> T) -> T {
        self.team.keep_awake(work)
    }
    /// Runs `work` on this thread, with the device's threads to help it.
    pub fn install<T>(&self, work: impl FnOnce() -> T) -> T {
        self.team.install(work)
    }
}

fn cpu_name() -> String {
    std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}
