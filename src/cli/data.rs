//! `tgnn-bench data`: imports, describes and generates event streams and snapshots.
use super::{
    read_args::ReadArgs,
    report,
    snapshots::{Describe, MakeUp},
};
use crate::{
    data::{self, Format, GivenNegatives, Stats, SynthOptions},
    error::{Error, Result},
    runtime::StoredAs,
};
use clap::{Args, Subcommand};
use std::{
    io::{self, Write},
    path::PathBuf,
};

/// The subcommands of `data`.
#[derive(Clone, Debug, Subcommand)]
pub enum DataCommand {
    /// Convert an event file into a folder of .npy, which loads in milliseconds
    Import(Import),
    /// Describe a data set: size, time span, repetition, degrees, gaps
    Info(Inspect),
    /// Describe snapshots, or events cut into snapshots: vertices, edges and persistence of each step
    Snapshots(Describe),
    /// Generate an event stream of any size with a signal that can be learned
    Synth(Synth),
    /// Generate snapshots, as a folder of edge lists: each step has some of the edges of one graph
    SynthSnapshots(MakeUp),
}

/// Arguments of `data import`.
#[derive(Clone, Debug, Args)]
pub struct Import {
    /// Event file, folder, or bundled name (wikipedia)
    pub file: String,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Name of the data set in reports [default: the file's]
    #[arg(long)]
    pub name: Option<String>,
    /// Type to store features as: f32, bf16 or f16 [default: unchanged]
    #[arg(long, value_name = "TYPE")]
    pub features_as: Option<StoredAs>,
    /// Replace an existing data set
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
    /// Number of events
    #[arg(long, value_name = "N", default_value_t = 157_474)]
    pub events: usize,
    /// Number of source nodes
    #[arg(long, value_name = "S", default_value_t = 8_227)]
    pub sources: usize,
    /// Number of destination nodes; 0 for a stream that is not bipartite
    #[arg(long, value_name = "D", default_value_t = 1_000)]
    pub destinations: usize,
    /// Width of the edge features
    #[arg(long, value_name = "W", default_value_t = 16)]
    pub edge_features: usize,
    /// Number of hidden groups of destinations
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
    /// Number of classes that events are labelled with; 0 for none
    #[arg(long, value_name = "C", default_value_t = 0)]
    pub classes: usize,
    /// Labels per event, if there are classes
    #[arg(long, value_name = "L", default_value_t = 3)]
    pub labels: usize,
    /// Width of the node features
    #[arg(long, value_name = "W", default_value_t = 0)]
    pub node_features: usize,
    /// Mean seconds between two events
    #[arg(long, value_name = "S", default_value_t = 17.0)]
    pub mean_gap: f64,
    /// Random seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Name of the data set in reports
    #[arg(long, default_value = "synth")]
    pub name: String,
    /// Replace an existing data set
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
            if let Some(stored_as) = args.features_as {
                events.keep_features_as(stored_as)?;
            }
            // Given negatives refer to the node numbers of the data set's own format.
            let own_format = matches!(args.read.format, None | Some(Format::Tgb | Format::Native));
            let negatives = if own_format && args.read.columns.is_none() {
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

/// Prints to standard output. A closed pipe (`| head`) is not an error.
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
    fn the_defaults_of_synth_equal_those_of_the_library() {
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
    fn an_invalid_value_is_refused_with_the_valid_ones() {
        assert!(parse("info x --format jody").unwrap_err().to_string().contains("jodie, dyglib, tgl"));
        assert!(parse("info x --columns src=1").is_err());
    }
}
