//! Recognition of a file's layout.
use super::{
    column_names::{Role, given, listed, position, role, suggestion},
    columns::{ColumnName, FeatureColumns},
    dyglib,
    header::HeaderColumns,
    id_rule::IdRule,
    jodie,
    options::{Format, ReadOptions},
    sample::Sample,
    signed, snap,
    split_times::{self, SplitTime},
    tgl,
};
use crate::{
    text::{counted, shown},
    time_format::{TimeFormat, is_named_date},
};
use std::{collections::HashSet, path::Path};
use tgnn::error::{Error, Result};

/// Description of a table, complete enough to read it. Columns count from 0.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub format: Format,
    /// Names of the columns; empty if there is no header.
    pub names: Vec<String>,
    pub src: usize,
    pub dst: usize,
    /// Columns whose values, joined by blanks, are the time.
    pub time: Vec<usize>,
    /// How times are written, if the sample shows that they are dates written as numbers.
    pub dates: Option<TimeFormat>,
    pub label: Option<usize>,
    /// Column of event numbers, by which feature files are joined.
    pub index: Option<usize>,
    /// Column that says to which part of the split an event belongs.
    pub roll: Option<usize>,
    pub features: Vec<FeatureColumns>,
    /// How to read the ids of sources and of destinations.
    pub ids: [IdRule; 2],
    /// Whether sources and destinations are numbered separately, so that equal ids are different nodes.
    pub separate: bool,
    /// Notes to the user about columns that are not read and about doubtful guesses.
    pub notes: Vec<String>,
}

/// Returns the layout that the options name, completed by what the sample shows.
pub(super) fn recognise(path: &Path, sample: &Sample, options: &ReadOptions) -> Result<Layout> {
    if sample.rows.is_empty() {
        return Err(Error::data(path, "there is a header but no event").remedy("write one event per line"));
    }
    let names = sample.header.clone().unwrap_or_default();
    let format = match options.format {
        Some(format) => format,
        None if options.columns.is_some() => guess(sample).unwrap_or(Format::Table),
        None => guess(sample).ok_or_else(|| unknown(path, sample))?,
    };
    let mut named = match (format, sample.header.is_some()) {
        // A header wins over the order of the format, and what it does not name is an error.
        (_, true) => of_header(path, &names, sample, options)?,
        (Format::Table, false) if options.columns.is_none() => return Err(unknown(path, sample)),
        (Format::Table, false) => HeaderColumns::default(),
        (Format::Snap, false) => snap::columns(sample),
        (format, false) => fixed(format),
    };
    if format == Format::Jodie {
        named.features = jodie::features(named.features, sample);
    }
    let roll = sample.position("ext_roll");
    let mut layout = Resolver { path, names: &names, options }.layout(format, named, sample)?;
    layout.roll = roll;
    layout.check_time(path, sample, options)?;
    layout.notes.extend_from_slice(&sample.notes);
    layout.note_unread(sample);
    if options.time_format.is_none() {
        layout.find_dates(|time| sample.present(time).collect());
    }
    layout.ids = [layout.src, layout.dst].map(|i| IdRule::infer(sample, i));
    layout.tell_kinds(sample, options);
    let is_guessed = options.format.is_none() && options.columns.is_none() && sample.header.is_none();
    match format {
        Format::Snap if is_guessed => layout.notes.extend(snap::doubt(sample)),
        Format::Signed if is_guessed => layout.notes.push(signed::guess(options.bipartite)),
        _ => {}
    }
    Ok(layout)
}

/// Returns the columns of a layout without a header.
fn fixed(format: Format) -> HeaderColumns {
    match format {
        Format::Jodie => jodie::COLUMNS,
        Format::Dyglib => dyglib::COLUMNS,
        Format::Tgl => tgl::COLUMNS,
        Format::Signed => signed::COLUMNS,
        _ => snap::COLUMNS,
    }
}

