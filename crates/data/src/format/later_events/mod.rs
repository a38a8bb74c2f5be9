//! Events that continue the stream of a data set, row by row: lines of text, JSON lines, and tables with
//! typed columns.
use super::{
    cell::{Cell, Row},
    column_names::{Role, given, listed, role},
    columns::{ColumnName, Columns},
    delimiter::Delimiter,
    fields::{self, Span, Writing},
    header::HeaderColumns,
    id_rule::{IdRule, may_be_missing},
    json_lines::{self, Object},
    later_input::LaterTable,
    number::{Fault, is_number},
    options::{Missing, ReadOptions},
    records::{
        LONGEST_QUOTE, Record, Splitter, excel_delimiter, is_empty, may_be_comment, never_closed,
        text_of_comment,
    },
    sample::Sample,
};
use crate::{
    EncodedColumn, Encoding, FeatureEncoding, LineCounts, NodeId, TimeScale, feature_columns::hash_words,
    text::counted,
};
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    mem,
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};

/// Event of a row.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub struct LaterEvent {
    /// Original id of the source.
    pub src: NodeId,
    /// Original id of the destination; `None` if the row asks for destinations.
    pub dst: Option<NodeId>,
    /// Original ids of the destinations that the row wants to be compared.
    pub candidates: Option<Vec<NodeId>>,
    /// Whether rows have a column of such lists.
    pub has_candidates: bool,
    /// Ticks since the first event of the data set.
    pub time: i64,
    /// Edge features, as many as the data set's edge feature width.
    pub features: Vec<f32>,
    /// `src,dst,time` as written in the row, joined by commas.
    pub text: String,
    /// The time as it is written.
    pub written: String,
}

/// How the events of a data set are written.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct EventFormat {
    /// The data set's times.
    pub scale: TimeScale,
    /// How columns become edge features.
    pub encoding: FeatureEncoding,
    /// Whether the features were columns with names. Others are in their order.
    pub has_names: bool,
    /// The columns that the user named for the data set.
    pub columns: Columns,
    /// The delimiter that the user gave for the data set.
    pub delimiter: Option<Delimiter>,
    /// What to do about missing features.
    pub missing: Missing,
    /// How to read ids.
    pub ids: IdRule,
    /// Whether a row may lack its destination, because it asks for some.
    pub asks: bool,
}

impl EventFormat {
    /// Whether the features are a column of this name, and all columns after it, as in the layout of JODIE.
    fn starts_at(&self, name: &str) -> bool {
        self.has_names && self.encoding.0.first().is_some_and(|column| column.name == name)
    }
}

/// Reader of rows that continue the event stream of a data set. A header must name what an event has.
#[doc(hidden)]
pub struct LaterEvents {
    file: PathBuf,
    /// How lines are written, once it is known.
    lines: Option<Lines>,
    /// Delimiter that the first line names in the way of Excel.
    excel: Option<Delimiter>,
    /// The comments before the first row, of which one may be a header.
    comments: Vec<Vec<u8>>,
    /// Whether there was a row. A line after it is no comment.
    begun: bool,
    line: Vec<u8>,
    fields: Vec<Span>,
    /// The keys of JSON that are read.
    keys: Vec<String>,
    /// Whether no object had a destination yet, so that none names its key.
    asks_only: bool,
    /// Lines of a row whose last field is not closed yet, and the number of the first of them.
    open: Option<(Vec<u8>, u64)>,
    /// Number of the line parsed last, from 1.
    number: u64,
    counts: LineCounts,
    /// Whether the input has lines; a typed table has none.
    has_lines: bool,
    rows: Rows,
}

tgnn::brief_debug!(LaterEvents, events => { file: events.file });

/// Reader of rows, whatever they are.
struct Rows {
    format: EventFormat,
    places: Places,
    counts: Counts,
}

/// How lines are written.
enum Lines {
    Text(Splitter),
    Json,
}

