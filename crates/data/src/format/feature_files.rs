//! Files of edge and node features that belong to an event file.
use super::{
    cell::{self, Cell, Row, comma_remedy},
    column_names::{Role, given, listed, role, side, suggestion},
    columns::{ColumnName, FeatureColumns},
    feature_values::{FeatureValues, large},
    number::Fault,
    options::{Missing, ReadOptions},
    records::wrong_width,
    sample::Sample,
    source::read_beside,
};
use crate::{
    FeatureEncoding, Features, NodeId,
    ids::IdField,
    node_rows::NodeRows,
    raw::Raw,
    text::{counted, shown},
};
use std::path::{Path, PathBuf};
use tgnn::error::{Error, Result};

/// Remedy for a row without an id.
const IDS: &str = "write the id of a node in every row";
/// Remedy for a missing feature.
const FILL_IN: &str = "fill it in, or give --missing zero or drop";

/// Rows of features of a file.
pub(crate) struct FeatureRows {
    pub features: Features,
    /// How columns became them; `None` for an array.
    pub encoding: Option<FeatureEncoding>,
    /// The rows that lack a value and are to be left out.
    pub incomplete: Vec<usize>,
}

/// Adds features to `raw` from the files named in `options`, or else from the (edge, node) feature files
/// `beside` that were found next to the events.
pub(crate) fn attach(
    raw: &mut Raw,
    options: &ReadOptions,
    beside: (Option<PathBuf>, Option<PathBuf>),
) -> Result<()> {
    let (edges_beside, nodes_beside) = beside;
    if let Some(file) = options.edge_features.as_ref().or(edges_beside.as_ref()) {
        attach_edges(raw, file, options)?;
    }
    if let Some(file) = options.node_features.as_ref().or(nodes_beside.as_ref()) {
        let (rows, encoding) = node_rows(file, options, &mut raw.notes)?;
        raw.tables.node = encoding;
        raw.node_features = Some((rows, file.clone()));
    }
    check_id_column(options)
}

/// Refuses the name of a column of ids if there is no table that has one.
fn check_id_column(options: &ReadOptions) -> Result<()> {
    let named = options.columns.as_ref().is_some_and(|columns| columns.id.is_some());
    if named && !options.node_features.as_deref().is_some_and(is_table) {
        return Err(Error::usage(
            "--columns id= names the ids in a table of node features, and there is none",
        )
        .remedy("give the table with --node-features, or leave it out"));
    }
    Ok(())
}

/// Adds the edge features in `file` to `raw`.
fn attach_edges(raw: &mut Raw, file: &Path, options: &ReadOptions) -> Result<()> {
    let (FeatureRows { features, encoding, incomplete }, at) = match &raw.numbers {
        None => (edge_rows(file, raw.rows(), options, &mut raw.notes)?, None),
        Some(_) if is_table(file) => {
            let what =
                "the event numbers are not consecutive, so rows of a table cannot be matched to events";
            return Err(Error::data(&raw.file, what).remedy(
                "write the features in the order of the events and remove the column of event numbers",
            ));
        }
        Some(numbers) => {
            let (rows, at) = numbered_rows(file, numbers, options, &mut raw.notes)?;
            (rows, Some(at))
        }
    };
    (raw.encoding, raw.tables.edge) = (None, encoding);
    if at.is_none() && raw.left_out.is_empty() && incomplete.is_empty() {
        raw.edge_features = Some(features);
        return Ok(());
    }
    let at = at.unwrap_or_else(|| raw.kept());
    let lacks = |event: &usize| incomplete.binary_search(&at[*event]).is_ok();
    let lacking: Vec<usize> = (0..at.len()).filter(lacks).collect();
    raw.edge_features = Some(features.gather(at.iter().copied()));
    raw.leave_out(&lacking);
    Ok(())
}

