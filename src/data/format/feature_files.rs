//! Files of edge and node features that belong to an event file.
use super::{
    columns::{ColumnName, FeatureColumns},
    feature_values::FeatureValues,
    header::listed,
    options::ReadOptions,
    sample::Sample,
    source::Source,
};
use crate::{
    data::{Features, NodeId, ids::IdField, node_rows::NodeRows, raw::Raw, text::counted},
    error::{Error, Result},
};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// Adds features to `raw` from the files named in `options`, or else from the (edge, node) feature files
/// `beside` that were found next to the events.
///
/// # Errors
/// Data if the number of feature rows does not match the events, or the numbers of the events; otherwise the
/// errors of reading the files.
pub(in crate::data) fn attach(
    raw: &mut Raw,
    options: &ReadOptions,
    beside: (Option<PathBuf>, Option<PathBuf>),
) -> Result<()> {
    let (edges_beside, nodes_beside) = beside;
    if let Some(file) = options.edge_features.as_ref().or(edges_beside.as_ref()) {
        let events = raw.ids.src.len();
        raw.encoding = None;
        raw.edge_features = Some(match (&raw.numbers, is_table(file)) {
            (None, true) => edge_table(file, events, &mut raw.notes)?,
            (None, false) => edge_rows(file, events)?,
            (Some(numbers), false) => {
                raw.notes.push("features of an event are in the row of its number".into());
                numbered_rows(file, numbers)?
            }
            (Some(_), true) => {
                let what =
                    "the event numbers are not consecutive, so rows of a table cannot be matched to events";
                return Err(Error::data(&raw.file, what).remedy(
                    "write the features in the order of the events and remove the column of event numbers",
                ));
            }
        });
    }
    if let Some(file) = options.node_features.as_ref().or(nodes_beside.as_ref()) {
        let rows = match is_table(file) {
            true => node_table(file, &mut raw.notes)?,
            false => NodeRows::Matrix(Features::read(file)?),
        };
        raw.node_features = Some((rows, file.clone()));
    }
    Ok(())
}

/// Reads one row of edge features per event. If the file has `events + 1` rows, row 0 is dropped as padding:
/// some data sets number their events from 1.
pub(in crate::data) fn edge_rows(file: &Path, events: usize) -> Result<Features> {
    let features = Features::read(file)?;
    match features.rows() {
        n if n == events => Ok(features),
        n if n == events + 1 => Ok(features.skip_first()),
        n => Err(Error::data(file, format!("{n} rows of features for {events} events"))
            .remedy("there must be one row per event, and at most one padding row before them")),
    }
}

/// Reads the rows of edge features with the events' numbers, which count from 0, or from 1 if the file has no
/// row of padding.
fn numbered_rows(file: &Path, numbers: &[u64]) -> Result<Features> {
    let features = Features::read(file)?;
    let rows = features.rows() as u64;
    let (first, last) = numbers.iter().fold((u64::MAX, 0), |(low, high), n| (low.min(*n), high.max(*n)));
    match () {
        _ if last < rows => Ok(features.gather(numbers.iter().map(|n| *n as usize))),
        _ if first == 1 && last == rows => Ok(features.gather(numbers.iter().map(|n| *n as usize - 1))),
        _ => Err(Error::data(
            file,
            format!("{rows} rows of features for event numbers from {first} to {last}"),
        )
        .remedy("write a row for every number from 0 or 1 on")),
    }
}

/// Whether a file of features is a table, not an array.
fn is_table(file: &Path) -> bool {
    !file.extension().is_some_and(|end| end == "npy" || end == "pt")
}

/// Names of columns that hold the id of a row.
const ID_NAMES: [&str; 8] = ["id", "node", "node_id", "nodeid", "name", "key", "code", "user_id"];

/// Rows of a table of features.
struct FeatureTable {
    ids: Vec<NodeId>,
    features: Features,
}

