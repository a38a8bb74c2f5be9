//! The arguments of commands on a trained model: its checkpoint, and where its data are now.
use super::{
    files::{data_files, refuse_over},
    read::ReadArgs,
};
use crate::train_data::Data;
use clap::Args;
use std::path::{Path, PathBuf};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::MatmulPrecision,
};
use tgnn_data::is_imported;
use tgnn_training::task::{Checkpoint, Config, config::DataConfig};

/// Where the data of a trained model are now, and how to read them there.
#[derive(Args)]
pub struct MovedData {
    /// Events or snapshots, if they have moved since training; they must be the same
    #[arg(long, value_name = "PATH")]
    data: Option<String>,
    #[command(flatten)]
    read: ReadArgs,
}

impl MovedData {
    /// Returns the configuration with the place of the data. A folder that `data import` wrote has everything
    /// in it that other files have told.
    fn applied_to(&self, mut config: Config) -> Result<Config> {
        if let Some(path) = &self.data {
            let DataConfig { train, val, random_edge_features, .. } = config.data;
            if is_imported(path.as_ref()) {
                config.data = DataConfig { train, val, random_edge_features, ..DataConfig::default() };
            }
            config.data.path = path.clone();
        } else if config.data.path == "-" {
            return Err(Error::usage("the run read its data from standard input")
                .remedy("say with --data where they are now; - is standard input again"));
        }
        let mut table = config.to_table()?;
        self.read.set(&mut table)?;
        Config::of_table(&table)
    }
    /// Loads the data of a configuration to which this was applied.
    pub fn load(&self, config: &Config) -> Result<Data> {
        Data::load(config).map_err(|e| with_flag(e, config, self.data.is_some()))
    }
}

/// Says in the error about data that are not where a file of keys says how to tell where they are now.
pub fn with_flag(e: Error, config: &Config, given: bool) -> Error {
    let data = &config.data;
    let files = [
        ("--edge-features", &data.edge_features),
        ("--node-features", &data.node_features),
        ("--labels", &data.labels),
    ];
    let files = files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)));
    let mut all = std::iter::once(("--data", Path::new(&data.path))).filter(|_| !given).chain(files);
    let missing = all.find(|(_, path)| !path.exists());
    match missing.filter(|_| e.kind() == ErrorKind::Io) {
        Some((flag, path)) if path.is_relative() => e.remedy(format!(
            "the path counts from the folder in which it was first given; say with {flag} where the data are now"
        )),
        Some((flag, _)) => e.remedy(format!("say with {flag} where the data are now")),
        None => e,
    }
}

/// The arguments that `eval`, `embed` and `predict` share.
#[derive(Args)]
pub struct TrainedModelArgs {
    /// Run folder, or its checkpoint/
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// auto, cpu, cuda, cuda:N or emu [default: the run's]
    #[arg(long)]
    device: Option<String>,
    /// CPU threads; 0 uses every core [default: the run's]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Precision of dense products on a CUDA device: f32 or tf32 [default: the run's]
    #[arg(long)]
    precision: Option<MatmulPrecision>,
}

impl TrainedModelArgs {
    /// Opens the checkpoint. Returns it and its configuration, with the flags and the path of the data
    /// applied.
    pub fn open(&self, moved: Option<&MovedData>) -> Result<(Checkpoint, Config)> {
        let checkpoint = Checkpoint::at(&self.checkpoint);
        let mut config = checkpoint.manifest()?.config.after_training();
        if let Some(moved) = moved {
            config = moved.applied_to(config)?;
        }
        if let Some(device) = &self.device {
            config.device = device.clone();
        }
        config.threads = self.threads.unwrap_or(config.threads);
        config.precision = self.precision.unwrap_or(config.precision);
        config.validate()?;
        Ok((checkpoint, config))
    }
    /// Refuses to write, as `flag` says, over what the command reads: the run, the data of `config`, or an
    /// `input`.
    ///
    /// # Errors
    /// `Usage`.
    pub fn refuse_over(&self, flag: &str, out: &Path, config: &Config, input: Option<&Path>) -> Result<()> {
        let run = match self.checkpoint.ends_with("checkpoint") {
            true => vec![self.checkpoint.clone()],
            false => ["checkpoint", "config.toml", "summary.json", "metrics.jsonl"]
                .map(|name| self.checkpoint.join(name))
                .to_vec(),
        };
        refuse_over(flag, out, run.iter().map(PathBuf::as_path).chain(data_files(config)).chain(input))
    }
}
