//! Reader of a folder of `.npy` files.
use super::{
    Info, SCHEMA,
    files::{optional, ticks},
    node_labels,
};
use crate::{
    Classes, Events, FeatureEncoding, Features, Ids,
    format::{
        array_columns,
        column_names::listed,
        feature_files::{FeatureRows, attach, edge_rows, node_rows},
        options::ReadOptions,
    },
    npy::{Array, check_vector},
    scalar::Scalar,
};
use std::path::Path;
use tgnn::{
    error::{Error, Result},
    runtime::NONE,
};

/// Names of the arrays that are read in a folder without `info.json`.
const READ: [&str; 9] = [
    "src",
    "dst",
    "time",
    "label",
    "classes",
    "edge_features",
    "node_features",
    "val_negatives",
    "test_negatives",
];

const REQUIRED: [&str; 3] = ["src.npy", "dst.npy", "time.npy"];

/// Whether a folder has the three required arrays of a stream.
pub(crate) fn is_native(dir: &Path) -> bool {
    REQUIRED.iter().all(|f| dir.join(f).is_file())
}

/// Whether [`save`](super::save) wrote a folder, so that its arrays hold node numbers.
pub(crate) fn is_imported(dir: &Path) -> bool {
    dir.join("info.json").exists()
}

/// Reads a folder for which [`is_native`] holds; `name` is the stream's name if there is no `info.json`.
pub(crate) fn read(dir: &Path, name: String, options: &ReadOptions) -> Result<Events> {
    let path = dir.join("info.json");
    if is_imported(dir) { read_imported(dir, &path, options) } else { read_plain(dir, name, options) }
}

/// Reads a folder that [`save`](super::save) wrote: its arrays are final and only need checks.
fn read_imported(dir: &Path, path: &Path, options: &ReadOptions) -> Result<Events> {
    let info = described(path, options)?;
    let (src, dst) = (nodes(&dir.join("src.npy"))?, nodes(&dir.join("dst.npy"))?);
    if src.len() != info.events {
        let what = format!("{} events in src.npy, {} expected", src.len(), info.events);
        return Err(Error::data(path, what).remedy("import the data again"));
    }
    let mut notes = info.notes;
    let ids = original_ids(dir)?;
    let mut tables = info.feature_tables;
    let edge_features = match &options.edge_features {
        Some(file) => {
            let (features, encoding) = given_edges(file, info.events, options, &mut notes)?;
            tables.edge = encoding;
            Some(features)
        }
        None => optional(dir, "edge_features.npy").map(|file| own_edges(&file, info.events)).transpose()?,
    };
    let split = info.first_destination.map(|first| first as usize);
    let node_features = match &options.node_features {
        Some(file) => {
            let (rows, encoding) = node_rows(file, options, &mut notes)?;
            tables.node = encoding;
            Some(rows.by_node(ids.as_ref(), info.nodes, split, file, &mut notes)?)
        }
        None => optional(dir, "node_features.npy").map(Features::read).transpose()?,
    };
    let events = Events {
        name: info.name,
        src: src.into(),
        dst: dst.into(),
        time: ticks(&dir.join("time.npy"))?.into(),
        label: labels(dir)?,
        label_names: info.label_names.map(Into::into),
        classes: classes(dir, info.classes)?,
        node_labels: info.node_classes.map(|classes| node_labels::read(dir, classes)).transpose()?,
        nodes: info.nodes,
        first_destination: info.first_destination,
        ticks_per_second: info.ticks_per_second,
        origin: info.origin,
        time_format: info.time_format,
        ids,
        encoding: info.encoding.filter(|_| options.edge_features.is_none()),
        tables,
        edge_features,
        node_features,
        lines: info.lines,
        notes,
    };
    events.validate(dir)?;
    Ok(events)
}

/// Reads the description of an imported data set, and checks that the options do not contradict it.
fn described(path: &Path, options: &ReadOptions) -> Result<Info> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "cannot read", e))?;
    let info: Info = serde_json::from_str(&text).map_err(|e| {
        Error::data(path, "not a data set's description").caused_by(e).remedy("import the data again")
    })?;
    if info.schema != SCHEMA {
        return Err(Error::data(
            path,
            format!("schema {} is not supported by this version, which reads {SCHEMA}", info.schema),
        )
        .remedy("import the data again with this version"));
    }
    options.refuse_writing("the arrays of an imported data set")?;
    if options.bipartite.is_some_and(|b| b != info.first_destination.is_some()) {
        return Err(Error::usage("whether this data set is bipartite was settled when it was imported")
            .remedy("import the original file again with --bipartite"));
    }
    Ok(info)
}

/// Reads node numbers.
fn nodes(file: &Path) -> Result<Vec<u32>> {
    if let Some(numbers) = Array::open(file)?.as_slice::<u32>() {
        return Ok(numbers.to_vec());
    }
    let number = |(i, &v): (usize, &u64)| {
        u32::try_from(v).map_err(|_| {
            Error::data(file, format!("value {i} is {v}, too large for a node number"))
                .remedy("import the data again")
        })
    };
    ids(file)?.iter().enumerate().map(number).collect()
}

