//! The subcommands of `tgnn-bench`, one file each. No other module prints.
#![forbid(unsafe_code)]
mod compare;
mod data;
mod doctor;
mod embed;
mod eval;
mod kernels;
mod models;
mod output;
mod plan;
mod predict;
mod profile;
mod reading;
mod report;
mod scores;
mod settings;
mod shell;
mod signals;
mod snapshots;
mod sweep;
mod train;
mod train_data;
mod trials;
mod usage;
mod watch;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use output::ended;
use std::process::ExitCode;
use tgnn::runtime::{EndsWhenFull, comm::launched};

/// Memory that runs out is one line of error, like all else.
#[global_allocator]
static MEMORY: EndsWhenFull = EndsWhenFull;

const ABOUT: &str = "Train temporal graph neural networks, fast, and measure it honestly";
const EXIT_CODES: &str = "\
Exit codes:
  0 done   2 usage   3 data   4 plan   5 device   6 out of memory
  7 diverged   8 communication   9 checkpoint   10 input/output   11 shape (a bug)

Start with:
  tgnn-bench train                          TGN on the bundled Wikipedia events
  tgnn-bench data info FILE                 what a data set holds
  tgnn-bench train FILE --out DIR           train on your own events";

#[derive(Parser)]
#[command(name = "tgnn-bench", version, about = ABOUT, after_help = EXIT_CODES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model, validate after every epoch, test the best one
    Train(Box<train::Train>),
    /// Train over a grid or random draws of any settings, several at a time, and find the best by validation
    Sweep(Box<sweep::Sweep>),
    /// Compare runs: scores over seeds, times and memory, as a table or a page with curves
    Compare(Box<compare::Compare>),
    /// Test a checkpoint
    Eval(eval::Eval),
    /// Write embeddings of given nodes at given times to a file
    Embed(embed::Embed),
    /// Score events as they arrive, from a file or standard input, and update the model's memory with them
    Predict(predict::Predict),
    /// Import, describe and generate event data
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Verify the kernels of every op on a CUDA device, then time them
    Kernels(kernels::KernelsArgs),
    /// Profile an op, steps or an epoch of training, alone or under NVIDIA's tools
    Profile(Box<profile::ProfileArgs>),
    /// Show, check and simulate a plan: how the stages of training steps are scheduled
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Assign the rows of node memory to ranks, and show what then travels between the ranks
    Partition(Box<plan::PartitionArgs>),
    /// List the models
    Models(models::Models),
    /// Report what this machine has and lacks
    Doctor,
    /// Print a completion script for a shell: bash, elvish, fish, powershell or zsh
    Completions(shell::Completions),
    /// Print the manual page, or write the pages of all subcommands
    Man(shell::Man),
}

impl Command {
    /// Whether the first of several ranks does all of it.
    fn is_for_one_rank(&self) -> bool {
        !matches!(self, Command::Train(_) | Command::Eval(_) | Command::Doctor)
    }
}

/// Runs the program with the arguments of the command line. If it fails, it prints one line to standard error
/// and returns a documented exit code.
pub fn main() -> ExitCode {
    hide_caught_panics();
    signals::fail_large_writes();
    let matches = as_scripts_expect(Cli::command()).try_get_matches();
    let cli = match matches.and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(e) => return usage::refuse(&e),
    };
    if cli.command.is_for_one_rank() && matches!(launched(), Ok(Some(launched)) if launched.rank > 0) {
        return ExitCode::SUCCESS; // the first rank does it
    }
    let result = match &cli.command {
        Command::Train(args) => args.run(),
        Command::Sweep(args) => args.run(),
        Command::Compare(args) => args.run(),
        Command::Eval(args) => args.run(),
        Command::Embed(args) => args.run(),
        Command::Predict(args) => args.run(),
        Command::Data(command) => data::run(command),
        Command::Kernels(args) => args.run(),
        Command::Profile(args) => args.run(),
        Command::Plan(command) => plan::run(command),
        Command::Partition(args) => args.run(),
        Command::Models(args) => args.run(),
        Command::Doctor => doctor::run(),
        Command::Completions(args) => args.run(Cli::command()),
        Command::Man(args) => args.run(Cli::command()),
    };
    ended(result)
}

/// Hides panics inside the libraries for Parquet and Arrow, which are caught, so that a damaged file prints
/// only its one-line error.
fn hide_caught_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !tgnn_data::format::columnar::in_library() {
            print(panic);
        }
    }));
}

/// Makes `-1` a value of every subcommand's flags, so that it is refused for what it is, and lets the last of
/// several equal flags count, as scripts expect that add flags to others.
fn as_scripts_expect(command: clap::Command) -> clap::Command {
    command.allow_negative_numbers(true).args_override_self(true).mut_subcommands(as_scripts_expect)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the help of a command in a terminal of `width` columns.
    fn help(name: &str, width: usize) -> String {
        let program = as_scripts_expect(Cli::command()).term_width(width);
        let shown = program.try_get_matches_from(["tgnn-bench", name, "--help"]);
        shown.unwrap_err().to_string()
    }

    #[test]
    fn the_many_options_of_a_training_are_listed_under_four_headings() {
        for (name, heading) in
            [("train", "Output:"), ("sweep", "Sweep:"), ("compare", "Comparison:"), ("profile", "Profile:")]
        {
            let text = help(name, 80);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            let headings = text.lines().filter(|line| !line.starts_with(' ') && line.ends_with(':'));
            let mut headings: Vec<&str> = headings.filter(|line| *line != "Examples:").collect();
            headings.sort_unstable();
            let mut want = ["Arguments:", "Data:", "Model and training:", "Ranks and plan:", heading];
            want.sort_unstable();
            assert_eq!(headings, want, "{name}: {text}");
            assert_eq!(text.matches("--help").count(), 1, "{name}: {text}");
        }
    }

    #[test]
    fn the_arguments_of_every_command_are_consistent() {
        Cli::command().debug_assert();
    }
}
