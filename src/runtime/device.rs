//! Where programs run.
use super::{
    MatmulPrecision,
    cuda::{Gpu, load_emulator},
    team::Team,
};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// A device that programs run on: the CPU, a team of threads that the ops of a program share; or a CUDA device, beside
/// which the team does what is left to the host.
#[derive(Clone)]
pub struct Device {
    team: Arc<Team>,
    name: String,
    gpu: Option<Gpu>,
}

impl Device {
    /// Most threads of the CPU.
    pub const MOST_THREADS: usize = 1024;
    /// The device called `name`: `auto` (the CPU, until kernels have been measured on a GPU), `cpu`, `cuda`, `cuda:N`, or `emu` or `emu:N` (emulated CUDA
    /// devices, for tests); `threads` of the CPU, where 0 means every core.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for another name; [`ErrorKind::Device`] when there is no such device, with what is missing.
    pub fn open(name: &str, threads: usize) -> Result<Self> {
        if let "auto" | "cpu" = name {
            return Self::cpu(threads);
        }
        let (kind, ordinal) = name.split_once(':').unwrap_or((name, "0"));
        let (true, Ok(ordinal)) = (matches!(kind, "cuda" | "emu"), ordinal.parse()) else {
            return Err(Error::new(ErrorKind::Device, format!("there is no device `{name}`"))
                .remedy("give auto, cpu, cuda, cuda:N or emu"));
        };
        if kind == "emu" {
            load_emulator()?;
        }
        let gpu = Gpu::open(ordinal)?;
        Ok(Device { name: gpu.name().to_owned(), gpu: Some(gpu), ..Self::cpu(threads)? })
    }
    /// The CPU with `threads` threads; 0 means every core.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the threads cannot be started; `Usage` where nobody has so many.
    pub fn cpu(threads: usize) -> Result<Self> {
        if threads > Self::MOST_THREADS {
            return Err(Error::usage(format!("{threads} threads"))
                .remedy(format!("give at most {}, or 0 for every core", Self::MOST_THREADS)));
        }
        let threads =
            if threads == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { threads };
        let team = Team::new(threads).map_err(no_threads)?;
        Ok(Device { team: Arc::new(team), name: cpu_name(), gpu: None })
    }
    /// `cpu` or `cuda`.
    pub fn kind(&self) -> &'static str {
        if self.gpu.is_some() { "cuda" } else { "cpu" }
    }
    /// The CUDA device, if it is one.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.as_ref()
    }
    /// The maker's name of it.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Threads of its team.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }
    /// The CPU for two lanes: the second has `threads` of this one's, the first the others, and at least one. Threads of a lane
    /// that has nothing to do [help](Self::help_partner) the other.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the threads cannot be started.
    pub fn lanes(&self, threads: usize) -> Result<[Device; 2]> {
        let first = self.threads().saturating_sub(threads).max(1);
        let teams = Team::pair([first, threads.max(1)]).map_err(no_threads)?;
        Ok(teams.map(|team| Device { team: Arc::new(team), name: self.name.clone(), gpu: None }))
    }
    /// For a lane that waits: takes part in what the other lane does; false where there is nothing to do. `last` tells jobs apart, 0 to begin
    /// with.
    pub fn help_partner(&self, last: &mut usize) -> bool {
        self.team.help_partner(last)
    }
    /// [`install`](Self::install) for work of many short parallel pieces, such as a pass: threads stay awake between
    /// them, for waking one takes as long as many a piece.
    pub fn keep_awake<T>(&self, work: impl FnOnce() -> T) -> T {
        self.team.keep_awake(work)
    }
    /// The same device, on which dense products multiply in `precision`.
    ///
    /// # Errors
    /// Usage where it cannot: the CPU multiplies in f32.
    pub fn multiplying_in(mut self, precision: MatmulPrecision) -> Result<Self> {
        self.gpu = self.gpu.map(|gpu| gpu.multiplying_in(precision));
        if self.gpu.is_none() && precision != MatmulPrecision::F32 {
            return Err(Error::usage(format!(
                "precision is {}, and the CPU multiplies in f32",
                precision.name()
            ))
            .remedy("give --precision f32, or a CUDA device, as in --device cuda"));
        }
        Ok(self)
    }
    /// Runs `work` on this thread, with the device's threads to help it.
    pub fn install<T>(&self, work: impl FnOnce() -> T) -> T {
        self.team.install(work)
    }
}

fn no_threads(e: std::io::Error) -> Error {
    Error::new(ErrorKind::Device, "cannot start the CPU's threads").caused_by(e)
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
