//! Cells of a table: fields of text, or typed values.
use super::number::{Decimal, Fault, parse_f32};
use crate::{
    NodeId,
    ids::{IdField, trimmed},
    scalar::Scalar,
    text::shown,
    time_format::TimeFormat,
};
use std::borrow::Cow;
use tgnn::error::{Error, Result};

/// Words that, like an empty field, mean that a number or a time is missing.
const MISSING: [&[u8]; 7] = [b"na", b"n/a", b"nan", b"nat", b"null", b"none", b"\\n"];

/// 2^64: numbers from here on are read as floats, even if they were written as integers.
const LARGEST: f64 = 18_446_744_073_709_551_616.0;

/// Cell of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    /// No value.
    Missing,
    /// Field of text, without the quotes around it.
    Text(&'a [u8]),
    /// Number.
    Number(Scalar),
    /// Truth value: 0 or 1 as a value or a label, a word as an id.
    Bool(bool),
    /// Point in time, in seconds since 1970-01-01 UTC.
    Time(Decimal),
    /// Time of day, or a span of time, in seconds.
    #[cfg_attr(not(any(feature = "formats", test)), expect(dead_code, reason = "only typed tables have it"))]
    Clock(Decimal),
    /// Numbers of a list; NaN where one is missing.
    List(Cow<'a, [f32]>),
    /// Value of a type that is neither an id nor a time nor a feature: its type.
    Other(&'a str),
}

/// Remedies for a number with commas: the decimal comma, the separator of thousands, either, and both.
const DECIMAL_COMMA: &str = "write 0.5, not 0,5: numbers have a decimal point";
const THOUSANDS: &str = "write 1000, not 1,000: numbers have no separator of thousands";
const EITHER_COMMA: &str =
    "write 1000 if the comma separates thousands, or 1.000 if it is a decimal comma: numbers have no comma";
const POINT_AND_COMMA: &str =
    "write 1000.5, not 1.000,5: numbers have a decimal point, and no separator of thousands";

/// Returns what to do about a number with commas, which may be the decimal point or separate thousands.
pub(super) fn comma_remedy(cell: &Cell<'_>) -> Option<&'static str> {
    let Cell::Text(field) = cell else { return None };
    let field = field.strip_prefix(b"-").or_else(|| field.strip_prefix(b"+")).unwrap_or(field);
    let mut groups = field.split(|b| *b == b',');
    let first = groups.next()?;
    let groups: Vec<&[u8]> = groups.collect();
    let (last, before) = groups.split_last()?;
    let (last, part) = last.split_at(last.iter().position(|b| *b == b'.').unwrap_or(last.len()));
    let are_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let is_group = |part: &[u8]| part.len() == 3 && are_digits(part);
    if part.is_empty() && before.is_empty() && first.contains(&b'.') {
        let mut thousands = first.split(|b| *b == b'.');
        let is_first = thousands.next().is_some_and(|part| part.len() <= 3 && are_digits(part));
        return (is_first && thousands.all(is_group) && are_digits(last)).then_some(POINT_AND_COMMA);
    }
    let in_thousands =
        first.len() <= 3 && !first.starts_with(b"0") && groups[..before.len()].iter().all(|g| is_group(g));
    let is_part = part.is_empty() || part[1..].iter().all(u8::is_ascii_digit);
    match (are_digits(first) && are_digits(last), in_thousands && is_group(last)) {
        (true, true) if before.is_empty() && part.is_empty() => Some(EITHER_COMMA),
        (true, true) if is_part => Some(THOUSANDS),
        (true, false) if before.is_empty() && part.is_empty() => Some(DECIMAL_COMMA),
        _ => None,
    }
}

/// Remedy for a value whose type is not the one that is needed.
const TYPED: &str = "save the column as text or numbers, or name another with --columns";

impl<'a> Cell<'a> {
    /// Whether a number or a time is missing here.
    #[inline]
    pub(super) fn is_missing(&self) -> bool {
        match self {
            Cell::Missing => true,
            Cell::Text(field) => {
                let field = trimmed(field);
                field.is_empty() || MISSING.iter().any(|word| word.eq_ignore_ascii_case(field))
            }
            Cell::Number(value) => value.is_nan(),
            Cell::Bool(_) | Cell::Time(_) | Cell::Clock(_) | Cell::List(_) | Cell::Other(_) => false,
        }
    }

    /// Whether the cell holds a time in any format that is guessed.
    pub(super) fn is_time(&self) -> bool {
        match self {
            Cell::Text(field) => TimeFormat::guess(field).parse(field).is_ok(),
            Cell::Number(_) | Cell::Time(_) => true,
            Cell::Missing | Cell::Bool(_) | Cell::Clock(_) | Cell::List(_) | Cell::Other(_) => false,
        }
    }

    /// Converts the cell to a node's id. Only an empty cell is none: `NA` may be a name.
    pub(super) fn id(&self) -> Result<IdField<'a>, Fault> {
        match self {
            Cell::Missing => Err(Fault::Empty),
            Cell::Number(value) if value.is_nan() => Err(Fault::Empty),
            Cell::Text(field) => IdField::parse(field),
            // Different integers are the same float here.
            Cell::Number(value) if value.float().is_some_and(|v| v.abs() >= LARGEST) => Err(Fault::TooLarge),
            Cell::Number(value) => match value.whole().map(u64::try_from) {
                Some(Ok(number)) => Ok(IdField::Number(number)),
                _ => Ok(IdField::Text(value.text().into())),
            },
            Cell::Bool(value) => Ok(IdField::Text(value.to_string().into())),
            Cell::Time(_) | Cell::Clock(_) | Cell::List(_) | Cell::Other(_) => Err(Fault::Text),
        }
    }

    /// Converts the cell to a time in seconds. Numbers that are floats become the shortest decimal.
    pub(super) fn time(&self, format: &TimeFormat) -> Result<Decimal, Fault> {
        match self {
            _ if self.is_missing() => Err(Fault::Empty),
            Cell::Text(field) => format.parse(field),
            Cell::Number(value) => format.parse(value.text().as_bytes()),
            Cell::Time(time) => Ok(*time),
            Cell::Missing | Cell::Bool(_) | Cell::Clock(_) | Cell::List(_) | Cell::Other(_) => {
                Err(Fault::Text)
            }
        }
    }

    /// Converts the cell to a finite number; `None` if it is missing.
    #[inline]
    pub(super) fn value(&self) -> Result<Option<f32>, Fault> {
        match self {
            _ if self.is_missing() => Ok(None),
            Cell::Text(b"true" | b"True" | b"TRUE") => Ok(Some(1.0)),
            Cell::Text(b"false" | b"False" | b"FALSE") => Ok(Some(0.0)),
            Cell::Text(field) => parse_f32(field).map(Some),
            Cell::Number(value) => match value.to_f32() {
                v if v.is_finite() => Ok(Some(v)),
                _ => Err(Fault::NotFinite),
            },
            Cell::Bool(value) => Ok(Some(f32::from(u8::from(*value)))),
            Cell::Missing | Cell::Time(_) | Cell::Clock(_) | Cell::List(_) | Cell::Other(_) => {
                Err(Fault::Text)
            }
        }
    }

    /// Returns the cell as text, for categories and for times in several columns; empty if it is missing. A
    /// time at midnight is a date.
    pub(super) fn text(&self) -> Result<Cow<'a, str>, Fault> {
        match self {
            Cell::Text(field) => Ok(std::str::from_utf8(trimmed(field)).map_err(|_| Fault::Encoding)?.into()),
            Cell::Number(value) if !self.is_missing() => Ok(value.text().into()),
            Cell::Missing | Cell::Number(_) => Ok("".into()),
            Cell::Bool(value) => Ok(u8::from(*value).to_string().into()),
            Cell::Time(time) => {
                let text = TimeFormat::Iso.text(time.mantissa, 10f64.powi(time.digits as i32));
                Ok(text.strip_suffix("T00:00:00").map_or(text.clone(), str::to_owned).into())
            }
            Cell::Clock(time) => Ok(clock(*time).into()),
            Cell::List(_) | Cell::Other(_) => Err(Fault::Text),
        }
    }

    /// Returns what to do about a cell that is wrong: `otherwise`, unless its type is at fault.
    #[cold]
    pub(super) fn remedy(&self, otherwise: &'a str) -> &'a str {
        match self {
            Cell::Time(_) | Cell::Clock(_) | Cell::List(_) | Cell::Other(_) => TYPED,
            _ => otherwise,
        }
    }

    /// Describes the fault of a cell that should have been `what`.
    #[cold]
    pub(super) fn describe(&self, fault: Fault, what: &str) -> String {
        match self {
            Cell::Text(field) => fault.describe(field, what),
            Cell::Number(value) if fault == Fault::Empty => {
                Fault::Text.describe(value.text().as_bytes(), what)
            }
            Cell::Number(value) => fault.describe(value.text().as_bytes(), what),
            Cell::Bool(value) => fault.describe(value.to_string().as_bytes(), what),
            Cell::Missing => Fault::Empty.describe(b"", what),
            Cell::Time(_) => format!("a timestamp is not {what}"),
            Cell::Clock(_) if what == "a time" => {
                "a time of day, or a duration, is no time without a date, as in --columns time=day+clock"
                    .to_owned()
            }
            Cell::Clock(_) => format!("a time of day, or a duration, is not {what}"),
            Cell::List(values) => format!("a list of {} numbers is not {what}", values.len()),
            Cell::Other(kind) => format!("a value of type {kind} is not {what}"),
        }
    }

    /// Returns the cell for an error.
    #[cold]
    pub(super) fn shown(&self) -> String {
        match self {
            Cell::Text(field) => shown(field),
            Cell::Number(value) => shown(value.text().as_bytes()),
            Cell::Bool(value) => shown(value.to_string().as_bytes()),
            Cell::Missing => "an empty cell".to_owned(),
            Cell::Time(_) => "a timestamp".to_owned(),
            Cell::Clock(_) => "a time of day, or a duration".to_owned(),
            Cell::List(_) => "a list".to_owned(),
            Cell::Other(kind) => format!("a value of type {kind}"),
        }
    }
}

/// Writes a time of day such as `22:13:20.5`.
fn clock(time: Decimal) -> String {
    let per_second = 10u64.pow(time.digits);
    let (seconds, part) =
        (time.mantissa.unsigned_abs() / per_second, time.mantissa.unsigned_abs() % per_second);
    let sign = if time.mantissa < 0 { "-" } else { "" };
    let whole = format!("{sign}{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match time.digits as usize {
        0 => whole,
        digits => format!("{whole}.{part:0digits$}"),
    }
}

/// A row of a table.
pub(super) trait Row {
    /// Returns the number of cells.
    fn len(&self) -> usize;
    /// Returns cell `i`, which must exist.
    fn cell(&self, i: usize) -> Cell<'_>;
    /// Returns the number of lines of text that the row is written in.
    fn lines(&self) -> u64 {
        1
    }
    /// Appends the values of the cells `at`, if all of them are present and are floats of 32 bits; else
    /// returns false and appends nothing. Features of typed tables are read faster so than cell by cell.
    fn floats(&self, _at: &[usize], _to: &mut Vec<f32>) -> bool {
        false
    }
    /// Returns a data error at this row, and at cell `i` if given.
    fn error(&self, i: Option<usize>, what: String) -> Error;
}

/// Returns the id in cell `i`, which should be `what`.
pub(super) fn id(row: &dyn Row, i: usize, what: &str, remedy: &str) -> Result<NodeId> {
    let cell = row.cell(i);
    let id = cell.id().map_err(|f| row.error(Some(i), cell.describe(f, what)).remedy(remedy))?;
    Ok(id.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_missing_numbers_can_be_names() {
        for field in [&b""[..], b"NA", b"NaN", b"null", b"None", b"n/a", b"\\N"] {
            let cell = Cell::Text(field);
            assert_eq!((cell.value(), cell.time(&TimeFormat::Seconds)), (Ok(None), Err(Fault::Empty)));
            assert_eq!(cell.id().is_ok(), !field.is_empty());
        }
        assert_eq!(Cell::Text(b"-inf").value(), Err(Fault::NotFinite));
        assert_eq!(Cell::Number(Scalar::Float(f64::NAN)).id(), Err(Fault::Empty));
    }

    #[test]
    fn the_remedy_for_a_comma_tells_a_separator_of_thousands_from_a_decimal_comma() {
        let remedy = |text: &str| comma_remedy(&Cell::Text(text.as_bytes()));
        for (texts, wanted) in [
            (&["1,000", "-12,345", "+999,999"][..], Some(EITHER_COMMA)),
            (&["1,000,000", "1,000.5", "12,345,678.", "-1,234.25"], Some(THOUSANDS)),
            (&["0,5", "1,5", "-3,1415", "0,500", "1234,567", "1700000000,25", "1,0000"], Some(DECIMAL_COMMA)),
            (&["1.000,5", "1.234.567,89", "-1.000,500"], Some(POINT_AND_COMMA)),
            (
                &[
                    "", ",", "1,", ",5", "a,5", "1,a", "1,2,3", "1,00,000", "1.5,5.5", "12", "1.5",
                    "1,000.x", "1,,000",
                ],
                None,
            ),
        ] {
            for text in texts {
                assert_eq!(remedy(text), wanted, "{text}");
            }
        }
        assert_eq!(comma_remedy(&Cell::Missing), None);
    }

    #[test]
    fn times_are_text_that_joins_to_a_time() {
        let time = Cell::Time(Decimal::new(1_699_920_000, 0));
        let clock = Cell::Clock(Decimal::new(80_000_250, 3));
        let joined = [time.text().unwrap(), clock.text().unwrap()].join(" ");
        assert_eq!(joined, "2023-11-14 22:13:20.25");
        assert_eq!(
            Cell::Text(joined.as_bytes()).time(&TimeFormat::Iso),
            Ok(Decimal::new(170_000_000_025, 2))
        );
        assert_eq!(Cell::Clock(Decimal::new(-5, 1)).text().unwrap(), "-00:00:00.5");
        assert_eq!(clock.time(&TimeFormat::Iso), Err(Fault::Text));
        assert!(clock.describe(Fault::Text, "a time").contains("--columns time=day+clock"));
    }

    #[test]
    fn floats_of_32_bits_are_their_shortest_decimal_except_as_features() {
        for value in [0.1f32, 16_777_217.0, 123_456_789.0, 1e-30, f32::MAX, -0.3, 1.7e9] {
            let cell = Cell::Number(Scalar::Single(value));
            let wide = Cell::Number(Scalar::Float(value.to_string().parse().unwrap()));
            assert_eq!(cell.value().unwrap().unwrap().to_bits(), value.to_bits());
            assert_eq!((cell.id(), cell.text()), (wide.id(), wide.text()));
            assert_eq!(cell.time(&TimeFormat::Seconds), wide.time(&TimeFormat::Seconds));
            assert_eq!(cell.describe(Fault::Text, "x"), wide.describe(Fault::Text, "x"));
        }
        let not_a_number = Cell::Number(Scalar::Single(f32::NAN));
        assert!(not_a_number.is_missing() && not_a_number.id() == Err(Fault::Empty));
    }

    #[test]
    fn typed_cells_are_ids_times_and_values() {
        assert_eq!(Cell::Number(Scalar::Float(3.0)).id(), Ok(IdField::Number(3)));
        assert_eq!(Cell::Number(Scalar::Int(-1)).id(), Ok(IdField::Text("-1".into())));
        assert_eq!(Cell::Number(Scalar::Float(0.1)).time(&TimeFormat::Seconds), Ok(Decimal::new(1, 1)));
        assert_eq!(Cell::Time(Decimal::new(5, 0)).time(&TimeFormat::Iso), Ok(Decimal::new(5, 0)));
        assert_eq!(Cell::Text(b"True").value(), Ok(Some(1.0)));
        assert_eq!(Cell::Text(br#"a ""b"""#).id(), Ok(IdField::Text(r#"a ""b"""#.into())));
    }
}
