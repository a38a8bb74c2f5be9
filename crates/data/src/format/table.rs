//! Reader of every table with one event per row.
use super::{
    cell::{Cell, Row, comma_remedy},
    feature_values::{FeatureValues, no_column},
    id_rule::{IdRule, is_inexact, missing_names, same_numbers},
    label_values::LabelValues,
    layout::Layout,
    number::{Clock, Fault, parse_id},
    options::{Format, Missing, ReadOptions},
    records::{Record, wrong_width},
    tgl,
};
use crate::{
    ids::{IdColumns, IdField},
    raw::{self, Raw},
    scalar::Scalar,
    text::{counted, shown},
    time_format::{TimeFormat, has_zone},
};
use std::{
    borrow::Cow,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};
use tgnn::error::{Error, Result};

/// Remedies for fields that are not an id, a time or a feature.
pub(super) const IDS: &str = "ids are integers from 0";
pub(super) const TIMES: &str = "write seconds, as an integer or a decimal number";
pub(super) const VALUES: &str = "write a finite number";
/// Remedy for a cell that is missing.
pub(super) const MISSING: &str = "fill it in, or leave out such rows with --missing drop";

/// 2^24: from here on, 32-bit floats do not tell whole numbers apart.
const EXACT: f32 = 16_777_216.0;

/// Number of rows that this process has read.
static ROWS: AtomicU64 = AtomicU64::new(0);

/// Returns about how many rows of tables this process has read so far, to show how far a large one is.
#[doc(hidden)]
pub fn rows_read() -> u64 {
    ROWS.load(Ordering::Relaxed)
}

/// Adds rows to those that this process has read.
pub(super) fn add_rows_read(rows: u64) {
    ROWS.fetch_add(rows, Ordering::Relaxed);
}

/// Events from the rows of a table, read so far.
pub(super) struct Table<'a> {
    layout: &'a Layout,
    /// Receives the ids row by row, and the rest in [`finish`](Self::finish).
    raw: Raw,
    options: &'a ReadOptions,
    /// How times are written, once it is known.
    time_format: Option<TimeFormat>,
    clock: Clock,
    /// Whether a time was a typed value, which has no format.
    has_timestamps: bool,
    labels: LabelValues,
    /// Features and number of cells of a row, set by the first row.
    features: Option<(FeatureValues, usize)>,
    /// Numbers of events of each part of the split.
    rolls: [u64; 3],
    /// Event numbers, if there is a column of them.
    numbers: Vec<u64>,
    /// The first id that is not a number, and whether there were ids in rows before.
    first_text: Option<(String, bool)>,
    /// Number of ids that are -1 among numbers from 0 on, and of those that are floats beyond 2^53.
    doubtful: u64,
    inexact: u64,
    times: TimeCounts,
    /// Number of ids such as `7.0`, and the first of them.
    pointed: u64,
    first_pointed: Option<String>,
}

impl<'a> Table<'a> {
    /// Starts without rows.
    pub(super) fn new(path: &Path, layout: &'a Layout, options: &'a ReadOptions) -> Self {
        Table {
            layout,
            raw: Raw::new(path),
            options,
            time_format: options.time_format.clone().or_else(|| layout.dates.clone()),
            clock: Clock::default(),
            has_timestamps: false,
            labels: LabelValues::default(),
            features: None,
            rolls: [0; 3],
            numbers: Vec::new(),
            first_text: None,
            doubtful: 0,
            inexact: 0,
            times: TimeCounts::default(),
            pointed: 0,
            first_pointed: None,
        }
    }

    /// Appends the event of a row.
    pub(super) fn push(&mut self, row: &dyn Row) -> Result<()> {
        if self.features.is_none() {
            self.check_columns(row)?;
            let features = FeatureValues::new(row, &self.layout.features, &self.layout.names)?;
            self.features = Some((features, row.len()));
        }
        if row.lines() > 1 {
            self.raw.long_rows.push((self.raw.rows(), row.lines()));
        }
        match &self.features {
            Some((_, width)) if row.len() != *width => {
                return Err(wrong_width(row, *width, "the first one has"));
            }
            _ => {}
        }
        if self.options.missing == Missing::Drop && self.lacks(row) {
            self.raw.left_out.push(self.raw.rows());
            return Ok(());
        }
        let Some((features, _)) = &mut self.features else { return Ok(()) };
        if self.options.missing == Missing::Refuse
            && let Some(i) = features.missing_in(row)
        {
            let what = row.cell(i).describe(Fault::Empty, "a feature");
            return Err(row.error(Some(i), what).remedy(MISSING));
        }
        features.push(row)?;
        let layout = self.layout;
        let [src_rule, dst_rule] = layout.ids;
        let (src, dst) = (src_rule.node(row, layout.src, MISSING)?, dst_rule.node(row, layout.dst, MISSING)?);
        for (cell, rule) in layout.ends().map(|(i, rule)| (row.cell(i), rule)) {
            self.doubtful += u64::from(rule.is_doubtful(&cell));
            self.inexact += u64::from(is_inexact(&cell));
            if let Some(field) = pointed(&cell) {
                self.pointed += 1;
                self.first_pointed.get_or_insert_with(|| shown(field));
            }
        }
        if self.first_text.is_none() {
            let later = !self.raw.ids.src.is_empty();
            self.first_text = [&src, &dst].into_iter().find_map(|id| match id {
                IdField::Text(text) => Some((text.to_string(), later)),
                IdField::Number(_) => None,
            });
        }
        self.raw.ids.push(src, dst);
        self.push_time(row)?;
        if let Some(i) = layout.label {
            self.labels.push(row, i, self.options.missing)?;
        }
        self.push_numbers(row)
    }

