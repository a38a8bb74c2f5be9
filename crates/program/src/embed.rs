//! `tgnn-bench embed`: embeddings of nodes at given times.
use super::{
    output::{csv_cell, say},
    settings::{MovedData, TrainedModelArgs},
    train_data::Data,
};
use clap::Args;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};
use tgnn_data::{Events, NodeId, NodeNames, format::columnar::write_parquet, npy};
use tgnn_training::task::{self, After, training::folder::write_parts};

/// Arguments of `embed`.
#[derive(Args)]
pub struct Embed {
    #[command(flatten)]
    trained: TrainedModelArgs,
    #[command(flatten)]
    moved: MovedData,
    /// Nodes by their ids in the data: u36,p9 or a file with one per line [default: all]. An id with a comma
    /// is quoted: '"Doe, J",p9'. src:3 or dst:3 where a source and a destination share an id
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// Time of each node, or one for all, written as in the data [default: after the last event]; not for
    /// snapshots, which are embedded after the last one
    #[arg(long, value_name = "LIST")]
    times: Option<String>,
    /// What the model knows: stream (all events), or validation (only those of training and validation: for
    /// tests). Memory is from after these events, also for earlier --times
    #[arg(long, value_name = "PART", default_value = "stream")]
    after: After,
    /// File to write: .npy, [nodes, width] in f32, in the order of the nodes; or .csv or .parquet, with their
    /// ids
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Embed {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let ending = Ending::of(&self.out)?;
        let (checkpoint, config) = self.trained.open(Some(&self.moved))?;
        self.trained.refuse_over("--out", &self.out, &config, None)?;
        let device = config.open_device()?;
        checkpoint.manifest()?.doubt().iter().for_each(|doubt| say(format_args!("note: {doubt}")));
        let (ids, (width, z)) = match self.moved.load(&config)? {
            Data::Events(events) => {
                let nodes = self.nodes(&events.names(), events.nodes)?;
                let times = self.times(&events, nodes.len())?;
                let ids: Vec<NodeId> = nodes.iter().map(|&v| events.id(v)).collect();
                self.tell_earlier(&events, &times);
                (ids, task::embed(&checkpoint, &config, &events, &device, self.after, &nodes, &times)?)
            }
            Data::Snapshots(_) if self.after == After::Validation => {
                return Err(Error::usage("--after validation, and the model reads snapshots")
                    .remedy("leave it out: embeddings are those after the last snapshot"));
            }
            Data::Snapshots(_) if self.times.is_some() => {
                return Err(Error::usage("--times, and the model reads snapshots")
                    .remedy("leave it out: embeddings are those after the last snapshot"));
            }
            Data::Snapshots(data) => {
                let nodes = self.nodes(&data.vertex_names(), data.nodes)?;
                let ids = nodes.iter().map(|&v| data.vertex_id(v)).collect();
                (ids, task::embed_snapshots(&checkpoint, &config, &data, &device, &nodes)?)
            }
        };
        match ending {
            Ending::Npy => npy::write(self.out.clone(), &[ids.len(), width], &z)?,
            Ending::Csv => write_parts(&self.out, |file| write_csv(file, &ids, width, &z))?,
            Ending::Parquet => write_parts(&self.out, |file| write_parquet(file, &ids, width, &z))?,
        }
        let known = match self.after {
            _ if config.model.reads_snapshots() => "the last snapshot",
            After::Stream => "all events",
            After::Validation => "the events of training and validation",
        };
        say(format_args!(
            "{} embeddings of width {width} in {}, after {known}",
            ids.len(),
            self.out.display()
        ));
        Ok(())
    }

    /// Says how many of the times are before events that the model knows.
    fn tell_earlier(&self, events: &Events, times: &[i64]) {
        let last = events.time.last().copied().unwrap_or(i64::MIN);
        let earlier = times.iter().filter(|&&t| t <= last).count();
        if earlier > 0 && self.after == After::Stream {
            say(format_args!(
                "note: {earlier} times are before the last event; node memory, if the model has one, is from after it"
            ));
        }
    }

    /// Returns the nodes of the list; all `n` nodes if there is none.
    fn nodes(&self, names: &NodeNames, n: usize) -> Result<Vec<u32>> {
        let Some(list) = &self.nodes else { return Ok((0..n as u32).collect()) };
        let nodes = each(list, "--nodes", |text| names.find(text))?;
        if nodes.is_empty() {
            return Err(
                Error::usage("--nodes names no node").remedy("give at least one, as in --nodes u36,p9")
            );
        }
        Ok(nodes)
    }