/// Numbers of values that were not read as they are.
#[derive(Default)]
struct Counts {
    missing: u64,
    unknown: u64,
    cut: u64,
    left_out: u64,
    /// Ends by a word that often stands for a missing node, such as `null`.
    words: BTreeMap<String, u64>,
}

/// A part of an event, for errors.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum EventPart {
    /// The source (0) or the destination (1).
    End(usize),
    /// The time.
    Time,
    /// The list of candidates.
    Candidates,
}

/// The row of an event, for errors.
#[doc(hidden)]
pub struct EventRow<'a> {
    row: &'a dyn Row,
    places: &'a Places,
}

tgnn::brief_debug!(EventRow<'_>, _row => {});

impl EventRow<'_> {
    /// Returns a data error at a part of the event.
    #[cold]
    #[doc(hidden)]
    pub fn error(&self, part: EventPart, what: impl Into<String>) -> Error {
        let at = match part {
            EventPart::End(side) => self.places.ends.get(side),
            EventPart::Time => self.places.time.first(),
            EventPart::Candidates => self.places.candidates.as_ref(),
        };
        self.row.error(at.copied(), what.into())
    }
}

/// Places of an event's parts in a row.
struct Places {
    ends: [usize; 2],
    time: Vec<usize>,
    features: Vec<usize>,
    /// The column of candidates.
    candidates: Option<usize>,
    /// The names of the columns, if there is a header.
    names: Vec<String>,
    /// Number of cells of a row.
    width: usize,
    /// Says which columns were chosen although their names do not tell.
    guesses: Vec<String>,
    /// The names of the columns that are not read.
    unread: Vec<String>,
}

impl Places {
    /// Returns the places in rows without a header: source, destination, time and features.
    fn in_order(features: usize) -> Self {
        let features: Vec<usize> = (3..3 + features).collect();
        let width = 3 + features.len();
        let (names, guesses, unread) = (Vec::new(), Vec::new(), Vec::new());
        Places { ends: [0, 1], time: vec![2], features, candidates: None, names, width, guesses, unread }
    }

    /// Returns the places that a header names; the error says what it does not name.
    fn named(names: &[String], format: &EventFormat) -> Result<Self, String> {
        let listed = listed(names);
        let given = |column: &ColumnName| {
            let found = given(names, column).map_err(|e| format!("{}; {}", e.what, e.remedy))?;
            found
                .filter(|i| *i < names.len())
                .ok_or_else(|| format!("the header has no column {column}; its columns are {listed}"))
        };
        let named = HeaderColumns::find(names, &Sample::of_table(names.to_vec(), Vec::new(), Vec::new()))?;
        let one = |column: &Option<ColumnName>, named: Option<usize>, what: &str| match column {
            Some(column) => given(column),
            None => named.ok_or_else(|| format!("the header names no {what}; its columns are {listed}")),
        };
        let columns = &format.columns;
        let ends = [one(&columns.src, named.src, "source")?, one(&columns.dst, named.dst, "destination")?];
        let time = match &columns.time[..] {
            [] => vec![one(&None, named.time, "time")?],
            columns => columns.iter().map(given).collect::<Result<_, _>>()?,
        };
        let is_feature = format.encoding.0.iter().any(|column| column.name == CANDIDATES);
        let lists: Vec<usize> = (0..names.len())
            .filter(|i| !is_feature && names[*i].trim().eq_ignore_ascii_case(CANDIDATES))
            .collect();
        if lists.len() > 1 {
            return Err(format!("the header has {CANDIDATES} twice; its columns are {listed}"));
        }
        let candidates = lists.first().copied();
        let others = [named.label, named.index, candidates].into_iter().flatten();
        let taken: Vec<usize> = ends.iter().chain(&time).copied().chain(others).collect();
        let features = match named.features {
            Some((first, None)) if format.starts_at(&names[first]) => {
                (first..first + format.encoding.0.len()).collect()
            }
            _ => Self::features(names, format, &taken)
                .map_err(|what| format!("{what}; its columns are {listed}"))?,
        };
        let is_read = |i: &usize| taken.contains(i) || features.contains(i) || names[*i].trim().is_empty();
        let unread = (0..names.len()).filter(|i| !is_read(i) || named.label == Some(*i));
        let unread = unread.map(|i| names[i].clone()).collect();
        let width = features.last().map_or(0, |last| last + 1).max(names.len());
        // The rest of a note tells how to name columns of a data set.
        let guesses =
            named.notes.iter().filter_map(|note| Some(note.split_once(';')?.0.to_owned())).collect();
        Ok(Places { ends, time, features, candidates, names: names.to_vec(), width, guesses, unread })
    }

