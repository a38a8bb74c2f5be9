//! Where programs run.
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// A device that programs run on.
///
/// Only the CPU so far: a pool of threads that the ops of a program share. CUDA devices join here.
#[derive(Clone)]
pub struct Device {
    pool: Arc<rayon::ThreadPool>,
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
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("cpu-{i}"))
            .build()
            .map_err(|e| Error::new(ErrorKind::Device, "cannot start the CPU's threads").caused_by(e))?;
        Ok(Device { pool: Arc::new(pool), name: cpu_name() })
    }
    /// `cpu`.
    pub fn kind(&self) -> &'static str {
        "cpu"
    }
    /// The maker's name of it.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Threads of its pool.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }
    /// Runs `work` with the device's threads as the current pool.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
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

/// Most memory this process ever held resident, in bytes; 0 where the system does not tell.
pub fn peak_memory_bytes() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("VmHWM:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(0, |kib| kib * 1024)
}
