//! Flags of commands that several ranks run together.
use crate::output::{fail, tell};
use clap::Args;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tgnn::{
    error::{Error, Result},
    runtime::{
        Device,
        comm::{Comm, DEADLINE, LaunchedProcess, Launcher, Ranks, Rendezvous, end_process, launched, mpi},
        cuda::{NcclComm, set_connections},
    },
};
use tgnn_training::task::{Config, on_watched_ranks};

/// How many ranks run a command, and how long they wait for one another.
#[derive(Args)]
pub struct RankArgs {
    /// Run N ranks on this computer: N slices of each batch, with the threads shared out among them.
    /// Started by mpirun or srun, each process is a rank
    #[arg(long, value_name = "N", default_value_t = 1)]
    ranks: usize,
    /// Seconds after which a rank gives up waiting for another one [default: 60; 30 with --ranks on CUDA
    /// devices]
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<f64>,
}

/// A device that was opened before it is needed, or why that failed; nothing if it is still to be opened.
#[derive(Default)]
pub struct Opened(Option<Result<Device>>);

/// The deadline of ranks of one process on CUDA devices: nothing comes between them that could take longer.
const LOCAL_DEADLINE: Duration = Duration::from_secs(30);

impl RankArgs {
    /// Returns the flags as words of a command line.
    pub fn words(&self) -> Vec<std::ffi::OsString> {
        let mut words = vec!["--ranks".into(), self.ranks.to_string()];
        words.extend(self.deadline.iter().flat_map(|seconds| ["--deadline".into(), seconds.to_string()]));
        words.into_iter().map(Into::into).collect()
    }
    /// Returns the number of ranks.
    ///
    /// # Errors
    /// As [`launched`].
    pub fn size(&self) -> Result<usize> {
        Ok(launched()?.map_or(self.ranks, |launched| launched.size.max(self.ranks)))
    }
    /// Returns the number of ranks of a computer.
    ///
    /// # Errors
    /// As [`launched`].
    pub fn size_of_node(&self) -> Result<usize> {
        Ok(launched()?.and_then(|launched| launched.local_size).unwrap_or(self.size()?))
    }
    /// Prepares this process for its ranks, before it has a second thread.
    pub fn prepare(&self, config: &Config) {
        if self.ranks > 1 && is_on_gpu(config) {
            set_connections();
        }
    }
    /// Does some `work`, such as to read data, and meanwhile opens the device of the configuration, if that
    /// is a GPU of this process alone. Returns both, for [`run`](Self::run).
    ///
    /// # Errors
    /// Those of `work`.
    pub fn open_beside<T>(&self, config: &Config, work: impl FnOnce() -> Result<T>) -> Result<(T, Opened)> {
        if self.size()? > 1 || !is_on_gpu(config) {
            return work().map(|done| (done, Opened(None)));
        }
        let (done, opened) = Device::open_beside(|| config.open_device(), work)?;
        Ok((done, Opened(Some(opened))))
    }
    /// Runs `work` on the device of the configuration, which may have been opened, or as every rank, each
    /// with a device of its own.
    ///
    /// # Errors
    /// `Usage` for numbers that make no sense; the errors of `work`; `Comm` if a rank is lost. As a rank of
    /// MPI, the process ends at an error.
    pub fn run(
        &self,
        config: &Config,
        opened: Opened,
        work: impl Fn(Device) -> Result<()> + Sync,
    ) -> Result<()> {
        let launched = launched()?.filter(|launched| launched.size > 1);
        let local_on_gpus = launched.is_none() && is_on_gpu(config);
        let deadline = self.deadline(local_on_gpus)?;
        match (self.ranks, launched) {
            (0, _) => Err(Error::usage("--ranks 0").remedy("give 1 or more")),
            (1, None) => work(opened.0.unwrap_or_else(|| config.open_device())?),
            (1, Some(launched)) if launched.launcher == Launcher::Torchrun => {
                Self::by_nccl(config, deadline, launched, work)
            }
            (1, Some(launched)) => Self::by_mpi(config, deadline, launched, work),
            (ranks, Some(launched)) => {
                let what =
                    format!("--ranks {ranks}, and {} has started {} ranks", launched.launcher, launched.size);
                Err(Error::usage(what).remedy("leave out --ranks"))
            }
            (ranks, None) => {
                let threads = (config.open_device()?.threads() / ranks).max(1);
                let on_gpus = Mutex::default();
                let open = |rank| {
                    let device = Config { threads, ..config.clone() }.open_device_for(rank)?;
                    note_if_shared(&device, &on_gpus);
                    Ok(device)
                };
                on_watched_ranks(ranks, deadline, end_stuck, open, work)
            }
        }
    }
    /// Returns the deadline.
    fn deadline(&self, local_on_gpus: bool) -> Result<Duration> {
        let Some(seconds) = self.deadline else {
            return Ok(if local_on_gpus { LOCAL_DEADLINE } else { DEADLINE });
        };
        Duration::try_from_secs_f64(seconds).map_err(|_| {
            Error::usage(format!("--deadline {seconds}")).remedy("give seconds, as in --deadline 60")
        })
    }
    /// Runs `work` as the rank that this process is.
    fn by_mpi(
        config: &Config,
        deadline: Duration,
        launched: LaunchedProcess,
        work: impl Fn(Device) -> Result<()>,
    ) -> Result<()> {
        let comm = mpi(deadline)?;
        let connection: Arc<dyn Comm> = comm.clone();
        let ran =
            Ranks::new(connection).and_then(|ranks| work(Self::device_of(config, launched)?.over(ranks)));
        match ran {
            Ok(()) => comm.finish(),
            Err(e) => {
                fail(&e);
                comm.fail(&e.to_string()); // ends the process
                Err(e)
            }
        }
    }
    /// Runs `work` as the rank that this process is, where NCCL alone connects the ranks.
    fn by_nccl(
        config: &Config,
        deadline: Duration,
        launched: LaunchedProcess,
        work: impl Fn(Device) -> Result<()>,
    ) -> Result<()> {
        let device = Self::device_of(config, launched)?;
        let Some(gpu) = device.gpu() else {
            return Err(Error::usage("the ranks of torchrun are connected by NCCL, between CUDA devices")
                .remedy("give --device cuda, or start the ranks by mpirun"));
        };
        let comm = Arc::new(NcclComm::connect(gpu, launched, &Rendezvous::from_environment()?, deadline)?);
        let connection: Arc<dyn Comm> = comm.clone();
        let ran = Ranks::new(connection).and_then(|ranks| work(device.over(ranks)));
        ran.inspect_err(|e| comm.fail(&e.to_string()))
    }
    /// Opens the device of a rank. If no number of threads is given, the ranks of a computer share its cores.
    fn device_of(config: &Config, launched: LaunchedProcess) -> Result<Device> {
        let on_computer = launched.local_size.unwrap_or(launched.size);
        let rank = launched.local_rank.unwrap_or(launched.rank);
        let device = config.open_device_for(rank)?;
        if config.threads > 0 || on_computer == 1 {
            return Ok(device);
        }
        Config { threads: (device.threads() / on_computer).max(1), ..config.clone() }.open_device_for(rank)
    }
}

/// Whether the configuration names a CUDA device.
pub fn is_on_gpu(config: &Config) -> bool {
    !matches!(config.device.as_str(), "auto" | "cpu")
}

/// Notes that ranks share a GPU when the second one opens it; `ranks` has the number of ranks of each GPU.
fn note_if_shared(device: &Device, ranks: &Mutex<BTreeMap<usize, usize>>) {
    let Some(gpu) = device.gpu() else { return };
    let mut ranks = ranks.lock().unwrap_or_else(PoisonError::into_inner);
    let on_gpu = ranks.entry(gpu.ordinal()).or_insert(0);
    *on_gpu += 1;
    if *on_gpu == 2 {
        let what = "which may take longer than one rank (docs/ranks.md)";
        tell(format_args!("note: ranks share CUDA device {}, {what}", gpu.ordinal()));
    }
}

/// Prints an error and ends the process, though a thread of it may be in a call that does not return.
fn end_stuck(e: &Error) {
    fail(e);
    end_process(e.kind().exit_code())
}
