//! How a file writes times: as numbers of a unit, as ISO 8601, or by a pattern.
mod guess;
mod iso;
mod pattern;
mod scale;
mod unit;

use super::format::number::{Decimal, Fault};
use chrono::DateTime;
pub(crate) use guess::{is_date_word, is_named_date, words};
pub(crate) use iso::has_zone;
use iso::iso;
pub use scale::TimeScale;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use tgnn::error::{Error, Result};
pub(crate) use unit::in_unit;
use unit::{UNITS, Unit};

/// Name of [`TimeFormat::Iso`].
const ISO: &str = "iso";

/// How a file writes times.
///
/// As text: `s` (seconds, with or without decimals), `ms`, `us`, `ns`, `min`, `h`, `d`, `w`, `excel`,
/// `julian`, `mjd`, `matlab`, `dotnet`, `filetime`, `webkit`, `cocoa`, `iso`, or a pattern of `strftime` such
/// as `%d/%m/%Y %H:%M`. Times without a zone are UTC.
///
/// ```
/// # use tgnn_data::TimeFormat;
/// let format: TimeFormat = "%d/%m/%Y".parse()?;
/// assert_eq!(format, TimeFormat::Pattern("%d/%m/%Y".into()));
/// assert!("%Q".parse::<TimeFormat>().is_err());
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum TimeFormat {
    /// Seconds, as an integer or a decimal number.
    #[default]
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
    /// Days.
    Days,
    /// Weeks.
    Weeks,
    /// Days since 1899-12-30, as Excel counts them from March 1900 on.
    Excel,
    /// Julian days, which begin at noon: days since 4713 BC.
    Julian,
    /// Modified Julian days: days since 1858-11-17.
    ModifiedJulian,
    /// Days since the first day before the year 0, as MATLAB's `datenum` counts them.
    Matlab,
    /// Ticks of .NET: 100 ns since the year 1.
    DotNet,
    /// `FILETIME` of Windows: 100 ns since 1601.
    FileTime,
    /// Microseconds since 1601, as WebKit and Chrome count them.
    WebKit,
    /// Seconds since 2001, as Apple's Cocoa counts them.
    Cocoa,
    /// Dates and times of ISO 8601, such as `2023-11-14`, `2023-11-14 22:13` and
    /// `2023-11-14T22:13:29.5+01:00`.
    Iso,
    /// Pattern of `strftime`.
    Pattern(String),
}

impl TimeFormat {
    /// Returns the names of all formats that are no patterns.
    pub fn names() -> impl Iterator<Item = &'static str> {
        UNITS.iter().map(|unit| unit.name).chain([ISO])
    }

    /// Returns the unit of times that are numbers; `None` for dates.
    fn unit(&self) -> Option<&'static Unit> {
        UNITS.iter().find(|unit| unit.format == *self)
    }

    /// Whether times are written as dates.
    pub(crate) fn is_date(&self) -> bool {
        self.unit().is_none()
    }

    /// Whether times are written by a pattern that has no date, so that all count from 1970-01-01.
    pub(crate) fn lacks_date(&self) -> bool {
        matches!(self, TimeFormat::Pattern(pattern) if pattern::lacks_date(pattern))
    }

    /// Returns the name with what it means, if the name does not tell.
    pub(crate) fn described(&self) -> String {
        match self.unit() {
            Some(Unit { about, .. }) if !about.is_empty() => format!("{self} ({about})"),
            _ => self.to_string(),
        }
    }

    /// Returns how to write a time in this format.
    pub(crate) fn advice(&self) -> String {
        match self {
            TimeFormat::Pattern(pattern) if pattern::has_zone_name(pattern) => format!(
                "write times in the format {pattern}; names of zones other than UTC, GMT and Z are ambiguous: \
                 write +01:00 and give %z"
            ),
            other => format!("write times in the format {other}"),
        }
    }

    /// Converts a field to seconds, exactly to the nanosecond. Dates count from 1970-01-01 UTC.
    pub(crate) fn parse(&self, field: &[u8]) -> Result<Decimal, Fault> {
        match (self, self.unit()) {
            (TimeFormat::Pattern(pattern), _) => pattern::parse(field, pattern),
            (_, Some(unit)) => unit.parse(field),
            _ => iso(field),
        }
    }

    /// Writes a time, given in ticks from second 0 on, as the file would.
    pub(crate) fn text(&self, ticks: i64, ticks_per_second: f64) -> String {
        if let Some(unit) = self.unit() {
            return unit.text(ticks, ticks_per_second);
        }
        let seconds = (ticks as f64 / ticks_per_second).floor();
        let nanoseconds = ((ticks as f64 - seconds * ticks_per_second) / ticks_per_second * 1e9).round();
        match (DateTime::from_timestamp(seconds as i64, (nanoseconds as u32).min(999_999_999)), self) {
            (Some(time), TimeFormat::Pattern(pattern)) => time.format(pattern).to_string(),
            (Some(time), _) => time.format("%Y-%m-%dT%H:%M:%S%.f").to_string(),
            (None, _) => ticks.to_string(),
        }
    }
}

impl fmt::Display for TimeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeFormat::Pattern(pattern) => f.write_str(pattern),
            other => f.write_str(other.unit().map_or(ISO, |unit| unit.name)),
        }
    }
}

impl FromStr for TimeFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(unit) = UNITS.iter().find(|unit| unit.name == text) {
            return Ok(unit.format.clone());
        }
        if text == ISO {
            return Ok(TimeFormat::Iso);
        }
        let why = match text.contains('%') {
            true => match pattern::check(text) {
                Ok(()) => return Ok(TimeFormat::Pattern(text.to_owned())),
                Err(why) => why,
            },
            false => "",
        };
        let names: Vec<&str> = Self::names().collect();
        Err(Error::usage(format!("`{text}` is not a format of times{why}"))
            .remedy(format!("give {}, or a pattern such as '%d/%m/%Y %H:%M:%S'", names.join(", "))))
    }
}

impl TryFrom<String> for TimeFormat {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<TimeFormat> for String {
    fn from(format: TimeFormat) -> Self {
        format.to_string()
    }
}

#[cfg(test)]
mod tests;
