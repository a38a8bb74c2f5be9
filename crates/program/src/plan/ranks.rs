//! `tgnn-bench plan simulate --ranks`: predicts training over ranks on a machine that may not exist here.
use super::explain::planned;
use crate::{
    output::{print_json, say},
    train_data::Data,
};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::Path;
use tgnn::{
    autograd::Span,
    error::{Error, Result},
};
use tgnn_data::Events;
use tgnn_training::{
    plan::{CostModel, Machine, NodeLinks, Parallel, Timeline, fit_links, predict_ranks},
    task::{
        Config, RankPass, RecordedPasses, RecordedRun, StoredOn, record_passes, staleness_of,
        training::folder::write_whole,
    },
};

/// Number of steps that are recorded, unless the caller says otherwise.
const STEPS: usize = 12;
/// Number of passes of which the median counts.
const PASSES: usize = 5;
/// Plans whose staleness is found while training; here, by the predicted times of stages.
const STALENESS_FOUND: [&str; 2] = ["mspipe", "mspipe-s"];

/// The ranks to predict, and their machine.
#[derive(Args)]
pub struct RankedArgs {
    /// Predict 1, 2, 4, ... up to N ranks; first of all, say how far the simulator is off on ranks that this
    /// computer has
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub ranks: usize,
    /// The machine of the ranks: v100, v100-pytorch, t4, t4-pytorch, a100, a100-pytorch, rtx4090,
    /// rtx4090-pytorch, h100, or a file: MACHINE.toml (may be repeated)
    /// [default: this computer]
    #[arg(long, value_name = "NAME|FILE", requires = "ranks")]
    machine: Vec<String>,
    /// What grows with the ranks: nothing (strong), or the batch (weak)
    #[arg(long, value_enum, default_value_t = Scaling::Strong, requires = "ranks")]
    scaling: Scaling,
}

/// What grows with the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scaling {
    /// Nothing: all ranks together have a batch of the configured size.
    Strong,
    /// The batch: each rank has one of the configured size.
    Weak,
}

/// The costs of ops and links on this computer, and how well they predict it.
struct Here {
    costs: CostModel,
    links: NodeLinks,
    ranks: usize,
    steps: usize,
    predicted: f64,
    ran: f64,
}

/// What a machine would take, for each number of ranks.
struct Predictions {
    machine: Machine,
    costs: CostModel,
    rows: Vec<Row>,
}

/// A predicted number of ranks.
struct Row {
    ranks: usize,
    plan: String,
    batch: usize,
    steps: usize,
    events: usize,
    timelines: Vec<Timeline>,
    sent_bytes: u64,
}

