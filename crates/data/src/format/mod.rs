//! Readers for the event stream formats in common use.
//!
//! | [`Format`] | looks like | used by |
//! | --- | --- | --- |
//! | `jodie` | `user_id,item_id,timestamp,state_label,comma_separated_list_of_features` | JODIE, TGB |
//! | `dyglib` | `,u,i,ts,label,idx` in `ml_NAME.csv`, features in `ml_NAME.npy` | TGN, DyGLib |
//! | `tgl` | `,src,dst,time,ext_roll` in `edges.csv` | TGL, DistTGL |
//! | `snap` | `src dst time`, no header | SNAP, SocioPatterns |
//! | `signed` | `source,target,rating,time` | SNAP signed, KONECT |
//! | `table` | any header that names source, destination and time | everywhere |
//! | `tgb` | a folder with `tgbl-NAME_edgelist.csv` or `tgbn-NAME_edgelist.csv` | `py-tgb` |
//! | `tkg` | a folder of `train.txt`, `valid.txt`, `test.txt`: `subject relation object time` | ICEWS, GDELT |
//! | `native` | a folder with `src.npy`, `dst.npy`, `time.npy` | `tgnn-bench data import`, `numpy.save` |
//!
//! A table may be text, JSON lines, Parquet, or Arrow (a Feather file or a stream). Text may be delimited by
//! commas, semicolons, tabs, `|`, `::`, blanks or what [`ReadOptions::delimiter`] says, contain comments that
//! start with `#` or `%`, and be compressed by gzip or zstd. Files of one layout may lie in a folder or a tar
//! archive; if they have no times, the dates in their names are the times.
//!
//! Ids are any text ([`NodeId`](super::NodeId)), times are numbers or dates
//! ([`TimeFormat`](super::TimeFormat)), and [`Missing`] is the rule for missing values. A label is a number
//! or text, and may be missing; [`Events::class_table`] returns the labels as classes.
pub(super) mod array_columns;
mod beginning;
mod blocks;
mod cell;
pub(super) mod column_names;
#[cfg(all(test, feature = "formats"))]
mod column_tests;
#[cfg(feature = "formats")]
#[doc(hidden)]
pub mod columnar;
mod columns;
#[cfg(all(test, feature = "formats"))]
mod counting_tests;
mod delimiter;
mod dyglib;
mod estimate;
pub(super) mod feature_files;
mod feature_values;
mod fields;
pub(super) mod file_dates;
mod file_set;
mod foreign;
pub(super) mod graph;
mod guessed_delimiter;
mod header;
mod header_row;
mod id_rule;
mod input;
mod jodie;
mod json_lines;
mod label_values;
#[cfg(feature = "formats")]
mod later_events;
#[cfg(feature = "formats")]
mod later_input;
mod layout;
mod names;
pub(super) mod node_labels;
pub(super) mod number;
#[cfg(all(test, feature = "formats"))]
mod odd_tables_tests;
pub(super) mod options;
#[cfg(all(test, feature = "formats"))]
mod own_data_tests;
#[cfg(all(test, feature = "formats"))]
mod own_values_tests;
mod records;
mod sample;
mod set_file;
mod signed;
mod snap;
mod source;
mod split_times;
#[cfg(feature = "formats")]
mod spool;
mod table;
#[cfg(all(test, feature = "formats"))]
mod tests;
pub(super) mod tgb;
mod tgl;
mod tkg;

pub use columns::{ColumnName, Columns, FeatureColumns};
pub use delimiter::Delimiter;
pub use estimate::Estimate;
#[cfg(feature = "formats")]
#[doc(hidden)]
pub use id_rule::IdRule;
pub(super) use input::is_stream;
#[cfg(feature = "formats")]
#[doc(hidden)]
pub use later_events::{EventFormat, EventPart, EventRow, LaterEvent, LaterEvents};
#[cfg(feature = "formats")]
#[doc(hidden)]
pub use later_input::{LaterBytes, LaterInput, LaterTable};
pub(super) use names::{files_by_name, folder_name, stem};
pub use options::{Format, Missing, ReadOptions};
#[doc(hidden)]
pub use table::rows_read;

use super::{Events, native, raw::Raw};
use feature_files::attach;
use source::{Source, read_all};
use std::path::{Path, PathBuf};
use table::Table;
use tgnn::error::{Error, Result};

/// Reads one event file, or a folder of files of one layout.
pub(super) fn read_file(path: &Path, options: &ReadOptions) -> Result<Events> {
    let tgb = tgb::edge_list(path).is_some() && options.format.is_none() && options.columns.is_none();
    if tgb || options.format == Some(Format::Tgb) {
        options.refuse_writing("TGB's files")?;
        let mut raw = tgb::read(path, options)?;
        attach(&mut raw, options, (None, None))?;
        return raw.build(options.bipartite);
    }
    if let Some(estimate) = Estimate::for_file(path, options) {
        estimate.check()?;
    }
    let open = || Source::open(path);
    match path == Path::new("-") {
        true => read(Path::new("standard input"), open()?, None, "stdin".into(), options),
        false if is_stream(path) => read(path, open()?, None, "stdin".into(), options),
        false => read(path, open()?, Some(&open), stem(path), options),
    }
}

/// Reads events from memory; error messages use `name` as the file name.
pub(super) fn read_bytes(name: &str, bytes: &'static [u8], options: &ReadOptions) -> Result<Events> {
    let path = Path::new(name);
    let open = || Source::of_bytes(path, bytes);
    read(path, open()?, Some(&open), name.to_owned(), options)
}

