//! What the benches share: their command line, and results with all that is needed to judge them and to make them again.
use serde_json::{Value, json};
use std::{error::Error, path::PathBuf, process::Command};
use tgnn::runtime::Device;

/// What a bench's command line asks for.
#[derive(Default)]
pub struct Options {
    /// What is no option.
    pub positional: Vec<String>,
    /// 0: every core.
    pub threads: usize,
    json: Option<PathBuf>,
}

impl Options {
    /// Reads the command line; `positional` is what else it may hold.
    pub fn parse(positional: &str) -> Result<Self, Box<dyn Error>> {
        let mut options = Options::default();
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
            match arg.as_str() {
                "--bench" => {} // cargo says so
                "--json" => options.json = Some(value()?.into()),
                "--threads" => options.threads = value()?.parse()?,
                flag if flag.starts_with('-') => {
                    return Err(
                        format!("no option `{flag}`: [{positional}] [--json FILE] [--threads N]").into()
                    );
                }
                _ => options.positional.push(arg),
            }
        }
        Ok(options)
    }
    /// Writes the result where one was asked for.
    pub fn write(&self, result: Value) -> Result<(), Box<dyn Error>> {
        match &self.json {
            Some(path) => Ok(std::fs::write(path, serde_json::to_string_pretty(&result)? + "\n")?),
            None => Ok(()),
        }
    }
}

/// Where and of what a result is; made before the work, because it tells how busy the machine was.
pub struct Head(Value);

impl Head {
    /// The head of `bench`, now.
    pub fn new(bench: &str, device: &Device) -> Self {
        let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
        // Mean number of busy processes over the last minute, where the system tells.
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
    /// Head and result in one object.
    pub fn with(mut self, result: Value) -> Value {
        if let (Value::Object(head), Value::Object(result)) = (&mut self.0, result) {
            head.extend(result);
        }
        self.0
    }
}

/// What a program prints, if it is there and succeeds.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let done = Command::new(program).args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}
