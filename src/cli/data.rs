//! `tgnn-bench data`: import, inspect and make up event streams.
use super::{
    report,
    snapshots::{Describe, MakeUp},
};
use crate::{
    data::{self, Columns, Format, GivenNegatives, ReadOptions, Stats, SynthOptions},
    error::{Error, Result},
    runtime::StoredAs,
};
use clap::{ArgAction, Args, Subcommand};
use std::{
    io::{self, Write},
    path::PathBuf,
};

/// What to do with event data.
#[derive(Clone, Debug, Subcommand)]
pub enum DataCommand {
    /// Turn an event file into a folder of .npy that loads in milliseconds
    Import(Import),
    /// Describe a data set: size, time span, repetition, degrees, gaps
    Info(Inspect),
    /// Describe snapshots, or events cut into some: vertices, edges and what persists, step by step
    Snapshots(Describe),
    /// Make up a stream of any size with a signal that can be learned
    Synth(Synth),
    /// Make up snapshots: a graph of which each step has some edges, in a folder of edge lists
    SynthSnapshots(MakeUp),
}

/// How to read events; everything is recognised where no flag says otherwise.
#[derive(Clone, Debug, Args)]
pub struct ReadArgs {
    /// Layout: jodie, dyglib, tgl, snap, signed, table, tgb, tkg or native
    #[arg(long, value_name = "NAME")]
    pub format: Option<Format>,
    /// Columns, from 1: src=2,dst=3,time=1 and, if any, label=4,features=5-
    #[arg(long, value_name = "LIST")]
    pub columns: Option<Columns>,
    /// Refuse events out of time order instead of sorting them
    #[arg(long)]
    pub strict: bool,
    /// Treat sources and destinations as different kinds of nodes, or with `=false` as one
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          action = ArgAction::Set)]
    pub bipartite: Option<bool>,
    /// Edge features, .npy or .pt: a row per event
    #[arg(long, value_name = "FILE")]
    pub edge_features: Option<PathBuf>,
    /// Node features, .npy or .pt: a row per id
    #[arg(long, value_name = "FILE")]
    pub node_features: Option<PathBuf>,
}

impl ReadArgs {
    /// The same as the library takes it.
    pub fn options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            columns: self.columns,
            strict: self.strict,
            bipartite: self.bipartite,
            edge_features: self.edge_features.clone(),
            node_features: self.node_features.clone(),
        }
    }
}

/// Arguments of `data import`.
#[derive(Clone, Debug, Args)]
pub struct Import {
    /// Event file, folder, or bundled name (wikipedia)
    pub file: String,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Name of the data set in reports; the file's if not given
    #[arg(long)]
    pub name: Option<String>,
    /// What features are kept in: f32, bf16 or f16; as they are if not given
    #[arg(long, value_name = "TYPE")]
    pub features_as: Option<StoredAs>,
    /// Replace a data set that is there already
    #[arg(long)]
    pub force: bool,
    /// How to read the events
    #[command(flatten)]
    pub read: ReadArgs,
}

/// Arguments of `data info`.
#[derive(Clone, Debug, Args)]
pub struct Inspect {
    /// Event file, folder, or bundled name (wikipedia)
    pub path: String,
    /// Print the numbers as JSON
    #[arg(long)]
    pub json: bool,
    /// How to read the events
    #[command(flatten)]
    pub read: ReadArgs,
}

/// Arguments of `data synth`.
#[derive(Clone, Debug, Args)]
pub struct Synth {
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Events
    #[arg(long, value_name = "N", default_value_t = 157_474)]
    pub events: usize,
    /// Source nodes
    #[arg(long, value_name = "S", default_value_t = 8_227)]
    pub sources: usize,
    /// Destination nodes; 0 for a stream that is not bipartite
    #[arg(long, value_name = "D", default_value_t = 1_000)]
    pub destinations: usize,
    /// Columns of the edge features
    #[arg(long, value_name = "W", default_value_t = 16)]
    pub edge_features: usize,
    /// Hidden groups of destinations
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub groups: usize,
    /// Probability of meeting a known partner again
    #[arg(long, value_name = "P", default_value_t = 0.8)]
    pub repeat: f64,
    /// Exponent of the power law of popularity
    #[arg(long, value_name = "X", default_value_t = 1.1)]
    pub exponent: f64,
    /// Probability that a choice follows the planted rule
    #[arg(long, value_name = "P", default_value_t = 0.9)]
    pub signal: f64,
    /// Classes that events are labelled with; 0 for none
    #[arg(long, value_name = "C", default_value_t = 0)]
    pub classes: usize,
    /// Labels an event, where there are classes
    #[arg(long, value_name = "L", default_value_t = 3)]
    pub labels: usize,
    /// Columns of the node features
    #[arg(long, value_name = "W", default_value_t = 0)]
    pub node_features: usize,
    /// Mean seconds between two events
    #[arg(long, value_name = "S", default_value_t = 17.0)]
    pub mean_gap: f64,
    /// Seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Name of the data set in reports
    #[arg(long, default_value = "synth")]
    pub name: String,
    /// Replace a data set that is there already
    #[arg(long)]
    pub force: bool,
}