/// Reads a folder in the native, TGB, temporal knowledge graph, TGL (`edges.csv`) or DyGLib (`ml_NAME.csv`)
/// layout, or with a file of events per day.
pub(super) fn read_folder(path: &Path, options: &ReadOptions) -> Result<Events> {
    let name = folder_name(path);
    if native::is_native(path) {
        no_delimiter(options, "the data are a folder of .npy")?;
        return match options.format {
            None | Some(Format::Native) => native::read(path, name, options),
            Some(format) => Err(Error::usage(format!("a folder of arrays is not of the format {format}"))
                .remedy("leave out --format")),
        };
    }
    if let Some(file) = tgb::edge_list(path) {
        let mut events = read_file(&file, options)?;
        if options.format.is_none() && options.columns.is_none() {
            events.notes.extend(names::others(path, |name| tgb::belongs_to(&file, name)));
        }
        return Ok(events);
    }
    if options.format.is_none_or(|format| format == Format::Tkg) && tkg::is_here(path) {
        no_delimiter(options, "the files of a temporal knowledge graph have blanks")?;
        return tkg::read(path, name, options);
    }
    let Some(table) = table_inside(path, &name) else { return read_file(path, options) };
    let mut events = read_file(&table, options)?;
    let (edges, nodes) = match table.ends_with("edges.csv") || table.ends_with("edges.csv.gz") {
        true => tgl::beside(&table),
        false => dyglib::beside(&table),
    };
    let read = [Some(&table), edges.as_ref(), nodes.as_ref()];
    let is_read = |name: &str| read.iter().flatten().any(|file| file.ends_with(name));
    events.notes.extend(names::others(path, is_read));
    Ok(events)
}

/// Refuses a delimiter for data that have none, or another; `why` says so.
fn no_delimiter(options: &ReadOptions, why: &str) -> Result<()> {
    match options.delimiter {
        None => Ok(()),
        Some(_) => {
            Err(Error::usage(format!("{why}, not a delimiter to choose")).remedy("leave out --delimiter"))
        }
    }
}

/// Whether [`read_folder`] recognises events in the folder.
pub(super) fn is_folder_of_events(path: &Path) -> bool {
    native::is_native(path)
        || tgb::edge_list(path).is_some()
        || tkg::is_here(path)
        || table_inside(path, &folder_name(path)).is_some()
        || file_set::has_events(path)
}

/// Returns the path of TGL's or DyGLib's table in the folder `path` called `name`.
fn table_inside(path: &Path, name: &str) -> Option<PathBuf> {
    let candidates = ["edges.csv".to_owned(), "edges.csv.gz".to_owned(), format!("ml_{name}.csv")];
    candidates.iter().map(|file| path.join(file)).find(|p| p.is_file())
}

/// Recognises the layout of a table and reads it. `again` opens it once more; a stream cannot be. `name`
/// becomes the data set's name, except that `edges` is replaced by the folder's name and a prefix `ml_` is
/// removed.
fn read(
    path: &Path,
    source: Source,
    again: Option<&dyn Fn() -> Result<Source>>,
    name: String,
    options: &ReadOptions,
) -> Result<Events> {
    if let Some(format @ (Format::Native | Format::Tkg)) = options.format {
        let what = match path.is_dir() {
            true => format!("{} has no files of the {format} format", path.display()),
            false => format!("{} is a file, the {format} format is a folder", path.display()),
        };
        return Err(Error::usage(what).remedy("leave out --format"));
    }
    let (mut raw, format) = read_rows(path, source, again, options)?;
    raw.name = match name.as_str() {
        "edges" => path.canonicalize().ok().and_then(|p| Some(p.parent()?.file_name()?.to_str()?.to_owned())),
        other => other.strip_prefix("ml_").map(str::to_owned),
    }
    .unwrap_or(name);
    let beside = match format {
        Format::Dyglib => dyglib::beside(path),
        Format::Tgl => tgl::beside(path),
        _ => (None, None),
    };
    raw.notes.extend(unread_negatives(path));
    attach(&mut raw, options, beside)?;
    raw.build(options.bipartite)
}

/// Reads the rows of a table.
fn read_rows(
    path: &Path,
    source: Source,
    again: Option<&dyn Fn() -> Result<Source>>,
    options: &ReadOptions,
) -> Result<(Raw, Format)> {
    let sample = |source: &Source| source.sample(options);
    let ((mut raw, format), sample, outcome) = read_all(source, again, sample, |source, sample| {
        let layout = layout::recognise(path, sample, options)?;
        let mut table = Table::new(path, &layout, options);
        let outcome = source.read_into(sample, &mut table)?;
        Ok(((table.finish()?, layout.format), outcome))
    })?;
    outcome.check_keys(path, &sample)?;
    raw.lines = outcome.lines;
    raw.notes.extend(outcome.late.note());
    Ok((raw, format))
}

/// Returns a note if negatives lie beside a table or in its folder: TGB-Seq has them for its test part, in
/// `NAME_test_ns.npy`.
fn unread_negatives(path: &Path) -> Option<String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = if path.is_dir() { path } else { parent };
    let of_file = format!("{}_", stem(path));
    let names =
        std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_beside =
        |name: &String| name.ends_with("_ns.npy") && (path.is_dir() || name.starts_with(&of_file));
    let mut found: Vec<String> = names.filter(is_beside).collect();
    found.sort();
    let names = (!found.is_empty()).then(|| column_names::listed(&found))?;
    Some(format!("not read: {names}; scores are not those of TGB-Seq, which ranks against these negatives"))
}