    /// Returns a time for each of `n` nodes, in ticks.
    fn times(&self, events: &Events, n: usize) -> Result<Vec<i64>> {
        let scale = events.time_scale();
        let mut times = match &self.times {
            Some(list) => each(list, "--times", |text| scale.ticks(text))?,
            None => vec![events.time.last().map_or(0, |t| t + 1)],
        };
        if let [time] = times[..] {
            times.resize(n, time);
        }
        let last = events.time.last().copied().unwrap_or(0);
        if let Some(&far) = times.iter().find(|&&time| scale.is_far(time, last)) {
            let far = scale.text(far);
            say(format_args!("note: --times has {far}, far from the events: is it in the unit of the data?"));
        }
        if times.len() != n {
            let what = format!("--times: {n} nodes and {} times", times.len());
            return Err(Error::usage(what).remedy("give one for each node, or one for all"));
        }
        Ok(times)
    }
}

/// What the name of a file of embeddings says that it holds.
enum Ending {
    Npy,
    Csv,
    Parquet,
}

impl Ending {
    /// Returns the ending of a name.
    fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("npy") => Ok(Ending::Npy),
            Some("csv") => Ok(Ending::Csv),
            Some("parquet") => Ok(Ending::Parquet),
            _ => Err(Error::usage(format!("--out {}: embeddings are not written so", path.display()))
                .remedy("let the name end in .npy, .csv or .parquet")),
        }
    }
}

/// Writes embeddings with the ids of their nodes.
fn write_csv(to: &mut impl Write, ids: &[NodeId], width: usize, z: &[f32]) -> io::Result<()> {
    let names = (0..width).map(|i| format!(",z{i}")).collect::<String>();
    writeln!(to, "node{names}")?;
    for (id, row) in ids.iter().zip(z.chunks_exact(width)) {
        write!(to, "{}", csv_cell(id.to_string()))?;
        row.iter().try_for_each(|v| write!(to, ",{v}"))?;
        writeln!(to)?;
    }
    Ok(())
}

/// Returns the items of `text`, which commas separate. An item with a comma is in quotes, as in a CSV file.
fn items(text: &str, flag: &str) -> Result<Vec<String>> {
    let (mut items, mut item, mut quoted) = (Vec::new(), String::new(), false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if quoted && rest.peek() == Some(&'"') => item.extend(rest.next()),
            '"' if quoted || item.trim().is_empty() => quoted = !quoted,
            ',' if !quoted => items.push(std::mem::take(&mut item)),
            c => item.push(c),
        }
    }
    if quoted {
        return Err(Error::usage(format!("{flag} {text}: a quote does not end"))
            .remedy("quote an id with a comma on both sides, as in '\"Doe, J\",p9'"));
    }
    items.push(item);
    let trimmed = items.into_iter().map(|item| item.trim().to_owned());
    Ok(trimmed.filter(|item| !item.is_empty()).collect())
}

/// Parses the items of `text`, separated by commas, or the lines of the file or pipe of that name; `-` is
/// standard input. Errors name the flag, or the file and the line.
fn each<T>(text: &str, flag: &str, parse: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    let path = Path::new(text);
    let content = match (text, path.is_dir() || !path.exists()) {
        ("-", _) => io::read_to_string(io::stdin()),
        (_, false) => std::fs::read_to_string(path),
        (_, true) => {
            let parsed = |item: String| parse(&item).map_err(|e| Error::usage(format!("{flag}: {e}")));
            return items(text, flag)?.into_iter().map(parsed).collect();
        }
    };
    let content = content.map_err(|e| Error::io(path, "cannot read", e))?;
    let lines = content.trim_start_matches('\u{feff}').lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty());
    lines.map(|(i, line)| parse(line).map_err(|e| e.in_file(path).at(i as u64 + 1, 0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_with_commas_and_quotes_are_quoted_as_in_csv() {
        for (text, want) in [
            ("u36,p9", &["u36", "p9"][..]),
            ("\"Doe, J1\", p9 ,", &["Doe, J1", "p9"]),
            ("\"say \"\"hi\"\"\",5\" disk", &["say \"hi\"", "5\" disk"]),
            ("", &[]),
        ] {
            assert_eq!(items(text, "--nodes").unwrap(), want);
        }
        assert!(items("\"Doe, J", "--nodes").unwrap_err().to_string().contains("a quote does not end"));
    }
}
