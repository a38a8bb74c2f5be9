//! Arrays in `.npy` files as the columns of a table: numbers, text (`U`, `S`) and times (`datetime64`,
//! `timedelta64`).
//!
//! A folder of `src.npy`, `dst.npy`, `time.npy` and perhaps `label.npy` is read by the rules of a table:
//! times are numbers of any unit or dates, ids are numbers or text, and a missing value is NaN, NaT or empty
//! text.
use super::{
    cell::{Cell, Row},
    layout::Layout,
    number::Decimal,
    options::{Format, ReadOptions},
    sample::ROWS,
    table::Table,
};
use crate::{
    npy::{Array, Header, check_vector, mapped, not_numbers},
    raw::Raw,
    text::counted,
    time_format::{TimeFormat, in_unit},
};
use chrono::{NaiveDate, NaiveTime};
use std::path::{Path, PathBuf};
use tgnn::error::{Error, Result};

/// Names of the columns; the label is optional.
const NAMES: [&str; 4] = ["src", "dst", "time", "label"];

/// Reads the ids, times and labels of the events in a folder of arrays.
pub(crate) fn read(dir: &Path, options: &ReadOptions) -> Result<Raw> {
    let mut columns = Vec::new();
    for name in NAMES {
        let path = dir.join(format!("{name}.npy"));
        if name != "label" || path.is_file() {
            columns.push(Column::open(path)?);
        }
    }
    let mut rows = ArrayRows { columns, row: 0, dir };
    let events = rows.events()?;
    let format = rows.columns[2].format(options)?;
    let mut layout = layout(rows.columns.len());
    if options.time_format.is_none() {
        let first: Vec<String> = (0..events.min(ROWS)).map(|row| rows.columns[2].values.shown(row)).collect();
        layout.find_dates(|_| first.iter().map(String::as_bytes).filter(|field| !field.is_empty()).collect());
    }
    layout.dates = format.or(layout.dates);
    let mut table = Table::new(dir, &layout, options);
    for row in 0..events {
        rows.row = row;
        rows.check_ids()?;
        table.push(&rows)?;
    }
    let mut raw = table.finish()?;
    raw.notes.extend(rows.columns[2].note());
    Ok(raw)
}

/// Returns the layout of a folder with so many arrays.
fn layout(columns: usize) -> Layout {
    Layout {
        format: Format::Native,
        names: NAMES[..columns].iter().map(ToString::to_string).collect(),
        src: 0,
        dst: 1,
        time: vec![2],
        dates: None,
        label: (columns > 3).then_some(3),
        index: None,
        roll: None,
        features: Vec::new(),
        ids: Default::default(),
        separate: false,
        notes: Vec::new(),
    }
}

/// A row of the arrays.
struct ArrayRows<'a> {
    columns: Vec<Column>,
    row: usize,
    dir: &'a Path,
}

impl ArrayRows<'_> {
    /// Returns the number of events.
    fn events(&self) -> Result<usize> {
        let events = self.columns[0].values.len();
        match self.columns.iter().find(|column| column.values.len() != events) {
            None => Ok(events),
            Some(other) => {
                let what =
                    format!("{}, but src.npy has {events}", counted(other.values.len() as u64, "value"));
                Err(Error::data(&other.path, what).remedy("write one value per event"))
            }
        }
    }

    /// Checks that ids that are numbers are whole and not negative. Elsewhere such ids are names; in an array
    /// they are mistakes, such as -1 for none.
    fn check_ids(&self) -> Result<()> {
        for i in 0..2 {
            if let Cell::Number(value) = self.cell(i)
                && !self.cell(i).is_missing()
                && value.whole().is_none_or(|id| u64::try_from(id).is_err())
            {
                let what = format!("{} is not a node id", value.text());
                return Err(self.error(Some(i), what).remedy("ids are integers from 0, or text"));
            }
        }
        Ok(())
    }
}