    /// Whether a row lacks a value without which it is no event. Without a label, it still is one.
    fn lacks(&self, row: &dyn Row) -> bool {
        let layout = self.layout;
        let lacks_id = |(i, rule): (usize, IdRule)| {
            let cell = row.cell(i);
            rule.lacks(&cell) || rule.is_doubtful(&cell)
        };
        layout.time.iter().any(|&i| row.cell(i).is_missing())
            || self.features.iter().any(|(features, _)| features.missing_in(row).is_some())
            || layout.ends().any(lacks_id)
    }

    /// Starts without rows, to read rows that follow those of this table; `None` if they must be read in
    /// order.
    pub(super) fn like(&self) -> Option<Self> {
        let (features, width) = self.features.as_ref().filter(|_| !self.options.strict)?;
        Some(Table {
            time_format: self.time_format.clone(),
            labels: self.labels.like(),
            features: Some((features.like(), *width)),
            raw: Raw { ids: IdColumns::of_block(), ..Raw::new(&self.raw.file) },
            ..Table::new(&self.raw.file, self.layout, self.options)
        })
    }

    /// Whether the rows of `other` are read as they would be in this table, which they follow.
    pub(super) fn fits(&self, other: &Self) -> bool {
        let features = match (&self.features, &other.features) {
            (Some((own, _)), Some((other, _))) => own.fits(other),
            _ => false,
        };
        features && self.labels.fits(&other.labels) && self.clock.fits(&other.clock)
    }

    /// Appends the rows of `other`, which [`fits`](Self::fits).
    pub(super) fn append(&mut self, other: Self) {
        let before = self.raw.rows();
        self.raw.left_out.extend(other.raw.left_out.iter().map(|row| before + row));
        self.raw.long_rows.extend(other.raw.long_rows.iter().map(|(row, lines)| (before + row, *lines)));
        if self.first_text.is_none() {
            let later = !self.raw.ids.src.is_empty();
            self.first_text = other.first_text.map(|(text, after)| (text, after || later));
        }
        self.raw.ids.append(other.raw.ids);
        self.clock.append(other.clock);
        self.labels.append(other.labels);
        if let (Some((own, _)), Some((other, _))) = (&mut self.features, other.features) {
            own.append(other);
        }
        self.rolls.iter_mut().zip(other.rolls).for_each(|(own, other)| *own += other);
        self.numbers.extend(other.numbers);
        self.has_timestamps |= other.has_timestamps;
        self.doubtful += other.doubtful;
        self.inexact += other.inexact;
        self.times.append(other.times);
        self.pointed += other.pointed;
        self.first_pointed = self.first_pointed.take().or(other.first_pointed);
    }

    /// Checks that the columns of the layout exist in a row.
    fn check_columns(&self, row: &dyn Row) -> Result<()> {
        let l = self.layout;
        let times = l.time.iter().map(|&i| (Some(i), "time"));
        let single = [
            (Some(l.src), "source"),
            (Some(l.dst), "destination"),
            (l.label, "label"),
            (l.index, "event number"),
        ];
        match single.into_iter().chain(times).find(|(i, _)| i.is_some_and(|i| i >= row.len())) {
            Some((Some(i), what)) => Err(no_column(row, i + 1, what)),
            _ => Ok(()),
        }
    }

