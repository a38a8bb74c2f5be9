//! `tgnn-bench completions` and `man`: completion scripts and manual pages, generated from the definitions of
//! the arguments.
use super::output::keep;
use clap::{Args, Command, builder::PossibleValuesParser};
use clap_complete::Shell;
use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};
use tgnn::{
    error::{Error, Result},
    runtime::{MatmulPrecision, StoredAs},
};
use tgnn_data::{Format, Missing, Presence, TimeFormat};
use tgnn_training::{
    model::ModelName,
    plan::{Machine, Plan, partition::Partitioner},
    task::{After, HistoryRule, NegativeKind, Protocol, TaskName},
};

/// Arguments of `completions`.
#[derive(Args)]
pub struct Completions {
    /// Shell for which to print the script; save it where that shell looks for completions
    shell: Shell,
}

impl Completions {
    /// Prints the script.
    pub fn run(&self, program: Command) -> Result<()> {
        keep(io::stdout().write_all(&script(self.shell, with_values(program))));
        Ok(())
    }
}

/// The program's name without hyphens.
const PLAIN: &str = "tgnn_bench";

/// Returns the script for the program with its values.
fn script(shell: Shell, mut program: Command) -> Vec<u8> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    if shell != Shell::Bash {
        clap_complete::generate(shell, &mut program, name, &mut script);
        return script;
    }
    // For bash, clap_complete spells a hyphen of the program's name in two ways, which do not meet
    // (github.com/clap-rs/clap/issues/6421). A name without hyphens has one spelling, and only the last lines
    // say to which program the script belongs.
    clap_complete::generate(shell, &mut program.name(PLAIN), PLAIN, &mut script);
    let text = String::from_utf8_lossy(&script);
    text.replace(&format!("-o default {PLAIN}\n"), &format!("-o default {name}\n")).into_bytes()
}

/// Gives the flags that take names the values that a shell offers. The flags themselves parse their values,
/// and say more about a wrong one than clap would.
fn with_values(command: Command) -> Command {
    let command = command.mut_args(|arg| match values(arg.get_id().as_str()) {
        Some(values) if arg.get_value_parser().possible_values().is_none() => {
            arg.value_parser(PossibleValuesParser::new(values))
        }
        _ => arg,
    });
    command.mut_subcommands(with_values)
}

/// Returns the names that a flag takes, beside which some take others: files, numbers, patterns. A script of
/// `clap_complete` offers the names of a flag or files, not both; bash offers files where no name fits.
fn values(flag: &str) -> Option<Vec<&'static str>> {
    Some(match flag {
        "by" => Partitioner::ALL.iter().map(|p| p.name()).collect(),
        "after" => After::ALL.map(After::name).to_vec(),
        "device" => vec!["auto", "cpu", "cuda", "emu"],
        "every" => vec!["day", "week", "month", "year", "step"],
        "features_as" => StoredAs::ALL.map(StoredAs::name).to_vec(),
        "format" => Format::ALL.iter().map(|format| format.name()).collect(),
        "history" => HistoryRule::ALL.iter().map(|rule| rule.name()).collect(),
        "machine" => Machine::presets().collect(),
        "missing" => Missing::ALL.iter().map(|rule| rule.name()).collect(),
        "model" => ModelName::ALL.iter().map(|model| model.name()).collect(),
        "negatives" => NegativeKind::ALL.iter().map(|kind| kind.name()).collect(),
        "partition" => ["auto"].into_iter().chain(Partitioner::ALL.iter().map(|p| p.name())).collect(),
        "plan" => Plan::PRESETS.iter().map(|plan| plan.form).filter(|form| !form.contains(':')).collect(),
        "precision" => MatmulPrecision::ALL.map(MatmulPrecision::name).to_vec(),
        "presence" => Presence::ALL.iter().map(|presence| presence.name()).collect(),
        "protocol" => Protocol::ALL.iter().map(|protocol| protocol.name()).collect(),
        "task" => TaskName::ALL.iter().map(|task| task.name()).collect(),
        "time_format" => TimeFormat::names().collect(),
        "trend" => vec!["constant", "as733"],
        _ => return None,
    })
}

/// Arguments of `man`.
#[derive(Args)]
pub struct Man {
    /// Write the pages of all subcommands into this folder instead of printing the program's page
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    /// Prints or writes the pages.
    pub fn run(&self, program: Command) -> Result<()> {
        let Some(out) = &self.out else {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(program).render(&mut page);
            rendered.map_err(|e| {
                Error::new(tgnn::error::ErrorKind::Io, "cannot render the manual page").caused_by(e)
            })?;
            keep(io::stdout().write_all(&page));
            return Ok(());
        };
        fs::create_dir_all(out).map_err(|e| Error::io(out, "cannot create", e))?;
        clap_mangen::generate_to(program, out).map_err(|e| Error::io(out, "cannot write the pages into", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, error::ErrorKind};

    /// Tries every value of every flag of a command and of its subcommands. Returns how many there are.
    fn tried(program: &Command, path: &[&str], command: &Command) -> usize {
        let mut count = 0;
        for arg in command.get_arguments() {
            let (Some(values), Some(long)) = (values(arg.get_id().as_str()), arg.get_long()) else {
                continue;
            };
            for value in values {
                let flag = format!("--{long}={value}");
                let words = [&["tgnn-bench"], path, &[&flag]].concat();
                let refused = program.clone().try_get_matches_from(&words).err().map(|e| e.kind());
                let wrong = [ErrorKind::ValueValidation, ErrorKind::InvalidValue];
                assert!(refused.is_none_or(|kind| !wrong.contains(&kind)), "{words:?}: {refused:?}");
                count += 1;
            }
        }
        let inner = command.get_subcommands();
        count + inner.map(|c| tried(program, &[path, &[c.get_name()]].concat(), c)).sum::<usize>()
    }

    #[test]
    fn flags_accept_the_values_that_shells_offer() {
        let program = crate::Cli::command();
        assert_eq!(program.get_name().replace('-', "_"), PLAIN);
        assert!(tried(&program, &[], &program) > 100);
        assert!(["s", "excel", "iso"].iter().all(|name| values("time_format").unwrap().contains(name)));
    }
}
