//! `tgnn-bench plan simulate`: predicts an epoch, runs it, and compares.
use super::ranks::{RankedArgs, refuse_host};
use crate::{
    output::{print_json, say},
    settings::{check_ending, keys, set_keys, with_default},
    train_data::Data,
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use tgnn::error::Result;
use tgnn_data::Every;
use tgnn_training::{
    model::ModelName,
    plan::{CostModel, Timeline, Usage},
    task::{Config, Task, training::folder::write_whole},
};

/// Number of steps in the drawings.
const DRAWN: usize = 3;
/// Width of the drawings, in characters.
const COLUMNS: f64 = 100.0;

/// Arguments of `plan simulate`.
#[derive(Args)]
#[command(mut_args(|arg| with_default(arg, Self::KEYS)))]
pub struct Simulate {
    /// A plan of `train --plan`, such as prefetch, mspipe:k=2 or sven, or a file: PLAN.toml
    plan: String,
    #[command(flatten)]
    ranked: RankedArgs,
    /// Configuration file, TOML or TGL's YAML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Events or snapshots, as for `train`
    #[arg(long, value_name = "PATH")]
    data: Option<String>,
    /// Model, as for `train`
    #[arg(long)]
    model: Option<ModelName>,
    /// Length of a snapshot
    #[arg(long, value_name = "LENGTH")]
    every: Option<Every>,
    /// CPU threads; 0 uses every core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Maximum number of steps of an epoch; 0 runs all, or 12 with --ranks
    #[arg(long, value_name = "N")]
    max_batches: Option<usize>,
    /// Set any key of the configuration: --set group.batch=4 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the predicted timeline as a trace for Perfetto or Chrome
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Print the numbers as JSON
    #[arg(long)]
    json: bool,
}

keys!(Simulate {
    data => "data.path",
    model => "model",
    every => "snapshots.every",
    threads => "threads",
    max_batches => "max_batches",
});

impl Simulate {
    fn config(&self) -> Result<Config> {
        let mut table = self.config.as_ref().map(Config::read).transpose()?.unwrap_or_default().0;
        set_keys(&mut table, &self.set)?;
        self.set_given(&mut table)?;
        let mut c = Config::of_table(&table)?;
        c.plan = self.plan.clone();
        c.validate()?;
        Ok(c)
    }
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let config = self.config()?;
        self.timeline.iter().try_for_each(|path| check_ending("--timeline", path, "json"))?;
        if self.ranked.ranks > 0 {
            return self.ranked.run(&config, self.timeline.as_deref(), self.json);
        }
        let device = config.open_device()?;
        if device.gpu().is_none() {
            refuse_host(&config)?;
        }
        let mut task = Data::load(&config)?.task(&config, &device)?;
        // The first epoch warms up; plans that go by predictions time their ops in it.
        task.train_epoch(0, &mut |_| {})?;
        task.core_mut().trace();
        task.train_epoch(1, &mut |_| {})?;
        let costs = task.last_epoch().costs();
        task.train_epoch(2, &mut |_| {})?;
        let simulated = SimulatedEpoch {
            predicted: task.last_epoch().predicted(&costs)?,
            measured: task.core().timeline(),
            costs,
        };
        if let Some(path) = &self.timeline {
            write_whole(path, simulated.predicted.trace().as_bytes())?;
        }
        if self.json {
            return print_json(&simulated.json(&*task, &config));
        }
        simulated.print(&*task, &config);
        Ok(())
    }
}

/// An epoch as it was predicted, and as it ran.
struct SimulatedEpoch {
    predicted: Timeline,
    measured: Timeline,
    costs: CostModel,
}

impl SimulatedEpoch {
    /// Relative error of the predicted time of the epoch.
    fn error(&self) -> f64 {
        self.predicted.usage().seconds / self.measured.usage().seconds - 1.0
    }
    fn json(&self, task: &dyn Task, config: &Config) -> serde_json::Value {
        let usage = |u: Usage| {
            json!({
                "seconds": u.seconds, "busy": u.busy, "several": u.several, "overlap": u.overlap,
                "sync": u.sync(), "idle": u.idle,
            })
        };
        json!({
            "plan": task.core().plan(), "model": config.model_name(), "data": config.data.path,
            "device": task.core().device().name(), "threads": task.core().device().threads(),
            "predicted": usage(self.predicted.usage()), "ran": usage(self.measured.usage()),
            "off": self.error(), "chosen": task.plan_record().chosen, "costs": self.costs,
        })
    }
    fn print(&self, task: &dyn Task, config: &Config) {
        let (model, plan, threads) =
            (config.model_name(), &task.core().plan().name, task.core().device().threads());
        say(format_args!("{model} on {}, plan {plan}, {threads} threads", config.data.path));
        let notes = task.remarks().into_iter().filter(|(word, _)| *word == "note");
        notes.for_each(|(_, note)| say(format_args!("note: {note}")));
        if let Some(chosen) = task.plan_record().chosen {
            say(chosen);
        }
        self.print_usage();
        self.print_drawings();
        let share = |(op, share): &(&str, f64)| format!("{op} {:.0} %", 100.0 * share);
        let critical: Vec<String> = self.measured.bound_by().iter().take(5).map(share).collect();
        say(format_args!("\non the critical path: {}", critical.join(", ")));
        let (error, of_ops) = (100.0 * self.error(), 100.0 * self.costs.error());
        say(format_args!("the prediction is off by {error:+.1} %, its ops by {of_ops:.1} % each"));
    }
    fn print_usage(&self) {
        let (predicted, measured) = (self.predicted.usage(), self.measured.usage());
        say(format_args!("\n{:<28}{:>12}{:>12}", "an epoch", "predicted", "ran"));
        let line = |what: &str, number: &dyn Fn(&Usage) -> String| {
            say(format_args!("{what:<28}{:>12}{:>12}", number(&predicted), number(&measured)));
        };
        let percent = |x: f64| format!("{:.1} %", 100.0 * x);
        line("seconds", &|u| format!("{:.3}", u.seconds));
        for (lane, _) in measured.lanes() {
            line(&format!("lane {} busy", lane + 1), &|u| percent(u.busy[lane]));
        }
        line("several", &|u| percent(u.several));
        line("graph beside arithmetic", &|u| percent(u.overlap));
        line("one behind the other", &|u| percent(u.sync()));
        line("none", &|u| percent(u.idle));
    }
    fn print_drawings(&self) {
        let drawn = [("predicted", &self.predicted), ("ran", &self.measured)];
        let longest = drawn.map(|(_, t)| t.seconds_of(DRAWN)).into_iter().fold(0.0, f64::max);
        for (what, timeline) in drawn {
            let column = longest / COLUMNS;
            say(format_args!("\nthe first steps, {what}; a column is {:.2} ms", 1e3 * column));
            say(timeline.drawing(DRAWN, column).trim_end());
        }
    }
}
