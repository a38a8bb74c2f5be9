//! Cells of a table: fields of text, or typed values.
use super::number::{Decimal, Fault, parse_f32};
use crate::{NodeId, ids::IdField, scalar::Scalar, text::shown, time_format::TimeFormat};
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
    /// Point in time, in seconds since 1970-01-01 UTC.
    Time(Decimal),
    /// Numbers of a list; NaN where one is missing.
    List(Cow<'a, [f32]>),
    /// Value of a type that is neither an id nor a time nor a feature: its type.
    Other(&'a str),
}

/// Remedy for a number with a decimal comma.
pub(super) const DECIMAL_COMMA: &str = "write 0.5, not 0,5: numbers have a decimal point";

/// Whether the cell has a number with a comma, which may stand for the decimal point or be a separator of
/// thousands.
pub(super) fn has_decimal_comma(cell: &Cell<'_>) -> bool {
    let Cell::Text(field) = cell else { return false };
    let mut parts = field.strip_prefix(b"-").unwrap_or(field).split(|b| *b == b',');
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    field.contains(&b',') && parts.all(is_number)
}

/// Remedy for a value whose type is not the one that is needed.
const TYPED: &str = "save the column as text or numbers, or name another with --columns";

impl<'a> Cell<'a> {
    /// Whether a number or a time is missing here.
    pub(super) fn is_missing(&self) -> bool {
        match self {
            Cell::Missing => true,
            Cell::Text(field) => {
                field.is_empty() || MISSING.iter().any(|word| word.eq_ignore_ascii_case(field))
            }
            Cell::Number(Scalar::Float(v)) => v.is_nan(),
            Cell::Number(_) | Cell::Time(_) | Cell::List(_) | Cell::Other(_) => false,
        }
    }

    /// Whether the cell holds a time in any format that is guessed.
    pub(super) fn is_time(&self) -> bool {
        match self {
            Cell::Text(field) => TimeFormat::guess(field).parse(field).is_ok(),
            Cell::Number(_) | Cell::Time(_) => true,
            Cell::Missing | Cell::List(_) | Cell::Other(_) => false,
        }
    }

    /// Converts the cell to a node's id. Only an empty cell is none: `NA` may be a name.
    pub(super) fn id(&self) -> Result<IdField<'a>, Fault> {
        match self {
            Cell::Missing => Err(Fault::Empty),
            Cell::Number(Scalar::Float(v)) if v.is_nan() => Err(Fault::Empty),
            Cell::Text(field) => IdField::parse(field),
            // Different integers are the same float here.
            Cell::Number(Scalar::Float(v)) if v.abs() >= LARGEST => Err(Fault::TooLarge),
            Cell::Number(value) => match value.whole().map(u64::try_from) {
                Some(Ok(number)) => Ok(IdField::Number(number)),
                _ => Ok(IdField::Text(value.text().into())),
            },
            Cell::Time(_) | Cell::List(_) | Cell::Other(_) => Err(Fault::Text),
        }
    }

    /// Converts the cell to a time in seconds. Numbers that are floats become the shortest decimal.
    pub(super) fn time(&self, format: &TimeFormat) -> Result<Decimal, Fault> {
        match self {
            _ if self.is_missing() => Err(Fault::Empty),
            Cell::Text(field) => format.parse(field),
            Cell::Number(value) => format.parse(value.text().as_bytes()),
            Cell::Time(time) => Ok(*time),
            Cell::Missing | Cell::List(_) | Cell::Other(_) => Err(Fault::Text),
        }
    }

    /// Converts the cell to a finite number; `None` if it is missing.
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
            Cell::Missing | Cell::Time(_) | Cell::List(_) | Cell::Other(_) => Err(Fault::Text),
        }
    }

    /// Returns the cell as text, for categories; empty if it is missing.
    pub(super) fn text(&self) -> Result<Cow<'a, str>, Fault> {
        match self {
            Cell::Text(field) => Ok(std::str::from_utf8(field).map_err(|_| Fault::Encoding)?.into()),
            Cell::Number(value) if !self.is_missing() => Ok(value.text().into()),
            Cell::Missing | Cell::Number(_) => Ok("".into()),
            Cell::Time(_) | Cell::List(_) | Cell::Other(_) => Err(Fault::Text),
        }
    }

    /// Returns what to do about a cell that is wrong: `otherwise`, unless its type is at fault.
    #[cold]
    pub(super) fn remedy(&self, otherwise: &'a str) -> &'a str {
        match self {
            Cell::Time(_) | Cell::List(_) | Cell::Other(_) => TYPED,
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
            Cell::Missing => Fault::Empty.describe(b"", what),
            Cell::Time(_) => format!("a timestamp is not {what}"),
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
            Cell::Missing => "an empty cell".to_owned(),
            Cell::Time(_) => "a timestamp".to_owned(),
            Cell::List(_) => "a list".to_owned(),
            Cell::Other(kind) => format!("a value of type {kind}"),
        }
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
    fn typed_cells_are_ids_times_and_values() {
        assert_eq!(Cell::Number(Scalar::Float(3.0)).id(), Ok(IdField::Number(3)));
        assert_eq!(Cell::Number(Scalar::Int(-1)).id(), Ok(IdField::Text("-1".into())));
        assert_eq!(Cell::Number(Scalar::Float(0.1)).time(&TimeFormat::Seconds), Ok(Decimal::new(1, 1)));
        assert_eq!(Cell::Time(Decimal::new(5, 0)).time(&TimeFormat::Iso), Ok(Decimal::new(5, 0)));
        assert_eq!(Cell::Text(b"True").value(), Ok(Some(1.0)));
        assert_eq!(Cell::Text(br#"a ""b"""#).id(), Ok(IdField::Text(r#"a ""b"""#.into())));
    }
}