/// Returns the columns that a header names. Names do not count for a role that the options give.
fn of_header(path: &Path, names: &[String], sample: &Sample, options: &ReadOptions) -> Result<HeaderColumns> {
    let given = options.columns.clone().unwrap_or_default();
    let is_given = |name: &String| match role(name) {
        Role::Src => given.src.is_some(),
        Role::Dst => given.dst.is_some(),
        Role::Label => given.label.is_some(),
        _ => false,
    };
    let rest: Vec<String> =
        names.iter().map(|name| if is_given(name) { String::new() } else { name.clone() }).collect();
    HeaderColumns::find(names, sample)
        .or_else(|_| HeaderColumns::find(&rest, sample))
        .map_err(|what| Error::data(path, what).remedy("name the column with --columns src=NAME"))
}

/// Combines the columns of the options with those of the header or the layout.
struct Resolver<'a> {
    path: &'a Path,
    names: &'a [String],
    options: &'a ReadOptions,
}

impl Resolver<'_> {
    fn layout(&self, format: Format, named: HeaderColumns, sample: &Sample) -> Result<Layout> {
        let given = self.options.columns.clone().unwrap_or_default();
        let one = |given: &Option<ColumnName>, named: Option<usize>| match given {
            Some(column) => self.position(column).map(Some),
            None => Ok(named),
        };
        let time = match &given.time[..] {
            [] => named.time.into_iter().collect(),
            columns => columns.iter().map(|c| self.position(c)).collect::<Result<Vec<_>>>()?,
        };
        let (src, dst) = (one(&given.src, named.src)?, one(&given.dst, named.dst)?);
        let (Some(src), Some(dst), false) = (src, dst, time.is_empty()) else {
            let missing = [
                (src, "source", "src"),
                (dst, "destination", "dst"),
                (time.first().copied(), "time", "time"),
            ];
            let missing = missing.iter().filter(|m| m.0.is_none()).map(|m| (m.1, m.2)).collect::<Vec<_>>();
            return Err(self.missing(&missing));
        };
        let label = one(&given.label, named.label)?;
        let single = [Some(src), Some(dst), label, named.label, named.index];
        let taken: Vec<usize> = single.into_iter().flatten().chain(time.iter().copied()).collect();
        let features = match (&given.features[..], named.features) {
            ([], Some(range)) => without(range, taken),
            ([], None) => {
                let rest = sample.measured.iter().filter(|i| !taken.contains(i));
                rest.map(|i| FeatureColumns::Values(ColumnName::Number(i + 1))).collect()
            }
            (given, _) => given.to_vec(),
        };
        Ok(Layout {
            format,
            names: self.names.to_vec(),
            src,
            dst,
            time,
            dates: None,
            label,
            index: named.index,
            roll: None,
            features,
            ids: Default::default(),
            separate: format == Format::Jodie || named.separate,
            notes: named.notes,
        })
    }

    /// Returns the index of a column.
    fn position(&self, column: &ColumnName) -> Result<usize> {
        given_column(self.path, self.names, column)
    }

    /// Returns the error for columns that neither the options nor the header name.
    fn missing(&self, missing: &[(&str, &str)]) -> Error {
        if self.names.len() == 1 {
            return one_column(self.path, &self.names[0]);
        }
        let what: Vec<&str> = missing.iter().map(|m| m.0).collect();
        let roles: Vec<String> = missing.iter().map(|m| format!("{}=NAME", m.1)).collect();
        let error = Error::data(self.path, format!("no column is named like a {}", what.join(" or a ")));
        let called = |words: &[&str]| {
            self.names
                .iter()
                .find(|name| words.contains(&&*name.to_ascii_lowercase().replace(['_', ' '], "")))
        };
        let days = ["day", "dayofmonth", "mday"];
        if let (Some(year), Some(month), Some(day)) = (called(&["year"]), called(&["month"]), called(&days)) {
            let columns = format!("time={year}+{month}+{day}");
            return error.remedy(format!("give --columns {columns} --time-format '%Y %m %d'"));
        }
        error.remedy(format!("give --columns {}; the columns are {}", roles.join(","), listed(self.names)))
    }
}