/// Reads a table of features. Columns of numbers are features, and columns of text are categories; `with_id`
/// says whether one column is an id: one that is called so, or the first.
fn feature_table(file: &Path, with_id: bool, notes: &mut Vec<String>) -> Result<FeatureTable> {
    let source = Source::open(file)?;
    let sample = source.sample(None)?;
    let names = sample.header.clone().unwrap_or_default();
    let width = if names.is_empty() { sample.width() } else { names.len() };
    let called = |name: &String| ID_NAMES.contains(&name.trim().to_ascii_lowercase().as_str());
    let id = with_id.then(|| names.iter().position(called).unwrap_or(0));
    let columns = feature_columns(&sample, width, id, &names, notes);
    let mut features = None;
    let mut ids = Vec::new();
    source.for_each(&sample, &mut |row| {
        if row.len() != width {
            let what = format!("this row has {} columns, the first one has {width}", row.len());
            return Err(row.error(Some(row.len().min(width)), what).remedy("fix or remove the row"));
        }
        if let Some(i) = id {
            let cell = row.cell(i);
            ids.push(match cell.id() {
                Ok(IdField::Number(n)) => NodeId::Number(n),
                Ok(IdField::Text(text)) => NodeId::Text(text.into()),
                Err(f) => {
                    let e = row.error(Some(i), cell.describe(f, "a node id"));
                    return Err(e.remedy("write the id of a node in every row"));
                }
            });
        }
        match &mut features {
            Some(features) => features,
            None => features.insert(FeatureValues::new(row, &columns, &names)?),
        }
        .push(row)
    })?;
    let missing = features.as_ref().map_or(0, |features| features.missing);
    if missing > 0 {
        notes.push(format!("{} of {}: read as 0", counted(missing, "missing value"), file.display()));
    }
    let none =
        || Error::data(file, "the table has no features").remedy("write a column of numbers or categories");
    let features = features.map(|features| features.finish(&names)).transpose()?.flatten();
    Ok(FeatureTable { ids, features: features.ok_or_else(none)?.0 })
}

/// Chooses the columns of features: those of numbers, and those of few categories.
fn feature_columns(
    sample: &Sample,
    width: usize,
    id: Option<usize>,
    names: &[String],
    notes: &mut Vec<String>,
) -> Vec<FeatureColumns> {
    let (mut columns, mut unread) = (Vec::new(), Vec::new());
    for i in (0..width).filter(|i| Some(*i) != id) {
        let name = ColumnName::Number(i + 1);
        if sample.are_numbers(i) || sample.measured.contains(&i) {
            columns.push(FeatureColumns::Values(name));
        } else if sample.are_categories(i) {
            columns.push(FeatureColumns::OneHot(name));
        } else {
            unread.extend(names.get(i).cloned());
        }
    }
    if !unread.is_empty() {
        notes.push(format!("columns of features not read: {}", listed(&unread)));
    }
    columns
}

/// Reads one row of edge features per event from a table, in the order of the events.
fn edge_table(file: &Path, events: usize, notes: &mut Vec<String>) -> Result<Features> {
    let features = feature_table(file, false, notes)?.features;
    if features.rows() == events {
        return Ok(features);
    }
    Err(Error::data(file, format!("{} rows of features for {events} events", features.rows()))
        .remedy("write one row per event, in the order of the events"))
}

/// Reads rows of node features by id.
fn node_table(file: &Path, notes: &mut Vec<String>) -> Result<NodeRows> {
    let FeatureTable { ids, features } = feature_table(file, true, notes)?;
    let mut row_of = HashMap::with_capacity(ids.len());
    for (row, id) in ids.into_iter().enumerate() {
        if let Some(first) = row_of.insert(id.clone(), row) {
            let what = format!("rows {} and {} are both of node `{id}`", first + 1, row + 1);
            return Err(Error::data(file, what).remedy("write one row per node"));
        }
    }
    Ok(NodeRows::ById(row_of, features))
}