/// Reads the edge features of an imported data set from a file that the user gives.
fn given_edges(
    file: &Path,
    events: usize,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Result<(Features, Option<FeatureEncoding>)> {
    let FeatureRows { features, encoding, incomplete } = edge_rows(file, events, options, notes)?;
    match incomplete.is_empty() {
        true => Ok((features, encoding)),
        false => Err(Error::usage("events of an imported data set cannot be left out")
            .remedy("leave out --missing drop, or import the original file again with the features")),
    }
}

/// Reads the edge features in the folder of an imported data set.
fn own_edges(file: &Path, events: usize) -> Result<Features> {
    let features = Features::read(file)?;
    match features.rows() {
        rows if rows == events => Ok(features),
        rows => Err(Error::data(file, format!("{rows} rows of features for {events} events"))
            .remedy("import the data again")),
    }
}

/// Reads a folder without `info.json`, such as one that a script wrote.
fn read_plain(dir: &Path, name: String, options: &ReadOptions) -> Result<Events> {
    if options.columns.is_some() {
        return Err(Error::usage("a folder of arrays has no columns to name").remedy("leave out --columns"));
    }
    let mut raw = array_columns::read(dir, options)?;
    raw.name = name;
    if let Some(classes) = classes(dir, None)? {
        check_length(&dir.join("classes.npy"), classes.events(), raw.rows())?;
        raw.classes =
            Some(if raw.left_out.is_empty() { classes } else { classes.gather(raw.kept().into_iter()) });
    }
    attach(&mut raw, options, (optional(dir, "edge_features.npy"), optional(dir, "node_features.npy")))?;
    raw.notes.extend(unread_note(dir));
    raw.build(options.bipartite)
}

/// Checks that an array has a value per event.
fn check_length(file: &Path, len: usize, events: usize) -> Result<()> {
    if len == events {
        return Ok(());
    }
    Err(Error::data(file, format!("{len} values, but src.npy has {events}"))
        .remedy("write one value per event"))
}

/// Returns a note that lists the arrays in a folder that are not read.
fn unread_note(dir: &Path) -> Option<String> {
    let names = std::fs::read_dir(dir).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_unread = |name: &String| name.ends_with(".npy") && !READ.contains(&name.trim_end_matches(".npy"));
    let mut unread: Vec<String> = names.filter(is_unread).collect();
    unread.sort();
    (!unread.is_empty()).then(|| format!("arrays not read: {}", listed(&unread)))
}

/// Reads the labels, if there are any; NaN where one is missing.
fn labels(dir: &Path) -> Result<Option<Vec<f32>>> {
    let Some(file) = optional(dir, "label.npy") else { return Ok(None) };
    let array = Array::open(&file)?;
    check_vector(&file, array.shape())?;
    Ok(Some(array.to_f32()))
}

/// Reads the sets of classes, if there are any. There are `count` classes, by default one more than the
/// largest id.
fn classes(dir: &Path, count: Option<usize>) -> Result<Option<Classes>> {
    let Some(file) = optional(dir, "classes.npy") else { return Ok(None) };
    let array = Array::open(&file)?;
    let most = match *array.shape() {
        [_] => 1,
        [_, most] if most > 0 => most,
        _ => {
            return Err(Error::data(&file, format!("sets of classes of shape {:?}", array.shape()))
                .remedy("write [events, most], padded with -1"));
        }
    };
    let class = |(i, value)| match value {
        Scalar::Int(-1) => Ok(NONE),
        Scalar::Int(v) if u32::try_from(v).is_ok() => Ok(v as u32),
        Scalar::Uint(v) if u32::try_from(v).is_ok() => Ok(v as u32),
        other => Err(Error::data(&file, format!("row {}: {} is not a class", i / most, other.text()))
            .remedy("classes are integers from 0; pad with -1")),
    };
    let table = match array.plain::<u32>() {
        Some(plain) => plain.to_vec(),
        None => array.scalars().enumerate().map(class).collect::<Result<_>>()?,
    };
    let largest = || table.iter().filter(|&&c| c != NONE).max();
    let count = count.unwrap_or_else(|| largest().map_or(1, |&c| c as usize + 1));
    Classes::new(count, most, table).map(Some).map_err(|e| e.in_file(file))
}

/// Reads the original ids of the nodes, if there are any.
fn original_ids(dir: &Path) -> Result<Option<Ids>> {
    if let Some(file) = optional(dir, "ids.npy") {
        return ids(&file).map(|ids| Some(Ids::new(ids)));
    }
    let Some(file) = optional(dir, "ids.json") else { return Ok(None) };
    let text = std::fs::read(&file).map_err(|e| Error::io(&file, "cannot read", e))?;
    let names: Vec<Box<str>> = serde_json::from_slice(&text)
        .map_err(|e| Error::data(&file, "not a list of ids").caused_by(e).remedy("import the data again"))?;
    Ok(Some(Ids::named(names)))
}

/// Reads a vector of ids.
fn ids(file: &Path) -> Result<Vec<u64>> {
    let whole = |(i, value): (usize, Scalar)| {
        value.whole().and_then(|v| u64::try_from(v).ok()).ok_or_else(|| {
            Error::data(file, format!("value {i} is {}, which is not a node id", value.text()))
                .remedy("ids are integers from 0")
        })
    };
    let array = Array::open(file)?;
    match array.as_slice::<u64>() {
        Some(plain) => Ok(plain.to_vec()),
        None => array.vector()?.enumerate().map(whole).collect(),
    }
}