/// Returns a range of columns from 0 without those that are `taken` for something else.
fn without((first, last): (usize, Option<usize>), mut taken: Vec<usize>) -> Vec<FeatureColumns> {
    taken.sort_unstable();
    let (mut ranges, mut start) = (Vec::new(), first);
    for at in taken.into_iter().filter(|&at| at >= first && last.is_none_or(|last| at <= last)) {
        ranges.extend((at > start).then(|| FeatureColumns::Range(start + 1, Some(at))));
        start = at + 1;
    }
    let rest = last.is_none_or(|last| start <= last);
    ranges.extend(rest.then(|| FeatureColumns::Range(start + 1, last.map(|last| last + 1))));
    ranges
}

/// Returns the index of a column that the user names.
fn given_column(path: &Path, names: &[String], column: &ColumnName) -> Result<usize> {
    let found = given(names, column).map_err(|e| Error::data(path, e.what).remedy(e.remedy))?;
    found.ok_or_else(|| match names {
        [] => Error::data(path, format!("there is no header to name column `{column}`"))
            .remedy("give the number of the column, from 1"),
        names => Error::data(path, format!("there is no column `{column}`"))
            .remedy(suggestion(names, &column.to_string())),
    })
}

impl Layout {
    /// Refuses a column of times that a header names if it has only a part of them.
    fn check_time(&self, path: &Path, sample: &Sample, options: &ReadOptions) -> Result<()> {
        let is_given = options.columns.as_ref().is_some_and(|columns| !columns.time.is_empty());
        match self.time[..] {
            [time] if !is_given && options.time_format.is_none() && sample.header.is_some() => {
                match split_times::find(&self.names, time, sample) {
                    Some(SplitTime { what, remedy }) => Err(Error::data(path, what).remedy(remedy)),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Returns the columns of source and destination, and the rules for their ids.
    pub(super) fn ends(&self) -> impl Iterator<Item = (usize, IdRule)> {
        [self.src, self.dst].into_iter().zip(self.ids)
    }

    /// Says what columns of types of nodes, such as `src_type` and `dst_type`, mean for equal ids.
    fn tell_kinds(&mut self, sample: &Sample, options: &ReadOptions) {
        let of = |end: usize, other: &str| {
            let own = self.names.get(end).and_then(|name| position(&self.names, &format!("{name}_type")));
            own.or_else(|| position(&self.names, other))
        };
        let (Some(src), Some(dst)) = (of(self.src, "source_type"), of(self.dst, "target_type")) else {
            return;
        };
        let types = |i| sample.present(i).collect::<HashSet<_>>();
        let [src_name, dst_name] = [src, dst].map(|i| self.names[i].as_str());
        let note = match (types(src).is_disjoint(&types(dst)), options.bipartite) {
            (true, Some(_)) => return,
            (true, None) => {
                self.separate = true;
                format!(
                    "by `{src_name}` and `{dst_name}`, sources are other nodes than destinations with equal ids; \
                     --bipartite=false says otherwise"
                )
            }
            (false, _) => format!(
                "`{src_name}` and `{dst_name}` are not read: nodes of different types with equal ids are one node"
            ),
        };
        self.notes.push(note);
    }

    /// Recognises times that are dates written as numbers. Numbers of four and of six digits may also be
    /// steps or seconds, so these count only if the column is called like a date, or if they differ enough.
    /// `sample` returns the first fields of a column.
    pub(super) fn find_dates<'f>(&mut self, sample: impl FnOnce(usize) -> Vec<&'f [u8]>) {
        let [time] = self.time[..] else { return };
        let fields = sample(time);
        let name = self.names.get(time).map_or("", String::as_str);
        let formats = TimeFormat::of_dates(fields.iter().copied());
        let Some(format) = formats.first() else {
            let (format, note) = TimeFormat::of_numbers(name, &fields);
            self.dates = format;
            self.notes.extend(note);
            return;
        };
        let called = name.to_ascii_lowercase();
        let is_called = |words: &[&str]| words.iter().any(|word| called.contains(word));
        let is_date = is_called(&["date", "day", "month", "year", "period"]) || is_named_date(name);
        let first = fields.first().copied().unwrap_or_default();
        let differ = fields.iter().collect::<HashSet<_>>().len() > 2;
        let sure = match &*format.to_string() {
            "%Y" => is_called(&["year"]),
            "%Y%m" => differ || is_date,
            // Day and month may be told apart by later rows only.
            "%d%m%Y" | "%m%d%Y" => is_date && formats.len() == 1,
            "%y%m%d" | "%Y%j" => is_date,
            _ => true,
        };
        let shown = shown(first);
        if sure {
            self.notes.push(format!(
                "{shown} and the other times are read as dates, by --time-format {format}; if they are numbers, \
                 give --time-format s"
            ));
            self.dates = Some(format.clone());
        } else if first.len() >= 6 {
            let formats: Vec<String> = formats.iter().map(ToString::to_string).collect();
            self.notes.push(format!(
                "{shown} is read as a number; if it is a date, give --time-format {}",
                formats.join(" or ")
            ));
        }
    }

    /// Adds a note about the columns that are not read, but for a column without a name that numbers the
    /// rows.
    fn note_unread(&mut self, sample: &Sample) {
        let position = |column: &ColumnName| given(&self.names, column).ok().flatten().unwrap_or(usize::MAX);
        let is_feature = |i: usize| {
            self.features.iter().any(|part| match part {
                FeatureColumns::Range(first, last) => i + 1 >= *first && last.is_none_or(|last| i < last),
                FeatureColumns::Values(c) | FeatureColumns::OneHot(c) | FeatureColumns::Hashed(c, _) => {
                    position(c) == i
                }
            })
        };
        let known = [Some(self.src), Some(self.dst), self.label, self.index];
        let name = |i: usize| self.names.get(i).map_or("", String::as_str);
        let is_empty = |i: usize| name(i).is_empty() && (sample.numbers_rows(i) || sample.is_blank(i));
        let is_read = |&i: &usize| known.contains(&Some(i)) || self.time.contains(&i) || is_feature(i);
        let unread: Vec<String> = (0..self.names.len().max(sample.width()))
            .filter(|i| !is_read(i) && !is_empty(*i) && !name(*i).ends_with("_roll"))
            .map(|i| if name(i).is_empty() { format!("column {}", i + 1) } else { name(i).to_owned() })
            .collect();
        if !unread.is_empty() {
            self.notes.push(format!("columns not read: {}", listed(&unread)));
        }
    }
}

/// Guesses the format, testing the most specific headers first.
fn guess(sample: &Sample) -> Option<Format> {
    match () {
        _ if dyglib::recognises(sample) => Some(Format::Dyglib),
        _ if tgl::recognises(sample) => Some(Format::Tgl),
        _ if jodie::recognises(sample) => Some(Format::Jodie),
        _ if signed::recognises(sample) => Some(Format::Signed),
        _ if sample.header.is_some() => Some(Format::Table),
        _ if snap::recognises(sample) => Some(Format::Snap),
        _ => None,
    }
}

/// Returns the error for a table of one column, whose first field is `text`.
fn one_column(path: &Path, text: &str) -> Error {
    Error::data(path, format!("there is only one column: {}", shown(text.as_bytes())))
        .remedy("give what separates its fields, such as --delimiter '|'")
}

/// Returns the error for a table without a header that fits no layout.
fn unknown(path: &Path, sample: &Sample) -> Error {
    if let [row, ..] = &sample.rows[..]
        && let [field] = &row[..]
    {
        return one_column(path, &String::from_utf8_lossy(field));
    }
    let separator = sample.shape.writing.delimiter.describe();
    let columns = counted(sample.width() as u64, "column");
    let what = format!("no known layout has {columns}, separated by {separator}, without a header");
    Error::data(path, what)
        .remedy("name the layout with --format, or the columns with --columns src=1,dst=2,time=3")
}
