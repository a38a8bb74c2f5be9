//! The files that a command line names without a flag: a configuration, data, or both.
use clap::{Args, builder::Resettable};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};
use tgnn_training::{model::ModelName, task::Config};

/// Maximum size of a configuration whose name does not end like that of one, in bytes.
const LARGEST: u64 = 1 << 20;

/// Arguments without a flag.
#[derive(Args)]
pub struct GivenFiles {
    /// Data, as with --data: a file, a folder or `wikipedia`. Or a configuration file, which ends in .toml
    /// (every key is optional) or .yml (TGL's). Or both
    #[arg(value_name = "DATA|CONFIG", num_args = 0..=2, help_heading = Resettable::Reset)]
    files: Vec<String>,
}

/// The files of a command line, by what they are.
#[derive(Debug, Default, PartialEq)]
pub struct Files {
    pub config: Option<PathBuf>,
    pub data: Option<String>,
}

impl Files {
    /// Returns the files of a command line that has a flag for the configuration.
    pub fn of_config(config: Option<&PathBuf>) -> Self {
        Files { config: config.cloned(), data: None }
    }
}

impl GivenFiles {
    /// Tells the configuration from the data.
    ///
    /// # Errors
    /// `Usage` if there are two of a kind, or a file may be either.
    pub fn sorted(&self) -> Result<Files> {
        let mut files = Files::default();
        for file in &self.files {
            let (other, kind, remedy) = if is_config(file)? {
                let other = files.config.replace(file.into()).map(|other| other.display().to_string());
                (other, "configurations", "give one; --set sets further keys")
            } else {
                (files.data.replace(file.clone()), "data", "give one of them")
            };
            if let Some(other) = other {
                return Err(Error::usage(format!("{other} and {file} are both {kind}")).remedy(remedy));
            }
        }
        Ok(files)
    }
}

/// Refuses to write, as `flag` says, over a file that the command reads, or that is in a folder that it
/// `reads`.
///
/// # Errors
/// `Usage`.
pub fn refuse_over<'a>(flag: &str, out: &Path, reads: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    // What does not exist is not read.
    let Ok(target) = out.canonicalize() else { return Ok(()) };
    let is_read = |path: &Path| path.canonicalize().is_ok_and(|path| target.starts_with(path));
    if !reads.into_iter().any(is_read) {
        return Ok(());
    }
    let what = format!("{flag} {}: the command reads this file and would write over it", out.display());
    Err(Error::usage(what).remedy("give another name"))
}

/// Returns the files and the folder that the data of a configuration are read from.
pub fn data_files(config: &Config) -> impl Iterator<Item = &Path> {
    let data = &config.data;
    let beside = [&data.edge_features, &data.node_features, &data.labels].into_iter().flatten();
    beside.map(PathBuf::as_path).chain([Path::new(&data.path)])
}

/// Refuses a file that does not end like what is written into it, such as `--timeline events.csv`: it may be
/// meant for something else.
///
/// # Errors
/// `Usage`.
pub fn check_ending(flag: &str, file: &Path, ending: &str) -> Result<()> {
    if file.extension().is_some_and(|end| end == ending) {
        return Ok(());
    }
    Err(Error::usage(format!("{flag} {}: the file is written as {ending}", file.display()))
        .remedy(format!("let its name end in .{ending}")))
}

/// Whether a file is a configuration: by the end of its name, and else by its content. What is not there has
/// the error of data that are not there.
fn is_config(file: &str) -> Result<bool> {
    let path = Path::new(file);
    if path.extension().is_some_and(|end| ["toml", "yml", "yaml"].iter().any(|known| end == *known)) {
        return Ok(true);
    }
    match path.metadata() {
        Ok(found) if found.is_dir() && path.join("config.toml").is_file() => {
            let what = format!("{file} is the folder of a run, and neither data nor a configuration");
            Err(Error::usage(what).remedy(format!(
                "give {0}/config.toml for its settings, --from {0} to start from its model, or --out {0} --resume",
                file.trim_end_matches('/')
            )))
        }
        Ok(found) if found.is_file() && found.len() <= LARGEST => {
            let text = fs::read_to_string(path).unwrap_or_default();
            Ok(text.parse::<toml::Table>().is_ok_and(|table| !table.is_empty()))
        }
        Ok(found) if !found.is_dir() && !found.is_file() => {
            let what = format!("{file} is a pipe, which may be data or a configuration");
            Err(Error::usage(what)
                .remedy(format!("give --data {file}, or a configuration whose name ends in .toml")))
        }
        Err(_) if file.parse::<ModelName>().is_ok() => {
            Err(Error::usage(format!("{file} is a model, and no file"))
                .remedy(format!("give --model {file}")))
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn files_are_told_apart_by_ending_and_then_by_content() {
        let dir = TempDir::new().unwrap();
        let made = |name: &str, content: &str| {
            let path = dir.path().join(name).display().to_string();
            fs::write(&path, content).unwrap();
            path
        };
        let sorted = |files: &[&String]| {
            GivenFiles { files: files.iter().map(ToString::to_string).collect() }
                .sorted()
                .map_err(|e| e.to_string())
        };
        let (events, more) = (made("events.csv", "src,dst,time\n0,1,2\n"), made("more", "0 1 2\n1 2 3\n"));
        let lines = made("events.jsonl", "{\"src\": 0, \"dst\": 1, \"time\": 2}\n");
        let (toml, named) = (made("my.toml", ""), made("settings", "epochs = 1\n"));
        let (none, folder) = ("wikipedia".to_owned(), dir.path().display().to_string());
        for data in [&events, &more, &lines, &none, &folder] {
            let want = Files { config: None, data: Some(data.clone()) };
            assert_eq!(sorted(&[data]).unwrap(), want);
            for config in [&toml, &named] {
                let want = Files { config: Some(config.into()), data: Some(data.clone()) };
                assert_eq!(sorted(&[data, config]).unwrap(), want);
                assert_eq!(sorted(&[config, data]).unwrap(), want);
            }
        }
        assert_eq!(sorted(&[]).unwrap(), Files::default());
        let said = sorted(&[&events, &none]).unwrap_err();
        assert_eq!(said, format!("{events} and wikipedia are both data; give one of them"));
        let said = sorted(&[&toml, &named]).unwrap_err();
        assert!(said.ends_with("are both configurations; give one; --set sets further keys"), "{said}");
        made("config.toml", "");
        let said = sorted(&[&folder]).unwrap_err();
        assert!(said.contains("is the folder of a run") && said.contains("--resume"), "{said}");
        let said = sorted(&[&"jodie".to_owned()]).unwrap_err();
        assert_eq!(said, "jodie is a model, and no file; give --model jodie");
        let said = sorted(&[&"/dev/null".to_owned()]).unwrap_err();
        assert!(said.contains("is a pipe") && said.contains("--data /dev/null"), "{said}");
    }
}
