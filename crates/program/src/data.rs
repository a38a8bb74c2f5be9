//! `tgnn-bench data`: imports, describes and generates event streams and snapshots.
use super::{
    output::{print_json, say, tell},
    reading::Reading,
    report,
    settings::{ReadArgs, with_default},
    snapshots::{Describe, MakeUp},
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use std::path::PathBuf;
use tgnn::{
    error::{ErrorKind, Result},
    runtime::StoredAs,
};
use tgnn_data::{Events, Format, GivenNegatives, Snapshots, Stats, SynthOptions};

/// The subcommands of `data`.
#[derive(Clone, Debug, Subcommand)]
pub enum DataCommand {
    /// Convert an event file into a folder of .npy, which loads in milliseconds
    Import(Import),
    /// Describe a data set, events or snapshots: size, time span, repetition, degrees, gaps
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
#[command(mut_args(|arg| with_default(arg, ReadArgs::KEYS)))]
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
#[command(mut_args(|arg| with_default(arg, ReadArgs::KEYS)))]
pub struct Inspect {
    /// Event file, folder, or bundled name (wikipedia); or a file or folder of snapshots
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
    /// A real stream whose sizes to take, unless flags say otherwise
    #[arg(long, value_name = "NAME", default_value = "wikipedia", value_parser = PossibleValuesParser::new(SynthOptions::LIKE))]
    pub like: String,
    /// Number of events [default: 157474; gdelt: the first 1000000]
    #[arg(long, value_name = "N")]
    pub events: Option<usize>,
    /// Number of source nodes [default: 8227]
    #[arg(long, value_name = "S")]
    pub sources: Option<usize>,
    /// Number of destination nodes; 0 for a stream that is not bipartite [default: 1000]
    #[arg(long, value_name = "D")]
    pub destinations: Option<usize>,
    /// Width of the edge features [default: 16]
    #[arg(long, value_name = "W")]
    pub edge_features: Option<usize>,
    /// Number of hidden groups of destinations [default: 16]
    #[arg(long, value_name = "N")]
    pub groups: Option<usize>,
    /// Probability of meeting a known partner again [default: 0.8]
    #[arg(long, value_name = "P")]
    pub repeat: Option<f64>,
    /// Exponent of the power law of popularity [default: 1.1]
    #[arg(long, value_name = "X")]
    pub exponent: Option<f64>,
    /// Probability that a choice follows the planted rule [default: 0.9]
    #[arg(long, value_name = "P")]
    pub signal: Option<f64>,
    /// Number of classes that events are labelled with; 0 for none [default: 0; gdelt: 56]
    #[arg(long, value_name = "C")]
    pub classes: Option<usize>,
    /// Labels per event, if there are classes [default: 3; gdelt: 6]
    #[arg(long, value_name = "L")]
    pub labels: Option<usize>,
    /// Width of the node features [default: 0; gdelt: 413]
    #[arg(long, value_name = "W")]
    pub node_features: Option<usize>,
    /// Mean seconds between two events [default: 17]
    #[arg(long, value_name = "S")]
    pub mean_gap: Option<f64>,
    /// Random seed [default: 0]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Name of the data set in reports [default: synth, or NAME-like]
    #[arg(long)]
    pub name: Option<String>,
    /// Replace an existing data set
    #[arg(long)]
    pub force: bool,
}

impl Synth {
    /// Returns the sizes of the stream that it shall be like, with those of the flags.
    fn options(&self) -> Result<SynthOptions> {
        let mut options = SynthOptions::like(&self.like)?;
        macro_rules! take {
            ($($key:ident),*) => {$( if let Some(v) = self.$key.clone() { options.$key = v; } )*};
        }
        take!(name, events, sources, destinations, edge_features, groups, repeat, exponent, signal, classes);
        take!(labels, node_features, mean_gap, seed);
        Ok(options)
    }
}

/// Runs the subcommand and prints its report.
///
/// # Errors
/// Those of [`tgnn_data::load`], [`GivenNegatives::all_beside`], [`tgnn_data::save`] and
/// [`tgnn_data::synth_to`].
pub fn run(command: &DataCommand) -> Result<()> {
    match command {
        DataCommand::Import(args) => {
            let reading = Reading::of(&args.file, &args.read.options());
            let mut events = tgnn_data::load(&args.file, &args.read.options())?;
            drop(reading);
            if let Some(name) = &args.name {
                events.name.clone_from(name);
            }
            if let Some(stored_as) = args.features_as {
                events.keep_features_as(stored_as)?;
            }
            // Given negatives refer to the node numbers of the data set's own format.
            let own_format = matches!(args.read.format, None | Some(Format::Tgb | Format::Native));
            let negatives = match own_format && args.read.columns.is_none() {
                true => negatives_beside(&args.file, &events)?,
                false => [None, None],
            };
            tgnn_data::save_with_negatives(&events, &negatives, &args.out, args.force)?;
            say(report::imported(&events, &args.out).trim_end());
        }
        DataCommand::Info(args) if args.read.tells_nothing() && Snapshots::are_at(&args.path) => {
            args.read.options().refuse_writing("snapshots")?;
            return Describe::new(&args.path, args.json).run();
        }
        DataCommand::Info(args) => {
            let reading = Reading::of(&args.path, &args.read.options());
            let stats = Stats::new(&tgnn_data::load(&args.path, &args.read.options())?);
            drop(reading);
            if args.json {
                return print_json(&stats);
            }
            say(report::stats(&stats).trim_end());
        }
        DataCommand::Snapshots(args) => return args.run(),
        DataCommand::SynthSnapshots(args) => say(args.run()?.trim_end()),
        DataCommand::Synth(args) => {
            let options = args.options()?;
            let start = std::time::Instant::now();
            tgnn_data::synth_to(&options, &args.out, args.force)?;
            say(report::made(&options, &args.out, start.elapsed().as_secs_f64()).trim_end());
        }
    }
    Ok(())
}

/// Reads the negatives beside `file`; without them, and with a note, if they do not fit into memory.
fn negatives_beside(file: &str, events: &Events) -> Result<[Option<GivenNegatives>; 2]> {
    match GivenNegatives::all_beside(file, events) {
        Err(e) if e.kind() == ErrorKind::OutOfMemory => {
            tell(format_args!("note: imported without the negatives: {e}"));
            Ok([None, None])
        }
        other => other,
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
    fn synth_takes_the_sizes_of_a_stream_and_those_of_the_flags() {
        let options = |words: &str| {
            let Ok(DataCommand::Synth(args)) = parse(words) else { panic!("{words} should parse") };
            args.options().unwrap()
        };
        assert_eq!(options("synth --out d"), SynthOptions::default());
        let gdelt = options("synth --out d --like gdelt --events 9 --seed 3 --repeat 0.5");
        assert_eq!((gdelt.classes, gdelt.labels, gdelt.sources, gdelt.destinations), (56, 6, 16_682, 0));
        assert_eq!((gdelt.events, gdelt.seed, gdelt.repeat), (9, 3, 0.5));
        assert_eq!(gdelt.name, "gdelt-like");
    }

    #[test]
    fn an_invalid_value_is_refused_with_the_valid_ones() {
        assert!(parse("info x --format jody").unwrap_err().to_string().contains("did you mean `jodie`?"));
        assert!(parse("info x --columns src").is_err());
        let e = parse("info x --time-format Q").unwrap_err().to_string();
        assert!(e.contains("`Q` is not a format of times"), "{e}");
    }
}
