//! Readers for event streams as they are found in the wild.
//!
//! | [`Format`] | looks like | where it is met |
//! | --- | --- | --- |
//! | `jodie` | `user_id,item_id,timestamp,state_label,comma_separated_list_of_features` | JODIE, TGB |
//! | `dyglib` | `,u,i,ts,label,idx` in `ml_NAME.csv`, features in `ml_NAME.npy` | TGN, DyGLib |
//! | `tgl` | `,src,dst,time,ext_roll` in `edges.csv` | TGL, DistTGL |
//! | `snap` | `src dst time`, no header | SNAP, SocioPatterns |
//! | `signed` | `source,target,rating,time` | SNAP signed, KONECT |
//! | `table` | any header that names source, destination and time | everywhere |
//! | `tkg` | a folder of `train.txt`, `valid.txt`, `test.txt`: `subject relation object time` | temporal knowledge graphs: ICEWS, GDELT |
//! | `tgb` | a folder with `tgbl-NAME_edgelist.csv` | `py-tgb` |
//! | `native` | a folder with `src.npy`, `dst.npy`, `time.npy` | `tgnn-bench data import`, `numpy.save` |
//!
//! A table may also be a Parquet file, where the cargo feature `parquet` is on.
//!
//! Any of the text files may be gzipped, be delimited by commas, semicolons, tabs or blanks, and hold comments that
//! start with `#` or `%`. A label is a number; [`Events::class_labels`] says which numbers are classes.
mod columns;
mod dyglib;
mod event_line;
pub(super) mod graph;
mod input;
mod jodie;
mod layout;
pub(super) mod number;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
mod records;
mod sample;
mod signed;
mod snap;
mod table;
#[cfg(test)]
mod tests;
pub(super) mod tgb;
mod tgl;
mod tkg;

pub use columns::Columns;
pub(crate) use event_line::{EventLine, EventLines};

use super::{Events, Features, native, raw::Raw};
use crate::error::{Error, Result};
use input::Input;
use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// A layout of event files; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// JODIE CSV.
    Jodie,
    /// DyGLib and TGN CSV, with features in `.npy` files beside it.
    Dyglib,
    /// TGL's `edges.csv`.
    Tgl,
    /// `src dst time` without a header.
    Snap,
    /// `source,target,rating,time`.
    Signed,
    /// Any table with a header.
    Table,
    /// A folder of `subject relation object time`.
    Tkg,
    /// TGB's folders, and the edge lists in them.
    Tgb,
    /// A folder of `.npy` files.
    Native,
}

impl Format {
    /// Every format, in the order of the module's table.
    pub const ALL: [Format; 9] = [
        Format::Jodie,
        Format::Dyglib,
        Format::Tgl,
        Format::Snap,
        Format::Signed,
        Format::Table,
        Format::Tgb,
        Format::Tkg,
        Format::Native,
    ];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Jodie => "jodie",
            Format::Dyglib => "dyglib",
            Format::Tgl => "tgl",
            Format::Snap => "snap",
            Format::Signed => "signed",
            Format::Table => "table",
            Format::Tkg => "tkg",
            Format::Tgb => "tgb",
            Format::Native => "native",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Format::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| {
            Error::usage(format!("there is no format `{name}`"))
                .remedy(format!("choose one of {}", Format::ALL.map(Format::name).join(", ")))
        })
    }
}

/// How to read an event file; the default recognises everything by itself.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The layout; recognised from header, delimiter and content if not given.
    pub format: Option<Format>,
    /// The columns of a text file; overrides header and layout.
    pub columns: Option<Columns>,
    /// Refuse events out of time order instead of sorting them.
    pub strict: bool,
    /// Whether sources and destinations are different kinds of nodes; if not given, they are when no node is both,
    /// or when the layout numbers them apart.
    pub bipartite: Option<bool>,
    /// `.npy` or `.pt` file of edge features: a row per event in the order of the file, with or without a padding row 0.
    pub edge_features: Option<PathBuf>,
    /// `.npy` or `.pt` file of node features: a row per original id, or a row per node.
    pub node_features: Option<PathBuf>,
}

/// Reads one event file.
pub(super) fn read_file(path: &Path, options: &ReadOptions) -> Result<Events> {
    let tgb = tgb::edge_list(path).is_some() && options.format.is_none() && options.columns.is_none();
    if tgb || options.format == Some(Format::Tgb) {
        if options.columns.is_some() {
            return Err(Error::usage("the columns of TGB's files are fixed").remedy("leave out --columns"));
        }
        let mut raw = tgb::read(path, options)?;
        attach(&mut raw, options, (None, None))?;
        return raw.build(options.bipartite);
    }
    #[cfg(feature = "parquet")]
    if parquet::recognises(path) {
        let mut raw = parquet::read(path, options)?;
        raw.name = stem(path);
        attach(&mut raw, options, (None, None))?;
        return raw.build(options.bipartite);
    }
    read(Input::open(path)?, stem(path), options)
}