    /// Returns the columns of features; the error names one that is not there, or is there more often than in
    /// the data. Features without names are all columns that are not `taken` by other parts, if there are so
    /// many.
    fn features(names: &[String], format: &EventFormat, taken: &[usize]) -> Result<Vec<usize>, String> {
        // Of several columns with one name, the first feature is the first of them.
        let mut found: Vec<usize> = Vec::new();
        let mut place = |column: &EncodedColumn| {
            let is_called = |name: &str| name.trim().eq_ignore_ascii_case(&column.name);
            let exact = names.iter().any(|name| name.trim() == column.name);
            let at = (0..names.len()).find(|i| {
                let is_it = if exact { names[*i].trim() == column.name } else { is_called(&names[*i]) };
                is_it && !found.contains(i)
            });
            found.extend(at);
            at.ok_or_else(|| format!("the header does not name the feature `{}`", column.name))
        };
        let by_name: Result<Vec<usize>, String> = format.encoding.0.iter().map(&mut place).collect();
        if by_name.is_ok() {
            let is_known = |i: &usize| found.contains(i) || taken.contains(i);
            let again = (0..names.len())
                .filter(|i| !is_known(i))
                .find(|i| found.iter().any(|f| names[*f] == names[*i]));
            if let Some(i) = again {
                return Err(format!("the header has the feature `{}` more often than the data", names[i]));
            }
        }
        if by_name.is_ok() || format.has_names {
            return by_name;
        }
        let others: Vec<usize> = (0..names.len()).filter(|i| !taken.contains(i)).collect();
        if others.len() == format.encoding.0.len() { Ok(others) } else { by_name }
    }
}

impl LaterEvents {
    /// Creates a reader of the rows of `file`.
    #[doc(hidden)]
    pub fn new(file: &Path, format: EventFormat) -> Self {
        let places = Places::in_order(format.encoding.0.len());
        let rows = Rows { format, places, counts: Counts::default() };
        LaterEvents {
            file: file.to_owned(),
            lines: None,
            excel: None,
            comments: Vec::new(),
            begun: false,
            line: Vec::new(),
            fields: Vec::new(),
            keys: Vec::new(),
            asks_only: false,
            open: None,
            number: 0,
            counts: LineCounts::default(),
            has_lines: true,
            rows,
        }
    }

    /// Reads the next line, given without its line end, and calls `take` with its event, unless the line is
    /// blank, the header or a comment before the first row, or ends within a quoted field.
    #[doc(hidden)]
    pub fn line(&mut self, line: &[u8], take: &mut Take<'_>) -> Result<()> {
        self.number += 1;
        if let Some((mut row, first)) = self.open.take() {
            row.push(b'\n');
            row.extend_from_slice(line);
            return self.row(&row, first, take);
        }
        let line = if self.number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if is_empty(line) {
            self.counts.blank += 1;
            return Ok(());
        }
        if self.number == 1 && excel_delimiter(line).is_some() {
            self.excel = excel_delimiter(line);
            self.counts.comments += 1;
            return Ok(());
        }
        if !self.begun && may_be_comment(line) && !self.is_row(line) {
            self.comments.push(line.to_vec());
            self.counts.comments += 1;
            return Ok(());
        }
        self.row(line, self.number, take)
    }

    /// Checks that no field is open at the end of the input.
    #[doc(hidden)]
    pub fn finish(&self) -> Result<()> {
        match (&self.open, &self.lines) {
            (Some((row, first)), Some(Lines::Text(splitter))) => {
                Err(never_closed(row, splitter.writing, (&self.file, *first)))
            }
            _ => Ok(()),
        }
    }