    /// Appends the time of a row.
    fn push_time(&mut self, row: &dyn Row) -> Result<()> {
        let parts = &self.layout.time;
        let joined;
        let cell = match parts[..] {
            [i] => row.cell(i),
            _ => {
                let texts: Vec<Cow<'_, str>> = parts
                    .iter()
                    .map(|&i| {
                        row.cell(i).text().map_err(|f| row.error(Some(i), row.cell(i).describe(f, "a time")))
                    })
                    .collect::<Result<_>>()?;
                joined = texts.join(" ");
                Cell::Text(joined.as_bytes())
            }
        };
        let format = self.time_format.get_or_insert_with(|| match &cell {
            Cell::Text(field) => TimeFormat::guess(field),
            Cell::Number(value) => TimeFormat::guess(value.text().as_bytes()),
            _ => TimeFormat::Iso,
        });
        self.has_timestamps |= matches!(cell, Cell::Time(_));
        self.times.add(&cell, format);
        let at = parts.first().copied();
        let is_guessed = self.options.time_format.is_none() && self.layout.dates.is_some();
        let fault = |f: Fault| {
            let missing = f == Fault::Empty;
            let remedy = match comma_remedy(&cell) {
                _ if missing => MISSING.into(),
                Some(remedy) => remedy.into(),
                None if is_guessed => format!("{}, or give --time-format s", remedy(format)),
                None => remedy(format),
            };
            row.error(at, cell.describe(f, "a time")).remedy(cell.remedy(&remedy))
        };
        let late = cell.time(format).and_then(|time| self.clock.push(time)).map_err(fault)?;
        if late && self.options.strict {
            let e = row.error(at, "this event is earlier than one before it".to_owned());
            return Err(e.remedy("sort the file by time, or leave out --strict"));
        }
        Ok(())
    }

    /// Counts the part and the event number of a row.
    fn push_numbers(&mut self, row: &dyn Row) -> Result<()> {
        if let Some(i) = self.layout.roll {
            let roll = whole(row, i, "a part", "write 0, 1 or 2")?;
            let count = usize::try_from(roll).ok().and_then(|roll| self.rolls.get_mut(roll));
            let too_large = || row.error(Some(i), row.cell(i).describe(Fault::TooLarge, "a part"));
            *count.ok_or_else(|| too_large().remedy("write 0, 1 or 2"))? += 1;
        }
        if let Some(i) = self.layout.index {
            self.numbers.push(whole(row, i, "an event number", IDS)?);
        }
        Ok(())
    }

    /// Returns the events.
    pub(super) fn finish(self) -> Result<Raw> {
        let note = self.notes();
        let mut raw = self.raw;
        raw.notes = note;
        raw.unnamed = self.layout.format == Format::Snap;
        // Feature files are joined by position if event numbers are consecutive, else by number.
        raw.numbers = Some(self.numbers).filter(|numbers| !are_consecutive(numbers, &raw));
        if self.layout.label.is_some() {
            let (labels, notes) = self.labels.finish();
            raw.label = Some(labels);
            raw.notes.extend(notes);
        }
        if let Some((features, _)) = self.features {
            (raw.edge_features, raw.encoding) = features.finish(&self.layout.names)?.unzip();
        }
        raw.ticks_per_second = self.clock.ticks_per_second();
        raw.time = self.clock.ticks;
        raw.time_format = self.time_format.unwrap_or_default();
        raw.separate = self.layout.separate;
        Ok(raw)
    }

    /// Returns what the user should know about the rows.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.layout.roll.map(|_| tgl::note(self.rolls)));
        notes.extend(raw::left_out_note(self.raw.left_out.len()));
        let filled = self.features.as_ref().map_or(0, |(features, _)| features.missing);
        if filled > 0 {
            let were = counted(filled, "missing feature");
            notes.push(format!("{were} read as 0; --missing drop leaves out such rows"));
        }
        if let Some((text, true)) = &self.first_text {
            let text = shown(text.as_bytes());
            notes.push(format!("ids are text, because of {text}; those before it were numbers"));
        }
        if let Some(names) = &self.raw.ids.names {
            notes.extend(self.first_pointed.as_ref().map(|first| {
                let ids = counted(self.pointed, "id");
                format!("{ids} such as {first} read as whole numbers, without the point: `1` and `1.0` are one node")
            }));
            notes.extend(same_numbers(names));
            let ends = self.raw.ids.src.iter().chain(&self.raw.ids.dst);
            notes.extend(missing_names(names, ends, self.raw.ids.src.len()));
        }
        if self.doubtful > 0 {
            let were = counted(self.doubtful, "id");
            notes.push(format!("{were} `-1` among ids from 0: if that means a missing node, --missing drop leaves out such rows"));
        }
        if self.inexact > 0 {
            let were = counted(self.inexact, "id");
            notes.push(format!("{were} above 2^53 in a column of floats, which cannot tell neighbours apart: save ids as integers or text"));
        }
        notes
            .extend(self.features.as_ref().and_then(|(features, _)| features.note_large(&self.layout.names)));
        notes.extend(self.time_notes());
        notes.extend_from_slice(&self.layout.notes);
        notes
    }

    /// Returns what the user should know about the times.
    fn time_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match (&self.time_format, self.options.time_format.as_ref().or(self.layout.dates.as_ref())) {
            (Some(TimeFormat::Seconds | TimeFormat::Iso | TimeFormat::Pattern(_)) | None, _)
            | (_, Some(_)) => {}
            (Some(unit), None) => notes.push(format!(
                "times read in {}, by their size; else give --time-format s",
                unit.described()
            )),
        }
        notes.extend(self.times.notes());
        if self.has_timestamps && self.options.time_format.is_some() {
            notes.push("the times are timestamps, so that --time-format only says how they are shown".into());
        }
        if self.clock.rounded {
            notes.push("times had more than 9 digits after the point: rounded to nanoseconds".into());
        }
        notes
    }
}