impl Row for ArrayRows<'_> {
    fn len(&self) -> usize {
        self.columns.len()
    }

    fn cell(&self, i: usize) -> Cell<'_> {
        self.columns[i].values.cell(self.row)
    }

    fn error(&self, i: Option<usize>, what: String) -> Error {
        let path = i.and_then(|i| self.columns.get(i)).map_or(self.dir, |column| &column.path);
        Error::data(path, format!("value {}: {what}", self.row))
    }
}

/// An array as a column.
struct Column {
    path: PathBuf,
    /// Type of the values in the file.
    descr: String,
    values: Values,
}

/// The values of an array.
enum Values {
    Numbers(Array, usize),
    /// All text, and the end of each value.
    Text(Vec<u8>, Vec<usize>),
    /// Seconds since 1970-01-01 UTC.
    Dates(Vec<Option<Decimal>>),
    /// Seconds since some time.
    Spans(Vec<Option<Decimal>>),
}

impl Column {
    fn open(path: PathBuf) -> Result<Self> {
        let map = mapped(&path)?;
        let header = Header::parse(&path, &map)?;
        check_vector(&path, &header.shape)?;
        let values = match header.descr.trim_start_matches(['<', '>', '=', '|']).split_at_checked(1) {
            Some(("U" | "S", _)) => text(&path, &header, &map)?,
            Some(("M", _)) => Values::Dates(times(&path, &header, &map)?),
            Some(("m", _)) => Values::Spans(times(&path, &header, &map)?),
            _ => {
                let array = Array::in_map(&path, map)?;
                let len = array.vector()?.len();
                Values::Numbers(array, len)
            }
        };
        Ok(Column { path, descr: header.descr, values })
    }

    /// Returns how times in this column are written, if its type says so.
    fn format(&self, options: &ReadOptions) -> Result<Option<TimeFormat>> {
        let of_type = match self.values {
            Values::Dates(_) => TimeFormat::Iso,
            Values::Spans(_) => TimeFormat::Seconds,
            _ => return Ok(None),
        };
        match options.time_format {
            None => Ok(Some(of_type)),
            Some(_) => Err(Error::usage(format!(
                "{} has the type `{}`, which says how its times are written",
                self.path.display(),
                self.descr
            ))
            .remedy("leave out --time-format")),
        }
    }

    /// Returns a note if times of this type have lost seconds.
    fn note(&self) -> Option<String> {
        let Values::Numbers(array, _) = &self.values else { return None };
        let lossy = "time.npy holds 32-bit floats or shorter: times beyond 2^24 s have lost seconds";
        array.is_short_float().then(|| lossy.into())
    }
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Values::Numbers(_, len) => *len,
            Values::Text(_, ends) => ends.len(),
            Values::Dates(times) | Values::Spans(times) => times.len(),
        }
    }

    /// Returns a number or text as text; nothing if the value is missing, or is a time already.
    fn shown(&self, row: usize) -> String {
        match self.cell(row) {
            Cell::Number(value) if !self.cell(row).is_missing() => value.text(),
            Cell::Text(text) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        }
    }

    fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            Values::Numbers(array, _) => Cell::Number(array.scalar(row)),
            Values::Text(bytes, ends) => {
                Cell::Text(&bytes[row.checked_sub(1).map_or(0, |before| ends[before])..ends[row]])
            }
            Values::Dates(times) | Values::Spans(times) => times[row].map_or(Cell::Missing, Cell::Time),
        }
    }
}

/// Returns the size of a type such as `<U4` in the units of its kind.
fn size_of(path: &Path, descr: &str) -> Result<usize> {
    let digits = descr.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().map_err(|_| not_numbers(path, descr))
}