    /// Reads a row, whose first line has the number `from`.
    fn row(&mut self, line: &[u8], from: u64, take: &mut Take<'_>) -> Result<()> {
        let lines = self.number + 1 - from;
        let first = self.lines.is_none() || !self.begun && self.counts.header == 0;
        if self.lines.is_none() {
            self.lines = Some(Lines::recognise(line, self.rows.format.delimiter.or(self.excel)));
        }
        self.line.clear();
        self.line.extend_from_slice(line);
        let place = (&*self.file, from);
        match &mut self.lines {
            Some(Lines::Text(splitter)) => {
                if !splitter.split(&mut self.line, &mut self.fields, place)? {
                    if line.len() > LONGEST_QUOTE {
                        return Err(never_closed(&self.line, splitter.writing, place));
                    }
                    self.open = Some((line.to_vec(), from));
                    return Ok(());
                }
                let row = Record::of_line(&self.line, &self.fields, place);
                if first {
                    if self.rows.is_header(&row, place)? {
                        self.counts.header += lines;
                        return Ok(());
                    }
                    if self.rows.take_comment(&mem::take(&mut self.comments), splitter.writing, row.len()) {
                        self.counts.comments -= 1;
                        self.counts.header += 1;
                    }
                }
                self.begun = true;
                self.counts.events += lines * self.rows.row(&row, None, take)?;
            }
            _ => {
                let object = json_lines::parse(&self.file, self.number, line)?;
                if first || self.asks_only {
                    (self.keys, self.asks_only) = self.rows.keys(&object);
                    self.rows.start_objects(&self.keys, self.asks_only, place)?;
                }
                self.begun = true;
                self.rows.check_destination(&object, &self.keys, place)?;
                let (path, number, names) = (place.0, place.1, &*self.keys);
                let row = Object { path, number, names, object: &object };
                self.counts.events += self.rows.row(&row, object.get(CANDIDATES), take)?;
            }
        }
        Ok(())
    }

    /// Whether a line that starts like a comment is a row, or a line of JSON.
    fn is_row(&mut self, line: &[u8]) -> bool {
        let writing = match &self.lines {
            Some(Lines::Text(splitter)) => splitter.writing,
            Some(Lines::Json) => return true,
            None => {
                let given = self.rows.format.delimiter.or(self.excel);
                Writing::of(given.unwrap_or_else(|| Delimiter::of_lines(&[line])))
            }
        };
        fields::split(line, writing, &mut self.fields);
        let (fields, times) = (&self.fields, &self.rows.places.time);
        let parts: Vec<&[u8]> =
            times.iter().filter_map(|i| fields.get(*i)).map(|&(a, b)| &line[a..b]).collect();
        let is_time = self.rows.format.scale.format.parse(&parts.join(&b' ')).is_ok();
        fields.len() == self.rows.places.width && is_time
    }

    /// Reads the rows of a table that is no text, and calls `take` with every event.
    #[doc(hidden)]
    pub fn table(&mut self, source: LaterTable, take: &mut Take<'_>) -> Result<()> {
        let format = &self.rows.format;
        let options = ReadOptions {
            columns: Some(format.columns.clone()).filter(|columns| *columns != Columns::default()),
            time_format: Some(format.scale.format.clone()),
            ..ReadOptions::default()
        };
        let sample = source.0.sample(&options)?;
        if let Some(names) = &sample.header {
            self.rows.start(names, (&self.file, 0))?;
        }
        self.rows.places.guesses.extend_from_slice(&sample.notes);
        let left_out = self.rows.counts.left_out;
        let outcome = source.0.for_each(&sample, &mut |row| self.rows.row(row, None, take).map(drop))?;
        self.rows.places.guesses.extend(outcome.late.note());
        self.has_lines = outcome.lines.is_some();
        if let Some(mut lines) = outcome.lines {
            // A row that lacks a value is one of events there.
            lines.events = lines.events.saturating_sub(self.rows.counts.left_out - left_out);
            self.counts += lines;
        }
        Ok(())
    }