/// Numbers of times that are not what they seem.
#[derive(Default)]
struct TimeCounts {
    /// Numbers of times without and with a zone, and the first with one.
    zones: [u64; 2],
    zoned: Option<String>,
    /// Number of times that are floats of 32 bits beyond 2^24.
    short: u64,
}

impl TimeCounts {
    /// Counts a time.
    #[inline]
    fn add(&mut self, cell: &Cell<'_>, format: &TimeFormat) {
        match cell {
            Cell::Number(Scalar::Single(value)) => self.short += u64::from(value.abs() > EXACT),
            Cell::Text(field) if *format == TimeFormat::Iso => {
                let Some(has_zone) = has_zone(field) else { return };
                self.zones[usize::from(has_zone)] += 1;
                if has_zone {
                    self.zoned.get_or_insert_with(|| shown(field));
                }
            }
            _ => {}
        }
    }

    /// Adds the numbers of other times, which follow these.
    fn append(&mut self, other: Self) {
        self.zones.iter_mut().zip(other.zones).for_each(|(own, other)| *own += other);
        self.zoned = self.zoned.take().or(other.zoned);
        self.short += other.short;
    }

    /// Returns what the user should know.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let naive = self.zones[0];
        if let Some(zoned) = self.zoned.as_ref().filter(|_| naive > 0) {
            notes.push(format!(
                "{} without a zone read as UTC, although others have one, such as {zoned}",
                counted(naive, "time")
            ));
        }
        if self.short > 0 {
            let times = counted(self.short, "time");
            notes.push(format!("{times} beyond 2^24 are 32-bit floats, which have lost digits"));
        }
        notes
    }
}

/// Returns the field of an id that is a whole number with a point, such as `7.0`.
#[inline]
fn pointed<'a>(cell: &Cell<'a>) -> Option<&'a [u8]> {
    let Cell::Text(field @ [b'0'..=b'9', .., b'0' | b'.']) = cell else { return None };
    (field.contains(&b'.') && parse_id(field).is_ok()).then_some(field)
}

/// Whether the numbers of the events differ from the positions of their rows by one number, 0 or more.
fn are_consecutive(numbers: &[u64], raw: &Raw) -> bool {
    let mut firsts = numbers.iter().zip(raw.kept_rows()).map(|(number, row)| number.checked_sub(row as u64));
    match firsts.next() {
        None => true,
        Some(first) => first.is_some() && firsts.all(|other| other == first),
    }
}

/// Returns how to write a time.
fn remedy(format: &TimeFormat) -> String {
    match format {
        TimeFormat::Seconds => TIMES.to_owned(),
        TimeFormat::Iso => {
            "write 2023-11-14T22:13:29 or seconds, or give the format, such as --time-format '%d/%m/%Y %H:%M'"
                .into()
        }
        other => other.advice(),
    }
}

/// Returns the number in cell `i`, which must not be missing.
pub(super) fn value(row: &dyn Row, i: usize, what: &str) -> Result<f32> {
    let cell = row.cell(i);
    let fault = |f, remedy: &str| row.error(Some(i), cell.describe(f, what)).remedy(remedy);
    cell.value().map_err(|f| fault(f, cell.remedy(VALUES)))?.ok_or_else(|| fault(Fault::Empty, MISSING))
}

/// Returns the whole number in cell `i`.
fn whole(row: &dyn Row, i: usize, what: &str, remedy: &str) -> Result<u64> {
    let cell = row.cell(i);
    let fault = |f| row.error(Some(i), cell.describe(f, what)).remedy(remedy);
    parse_id(cell.text().map_err(fault)?.as_bytes()).map_err(fault)
}

/// Parses field `i`. If it is not a valid `what`, returns an error with line, column and `remedy`.
#[inline]
pub(super) fn take<T>(
    row: &Record<'_>,
    i: usize,
    parse: impl Fn(&[u8]) -> Result<T, Fault>,
    what: &str,
    remedy: &str,
) -> Result<T> {
    parse(row.field(i)).map_err(|f| fault(row, i, f, what, remedy))
}

/// Returns the error for field `i`, which should have been `what`.
#[cold]
pub(super) fn fault(row: &Record<'_>, i: usize, fault: Fault, what: &str, remedy: &str) -> Error {
    row.error(Some(i), fault.describe(row.field(i), what)).remedy(remedy)
}
