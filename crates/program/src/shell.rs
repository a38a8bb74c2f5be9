//! `tgnn-bench completions` and `man`: completion scripts and manual pages, generated from the definitions of
//! the arguments.
use super::output::keep;
use clap::{Args, Command};
use clap_complete::Shell;
use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};
use tgnn::error::{Error, Result};

/// Arguments of `completions`.
#[derive(Args)]
pub struct Completions {
    /// Shell for which to print the script; save it where that shell looks for completions
    shell: Shell,
}

impl Completions {
    /// Prints the script.
    pub fn run(&self, mut program: Command) -> Result<()> {
        let name = program.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, name, &mut script);
        keep(io::stdout().write_all(&script));
        Ok(())
    }
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
