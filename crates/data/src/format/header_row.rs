//! The first row of a text: a header, or an event.
//!
//! | first row | is |
//! | --- | --- |
//! | can be read by the given columns and format of times | an event |
//! | has no name in the place of the time, where all columns are given by number | an event |
//! | `0,1,2`: the numbers of the columns, as pandas writes them | a header without names |
//! | has a known name of a column, and no time where the rows have times | a header |
//! | has neither a number nor a time | a header |
//! | anything else | an event |
use super::{
    cell::Cell,
    column_names::{Role, position, role},
    columns::{ColumnName, Columns},
    delimiter::Delimiter,
    header::OLDEST_UNIX_TIME,
    jodie,
    number::{is_number, parse_decimal},
    options::{Format, ReadOptions},
};
use crate::{
    text::{counted, shown},
    time_format::TimeFormat,
};
use std::path::Path;
use tgnn::error::{Error, Result};

/// Fields of a row.
pub(super) type Fields = Vec<Vec<u8>>;

/// What the first row of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstRow {
    Event,
    /// Header whose fields are the names of the columns.
    Names,
    /// Header of the columns' numbers, which are no names.
    Numbers,
}

/// Decides what the first row is, given the `rows` after it. Doubts become `notes`.
pub(super) fn recognise(
    first: &Fields,
    rows: &[Fields],
    delimiter: Delimiter,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> FirstRow {
    let columns = Typed::of(rows);
    let shown = || shown(&first.join(&b","[..]));
    if !rows.is_empty() && is_counted(first) {
        // Between blanks, it is more likely an event of an edge list.
        let (header, event) = match delimiter {
            Delimiter::Blanks => ("if it is a header, remove it", true),
            _ => ("if it is an event, give --format snap", is_headerless(options)),
        };
        let is = if event { "an event" } else { "a header, as pandas writes it" };
        notes.push(format!("the first line, {}, is read as {is}; {header}", shown()));
        return if event { FirstRow::Event } else { FirstRow::Numbers };
    }
    if reads(first, options) {
        return FirstRow::Event;
    }
    let numbers = options.columns.as_ref().filter(|columns| columns.are_numbers());
    let is_named = names_roles(first);
    if numbers.is_some_and(|columns| !is_named && !may_name(first, rows, columns)) {
        return FirstRow::Event;
    }
    let is_value = |field: &Vec<u8>| is_number(field) || Cell::Text(field).is_time();
    let has_name = first.iter().any(|field| is_name(field));
    let has_value = first.iter().any(is_value);
    if !has_name && has_value {
        return FirstRow::Event;
    }
    let is_time = |(i, field): (usize, &Vec<u8>)| columns.times.get(i) == Some(&true) && is_late(field);
    if has_name && first.iter().enumerate().any(is_time) {
        notes.push(format!("the first line, {}, is read as an event, because it has a time", shown()));
        return FirstRow::Event;
    }
    let remedy = match numbers {
        Some(columns) if !is_named || !may_name(first, rows, columns) => Some("correct its time"),
        None if has_value && !is_named && !are_numbered(first) => Some("give --columns src=1,dst=2,time=3"),
        _ => None,
    };
    notes.extend(remedy.map(|remedy| {
        format!("the first line, {}, is read as a header; if it is an event, {remedy}", shown())
    }));
    FirstRow::Names
}

/// Whether the first row may have the names of `columns`, which are given by number: there is a word where
/// times are, and its source and its destination do not occur in the `rows` after it.
fn may_name(first: &Fields, rows: &[Fields], columns: &Columns) -> bool {
    let place = |column: &ColumnName| match column {
        ColumnName::Number(n) => Some(n - 1),
        ColumnName::Name(_) => None,
    };
    let is_word = |field: &Vec<u8>| {
        let digits = field.iter().filter(|b| b.is_ascii_digit()).count();
        let starts = field.first().is_some_and(|b| !b.is_ascii_digit() && !b.is_ascii_punctuation());
        (starts || field.starts_with(b"_")) && digits < 3 && !Cell::Text(field).is_missing()
    };
    let recurs =
        |i: usize| first.get(i).is_some_and(|field| rows.iter().any(|row| row.get(i) == Some(field)));
    let mut times = columns.time.iter().filter_map(place);
    let mut ends = [&columns.src, &columns.dst].into_iter().flatten().filter_map(place);
    times.all(|i| first.get(i).is_some_and(is_word)) && !ends.any(recurs)
}

/// Whether a field is a known name of a column.
fn is_name(field: &[u8]) -> bool {
    !is_number(field) && role(&String::from_utf8_lossy(field)) != Role::Other
}

/// Whether the fields are 0, 1, 2, .., perhaps after the empty name of an index.
fn is_counted(fields: &Fields) -> bool {
    let names = if fields.first().is_some_and(Vec::is_empty) { &fields[1..] } else { &fields[..] };
    names.len() >= 3 && names.iter().enumerate().all(|(i, name)| *name == i.to_string().into_bytes())
}

/// Whether the fields that are numbers count upwards, as the names of features do.
fn are_numbered(fields: &Fields) -> bool {
    let numbers: Vec<i64> = fields.iter().filter_map(|f| std::str::from_utf8(f).ok()?.parse().ok()).collect();
    numbers.windows(2).all(|pair| pair[1] == pair[0] + 1)
        && numbers.first().is_some_and(|n| (0..=1).contains(n))
}

/// Whether a field is a date, or a number that is too large for anything but a time.
fn is_late(field: &[u8]) -> bool {
    match parse_decimal(field) {
        Ok(number) => number.digits == 0 && number.mantissa >= OLDEST_UNIX_TIME,
        Err(_) => Cell::Text(field).is_time(),
    }
}

/// Whether the user named a layout that has no header.
fn is_headerless(options: &ReadOptions) -> bool {
    matches!(options.format, Some(Format::Snap | Format::Signed))
}

/// Whether the options say how to read a row, and this one can be read so.
fn reads(row: &Fields, options: &ReadOptions) -> bool {
    let is_time = |field: &[u8]| {
        let format = options.time_format.clone().unwrap_or_else(|| TimeFormat::guess(field));
        format.parse(field).is_ok()
    };
    let Some(columns) = options.columns.as_ref().filter(|columns| !columns.time.is_empty()) else {
        let pattern = options.time_format.as_ref().filter(|format| format.is_date());
        return pattern.is_some() && row.iter().any(|field| is_time(field));
    };
    let number = |column: &ColumnName| match column {
        ColumnName::Number(n) => row.get(n - 1),
        ColumnName::Name(_) => None,
    };
    let ends = [&columns.src, &columns.dst].into_iter().flatten();
    let time: Option<Vec<&[u8]>> = columns.time.iter().map(|c| number(c).map(Vec::as_slice)).collect();
    ends.map(number).all(|field| field.is_some()) && time.is_some_and(|parts| is_time(&parts.join(&b' ')))
}

/// What the cells of each column are, in all rows where they are not missing.
struct Typed {
    numbers: Vec<bool>,
    times: Vec<bool>,
}

impl Typed {
    fn of(rows: &[Fields]) -> Self {
        let width = rows.first().map_or(0, Vec::len);
        let all = |i: usize, holds: &dyn Fn(&[u8]) -> bool| {
            let mut present =
                rows.iter().filter_map(|row| row.get(i)).filter(|f| !Cell::Text(f).is_missing());
            let any = present.clone().next().is_some();
            any && present.all(|field| holds(field))
        };
        let column = |holds: &dyn Fn(&[u8]) -> bool| (0..width).map(|i| all(i, holds)).collect();
        Typed { numbers: column(&is_number), times: column(&|field| Cell::Text(field).is_time()) }
    }
}

/// Whether a line that starts like a comment is a row like `rows`: it has as many fields, and a time, or
/// nothing where they have times; between blanks, it has a time. Without a header, it also has a number or a
/// time wherever they have one.
pub(super) fn fits(line: &Fields, rows: &[Fields], has_header: bool, delimiter: Delimiter) -> bool {
    if rows.first().is_none_or(|row| row.len() != line.len()) {
        return false;
    }
    let columns = Typed::of(rows);
    let is_time = |i: usize| columns.times[i] && Cell::Text(&line[i]).is_time();
    let fits = |i: usize| {
        let is_number = !columns.numbers[i] || is_number(&line[i]);
        Cell::Text(&line[i]).is_missing() || is_number && (!columns.times[i] || is_time(i))
    };
    let has_time = (0..line.len()).any(is_time);
    let lacks_time = |i: usize| !columns.times[i] || Cell::Text(&line[i]).is_missing();
    match has_header {
        true => has_time || delimiter != Delimiter::Blanks && (0..line.len()).all(lacks_time),
        false => has_time && (0..line.len()).all(fits),
    }
}

/// Returns the names in a comment that is a header: there is one for each of `width` columns, and two of
/// them are those of a source, a destination or a time. Names that only tell the usual order, as in the files
/// of SNAP, are none.
pub(super) fn of_comment(names: Fields, width: usize) -> Option<Fields> {
    let roles: Vec<Role> = names.iter().map(|name| role(&String::from_utf8_lossy(name))).collect();
    let usual = [Role::Src, Role::Dst, Role::Time].starts_with(&roles)
        && names.first().is_some_and(|name| name.eq_ignore_ascii_case(b"FromNodeId"));
    (names.len() == width && names_roles(&names) && !usual).then_some(names)
}

/// Whether two of the fields are names of a source, a destination or a time.
pub(super) fn names_roles(fields: &Fields) -> bool {
    let role = |field: &Vec<u8>| role(&String::from_utf8_lossy(field));
    let is_role =
        |field: &&Vec<u8>| matches!(role(field), Role::Src | Role::Dst | Role::Time | Role::LikelyTime);
    fields.iter().filter(is_role).count() >= 2
}

/// Makes the names of a header as many as the fields of the rows, if it is clear which columns they name.
pub(super) fn aligned(
    mut names: Vec<String>,
    rows: &[Fields],
    (path, line): (&Path, u64),
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<String>>> {
    let Some(width) = rows.first().map(Vec::len) else { return Ok(Some(names)) };
    if rows.iter().any(|row| row.len() == names.len()) {
        return Ok(Some(names));
    }
    while names.len() > width && names.last().is_some_and(String::is_empty) {
        names.pop();
    }
    let last = names.last().map(|name| role(name));
    // JODIE's header has a name for all features even if there are none.
    if names.len() == width || last == Some(Role::Features) && names.len() == width + 1 {
        return Ok(Some(names));
    }
    if rows.iter().all(|row| row.iter().skip(names.len()).all(Vec::is_empty)) && width > names.len() {
        names.resize(width, String::new());
        return Ok(Some(names));
    }
    let is_jodie = position(&names, jodie::FEATURES).is_some_and(|at| at + 1 == names.len());
    if names.len() + 1 == width && !is_jodie && counts_rows(rows, 0) {
        notes.push("the first column has no name in the header: it numbers the rows, and is not read".into());
        names.insert(0, String::new());
        return Ok(Some(names));
    }
    // JODIE's header has one name for all features, or none at all.
    let is_open = last == Some(Role::Features) || last == Some(Role::Label) && jodie::is_header(&names);
    if width > names.len() && is_open {
        if let (Some(last), false) = (names.last(), is_jodie) {
            notes.push(format!("the columns after `{last}` have no name in the header: read as features"));
        }
        return Ok(Some(names));
    }
    let (named, fields) = (counted(names.len() as u64, "name"), counted(width as u64, "field"));
    let what = format!("the header has {named}, the first row {fields}");
    if options.columns.as_ref().is_some_and(|columns| columns.are_numbers()) {
        notes.push(format!("{what}: the names are not used"));
        return Ok(None);
    }
    Err(Error::data(path, what)
        .at(line, 0)
        .remedy("name every column, or give columns by number, such as --columns src=1,dst=2,time=3"))
}

/// Whether the fields `i` of the rows are 0, 1, 2, .. or 1, 2, 3, ..
pub(super) fn counts_rows(rows: &[Fields], i: usize) -> bool {
    let number = |row: &Fields| std::str::from_utf8(row.get(i)?).ok()?.parse::<u64>().ok();
    let first = rows.first().and_then(number).filter(|first| *first <= 1);
    first.is_some_and(|first| rows.iter().zip(first..).all(|(row, n)| number(row) == Some(n)))
}