    /// Whether there was a row, so that it is known what the columns are.
    #[doc(hidden)]
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether rows have a column of candidates.
    #[doc(hidden)]
    pub fn has_candidates(&self) -> bool {
        self.rows.places.candidates.is_some()
    }

    /// Returns what became of the lines that were given.
    #[doc(hidden)]
    pub fn lines(&self) -> LineCounts {
        match self.has_lines {
            true => LineCounts { incomplete: self.rows.counts.left_out, ..self.counts },
            false => LineCounts::default(),
        }
    }

    /// Returns notes about values that were not read as they are.
    #[doc(hidden)]
    pub fn notes(&self) -> Vec<String> {
        let Places { guesses, unread, .. } = &self.rows.places;
        let unread = (!unread.is_empty()).then(|| format!("columns not read: {}", listed(unread)));
        [guesses.clone(), unread.into_iter().collect(), self.rows.counts.notes()].concat()
    }
}

impl Rows {
    /// Takes the names of the columns from a header in a line of a file.
    fn start(&mut self, names: &[String], (file, line): (&Path, u64)) -> Result<()> {
        self.places = Places::named(names, &self.format)
            .map_err(|what| Error::data(file, what).at(line, 0).remedy(HEADER))?;
        Ok(())
    }

    /// Takes the names of the columns from the keys of an object. A question may lack those of the features.
    fn start_objects(&mut self, keys: &[String], asks: bool, place: (&Path, u64)) -> Result<()> {
        let features = self.format.encoding.clone();
        if asks {
            self.format.encoding = FeatureEncoding::numbers(0);
        }
        let started = self.start(keys, place);
        self.format.encoding = features;
        started
    }

    /// Returns the keys of objects that are read: those of the first one, and those that it may lack. Also
    /// returns whether it is a question, which may lack the destination and the features.
    fn keys(&self, first: &Map<String, Value>) -> (Vec<String>, bool) {
        let mut keys: Vec<String> = first.keys().cloned().collect();
        let features = self.format.encoding.0.iter().filter(|_| self.format.has_names);
        for name in features.map(|column| &*column.name).chain(self.format.columns.names()) {
            if !keys.iter().any(|key| key.eq_ignore_ascii_case(name)) {
                keys.push(name.to_owned());
            }
        }
        let destination = match &self.format.columns.dst {
            Some(column) => given(&keys, column).ok().flatten(),
            None => {
                let sample = Sample::of_table(keys.clone(), Vec::new(), Vec::new());
                HeaderColumns::find(&keys, &sample).ok().and_then(|named| named.dst)
            }
        };
        let value = destination.and_then(|i| first.get(&keys[i]));
        let asks = self.format.asks && value.is_none_or(|value| value.is_null() || value == "");
        keys.extend((asks && destination.is_none()).then(|| DESTINATION.to_owned()));
        (keys, asks)
    }

    /// Refuses an object that has its destination under another key than the first ones: it is no question.
    fn check_destination(
        &self,
        object: &Map<String, Value>,
        keys: &[String],
        (file, line): (&Path, u64),
    ) -> Result<()> {
        let known = &keys[self.places.ends[1]];
        let is_other = |key: &&String| role(key) == Role::Dst && !keys.contains(key);
        match object.keys().find(is_other).filter(|_| !object.contains_key(known)) {
            Some(key) => {
                Err(Error::data(file, format!("the destination is `{known}` in earlier lines, here `{key}`"))
                    .at(line, 0)
                    .remedy("call it the same in all lines"))
            }
            None => Ok(()),
        }
    }

