//! `tgnn-bench partition`: assigns nodes to ranks, and shows what then travels between the ranks.
use super::traffic::{PartitionerResult, TrafficReport, report};
use crate::{
    output::{print_json, say},
    settings::{ReadArgs, with_default},
};
use clap::Args;
use std::{path::PathBuf, time::Instant};
use tgnn::error::{Error, Result};
use tgnn_training::{
    plan::partition::{Demand, DemandOptions, Partition, Partitioner, Traffic},
    task::Config,
};

/// Arguments of the command.
#[derive(Args)]
#[command(mut_args(|arg| with_default(arg, ReadArgs::KEYS)))]
pub struct PartitionArgs {
    /// Event file, folder, or bundled name (wikipedia)
    #[arg(long, value_name = "PATH", default_value = "wikipedia")]
    data: String,
    /// Number of ranks
    #[arg(long, value_name = "N")]
    ranks: usize,
    /// Events of a batch, over all ranks
    #[arg(long, value_name = "B", default_value_t = 200)]
    batch: usize,
    /// Recent neighbours whose rows are read for each root; 0 for JODIE and APAN
    #[arg(long, value_name = "K", default_value_t = 10)]
    neighbors: usize,
    /// Recent neighbours whose rows are written for each source and destination: APAN's recipients
    #[arg(long, value_name = "K", default_value_t = 0)]
    recipients: usize,
    /// Partitioner whose partition is shown and written: re-flex-bicut, range, interval, or metis in
    /// builds with that feature
    #[arg(long, value_name = "NAME", default_value_t = Partitioner::ReFlexBiCut)]
    by: Partitioner,
    /// By how much a rank may own more nodes than the mean: 0.1 is a tenth more
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    slack: f64,
    /// Maximum number of batches that are counted, at equal distances
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_batches: usize,
    /// Seed of the negatives
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the partition: a new .npy file with the rank of each node
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// How to read the events
    #[command(flatten)]
    read: ReadArgs,
}

impl PartitionArgs {
    /// Runs the command.
    ///
    /// # Errors
    /// Those of [`tgnn_data::load`], [`Demand::count`], [`Partitioner::partition`] and [`Partition::write`].
    pub fn run(&self) -> Result<()> {
        if let Some(out) = self.out.as_ref().filter(|out| out.extension().is_none_or(|end| end != "npy")) {
            let what = format!("--out {}: a partition is an array of NumPy", out.display());
            return Err(Error::usage(what).remedy("let the name end in .npy"));
        }
        if let Some(out) = self.out.as_ref().filter(|out| out.exists()) {
            return Err(Error::usage(format!("{} exists", out.display())).remedy("give a new file (--out)"));
        }
        let options = DemandOptions {
            ranks: self.ranks,
            batch: self.batch,
            neighbors: self.neighbors,
            recipients: self.recipients,
            max_batches: self.max_batches,
            seed: self.seed,
            ..DemandOptions::default()
        };
        let events = tgnn_data::load(&self.data, &self.read.options())?;
        let train = Config::default().split(&events)?.train;
        let start = Instant::now();
        let demand = Demand::count(&events, train.clone(), &options)?;
        let count_seconds = start.elapsed().as_secs_f64();
        let results: Result<Vec<(Partition, PartitionerResult)>> = Partitioner::ALL
            .iter()
            .map(|&by| {
                let start = Instant::now();
                let partition = by.partition(&demand, self.slack)?;
                let seconds = start.elapsed().as_secs_f64();
                let traffic = Traffic::count(&demand, &partition)?;
                Ok((partition, PartitionerResult { by, traffic, seconds }))
            })
            .collect();
        let (partitions, tried): (Vec<Partition>, Vec<PartitionerResult>) = results?.into_iter().unzip();
        let chosen = tried.iter().position(|t| t.by == self.by).unwrap_or(0);
        if let Some(out) = &self.out {
            partitions[chosen].write(out)?;
        }
        let found = TrafficReport {
            name: events.name.clone(),
            events: train.len(),
            nodes: events.nodes,
            epoch: train.len().div_ceil(options.batch),
            lower_bound: demand.lower_bound(),
            batches: demand.batches(),
            options,
            count_seconds,
            tried,
            chosen,
        };
        if self.json {
            return print_json(&found.json());
        }
        say(report(&found).trim_end());
        if let Some(out) = &self.out {
            say(format_args!("\nwrote {}, by {}", out.display(), self.by));
        }
        Ok(())
    }
}
