//! The devices that programs run on.
use super::{
    MatmulPrecision, brief_debug,
    changes::{Change, Changes},
    comm::Ranks,
    cuda::{Gpu, load_emulator},
    team::{SeenJobs, Team},
};
use crate::error::{Error, ErrorKind, Result};
use std::{
    collections::HashMap,
    panic::resume_unwind,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Instant,
};

/// A device that programs run on: the CPU, i.e. a team of threads that the ops of a program share; or a CUDA
/// device plus such a team for host work.
#[derive(Clone)]
pub struct Device {
    team: Arc<Team>,
    name: String,
    gpu: Option<Gpu>,
    ranks: Option<Ranks>,
}

brief_debug!(Device, d => { name: d.name, gpu: d.gpu });

impl Device {
    /// Maximum number of threads of the CPU.
    pub const MOST_THREADS: usize = 1024;
    /// Opens the device called `name`, with `threads` CPU threads (0: one per core).
    ///
    /// `name` is `auto` (the CPU), `cpu`, `cuda`, `cuda:N`, or `emu` or `emu:N` (emulated CUDA devices, for
    /// tests).
    ///
    /// # Errors
    /// [`ErrorKind::Device`] for another name, or if the device does not exist; the message says what is
    /// missing. [`ErrorKind::Usage`] if there are too many threads.
    pub fn open(name: &str, threads: usize) -> Result<Self> {
        if let "auto" | "cpu" = name {
            return Self::cpu(threads);
        }
        let (kind, ordinal) = name.split_once(':').unwrap_or((name, "0"));
        let (true, Ok(ordinal)) = (matches!(kind, "cuda" | "emu"), ordinal.parse()) else {
            let names = ["auto", "cpu", "cuda", "cuda:N", "emu"];
            return Err(Error::unknown(ErrorKind::Device, "device", name, &names));
        };
        if kind == "emu" {
            load_emulator()?;
        }
        let gpu = Gpu::open(ordinal)?;
        Ok(Device { name: gpu.name().to_owned(), gpu: Some(gpu), ..Self::cpu(threads)? })
    }
    /// Opens a device by `open`, on a thread of its own, while this thread does other `work`, such as to read
    /// data. Returns what both return, once both are done.
    ///
    /// # Errors
    /// Those of `work`; `Device` for a wrong word in `TGNN_BEFORE`.
    pub fn open_beside<T>(
        open: impl FnOnce() -> Result<Device> + Send,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Result<Device>)> {
        if !Changes::of_environment()?.has(Change::Start) {
            return work().map(|done| (done, open()));
        }
        thread::scope(|scope| {
            let opening = scope.spawn(open);
            let (done, began) = (work(), Instant::now());
            let opened = opening.join().unwrap_or_else(|panic| resume_unwind(panic));
            if let Ok(device) = &opened {
                device.spent("wait", began.elapsed().as_secs_f64());
            }
            done.map(|done| (done, opened))
        })
    }
    /// Does some work as a phase of what is done until the device is busy, such as to build a program.
    pub fn timed<T>(&self, phase: &'static str, work: impl FnOnce() -> T) -> T {
        match &self.gpu {
            Some(gpu) => gpu.phases().time(phase, work),
            None => work(),
        }
    }
    /// Adds seconds to such a phase.
    pub fn spent(&self, phase: &'static str, seconds: f64) {
        self.gpu.iter().for_each(|gpu| gpu.phases().add(phase, seconds));
    }
    /// Returns the seconds by phase, in the order in which the phases first ended; none on a CPU.
    pub fn phases(&self) -> Vec<(&'static str, f64)> {
        self.gpu.as_ref().map_or_else(Vec::new, |gpu| gpu.phases().all())
    }
    /// Like [`open`](Self::open), for rank `rank` of a computer: without a number, `cuda` and `emu` are the
    /// devices in turn.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_for(name: &str, threads: usize, rank: usize) -> Result<Self> {
        match name {
            "cuda" | "emu" => {
                if name == "emu" {
                    load_emulator()?;
                }
                Self::open(&format!("{name}:{}", rank % Gpu::count()?.max(1)), threads)
            }
            other => Self::open(other, threads),
        }
    }
    /// Opens the CPU with `threads` threads (0: one per core).
    ///
    /// # Errors
    /// [`ErrorKind::Device`] if the threads cannot be started; `Usage` above
    /// [`MOST_THREADS`](Self::MOST_THREADS).
    pub fn cpu(threads: usize) -> Result<Self> {
        if threads > Self::MOST_THREADS {
            return Err(Error::usage(format!("{threads} threads are too many"))
                .remedy(format!("give at most {}, or 0 for every core", Self::MOST_THREADS)));
        }
        let threads =
            if threads == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { threads };
        let team = Team::new(threads).map_err(cannot_start_threads)?;
        Ok(Device { team: Arc::new(team), name: cpu_name(), gpu: None, ranks: None })
    }
    /// Returns the CPU with `threads` threads (0: one per core), the same in every call with this number. Its
    /// threads are started once per process and never end; they sleep while they have no work.
    ///
    /// # Errors
    /// As [`cpu`](Self::cpu).
    pub fn shared_cpu(threads: usize) -> Result<Self> {
        static SHARED: Mutex<Option<HashMap<usize, Device>>> = Mutex::new(None);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shared.get_or_insert_default();
        if let Some(device) = known.get(&threads) {
            return Ok(device.clone());
        }
        let device = Self::cpu(threads)?;
        known.insert(threads, device.clone());
        Ok(device)
    }
    /// Returns the same device as one of several ranks that train together.
    #[must_use]
    pub fn over(mut self, ranks: Ranks) -> Self {
        ranks.opens(self.gpu.as_ref().map(Gpu::ordinal));
        self.ranks = Some(ranks);
        self
    }
    /// Returns all ranks, if the device is one of several that train together.
    pub fn ranks(&self) -> Option<&Ranks> {
        self.ranks.as_ref()
    }
    /// Whether the device is the only rank or the first one, which writes files and prints.
    pub fn is_first(&self) -> bool {
        self.ranks.as_ref().is_none_or(Ranks::is_first)
    }
    /// Returns `cpu` or `cuda`.
    pub fn kind(&self) -> &'static str {
        if self.gpu.is_some() { "cuda" } else { "cpu" }
    }
    /// Returns the CUDA device; `None` if this is the CPU.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.as_ref()
    }
    /// Returns the manufacturer's name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns the number of threads of the device's team.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }
    /// Splits the CPU into lanes with this many threads. Threads of an idle lane can
    /// [help](Self::help_partners) the other lanes. A lane without a share of the threads is its caller
    /// alone; it neither helps nor is helped.
    pub(crate) fn lanes(&self, threads: &[usize]) -> Result<Vec<Device>> {
        let teams = Team::partners(threads).map_err(cannot_start_threads)?.into_iter();
        let device = |team| Device { team: Arc::new(team), name: self.name.clone(), gpu: None, ranks: None };
        Ok(teams.map(device).collect())
    }
    /// Takes part in a current job of another lane, while this lane waits. Returns false if there is no job
    /// that it has not `seen`.
    pub(crate) fn help_partners(&self, seen: &mut SeenJobs) -> bool {
        self.team.help_partners(seen)
    }
    /// Like [`install`](Self::install), for work with many short parallel pieces, such as a pass: threads
    /// stay awake between the pieces, because waking a thread takes as long as many of the pieces.
    pub fn keep_awake<T>(&self, work: impl FnOnce() -> T) -> T {
        self.team.keep_awake(work)
    }
    /// Returns the same device with dense products in `precision`.
    ///
    /// # Errors
    /// `Usage` if the device does not support it: the CPU multiplies in f32 only.
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
    /// Runs `work` on this thread; its parallel pieces use the device's threads.
    pub fn install<T>(&self, work: impl FnOnce() -> T) -> T {
        self.team.install(work)
    }
}

fn cannot_start_threads(e: std::io::Error) -> Error {
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