    /// Takes the last comment before the first row, of `width` fields, that names all parts for a header.
    /// Returns whether there is one.
    fn take_comment(&mut self, comments: &[Vec<u8>], writing: Writing, width: usize) -> bool {
        let named = |comment: &Vec<u8>| {
            let (text, mut spans) = (text_of_comment(comment), Vec::new());
            [writing.delimiter, Delimiter::of_lines(&[text])].into_iter().find_map(|delimiter| {
                fields::split(text, Writing::of(delimiter), &mut spans);
                let name = |&(a, b): &Span| String::from_utf8_lossy(&text[a..b]).into_owned();
                let names: Vec<String> = spans.iter().map(name).collect();
                let places = Places::named(&names, &self.format).ok().filter(|_| names.len() == width);
                places.filter(|places| places.guesses.is_empty())
            })
        };
        let places = comments.iter().rev().find_map(named);
        places.map(|places| self.places = places).is_some()
    }

    /// Whether the first row is a header, from which it takes the names of the columns.
    fn is_header(&mut self, row: &Record<'_>, place: (&Path, u64)) -> Result<bool> {
        let names: Vec<String> =
            (0..row.len()).map(|i| String::from_utf8_lossy(row.field(i)).into_owned()).collect();
        let is_time = |i: usize| self.format.scale.parse(row.field(i)).is_ok();
        match Places::named(&names, &self.format) {
            Ok(places) if places.guesses.is_empty() && !places.time.iter().any(|&i| is_time(i)) => {
                self.places = places;
            }
            _ if (0..row.len()).any(|i| is_number(row.field(i)) || is_time(i)) => return Ok(false),
            _ => self.start(&names, place)?,
        }
        Ok(true)
    }

    /// Calls `take` with the event of a row, whose candidates a line of JSON has as `listed`. Returns the
    /// number of events: 0 if the row is left out.
    fn row(&mut self, row: &dyn Row, listed: Option<&Value>, take: &mut Take<'_>) -> Result<u64> {
        if let Some(mut event) = self.event(row)? {
            event.candidates = self.candidates(row, listed)?;
            take(event, &EventRow { row, places: &self.places })?;
            return Ok(1);
        }
        self.counts.left_out += 1;
        Ok(0)
    }

    /// Returns the event of a row; `None` if it is to be left out because it lacks a feature.
    fn event(&mut self, row: &dyn Row) -> Result<Option<LaterEvent>> {
        self.check_width(row)?;
        let [src, dst] = self.places.ends;
        let ids = self.format.ids;
        let asks = self.format.asks && matches!(row.cell(dst), Cell::Missing | Cell::Text(b""));
        for i in [src, dst] {
            if ids.is_doubtful(&row.cell(i)) {
                return Err(row
                    .error(Some(i), "-1 is not a node id among numbers from 0".into())
                    .remedy(IDS));
            }
        }
        let source: NodeId = ids.node(row, src, IDS)?.into();
        let destination: Option<NodeId> = if asks { None } else { Some(ids.node(row, dst, IDS)?.into()) };
        for id in [Some(&source), destination.as_ref()].into_iter().flatten() {
            if let NodeId::Text(word) = id
                && may_be_missing(word)
            {
                *self.counts.words.entry(word.to_string()).or_default() += 1;
            }
        }
        let (time, written) = self.time(row)?;
        // A question becomes no event, so that it needs no features.
        let features = if asks { Some(Vec::new()) } else { self.features(row)? };
        let Some(features) = features else { return Ok(None) };
        let [src, dst] = [src, dst].map(|i| match row.cell(i) {
            Cell::Text(field) => String::from_utf8_lossy(field).into_owned(),
            cell => cell.text().map(Cow::into_owned).unwrap_or_default(),
        });
        let text = [src, dst, written.clone()].map(quoted).join(",");
        Ok(Some(LaterEvent {
            src: source,
            dst: destination,
            candidates: None,
            has_candidates: self.places.candidates.is_some(),
            time,
            features,
            text,
            written,
        }))
    }

