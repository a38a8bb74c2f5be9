//! `tgnn-bench train`: trains a model.
use super::{
    output::{command_line, print_json},
    plan::{LogFiles, LoggingWatch, fit},
    settings::{
        Files, GivenFiles, Settings, check_ending, data_files, headings::TRAINING, refuse_over,
        refuse_unread, set_flag, with_flag,
    },
    train_data::Data,
    trials::end_with_parent,
    watch::Display,
};
use clap::{ArgAction, Args};
use std::{path::PathBuf, time::Instant};
use tgnn::{
    error::{Error, Result},
    runtime::Device,
};
use tgnn_training::task::{Config, RunOptions, Watch, config::table::keys_of, with_model_of};

/// Arguments of `train`.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Train {
    #[command(flatten)]
    files: GivenFiles,
    #[command(flatten)]
    settings: Settings,
    /// Start from the weights in a safetensors file, such as PyTorch's; names and shapes: docs/weights.md
    #[arg(long, value_name = "FILE", conflicts_with = "resume", help_heading = TRAINING)]
    weights: Option<PathBuf>,
    /// Start from the model of another run's best epoch, with its settings and a new head
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "weights"], help_heading = TRAINING)]
    from: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// What a training writes and prints.
#[derive(Args)]
#[command(next_help_heading = "Output")]
struct OutputArgs {
    /// Folder of the run: config.toml, metrics.jsonl, summary.json, checkpoint/
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue the run in --out; start it if it has no epoch yet
    #[arg(long)]
    resume: bool,
    /// Also write an event file of TensorBoard into the run folder
    #[arg(long, requires = "out")]
    tensorboard: bool,
    /// Print the summary as JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Time every op, and print a table at the end
    #[arg(long)]
    profile: bool,
    /// Write a trace for Perfetto or Chrome: when and on which lane every op of the last epoch ran, on every
    /// rank. Some steps of the first rank go into the run folder, too; without FILE they are all that is
    /// written
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    timeline: Option<Option<PathBuf>>,
    /// Write a log of how the ranks read and wrote node memory in the last pass that trains, as CSV
    #[arg(long, value_name = "FILE")]
    accesses: Option<PathBuf>,
    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Train {
    /// Returns the configuration, the keys that the user has set, and notes on settings of the configuration
    /// file that have no counterpart.
    fn config(&self, files: &Files) -> Result<(Config, toml::Table, Vec<String>)> {
        let (mut table, notes) = self.settings.table(files)?;
        if self.output.tensorboard {
            set_flag(&mut table, "tensorboard", &true)?;
        }
        if let Some(from) = &self.from {
            table = with_model_of(from, table)?;
        }
        let config = Config::of_table(&table)?;
        config.validate()?;
        Ok((config, table, notes))
    }
    /// Refuses files that cannot be written, now rather than after the last epoch.
    fn check_output(&self, config: &Config) -> Result<()> {
        let timeline = self.output.timeline.as_ref().and_then(Option::as_ref);
        if matches!(self.output.timeline, Some(None)) && self.output.out.is_none() {
            return Err(Error::usage("--timeline has neither a file nor a run folder to write into")
                .remedy("give --timeline FILE, or --out"));
        }
        for (flag, ending, path) in
            [("timeline", "json", timeline), ("accesses", "csv", self.output.accesses.as_ref())]
        {
            if let Some(path) = path {
                check_ending(&format!("--{flag}"), path, ending)?;
                refuse_over(&format!("--{flag}"), path, data_files(config))?;
            }
            let folder = path.and_then(|path| path.parent());
            if let Some(folder) = folder.filter(|f| !f.as_os_str().is_empty() && !f.is_dir()) {
                let path = path.map_or(folder, PathBuf::as_path).display();
                let what = format!("--{flag} {path}: there is no folder {}", folder.display());
                return Err(Error::usage(what).remedy("make it first"));
            }
        }
        if self.output.accesses.is_some() && config.has_memory() == Some(false) {
            let what = format!("--accesses, and the model {} has no node memory", config.model_name());
            return Err(Error::usage(what).remedy("leave it out"));
        }
        Ok(())
    }
    /// Loads the data; returns also the seconds that it took.
    fn load(&self, config: &Config, files: &Files) -> Result<(Data, f64)> {
        let began = Instant::now();
        let loaded = Data::load(config).map_err(|e| match &files.config {
            Some(_) => with_flag(e, config, files.data.is_some() || self.settings.gives_data()),
            None => e,
        });
        Ok((loaded?, began.elapsed().as_secs_f64()))
    }
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let files = self.files.sorted()?;
        let (config, given, mut notes) = self.config(&files)?;
        let (given, flags) = (keys_of(&given), keys_of(&self.settings.flags(&files)?));
        refuse_unread(&given, &flags, |key| config.model_reads(key), &mut notes)?;
        self.settings.ranks().prepare(&config);
        end_with_parent();
        fit::check(&config, self.settings.ranks())?;
        notes.extend(self.from.iter().map(|dir| format!("starts from the model of {}", dir.display())));
        let ((data, read_seconds), opened) =
            self.settings.ranks().open_beside(&config, || self.load(&config, &files))?;
        let config = fit::fitted(config, &data, self.settings.ranks(), &mut notes)?;
        let config = data.fitted(config, |key| given.contains_key(key), &mut notes)?;
        refuse_unread(&given, &flags, |key| config.run_reads(key), &mut notes)?;
        let options = RunOptions {
            out: self.output.out.clone(),
            resume: self.output.resume,
            weights: self.weights.clone(),
            from: self.from.clone(),
            command: command_line(),
        };
        self.check_output(&config)?;
        let timeline = self.output.timeline.as_ref().and_then(Option::as_ref);
        let wanted =
            LogFiles { accesses: self.output.accesses.as_deref(), timeline: timeline.map(PathBuf::as_path) };
        let train = |device: &Device, watch: &mut dyn Watch| {
            let mut logged = LoggingWatch::new(watch, wanted);
            let summary = data.train(&config, device, &options, &mut logged)?;
            logged.write(device)?;
            Ok(summary)
        };
        self.settings.ranks().run(&config, opened, |device| {
            device.spent("data", read_seconds);
            if !device.is_first() {
                return train(&device, &mut ()).map(drop);
            }
            let mut display =
                Display::new(self.output.json, self.output.profile, self.output.timeline.is_some());
            display.configuration(&config, &data, &device, &notes)?;
            let summary = train(&device, &mut display)?;
            display.finish(&summary, &config, self.output.out.as_deref());
            if let Some(path) = timeline {
                display.tell_timeline(path, &device);
            }
            if self.output.json { print_json(&summary) } else { Ok(()) }
        })
    }
}