/// Reads events from memory; `name` is what errors call them.
pub(super) fn read_bytes(name: &str, bytes: &'static [u8], options: &ReadOptions) -> Result<Events> {
    read(Input::from_bytes(name, bytes)?, name.to_owned(), options)
}

/// Reads a folder: ours, TGB's, a temporal knowledge graph's, TGL's (`edges.csv`) or DyGLib's (`ml_NAME.csv`).
pub(super) fn read_folder(path: &Path, options: &ReadOptions) -> Result<Events> {
    let name = folder_name(path);
    if options.format.is_none_or(|f| f == Format::Native) && native::is_native(path) {
        return native::read(path, name, options);
    }
    if let Some(file) = tgb::edge_list(path) {
        return read_file(&file, options);
    }
    if options.format.is_none_or(|f| f == Format::Tkg) && tkg::is_here(path) {
        return tkg::read(path, name, options);
    }
    match table_inside(path, &name) {
        Some(file) => read_file(&file, options),
        None => Err(Error::data(path, "the folder has no src.npy, dst.npy and time.npy")
            .remedy("give an event file, or a folder that `tgnn-bench data import` wrote")),
    }
}

/// Whether a folder is one that [`read_folder`] reads.
pub(super) fn is_folder_of_events(path: &Path) -> bool {
    native::is_native(path)
        || tgb::edge_list(path).is_some()
        || tkg::is_here(path)
        || table_inside(path, &folder_name(path)).is_some()
}

/// The last part of a folder's path; nothing where it has none that is text.
pub(super) fn folder_name(path: &Path) -> String {
    path.canonicalize().ok().and_then(|p| Some(p.file_name()?.to_str()?.to_owned())).unwrap_or_default()
}

/// TGL's or DyGLib's table in the folder called `name`.
fn table_inside(path: &Path, name: &str) -> Option<PathBuf> {
    let inside = ["edges.csv".to_owned(), "edges.csv.gz".to_owned(), format!("ml_{name}.csv")];
    inside.iter().map(|f| path.join(f)).find(|p| p.is_file())
}

fn read(input: Input, name: String, options: &ReadOptions) -> Result<Events> {
    if let Some(format @ (Format::Native | Format::Tkg)) = options.format {
        return Err(Error::usage(format!(
            "{} is a file, the {format} format is a folder",
            input.path.display()
        ))
        .remedy("leave out --format"));
    }
    let sample = sample::Sample::of(&input)?;
    let path = input.path.clone();
    let layout = layout::recognise(&path, &sample, options)?;
    let mut raw = table::read(input, &layout, options)?;
    raw.name = match name.as_str() {
        "edges" => path.canonicalize().ok().and_then(|p| Some(p.parent()?.file_name()?.to_str()?.to_owned())),
        other => other.strip_prefix("ml_").map(str::to_owned),
    }
    .unwrap_or(name);
    let beside = match layout.format {
        Format::Dyglib => dyglib::beside(&path),
        Format::Tgl => tgl::beside(&path),
        _ => (None, None),
    };
    attach(&mut raw, options, beside)?;
    raw.build(options.bipartite)
}

/// Takes features from the files that the user named, else from those found beside the events.
pub(super) fn attach(
    raw: &mut Raw,
    options: &ReadOptions,
    beside: (Option<PathBuf>, Option<PathBuf>),
) -> Result<()> {
    if let Some(file) = options.edge_features.as_ref().or(beside.0.as_ref()) {
        if !raw.numbered {
            return Err(Error::data(
                &raw.file,
                "the event numbers have gaps, so rows of features cannot be told",
            )
            .remedy("write the features in the order of the events and remove the column"));
        }
        raw.edge_features = Some(edge_rows(file, raw.src.len())?);
    }
    if let Some(file) = options.node_features.as_ref().or(beside.1.as_ref()) {
        raw.node_features = Some((Features::read(file)?, file.clone()));
    }
    Ok(())
}

/// Reads a row per event; one row more, and row 0 is padding, so that event numbers can count from 1.
pub(super) fn edge_rows(file: &Path, events: usize) -> Result<Features> {
    let features = Features::read(file)?;
    match features.rows() {
        n if n == events => Ok(features),
        n if n == events + 1 => Ok(features.skip_first()),
        n => Err(Error::data(file, format!("{n} rows of features for {events} events"))
            .remedy("there must be a row per event, and at most one padding row before them")),
    }
}

/// A file's name without folder, `.gz` and extension.
pub(super) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
}