    /// Returns the candidates of a row: those `listed` in JSON, or in the text of their column a list of JSON
    /// or ids with commas between them.
    fn candidates(&self, row: &dyn Row, listed: Option<&Value>) -> Result<Option<Vec<NodeId>>> {
        let column = self.places.candidates;
        let wrong = |what: &str| row.error(column, format!("the candidates are {what}")).remedy(LIST);
        let parsed;
        let listed = match (listed, column.map(|i| row.cell(i))) {
            (Some(listed), _) => listed,
            (None, Some(Cell::Text(text))) if text.trim_ascii().starts_with(b"[") => {
                let text = String::from_utf8_lossy(text);
                parsed = serde_json::from_str(&text).map_err(|_| wrong("no list of JSON"))?;
                &parsed
            }
            (None, Some(cell)) if cell.is_missing() => return Ok(None),
            (None, Some(Cell::Text(text))) => {
                let text = String::from_utf8_lossy(text);
                let ids = text.split(',').map(str::trim).map(|id| match id.is_empty() {
                    true => Err(wrong("no ids: one is empty")),
                    false => Ok(NodeId::parse(id)),
                });
                return ids.collect::<Result<_>>().map(Some);
            }
            (None, Some(Cell::Number(number))) => {
                return Ok(Some(vec![NodeId::parse(
                    &Cell::Number(number).text().map_err(|_| wrong("no ids"))?,
                )]));
            }
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(wrong("no list of ids")),
        };
        let id = |value: &Value| match value {
            Value::String(text) if text.trim().is_empty() => Err(wrong("no ids: one is empty")),
            Value::String(text) => Ok(NodeId::parse(text)),
            Value::Number(number) => Ok(NodeId::parse(&number.to_string())),
            _ => Err(wrong("no ids")),
        };
        match listed {
            Value::Null => Ok(None),
            Value::Array(ids) => ids.iter().map(id).collect::<Result<_>>().map(Some),
            _ => Err(wrong("no list")),
        }
    }

    /// Checks the number of cells of a row.
    fn check_width(&self, row: &dyn Row) -> Result<()> {
        if row.len() == self.places.width {
            return Ok(());
        }
        let columns = self.format.encoding.0.iter().map(|column| format!(",{}", column.name));
        let remedy = match self.places.names[..] {
            [] => format!("give src,dst,time{}", columns.collect::<String>()),
            _ => format!("give the {} fields of the header", self.places.width),
        };
        Err(row.error(None, counted(row.len() as u64, "field")).remedy(remedy))
    }

    /// Returns the time of a row, in ticks and as it is written.
    fn time(&mut self, row: &dyn Row) -> Result<(i64, String)> {
        let (scale, parts) = (&self.format.scale, &self.places.time);
        let fault = |what: String| row.error(parts.first().copied(), what).remedy(scale.remedy());
        let texts: Vec<Cow<'_, str>> =
            parts.iter().map(|&i| row.cell(i).text().unwrap_or_default()).collect();
        let joined = texts.join(" ");
        let cell = match parts[..] {
            [i] => row.cell(i),
            _ => Cell::Text(joined.as_bytes()),
        };
        let time = cell.time(&scale.format).map_err(|f| fault(cell.describe(f, "a time")))?;
        let ticks = scale.to_ticks(time).or_else(|| {
            self.counts.cut += 1;
            scale.cut(time)
        });
        let ticks = ticks.ok_or_else(|| {
            let per_second = scale.ticks_per_second;
            fault(format!(
                "{} is not a valid time of the data set (ticks per second: {per_second})",
                cell.shown()
            ))
        })?;
        Ok((ticks, if matches!(cell, Cell::Time(_)) { scale.text(ticks) } else { joined }))
    }

    /// Returns the features of a row; `None` if one is missing and the row is to be left out.
    fn features(&mut self, row: &dyn Row) -> Result<Option<Vec<f32>>> {
        let mut features = Vec::with_capacity(self.format.encoding.width());
        for (&i, column) in self.places.features.iter().zip(&self.format.encoding.0) {
            let cell = row.cell(i);
            let fault = |f| row.error(Some(i), cell.describe(f, "an edge feature"));
            match (cell.is_missing(), self.format.missing) {
                (true, Missing::Refuse) => return Err(fault(Fault::Empty).remedy(REFUSED)),
                (true, Missing::Drop) => return Ok(None),
                _ => {}
            }
            let known = encode(&cell, &column.values, &mut features).map_err(|f| fault(f).remedy(VALUES))?;
            self.counts.missing += u64::from(!known && cell.is_missing());
            self.counts.unknown += u64::from(!known && !cell.is_missing());
        }
        Ok(Some(features))
    }
}

