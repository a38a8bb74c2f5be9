//! Where programs run.
use crate::error::{Error, ErrorKind, Result};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

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
    /// [`install`](Self::install) for work of many short parallel pieces, such as a pass: threads stay awake between
    /// them, for waking one takes as long as many a piece. A thread that finds nothing to do for a while offers its
    /// core to others, so this is polite on a shared machine, but not idle.
    pub fn keep_awake<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        const PATIENCE: u32 = 2000; // looks for work, some 50 us
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let others = self.threads() - 1;
        let (awake, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        self.install(|| {
            rayon::scope(|scope| {
                for _ in 0..others {
                    scope.spawn(|_| {
                        awake.fetch_add(1, Relaxed);
                        let mut idle = 0;
                        while !done.load(Relaxed) {
                            if rayon::yield_now() == Some(rayon::Yield::Executed) {
                                idle = 0;
                            } else if idle < PATIENCE {
                                idle += 1;
                                std::hint::spin_loop();
                            } else {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
                // Not before every other thread has taken its watch: this one would otherwise take it, and wait for itself.
                while awake.load(Relaxed) < others {
                    std::thread::yield_now();
                }
                let _done = Done(&done); // also when `work` panics
                work()
            })
        })
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
