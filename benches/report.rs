//! Common code of the benches: the command line, and results with everything needed to judge and to repeat
//! them.
use serde_json::{Value, json};
use std::{error::Error, path::PathBuf, process::Command};
use tgnn::runtime::Device;

/// The command line of a bench.
#[derive(Default)]
pub struct Options {
    /// Arguments that are not options.
    pub positional: Vec<String>,
    /// Number of threads; 0 means every core.
    pub threads: usize,
    /// File to write the result to.
    json: Option<PathBuf>,
}

impl Options {
    /// Parses the command line. `positional` names the positional argument in the usage message.
    ///
    /// # Errors
    /// If an option is unknown or has no valid value.
    pub fn parse(positional: &str) -> Result<Self, Box<dyn Error>> {
        let mut options = Options::default();
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--bench" => {} // added by cargo
                "--json" => options.json = Some(value()?.into()),
                "--threads" => options.threads = value()?.parse()?,
                flag if flag.starts_with('-') => {
                    return Err(format!(
                        "unknown option `{flag}`; usage: [{positional}] [--json FILE] [--threads N]"
                    )
                    .into());
                }
                _ => options.positional.push(arg),
            }
        }
        Ok(options)
    }
    /// Writes the result to the file of `--json`, if given.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, result: Value) -> Result<(), Box<dyn Error>> {
        match &self.json {
            Some(path) => Ok(std::fs::write(path, serde_json::to_string_pretty(&result)? + "\n")?),
            None => Ok(()),
        }
    }
}

/// The origin of a result: bench, version, command, machine. Created before the work, because it records the
/// load of the machine at that time.
pub struct Head(Value);

impl Head {
    /// Returns the head of a result of `bench`, with the present load.
    pub fn new(bench: &str, device: &Device) -> Self {
        let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
        // Mean number of busy processes over the last minute, if the system provides it.
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|l| l.split(' ').next()?.parse::<f64>().ok());
        Head(json!({
            "schema": 1,
            "bench": bench,
            "version": env!("CARGO_PKG_VERSION"),
            "commit": output("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
            "command": format!("cargo bench --bench {bench} -- {}", args.join(" ")),
            "date": output("date", &["-u", "+%F"]),
            "hardware": { "cpu": device.name(), "threads_used": device.threads(), "load_before": load },
        }))
    }
    /// Returns head and result in one object.
    pub fn with(mut self, result: Value) -> Value {
        if let (Value::Object(head), Value::Object(result)) = (&mut self.0, result) {
            head.extend(result);
        }
        self.0
    }
}

/// Returns the output of a program, or `None` if it is missing or fails.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let done = Command::new(program).args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}
