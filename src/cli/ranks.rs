//! Flags of commands that several ranks run together.
use crate::{
    error::{Error, Result},
    runtime::Device,
    task::{Config, on_local_ranks},
};
use clap::Args;
use std::time::Duration;

/// How many ranks run a command, and how long they wait for one another.
#[derive(Args)]
pub(super) struct RankArgs {
    /// Train over N ranks on this computer: N slices of each batch, with the threads shared out among them
    #[arg(long, value_name = "N", default_value_t = 1)]
    ranks: usize,
    /// Seconds after which a rank gives up waiting for another one
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    deadline: f64,
}

impl RankArgs {
    /// Runs `work` on the device of the configuration, or as every rank, each with a device of its own.
    ///
    /// # Errors
    /// `Usage` for numbers that make no sense; the errors of `work`; `Comm` if a rank is lost.
    pub(super) fn run(&self, config: &Config, work: impl Fn(Device) -> Result<()> + Sync) -> Result<()> {
        let deadline = Duration::try_from_secs_f64(self.deadline).map_err(|_| {
            Error::usage(format!("--deadline {}", self.deadline)).remedy("give seconds, as in --deadline 60")
        })?;
        if self.ranks == 0 {
            return Err(Error::usage("--ranks 0").remedy("give 1 or more"));
        }
        let device = config.open_device()?;
        if self.ranks == 1 {
            return work(device);
        }
        let threads = (device.threads() / self.ranks).max(1);
        let open = |_| Config { threads, ..config.clone() }.open_device();
        on_local_ranks(self.ranks, deadline, open, work)
    }
}