impl RankedArgs {
    /// Predicts, and prints; `timeline` is for the trace of the largest number of ranks.
    ///
    /// # Errors
    /// `Usage` if there are too few devices or events; the errors of training.
    pub fn run(&self, config: &Config, timeline: Option<&Path>, as_json: bool) -> Result<()> {
        refuse_unpredicted(config)?;
        let mut machines =
            self.machine.iter().map(|name| Machine::named(name)).collect::<Result<Vec<_>>>()?;
        machines.iter().try_for_each(|machine| machine.check_ranks(self.ranks))?;
        let data = Data::load(config)?;
        let Data::Events(events) = &data else {
            return Err(
                Error::usage("models of snapshots do not train over ranks yet").remedy("leave out --ranks")
            );
        };
        let steps = if config.max_batches == 0 { STEPS } else { config.max_batches };
        // The steps are counted from the end of the training events.
        let config = &Config { max_batches: 0, ..config.clone() };
        let cores = config.open_device()?.threads();
        let ranks_here = cores.clamp(2, 8);
        let config_here = self.config_of(config, events, (ranks_here, ranks_here))?;
        let run = RecordedRun {
            ranks: ranks_here,
            threads: (cores / ranks_here).max(1),
            passes: 1 + 2 * PASSES,
            steps: steps.max(STEPS),
            on_lanes: true,
        };
        let here = Here::measure(&config_here, events, run)?;
        if machines.is_empty() {
            machines.push(Machine::here(&here.costs, here.links, self.ranks));
        }
        let costs_on = |machine: &Machine| match self.machine.is_empty() {
            true => here.costs.clone(),
            false => machine.cost_model(),
        };
        let predictions =
            |machine: Machine| Predictions { costs: costs_on(&machine), machine, rows: Vec::new() };
        let mut predictions: Vec<Predictions> = machines.into_iter().map(predictions).collect();
        let finds_staleness = STALENESS_FOUND.contains(&config.plan.as_str());
        let ranks_of_node = predictions.iter().map(|p| p.machine.node.devices).min().unwrap_or(1);
        for ranks in self.numbers() {
            let config = self.config_of(config, events, (ranks, ranks_of_node))?;
            let run = RecordedRun { ranks, threads: 1, passes: 1, steps, on_lanes: false };
            let recorded = record_passes(&config, events, run)?;
            for Predictions { machine, costs, rows } in &mut predictions {
                let row = Row::predict(ranks, &config, &recorded, costs, machine);
                rows.push(match finds_staleness {
                    true => row.with_least_staleness(&config, events, run, costs, machine)?,
                    false => row,
                });
            }
        }
        if let (Some(path), Some(last)) = (timeline, predictions[0].rows.last()) {
            write_whole(path, Timeline::trace_of_ranks(&last.timelines).as_bytes())?;
        }
        if as_json {
            return print_json(&self.json(config, &here, &predictions));
        }
        print(config, &here, &predictions);
        Ok(())
    }
    /// Returns the configuration for a number of ranks, of which some are on a computer.
    ///
    /// # Errors
    /// Those of the planner; `Plan` if the plan is one for another number of ranks.
    fn config_of(&self, config: &Config, events: &Events, ranks: (usize, usize)) -> Result<Config> {
        if let Some((planned, _)) = planned(config, events, ranks)? {
            return Ok(planned);
        }
        let (mut config, mut share_a_batch) = (config.clone(), ranks.0);
        if let Some(parallel) = config.plan.strip_prefix("disttgl:") {
            let parallel: Parallel = parallel.parse()?;
            let parallel = parallel.for_ranks(self.ranks)?.like(ranks.0);
            (config.plan, share_a_batch) = (format!("disttgl:{parallel}"), parallel.mini_batch);
        }
        if STALENESS_FOUND.contains(&config.plan.as_str()) {
            config.plan = format!("{}:k=1", config.plan);
        }
        if let Some(copies) = config.plan.strip_prefix("pipetgl:k=").and_then(|copies| copies.parse().ok()) {
            let parallel = Parallel { memory: copies, ..Parallel::default() };
            config.plan = format!("pipetgl:k={}", parallel.for_ranks(self.ranks)?.like(ranks.0).memory);
        }
        if config.plan.starts_with("pipetgl") {
            // A rank has whole batches in any case.
            share_a_batch = 1;
        }
        if self.scaling == Scaling::Weak {
            config.batch = config.batch.saturating_mul(share_a_batch);
        }
        Ok(config)
    }
    /// Returns the numbers of ranks to predict.
    fn numbers(&self) -> Vec<usize> {
        let powers = std::iter::successors(Some(1usize), |ranks| ranks.checked_mul(2));
        let mut numbers: Vec<usize> = powers.take_while(|&ranks| ranks < self.ranks).collect();
        numbers.push(self.ranks);
        numbers
    }
    fn json(&self, config: &Config, here: &Here, predictions: &[Predictions]) -> Value {
        json!({
            "plan": config.plan, "model": config.model_name(), "data": config.data.path, "batch": config.batch,
            "scaling": format!("{:?}", self.scaling).to_lowercase(),
            "here": {
                "ranks": here.ranks, "steps": here.steps, "predicted": here.predicted, "ran": here.ran,
                "off": here.off(),
            },
            "predictions": predictions.iter().map(Predictions::json).collect::<Vec<_>>(),
        })
    }
}