/// Runs the subcommand and prints its report.
///
/// # Errors
/// Those of [`data::load`], [`GivenNegatives::all_beside`], [`data::save`] and [`data::synth_to`].
pub fn run(command: &DataCommand) -> Result<()> {
    match command {
        DataCommand::Import(args) => {
            let mut events = data::load(&args.file, &args.read.options())?;
            if let Some(name) = &args.name {
                events.name.clone_from(name);
            }
            if let Some(kept) = args.features_as {
                events.keep_features_as(kept)?;
            }
            // Read in another way than its own, a data set has other numbers than its negatives.
            let own = matches!(args.read.format, None | Some(Format::Tgb | Format::Native));
            let negatives = if own && args.read.columns.is_none() {
                GivenNegatives::all_beside(&args.file, &events)?
            } else {
                [None, None]
            };
            data::save_with_negatives(&events, &negatives, &args.out, args.force)?;
            print(&report::imported(&events, &args.out))
        }
        DataCommand::Info(args) => {
            let stats = Stats::of(&data::load(&args.path, &args.read.options())?);
            if args.json {
                let text = serde_json::to_string_pretty(&stats);
                print(
                    &(text.map_err(|e| Error::usage("cannot write the numbers as JSON").caused_by(e))?
                        + "\n"),
                )
            } else {
                print(&report::stats(&stats))
            }
        }
        DataCommand::Snapshots(args) => print(&args.report()?),
        DataCommand::SynthSnapshots(args) => print(&args.run()?),
        DataCommand::Synth(args) => {
            let options = SynthOptions {
                name: args.name.clone(),
                events: args.events,
                sources: args.sources,
                destinations: args.destinations,
                edge_features: args.edge_features,
                groups: args.groups,
                repeat: args.repeat,
                exponent: args.exponent,
                signal: args.signal,
                classes: args.classes,
                labels: args.labels,
                node_features: args.node_features,
                mean_gap: args.mean_gap,
                seed: args.seed,
            };
            let start = std::time::Instant::now();
            data::synth_to(&options, &args.out, args.force)?;
            print(&report::made(&options, &args.out, start.elapsed().as_secs_f64()))
        }
    }
}

/// Prints to standard output; a reader who has seen enough (`| head`) is no error.
fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::io("standard output", "cannot write", e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        command: DataCommand,
    }

    fn parse(words: &str) -> Result<DataCommand, clap::Error> {
        Cli::try_parse_from(["data"].into_iter().chain(words.split_whitespace())).map(|c| c.command)
    }

    #[test]
    fn flags_reach_the_reader() {
        let text = "import x.csv --out d --columns src=2,dst=1,time=3 --format table --bipartite --strict";
        let Ok(DataCommand::Import(args)) = parse(text) else { panic!("{text} should parse") };
        let options = args.read.options();
        assert_eq!(
            (options.format, options.bipartite, options.strict),
            (Some(Format::Table), Some(true), true)
        );
        let Ok(DataCommand::Info(args)) = parse("info --bipartite=false wikipedia") else { panic!() };
        assert_eq!((args.read.bipartite, args.path.as_str()), (Some(false), "wikipedia"));
    }

    #[test]
    fn the_defaults_of_synth_are_those_of_the_library() {
        let Ok(DataCommand::Synth(a)) = parse("synth --out d") else { panic!("synth should parse") };
        let d = SynthOptions::default();
        assert_eq!(
            (a.events, a.sources, a.destinations, a.edge_features, a.groups, a.seed, a.name),
            (d.events, d.sources, d.destinations, d.edge_features, d.groups, d.seed, d.name)
        );
        assert_eq!(
            [a.repeat, a.exponent, a.signal, a.mean_gap],
            [d.repeat, d.exponent, d.signal, d.mean_gap]
        );
        assert_eq!((a.classes, a.labels, a.node_features), (d.classes, d.labels, d.node_features));
    }

    #[test]
    fn a_bad_flag_is_refused_with_the_choices() {
        assert!(parse("info x --format jody").unwrap_err().to_string().contains("jodie, dyglib, tgl"));
        assert!(parse("info x --columns src=1").is_err());
    }
}
