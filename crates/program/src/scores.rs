//! The file of a test's scores: a row for each scored event and candidate, as Parquet or CSV.
use super::output::csv_cell;
use arrow_array::{ArrayRef, BooleanArray, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::{arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    mem::take,
    path::{Path, PathBuf},
    sync::Arc,
};
use tgnn::error::{Error, Result};
use tgnn_data::Events;
use tgnn_training::task::{Candidate, Config, ScoredCandidate, TaskName};

/// Rows that are written together.
const ROWS: usize = 1 << 16;

/// Refuses a file whose ending names no format, or that has no folder, and a task without candidates.
///
/// # Errors
/// `Usage`.
pub(super) fn check(path: &Path, config: &Config) -> Result<()> {
    is_parquet(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir());
    if let Some(folder) = folder {
        let what = format!("--scores {}: there is no folder {}", path.display(), folder.display());
        return Err(Error::usage(what).remedy("make it first"));
    }
    let scored = matches!(config.task, TaskName::Link | TaskName::Node | TaskName::Edge);
    if config.model.reads_snapshots() || !scored {
        let what = format!(
            "--scores is of events, and this run is of {}, task {}",
            config.model_name(),
            config.task.name()
        );
        return Err(
            Error::usage(what).remedy("give a run of a model of events, with task link, node or edge")
        );
    }
    Ok(())
}

/// Whether the ending of a file is that of Parquet, and not of CSV.
fn is_parquet(path: &Path) -> Result<bool> {
    match path.extension().and_then(|end| end.to_str()) {
        Some("parquet") => Ok(true),
        Some("csv") => Ok(false),
        _ => Err(Error::usage(format!("--scores {}: the ending names no format", path.display()))
            .remedy("end it with .parquet or .csv")),
    }
}

/// A file of scores that is being written. It gets its name once it is complete, and is removed if an error
/// ends the test before.
pub(super) struct ScoreFile<'a> {
    path: &'a Path,
    partial: PathBuf,
    events: &'a Events,
    /// Whether the candidates are classes.
    classes: bool,
    writer: Writer,
    rows: Vec<ScoredCandidate>,
}

enum Writer {
    Csv(BufWriter<File>),
    Parquet(Box<ArrowWriter<File>>),
}

impl<'a> ScoreFile<'a> {
    /// Begins a file of the scores of a task on events.
    ///
    /// # Errors
    /// `Usage` if its ending names no format; `Io`.
    pub fn create(path: &'a Path, events: &'a Events, task: TaskName) -> Result<Self> {
        let (is_parquet, classes) = (is_parquet(path)?, task != TaskName::Link);
        let partial = path.with_extension("partial");
        let begin = || {
            let file = File::create(&partial)?;
            if is_parquet {
                let schema = batch(events, &[], classes)?.schema();
                let compressed =
                    WriterProperties::builder().set_compression(Compression::ZSTD(Default::default()));
                let writer = ArrowWriter::try_new(file, schema, Some(compressed.build()))?;
                return Ok(Writer::Parquet(Box::new(writer)));
            }
            let (mut file, candidate) = (BufWriter::new(file), if classes { "class" } else { "candidate" });
            writeln!(file, "event,source,{candidate},positive,score,rank")?;
            Ok(Writer::Csv(file))
        };
        let writer = begin().map_err(|e| {
            let _ = fs::remove_file(&partial);
            Error::io(path, "cannot write", e)
        })?;
        Ok(ScoreFile { path, partial, events, classes, writer, rows: Vec::new() })
    }
    /// Adds a row.
    ///
    /// # Errors
    /// `Io`.
    pub fn add(&mut self, row: ScoredCandidate) -> Result<()> {
        self.rows.push(row);
        if self.rows.len() < ROWS { Ok(()) } else { self.write().map_err(|e| self.failed(e)) }
    }
    /// Completes the file.
    ///
    /// # Errors
    /// `Io`.
    pub fn finish(mut self) -> Result<()> {
        let ended = self.write().and_then(|()| match &mut self.writer {
            Writer::Csv(file) => file.flush(),
            Writer::Parquet(file) => Ok(file.finish().map(drop)?),
        });
        ended.and_then(|()| fs::rename(&self.partial, self.path)).map_err(|e| self.failed(e))
    }
    fn failed(&self, e: io::Error) -> Error {
        Error::io(self.path, "cannot write", e)
    }
    fn write(&mut self) -> io::Result<()> {
        let rows = take(&mut self.rows);
        match &mut self.writer {
            Writer::Csv(file) => rows.iter().try_for_each(|row| write_line(file, self.events, row)),
            Writer::Parquet(file) => Ok(file.write(&batch(self.events, &rows, self.classes)?)?),
        }
    }
}

impl Drop for ScoreFile<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.partial); // a complete file has its own name by now
    }
}

/// Returns a candidate as the data name it.
fn name(events: &Events, candidate: &Candidate) -> String {
    match candidate {
        Candidate::Node(v) => events.id(*v).to_string(),
        Candidate::Class(value) => value.to_string(),
    }
}

fn write_line(file: &mut impl Write, events: &Events, row: &ScoredCandidate) -> io::Result<()> {
    let ScoredCandidate { event, source, ref candidate, positive, score, rank } = *row;
    let [source, candidate] = [events.id(source).to_string(), name(events, candidate)].map(csv_cell);
    writeln!(file, "{event},{source},{candidate},{positive},{score},{rank}")
}

/// Returns rows as columns.
fn batch(events: &Events, rows: &[ScoredCandidate], classes: bool) -> io::Result<RecordBatch> {
    let sources = rows.iter().map(|row| events.id(row.source).to_string());
    let names = rows.iter().map(|row| name(events, &row.candidate));
    let candidates: (&str, ArrayRef) =
        (if classes { "class" } else { "candidate" }, Arc::new(StringArray::from_iter_values(names)));
    let positive: BooleanArray = rows.iter().map(|row| Some(row.positive)).collect();
    let columns: [(&str, ArrayRef); 6] = [
        ("event", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.event as i64)))),
        ("source", Arc::new(StringArray::from_iter_values(sources))),
        candidates,
        ("positive", Arc::new(positive)),
        ("score", Arc::new(Float32Array::from_iter_values(rows.iter().map(|row| row.score)))),
        ("rank", Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.rank)))),
    ];
    RecordBatch::try_from_iter(columns).map_err(io::Error::other)
}