impl Counts {
    fn notes(&self) -> Vec<String> {
        let Counts { missing, unknown, cut, left_out, .. } = *self;
        let of_word = |(word, &count): (&String, &u64)| {
            let ends = counted(count, "end");
            format!(
                "`{word}` is a node, at {ends} of events: if that means a missing node, leave out such lines"
            )
        };
        let values = counted(unknown, "category value");
        [
            (missing, format!("{} read as 0", counted(missing, "missing feature"))),
            (unknown, format!("{values} that training did not have: read as zeros")),
            (cut, format!("{} cut to the ticks of the data", counted(cut, "time"))),
            (left_out, format!("left out {} with a missing value", counted(left_out, "row"))),
        ]
        .into_iter()
        .filter_map(|(count, note)| (count > 0).then_some(note))
        .chain(self.words.iter().map(of_word))
        .collect()
    }
}

/// What receives each event.
pub(crate) type Take<'a> = dyn FnMut(LaterEvent, &EventRow<'_>) -> Result<()> + 'a;

/// The name of the column or key with the candidates of a row.
const CANDIDATES: &str = "candidates";
/// The key of the destination that questions lack.
const DESTINATION: &str = "dst";
const LIST: &str =
    "give a list such as [\"p9\", \"p4\"], or in CSV a quoted field with commas, such as \"p9,p4\"";
const IDS: &str = "give the id of a node, as in the data";
const VALUES: &str = "give a finite number, as in the data";
const HEADER: &str = "name the columns as in the data, or leave out the header";
const REFUSED: &str = "fill it in: the data were read with --missing refuse";

impl Lines {
    /// Recognises how lines are written, by the first.
    fn recognise(line: &[u8], delimiter: Option<Delimiter>) -> Self {
        match line.trim_ascii_start().first() {
            // A list is an error of its parser.
            Some(b'{' | b'[') => Lines::Json,
            _ => {
                let delimiter = delimiter.unwrap_or_else(|| Delimiter::of_lines(&[line]));
                Lines::Text(Splitter::new(Writing::of(delimiter)))
            }
        }
    }
}

/// Returns a field of a table whose delimiter is a comma: in quotes where it needs them.
fn quoted(field: String) -> String {
    let is_plain = !field.contains([',', '"', '\n', '\r']) && !may_be_comment(field.as_bytes());
    if is_plain { field } else { format!("\"{}\"", field.replace('"', "\"\"")) }
}

/// Appends the features in a cell. Returns false if it has none, and they are zeros: if it is missing, or a
/// category that training did not have.
fn encode(cell: &Cell<'_>, values: &Encoding, to: &mut Vec<f32>) -> Result<bool, Fault> {
    Ok(match (values, cell) {
        (Encoding::Numbers(_), Cell::List(list)) if list.iter().any(|v| v.is_infinite()) => {
            return Err(Fault::NotFinite);
        }
        (Encoding::Numbers(width), Cell::List(list)) if list.len() == *width => {
            to.extend(list.iter().map(|v| if v.is_nan() { 0.0 } else { *v }));
            true
        }
        (Encoding::Numbers(width), cell) if *width == 1 || cell.is_missing() => {
            let value = cell.value()?;
            to.resize(to.len() + width, value.unwrap_or(0.0));
            value.is_some()
        }
        (Encoding::Numbers(_), _) => return Err(Fault::Text),
        (Encoding::OneHot(categories), cell) => {
            let category = cell.text()?;
            to.extend(categories.iter().map(|name| if **name == *category { 1.0 } else { 0.0 }));
            categories.iter().any(|name| **name == *category)
        }
        (Encoding::Hashed(buckets), cell) => {
            let text = cell.text()?;
            hash_words(&text, *buckets, to);
            !text.is_empty()
        }
    })
}

#[cfg(test)]
mod tests;