/// Reads text: code points of 32 bits (`U`) or bytes (`S`), padded with zeros.
fn text(path: &Path, header: &Header, map: &[u8]) -> Result<Values> {
    let wide = header.descr.contains('U');
    let size = size_of(path, &header.descr)?.saturating_mul(if wide { 4 } else { 1 });
    let len = header.check_count(path, map, size)?;
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(len));
    for i in 0..len {
        let field = &map[header.start + i * size..][..size];
        if wide {
            let read = |bytes| {
                if header.descr.starts_with('>') {
                    u32::from_be_bytes(bytes)
                } else {
                    u32::from_le_bytes(bytes)
                }
            };
            let letters = field.as_chunks::<4>().0.iter().map(|&letter| char::from_u32(read(letter)));
            let letters = letters.collect::<Option<String>>().ok_or_else(|| {
                Error::data(path, format!("value {i} is not Unicode"))
                    .remedy("write the array with numpy.save")
            })?;
            bytes.extend_from_slice(letters.trim_end_matches('\0').as_bytes());
        } else {
            bytes.extend_from_slice(&field[..field.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1)]);
        }
        ends.push(bytes.len());
    }
    Ok(Values::Text(bytes, ends))
}

/// Reads `datetime64` or `timedelta64` as seconds; NaT is `None`.
fn times(path: &Path, header: &Header, map: &[u8]) -> Result<Vec<Option<Decimal>>> {
    let unit = header.descr.split_once('[').and_then(|(_, unit)| TimeUnit::parse(unit.strip_suffix(']')?));
    let is_span = header.descr.contains("m8");
    let unit = unit.filter(|unit| !is_span || matches!(unit, TimeUnit::Seconds(..))).ok_or_else(|| {
        Error::data(path, format!("times of type `{}` have no unit of a fixed length", header.descr))
            .remedy("convert them, as in array.astype('datetime64[s]')")
    })?;
    let len = header.check_count(path, map, 8)?;
    let read = |bytes| {
        if header.descr.starts_with('>') { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) }
    };
    let values = map[header.start..].as_chunks::<8>().0.iter().take(len).map(|&value| read(value));
    let time = |(i, value)| match value {
        i64::MIN => Ok(None),
        value => unit.seconds(value).map(Some).ok_or_else(|| {
            Error::data(path, format!("value {i}: {value} of type `{}` is too far away", header.descr))
                .remedy("correct the times")
        }),
    };
    values.enumerate().map(time).collect()
}

/// Unit of `datetime64`, times a factor.
enum TimeUnit {
    /// So many months.
    Months(i64),
    /// So many times a number of `10^-digits` seconds.
    Seconds(i64, u32),
}

impl TimeUnit {
    /// Parses `ns` or `25s`.
    fn parse(text: &str) -> Option<Self> {
        let name = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = &text[..text.len() - name.len()];
        let factor: i64 = if digits.is_empty() { 1 } else { digits.parse().ok()? };
        let times = |seconds: i64| Some(TimeUnit::Seconds(factor.checked_mul(seconds)?, 0));
        match name {
            "Y" => Some(TimeUnit::Months(factor.checked_mul(12)?)),
            "M" => Some(TimeUnit::Months(factor)),
            "W" => times(604_800),
            "D" => times(86_400),
            "h" => times(3_600),
            "m" => times(60),
            "s" => times(1),
            _ => {
                let digits = ["ms", "us", "ns", "ps", "fs", "as"].iter().position(|unit| *unit == name)?;
                Some(TimeUnit::Seconds(factor, 3 * (digits as u32 + 1)))
            }
        }
    }

    /// Returns the seconds of a value; `None` if they do not fit.
    fn seconds(&self, value: i64) -> Option<Decimal> {
        match self {
            TimeUnit::Seconds(factor, digits) => in_unit(Decimal::new(value, 0), *factor, *digits).ok(),
            TimeUnit::Months(factor) => {
                let months = value.checked_mul(*factor)?;
                let year = i32::try_from(months.div_euclid(12).checked_add(1970)?).ok()?;
                let first = NaiveDate::from_ymd_opt(year, months.rem_euclid(12) as u32 + 1, 1)?;
                Some(Decimal::new(first.and_time(NaiveTime::MIN).and_utc().timestamp(), 0))
            }
        }
    }
}