/// Reads one row of edge features per row of the events, of which there are `rows`. If an array has one row
/// more, its row 0 is dropped as padding: some data sets number their events from 1.
pub(crate) fn edge_rows(
    file: &Path,
    rows: usize,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Result<FeatureRows> {
    let FeatureRows { features, encoding, mut incomplete } = match is_table(file) {
        true => feature_table(file, false, options, notes)?.rows,
        false => array(file, options.missing, notes)?,
    };
    let padded = !is_table(file) && features.rows() == rows + 1;
    let features = match features.rows() {
        n if n == rows => features,
        _ if padded => {
            notes.extend(padding_note(file, &features));
            incomplete = incomplete.iter().filter_map(|row| row.checked_sub(1)).collect();
            features.skip_first()
        }
        n => {
            return Err(Error::data(file, format!("{n} rows of features for {rows} events")).remedy(
                "there must be one row per event, and in an array at most one row of padding before",
            ));
        }
    };
    Ok(FeatureRows { features, encoding, incomplete })
}

/// Returns a note if row 0 is dropped as padding but has values.
fn padding_note(file: &Path, features: &Features) -> Option<String> {
    let what = format!("row 0 of {} is dropped: there is one row more than events", file.display());
    features.row(0).iter().any(|&v| v != 0.0).then_some(what)
}

/// Reads an array of features, in which NaN is a missing value.
fn array(file: &Path, missing: Missing, notes: &mut Vec<String>) -> Result<FeatureRows> {
    let (features, mut rows) = match missing {
        Missing::Refuse => (Features::read(file)?, Vec::new()),
        _ => Features::read_filled(file)?,
    };
    let (size, column) = features.largest();
    notes.extend(large(size, &format!("column {} of {}", column + 1, file.display())));
    if missing == Missing::Zero {
        notes.extend(filled_note(file, rows.len() as u64));
        rows.clear();
    }
    rows.dedup();
    Ok(FeatureRows { features, encoding: None, incomplete: rows })
}

/// Returns a note about values that are missing in a file and read as 0; `None` if there are none.
fn filled_note(file: &Path, missing: u64) -> Option<String> {
    (missing > 0).then(|| format!("{} of {}: read as 0", counted(missing, "missing value"), file.display()))
}

/// Reads an array of edge features, and returns the row of each event, by the events' numbers. They count
/// from 0, or from 1 if the file has no row of padding.
fn numbered_rows(
    file: &Path,
    numbers: &[u64],
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Result<(FeatureRows, Vec<usize>)> {
    let found = array(file, options.missing, notes)?;
    let rows = found.features.rows() as u64;
    let (first, last) = numbers.iter().fold((u64::MAX, 0), |(low, high), n| (low.min(*n), high.max(*n)));
    let row_0 = match () {
        _ if last < rows => 0,
        _ if first == 1 && last == rows => 1,
        _ => {
            let what = format!("{rows} rows of features for event numbers from {first} to {last}");
            return Err(Error::data(file, what).remedy("write a row for every number from 0 or 1 on"));
        }
    };
    notes.push("features of an event are in the row of its number".into());
    Ok((found, numbers.iter().map(|n| (n - row_0) as usize).collect()))
}

/// Whether a file of features is a table, not an array.
fn is_table(file: &Path) -> bool {
    !file.extension().is_some_and(|end| end == "npy" || end == "pt")
}

/// Names of columns that hold the id of a row, the surest first. Those from the fifth on may have something
/// else.
const ID_NAMES: [&str; 7] = ["id", "node", "node_id", "nodeid", "name", "key", "code"];
const SURE_IDS: usize = 4;

/// A table of features.
struct FeatureTable {
    /// The ids of the rows, if they have some.
    ids: Vec<NodeId>,
    /// The name of the column of ids; empty without a header.
    id_name: String,
    rows: FeatureRows,
}

/// Reads a table of features. Columns of numbers are features, and columns of text are categories; `with_id`
/// says whether one column is an id: one that is called so, or the first.
fn feature_table(
    file: &Path,
    with_id: bool,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Result<FeatureTable> {
    let begin = |sample: &Sample| TableReader::new(file, sample, with_id, options);
    let (reader, told) =
        read_beside(file, "write a row for each event or node", begin, |reader, row| reader.push(row))?;
    notes.extend(told);
    reader.finish(file, notes)
}

/// A table of features while its rows are read.
struct TableReader {
    missing: Missing,
    names: Vec<String>,
    width: usize,
    /// The columns of the ids of nodes, and of the numbers of events.
    id: Option<usize>,
    number: Option<usize>,
    columns: Vec<FeatureColumns>,
    notes: Vec<String>,
    /// Number of rows that were read.
    at: usize,
    /// The number of the first event.
    first: Option<u64>,
    ids: Vec<NodeId>,
    features: Option<FeatureValues>,
    incomplete: Vec<usize>,
}

impl TableReader {
    fn new(file: &Path, sample: &Sample, with_id: bool, options: &ReadOptions) -> Result<Self> {
        let mut notes = Vec::new();
        let names = sample.header.clone().unwrap_or_default();
        let width = if names.is_empty() { sample.width() } else { names.len() };
        let id = if with_id { Some(id_column(file, &names, width, options, &mut notes)?) } else { None };
        let number = if with_id { None } else { names.iter().position(|name| role(name) == Role::Index) };
        let others = [other_columns(sample, &names, id, &mut notes), id.into_iter().collect()].concat();
        let columns = feature_columns(sample, width, &others, &names, &mut notes);
        Ok(TableReader {
            missing: options.missing,
            names,
            width,
            id,
            number,
            columns,
            notes,
            at: 0,
            first: None,
            ids: Vec::new(),
            features: None,
            incomplete: Vec::new(),
        })
    }

    fn push(&mut self, row: &dyn Row) -> Result<()> {
        if row.len() != self.width {
            return Err(wrong_width(row, self.width, "the first one has"));
        }
        self.ids.extend(self.id.map(|i| cell::id(row, i, "a node id", IDS)).transpose()?);
        let features = match &mut self.features {
            Some(features) => features,
            None => self.features.insert(FeatureValues::new(row, &self.columns, &self.names)?),
        };
        if let Some(i) = self.number {
            check_number(row, i, self.at, &mut self.first)?;
        }
        match (self.missing, features.missing_in(row)) {
            (Missing::Refuse, Some(i)) => {
                return Err(row
                    .error(Some(i), row.cell(i).describe(Fault::Empty, "a feature"))
                    .remedy(FILL_IN));
            }
            (Missing::Drop, Some(_)) => self.incomplete.push(self.at),
            _ => {}
        }
        self.at += 1;
        features.push(row)
    }

    fn finish(self, file: &Path, notes: &mut Vec<String>) -> Result<FeatureTable> {
        let TableReader { names, ids, id, features, incomplete, .. } = self;
        notes.extend(self.notes);
        if self.missing == Missing::Zero {
            notes.extend(filled_note(file, features.as_ref().map_or(0, |features| features.missing)));
        }
        notes.extend(features.as_ref().and_then(|features| features.note_large(&names)));
        let features = features.map(|features| features.finish(&names)).transpose()?.flatten();
        let (features, encoding) = features.ok_or_else(|| {
            Error::data(file, "the table has no features").remedy("write a column of numbers or categories")
        })?;
        let rows = FeatureRows { features, encoding: Some(encoding), incomplete };
        Ok(FeatureTable { ids, id_name: id.and_then(|i| names.get(i).cloned()).unwrap_or_default(), rows })
    }
}

/// Returns the column of ids: the one that the options name, one that is called so, or like a source or a
/// destination, or else the first, with a note.
fn id_column(
    file: &Path,
    names: &[String],
    width: usize,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Result<usize> {
    if let Some(id) = options.columns.as_ref().and_then(|columns| columns.id.as_ref()) {
        let at = given(names, id).map_err(|e| Error::data(file, e.what).remedy(e.remedy))?;
        return at.filter(|at| *at < width).ok_or_else(|| {
            Error::data(file, format!("there is no column `{id}`")).remedy(suggestion(names, &id.to_string()))
        });
    }
    let place = |name: &String| ID_NAMES.iter().position(|id| name.trim().eq_ignore_ascii_case(id));
    let sides = (0..names.len()).filter(|&i| side(&names[i]).is_some());
    let mut found: Vec<usize> = (0..names.len()).filter(|&i| place(&names[i]).is_some()).collect();
    found.sort_by_key(|&i| place(&names[i]));
    found.extend(sides);
    let Some(id) = found.first().copied() else {
        notes.extend(names.first().map(|first| {
            format!("no column of {} is named `id`; the ids are those of `{first}`", file.display())
        }));
        return Ok(0);
    };
    if let Some(other) = found[1..].iter().find(|&&i| names[i].trim().eq_ignore_ascii_case(names[id].trim()))
    {
        let what = format!("two columns are called `{}`: {} and {}", names[id], id + 1, other + 1);
        return Err(Error::data(file, what).remedy("give the number of the ids, such as --columns id=1"));
    }
    notes.extend(found.get(1).map(|&other| {
        format!(
            "the ids of {} are those of `{}`; for another column, such as `{other}`, give --columns id={other}",
            file.display(),
            names[id],
            other = names[other]
        )
    }));
    Ok(id)
}

/// Returns the columns of a table of features that are no features, with a note. A row says by them to which
/// event or to which node (in column `id`) it belongs, or what is to be predicted; or it only has a number.
fn other_columns(
    sample: &Sample,
    names: &[String],
    id: Option<usize>,
    notes: &mut Vec<String>,
) -> Vec<usize> {
    let is_other = |&i: &usize| match role(&names[i]) {
        Role::Src | Role::Dst | Role::Time | Role::Label | Role::Index => true,
        // A node may have a date, such as that of its birth.
        Role::LikelyTime => id.is_none(),
        _ => {
            let name = names[i].trim().to_ascii_lowercase();
            let is_id = id.is_some() && ID_NAMES[..SURE_IDS].contains(&&*name);
            is_id || is_row_number(&name) || name == "index" && sample.numbers_rows(i)
        }
    };
    let columns: Vec<usize> = (0..names.len()).filter(|i| id != Some(*i)).filter(is_other).collect();
    let shown = |&i: &usize| match names[i].is_empty() {
        true => format!("column {}, without a name", i + 1),
        false => names[i].clone(),
    };
    if !columns.is_empty() {
        let names: Vec<String> = columns.iter().map(shown).collect();
        notes.push(format!("no features by their names: {}; rename those that are features", listed(&names)));
    }
    columns
}

/// Whether a column of this name has the row numbers of pandas.
fn is_row_number(name: &str) -> bool {
    name.is_empty() || name.starts_with("unnamed: ") || name.starts_with("__index_level_")
}

/// Checks that the event number in cell `i` of row `at` follows that of the row before.
fn check_number(row: &dyn Row, i: usize, at: usize, first: &mut Option<u64>) -> Result<()> {
    let number = match row.cell(i).id() {
        Ok(IdField::Number(n)) => n.checked_sub(at as u64),
        _ => None,
    };
    if number.is_some() && number == Some(*first.get_or_insert(number.unwrap_or(0))) {
        return Ok(());
    }
    let what = format!("{} does not follow the event number of the row before", row.cell(i).shown());
    Err(row.error(Some(i), what).remedy("write one row per event, in the order of the events"))
}

/// Chooses the columns of features: those of numbers, and those of few categories.
fn feature_columns(
    sample: &Sample,
    width: usize,
    others: &[usize],
    names: &[String],
    notes: &mut Vec<String>,
) -> Vec<FeatureColumns> {
    let (mut columns, mut unread) = (Vec::new(), Vec::new());
    for i in (0..width).filter(|i| !others.contains(i)) {
        let name = ColumnName::Number(i + 1);
        let with_commas = with_commas(sample, i);
        let are_categories = sample.are_categories(i);
        if sample.are_numbers(i)
            || sample.measured.contains(&i)
            // An error of the first such number says what to do.
            || with_commas.is_some() && !are_categories
        {
            columns.push(FeatureColumns::Values(name));
        } else if are_categories {
            notes.extend(with_commas.map(|(field, remedy)| {
                let name =
                    names.get(i).map_or_else(|| format!("column {}", i + 1), |name| format!("`{name}`"));
                format!("{name} is read as categories, such as {}: if it has numbers, {remedy}", shown(field))
            }));
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

/// Returns the first number with a comma in column `i`, and what to do about it, if all others are numbers.
fn with_commas(sample: &Sample, i: usize) -> Option<(&[u8], &'static str)> {
    let mut found = None;
    for field in sample.present(i) {
        let cell = Cell::Text(field);
        if cell.value().is_err() {
            let remedy = comma_remedy(&cell)?;
            found = found.or(Some((field, remedy)));
        }
    }
    found
}

/// Reads rows of node features: of an array, or by the ids of a table. Returns how columns became them, too.
pub(crate) fn node_rows(
    file: &Path,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Result<(NodeRows, Option<FeatureEncoding>)> {
    if !is_table(file) {
        let FeatureRows { features, incomplete, .. } = array(file, options.missing, notes)?;
        return Ok((NodeRows::Matrix(without(features, &incomplete)?), None));
    }
    let FeatureTable { ids, id_name, rows } = feature_table(file, true, options, notes)?;
    let is_complete = |row: &usize| rows.incomplete.binary_search(row).is_err();
    let ids = ids.into_iter().enumerate().map(|(row, id)| is_complete(&row).then_some(id)).collect();
    let by_id = NodeRows::ById { ids, side: side(&id_name), features: rows.features };
    Ok((by_id, rows.encoding))
}

/// Returns the features with zeros in the rows that lack a value.
fn without(features: Features, incomplete: &[usize]) -> Result<Features> {
    if incomplete.is_empty() {
        return Ok(features);
    }
    let mut values = features.values().to_vec();
    for row in incomplete {
        values[row * features.cols()..][..features.cols()].fill(0.0);
    }
    Features::from_vec(features.rows(), features.cols(), values)
}
