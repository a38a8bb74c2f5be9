//! `tgnn-bench eval`: tests a checkpoint.
use super::{
    output::{command_line, print_json},
    scores,
    settings::{MovedData, Opened, RankArgs, TrainedModelArgs},
    watch::Display,
};
use clap::Args;
use std::path::PathBuf;
use tgnn::error::Result;
use tgnn_training::task::{HistoryRule, NegativeKind, Protocol, Watch};

/// Arguments of `eval`.
#[derive(Args)]
pub struct Eval {
    #[command(flatten)]
    trained: TrainedModelArgs,
    #[command(flatten)]
    moved: MovedData,
    /// dyglib, tgl, disttgl or tgb: how negatives are drawn and which metrics are computed [default: the
    /// run's]
    #[arg(long)]
    protocol: Option<Protocol>,
    /// Negatives: random, historical or inductive [default: the run's]
    #[arg(long)]
    negatives: Option<NegativeKind>,
    /// Events of a batch [default: the run's eval_batch]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Which events a query sees as neighbours: time, batch or auto [default: the run's]
    #[arg(long, value_name = "RULE")]
    history: Option<HistoryRule>,
    /// Replay the node memory before the test: clear it, then process the training and validation events with
    /// the checkpoint's weights. Protocol tgl always does this
    #[arg(long)]
    replay: bool,
    /// Leave out EdgeBank and the rules that learn nothing, which a test of links scores beside the model
    #[arg(long)]
    no_rules: bool,
    /// File to write, .parquet or .csv: a row for each test event and candidate, or class, with its score (a
    /// logit) and rank
    #[arg(long, value_name = "FILE")]
    scores: Option<PathBuf>,
    #[command(flatten)]
    ranks: RankArgs,
    /// Print the summary as JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,
}

impl Eval {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let (checkpoint, mut config) = self.trained.open(Some(&self.moved))?;
        // Another protocol does not change what the model sees.
        let history = if config.model.reads_snapshots() { config.history } else { config.history().into() };
        config.history = self.history.unwrap_or(history);
        config.protocol = self.protocol.unwrap_or(config.protocol);
        config.negatives = self.negatives.unwrap_or(config.negatives);
        config.eval_batch = self.batch.unwrap_or(config.eval_batch);
        config.evaluate = true;
        config.rules = !self.no_rules;
        config.validate()?;
        if let Some(path) = &self.scores {
            scores::check(path, &config)?;
            self.trained.refuse_over("--scores", path, &config, None)?;
        }
        self.ranks.prepare(&config);
        let data = self.moved.load(&config)?;
        self.ranks.run(&config, Opened::default(), |device| {
            let file = self.scores.as_deref().filter(|_| device.is_first());
            let evaluate = |watch: &mut dyn Watch| {
                data.evaluate(&checkpoint, &config, &device, (&command_line(), self.replay), watch, file)
            };
            if !device.is_first() {
                return evaluate(&mut ()).map(drop);
            }
            let mut display = Display::new(self.json, false, false);
            let summary = evaluate(&mut display)?;
            display.finish(&summary, &config, None);
            file.into_iter().for_each(|file| display.tell_scores(file));
            if self.json { print_json(&summary) } else { Ok(()) }
        })
    }
}