fn print(config: &Config, here: &Here, predictions: &[Predictions]) {
    say(format_args!(
        "the simulator, on {} ranks of this computer and {} steps: predicted {:.3} s, ran {:.3} s, off by {:+.1} %",
        here.ranks,
        here.steps,
        here.predicted,
        here.ran,
        100.0 * here.off()
    ));
    for predictions in predictions {
        say(format_args!(
            "\n{} on {}, plan {}; {}",
            config.model_name(),
            config.data.path,
            config.plan,
            predictions.machine.about
        ));
        predictions.print();
    }
    if predictions.iter().any(|p| p.machine.network.is_some()) {
        say(
            "\nexchanges are those of the CPU, whose messages have the size of their rows; NCCL sends whole windows, \
             which is more",
        );
    }
    say(
        "\ncomputing: part of the time in which a lane of a rank computes; in the rest, it waits for other ranks",
    );
}

impl Predictions {
    fn speed_up(&self, row: &Row) -> f64 {
        row.rate() / self.rows[0].rate()
    }
    fn json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "ranks": row.ranks, "plan": row.plan, "batch": row.batch, "steps": row.steps, "events": row.events,
                "seconds": row.seconds(), "events_per_second": row.rate(), "speed_up": self.speed_up(row),
                "computing": row.computing(), "sent_bytes": row.sent_bytes,
            })
        };
        json!({ "machine": self.machine, "ranks": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
    fn print(&self) {
        say(format_args!(
            "\n{:>6}{:>10}{:>12}{:>14}{:>10}{:>12}{:>18}   plan",
            "ranks", "batch", "ms a step", "events/s", "speed-up", "computing", "kB a rank, step"
        ));
        for row in &self.rows {
            say(format_args!(
                "{:>6}{:>10}{:>12.3}{:>14.0}{:>10.2}{:>10.1} %{:>18.1}   {}",
                row.ranks,
                row.batch,
                1e3 * row.seconds() / row.steps.max(1) as f64,
                row.rate(),
                self.speed_up(row),
                100.0 * row.computing(),
                row.sent_bytes as f64 / 1e3 / (row.ranks * row.steps).max(1) as f64,
                row.plan
            ));
        }
    }
}

impl Here {
    /// Times ops and links on ranks of this computer, predicts another pass from them, and compares.
    fn measure(config: &Config, events: &Events, run: RecordedRun) -> Result<Self> {
        let RecordedRun { ranks, steps, .. } = run;
        // The first pass warms up. Costs are fitted to one of the next ones, and predict one of the last:
        // those whose times are the medians, because other programs disturb single passes.
        let recorded = record_passes(config, events, run)?;
        let (to_fit, to_predict) = recorded.passes[1..].split_at(PASSES);
        let (fitted, predicted) = (median(to_fit), median(to_predict));
        let computes = |s: &&Span| s.node_info.traffic.is_none();
        let spans = fitted.iter().flat_map(|rank| rank.timeline.spans()).filter(computes).copied();
        let costs = CostModel::fit_live(&spans.collect::<Vec<_>>());
        let of_ranks: Vec<_> = fitted.iter().map(|rank| (&rank.recording, &rank.timeline)).collect();
        let links = fit_links(&of_ranks);
        let machine = Machine::here(&costs, links, ranks);
        let recordings: Vec<_> = predicted.iter().map(|rank| rank.recording.clone()).collect();
        let timelines = predict_ranks(&recorded.schedules, &recordings, &costs, &machine);
        let ran = longest(predicted.iter().map(|rank| &rank.timeline));
        Ok(Here { costs, links, ranks, steps, predicted: longest(timelines.iter()), ran })
    }
    /// Relative error of the predicted time.
    fn off(&self) -> f64 {
        self.predicted / self.ran - 1.0
    }
}

impl Row {
    fn predict(
        ranks: usize,
        config: &Config,
        recorded: &RecordedPasses,
        costs: &CostModel,
        machine: &Machine,
    ) -> Self {
        let recordings: Vec<_> =
            recorded.passes.iter().flatten().map(|rank| rank.recording.clone()).collect();
        let timelines = predict_ranks(&recorded.schedules, &recordings, costs, machine);
        let sent_bytes = recordings.iter().map(|recording| recording.sent_bytes()).sum();
        let (plan, batch) = (config.plan.clone(), config.batch);
        Row { ranks, plan, batch, steps: recorded.steps, events: recorded.events, timelines, sent_bytes }
    }
    /// Predicts the row with the least staleness of node memory with which steps do not wait that take as
    /// long as in this row: the machine's, not this computer's.
    fn with_least_staleness(
        self,
        config: &Config,
        events: &Events,
        run: RecordedRun,
        costs: &CostModel,
        machine: &Machine,
    ) -> Result<Self> {
        let staleness = staleness_of(config, events, &self.timelines, self.steps)?;
        let base = config.plan.split(':').next().unwrap_or_default();
        let plan = format!("{base}:k={staleness}");
        if plan == config.plan {
            return Ok(self);
        }
        let config = Config { plan, ..config.clone() };
        let recorded = record_passes(&config, events, run)?;
        Ok(Row::predict(self.ranks, &config, &recorded, costs, machine))
    }
    /// Seconds of the pass.
    fn seconds(&self) -> f64 {
        longest(self.timelines.iter())
    }
    /// Events per second.
    fn rate(&self) -> f64 {
        self.events as f64 / self.seconds().max(f64::MIN_POSITIVE)
    }
    /// The fraction of the time in which a rank computes, on average over the ranks.
    fn computing(&self) -> f64 {
        self.timelines.iter().map(Timeline::computing).sum::<f64>() / self.timelines.len().max(1) as f64
    }
}

/// Refuses what is not predicted: tables that stay on the host, and a staleness that is found while training,
/// but for plans that can be given one by their name.
fn refuse_unpredicted(config: &Config) -> Result<()> {
    let plan = &config.plan;
    if config.finds_staleness() && !STALENESS_FOUND.contains(&plan.as_str()) {
        let what = format!("plan {plan} has its staleness found while training");
        return Err(Error::usage(what).remedy("give mspipe, or a plan with staleness.memory = K"));
    }
    refuse_host(config)
}

/// Refuses tables that stay on the host: neither a machine nor the CPU has a link to one.
pub fn refuse_host(config: &Config) -> Result<()> {
    let on_host = [(config.memory_on, "memory_on"), (config.features_on, "features_on")];
    match on_host.into_iter().find(|(kept, _)| *kept == StoredOn::Host) {
        Some((_, key)) => {
            let what =
                format!("{key} is `host`, and nothing that plan simulate predicts has a link to a host");
            Err(Error::usage(what).remedy(format!("leave out {key}: tables are predicted on the device")))
        }
        None => Ok(()),
    }
}

/// Returns the pass whose time is the median.
fn median(passes: &[Vec<RankPass>]) -> &[RankPass] {
    let seconds = |pass: &&Vec<RankPass>| longest(pass.iter().map(|rank| &rank.timeline));
    let mut in_order: Vec<&Vec<RankPass>> = passes.iter().collect();
    in_order.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    in_order.get(passes.len() / 2).map_or(&[], |pass| pass.as_slice())
}

/// Returns the seconds of the longest of the timelines.
fn longest<'a>(timelines: impl Iterator<Item = &'a Timeline>) -> f64 {
    timelines.map(|timeline| timeline.usage().seconds).fold(0.0, f64::max)
}
