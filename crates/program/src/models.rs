//! `models`: the models that `train` takes.
use super::output::say;
use clap::Args;
use tgnn::error::Result;
use tgnn_training::model::ModelName;

/// Arguments of `models`.
#[derive(Args)]
pub struct Models {
    /// Print names alone, those of models of events or of snapshots, one a line
    #[arg(long, value_parser = ["events", "snapshots"])]
    names: Option<String>,
}

impl Models {
    /// Prints the models with what they read and what they are.
    ///
    /// # Errors
    /// None.
    pub fn run(&self) -> Result<()> {
        if let Some(reads) = &self.names {
            let snapshots = reads == "snapshots";
            ModelName::ALL.iter().filter(|m| m.reads_snapshots() == snapshots).for_each(|m| say(m.name()));
            return Ok(());
        }
        let width = ModelName::ALL.iter().map(|m| m.name().len()).max().unwrap_or(0);
        say(format_args!("{:<width$}  {:<9}  what it is", "model", "reads"));
        for m in ModelName::ALL {
            let reads = if m.reads_snapshots() { "snapshots" } else { "events" };
            say(format_args!("{:<width$}  {reads:<9}  {}", m.name(), m.about()));
        }
        Ok(())
    }
}
