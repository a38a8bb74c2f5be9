//! How a file writes times: in seconds or another unit, as ISO 8601, or by a pattern.
use super::format::number::{Decimal, Fault, MAX_DIGITS, parse_decimal};
use chrono::{
    DateTime, NaiveDate, NaiveDateTime, NaiveTime,
    format::{self, Item, ParseResult, Parsed, StrftimeItems},
};
use serde::{Deserialize, Serialize};
use std::{fmt, ops::Range, str::FromStr};
use tgnn::error::{Error, Result};

/// How a file writes times.
///
/// As text: `s` (seconds, with or without decimals), `ms`, `us`, `ns`, `min`, `h`, `d`, `iso`, or a pattern
/// of `strftime` such as `%d/%m/%Y %H:%M`. Times without a zone are UTC.
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
    /// Dates and times of ISO 8601, such as `2023-11-14`, `2023-11-14 22:13` and
    /// `2023-11-14T22:13:29.5+01:00`.
    Iso,
    /// Pattern of `strftime`.
    Pattern(String),
}

/// Name of every unit, its seconds, and its digits after the decimal point of a second.
const UNITS: [(TimeFormat, &str, i64, u32); 7] = [
    (TimeFormat::Seconds, "s", 1, 0),
    (TimeFormat::Milliseconds, "ms", 1, 3),
    (TimeFormat::Microseconds, "us", 1, 6),
    (TimeFormat::Nanoseconds, "ns", 1, 9),
    (TimeFormat::Minutes, "min", 60, 0),
    (TimeFormat::Hours, "h", 3_600, 0),
    (TimeFormat::Days, "d", 86_400, 0),
];

impl TimeFormat {
    /// Guesses how `field`, the first time of a file, is written: a number from 10^11 on is in milliseconds,
    /// from 10^14 on in microseconds and from 10^17 on in nanoseconds, because in seconds it would be after
    /// the year 5000.
    pub(crate) fn guess(field: &[u8]) -> Self {
        match parse_decimal(field) {
            Ok(Decimal { mantissa, digits, .. }) => match mantissa.unsigned_abs() / 10u64.pow(digits) {
                size if size < 100_000_000_000 => TimeFormat::Seconds,
                size if size < 100_000_000_000_000 => TimeFormat::Milliseconds,
                size if size < 100_000_000_000_000_000 => TimeFormat::Microseconds,
                _ => TimeFormat::Nanoseconds,
            },
            Err(Fault::Text | Fault::Empty) => TimeFormat::Iso,
            Err(_) => TimeFormat::Seconds,
        }
    }

    /// Returns the seconds of one unit, and the digits after the decimal point of a second; `None` for dates.
    fn unit(&self) -> Option<(i64, u32)> {
        UNITS.iter().find(|unit| unit.0 == *self).map(|unit| (unit.2, unit.3))
    }

    /// Converts a field to seconds, exactly to the nanosecond. Dates count from 1970-01-01 UTC.
    pub(crate) fn parse(&self, field: &[u8]) -> Result<Decimal, Fault> {
        match (self, self.unit()) {
            (TimeFormat::Pattern(pattern), _) => by_pattern(field, pattern),
            (_, Some((seconds, digits))) => in_unit(parse_decimal(field)?, seconds, digits),
            _ => iso(field),
        }
    }

    /// Writes a time, given in ticks from second 0 on, as the file would.
    pub(crate) fn text(&self, ticks: i64, ticks_per_second: f64) -> String {
        if let Some((seconds, digits)) = self.unit() {
            let per_unit = ticks_per_second * seconds as f64 / 10f64.powi(digits as i32);
            if per_unit == 1.0 {
                return ticks.to_string();
            }
            return (ticks as f64 / per_unit).to_string();
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
            other => f.write_str(UNITS.iter().find(|unit| unit.0 == *other).map_or("iso", |unit| unit.1)),
        }
    }
}

impl FromStr for TimeFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some((format, ..)) = UNITS.iter().find(|unit| unit.1 == text) {
            return Ok(format.clone());
        }
        let is_pattern = text.contains('%') && !StrftimeItems::new(text).any(|item| item == Item::Error);
        match text {
            "iso" => Ok(TimeFormat::Iso),
            _ if is_pattern => Ok(TimeFormat::Pattern(text.to_owned())),
            _ => Err(Error::usage(format!("`{text}` is not a format of times"))
                .remedy("give s, ms, us, ns, min, h, d, iso, or a pattern such as '%d/%m/%Y %H:%M:%S'")),
        }
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

/// Patterns of dates that are written as whole numbers, by their number of digits.
const DATES: [(usize, &str); 6] =
    [(4, "%Y"), (6, "%Y%m"), (8, "%Y%m%d"), (10, "%Y%m%d%H"), (12, "%Y%m%d%H%M"), (14, "%Y%m%d%H%M%S")];
/// First and last second of the dates that a whole number may be: from 1900 until 2099.
const DATED: Range<i64> = -2_208_988_800..4_102_444_800;

impl TimeFormat {
    /// Returns the pattern of dates that all of `fields` may be, which are whole numbers, such as `20200131`.
    pub(crate) fn of_dates<'a>(fields: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Self> {
        let first = fields.clone().next()?;
        let digits = first.strip_suffix(b".0").unwrap_or(first);
        let (_, pattern) = DATES.iter().find(|(n, _)| *n == digits.len())?;
        let pattern = TimeFormat::Pattern((*pattern).to_owned());
        let is_date = |field: &[u8]| pattern.parse(field).is_ok_and(|date| DATED.contains(&date.mantissa));
        let has_digits = |field: &[u8]| field.len() == first.len() && field[0].is_ascii_digit();
        fields.clone().all(|field| has_digits(field) && is_date(field)).then_some(pattern)
    }
}

/// Converts a number of units of `seconds / 10^digits` seconds to seconds.
pub(crate) fn in_unit(number: Decimal, seconds: i64, digits: u32) -> Result<Decimal, Fault> {
    let mantissa = number.mantissa.checked_mul(seconds).ok_or(Fault::TooLarge)?;
    let beyond = (number.digits + digits).saturating_sub(MAX_DIGITS);
    if beyond == 0 {
        let rounded = number.rounded;
        return Ok(Decimal { rounded, ..Decimal::new(mantissa, number.digits + digits) });
    }
    let cut = 10i64.pow(beyond);
    Ok(Decimal {
        rounded: mantissa % cut != 0,
        ..Decimal::new((mantissa + cut / 2).div_euclid(cut), MAX_DIGITS)
    })
}

/// Converts a date and time in UTC, less `offset` seconds, to seconds.
fn since_1970(time: NaiveDateTime, offset: i64) -> Decimal {
    let utc = time.and_utc();
    let seconds = utc.timestamp() - offset;
    match utc.timestamp_subsec_nanos() {
        0 => Decimal::new(seconds, 0),
        nanoseconds => match seconds.checked_mul(1_000_000_000) {
            Some(whole) => Decimal::new(whole + i64::from(nanoseconds), 9),
            // Beyond the years 1678 to 2262, nanoseconds do not fit.
            None => Decimal { rounded: true, ..Decimal::new(seconds, 0) },
        },
    }
}

/// Converts a field by a pattern of `strftime`. A whole number may end in `.0`, as data frames write it.
fn by_pattern(field: &[u8], pattern: &str) -> Result<Decimal, Fault> {
    let text = std::str::from_utf8(field).map_err(|_| Fault::Encoding)?;
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    let whole = text.strip_suffix(".0").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    let time = [Some(text), whole].into_iter().flatten().find_map(|text| parsed(text, pattern).ok());
    time.map(|time| since_1970(time, 0)).ok_or(Fault::Text)
}

/// Parses a time in UTC by a pattern. A month, a day, minutes or seconds that the pattern does not have are
/// the first.
fn parsed(text: &str, pattern: &str) -> ParseResult<NaiveDateTime> {
    let mut parts = Parsed::new();
    format::parse(&mut parts, text, StrftimeItems::new(pattern))?;
    if let Ok(time) = parts.to_datetime() {
        return Ok(time.naive_utc());
    }
    let weeks = [parts.week_from_sun(), parts.week_from_mon(), parts.isoweek(), parts.ordinal()];
    if parts.day().is_none() && weeks.iter().all(Option::is_none) {
        if parts.month().is_none() {
            parts.set_month(1)?;
        }
        parts.set_day(1)?;
    }
    if parts.hour_mod_12().is_none() && parts.timestamp().is_none() {
        return Ok(parts.to_naive_date()?.and_time(NaiveTime::MIN));
    }
    if parts.minute().is_none() && parts.timestamp().is_none() {
        parts.set_minute(0)?;
    }
    parts.to_naive_datetime_with_offset(parts.offset().unwrap_or(0))
}

/// Converts a date, or a date and time, of ISO 8601. A day may be missing, a blank may stand for `T`, and `/`
/// for `-`.
fn iso(field: &[u8]) -> Result<Decimal, Fault> {
    if field.is_empty() {
        return Err(Fault::Empty);
    }
    let mut rest = Scanner(field);
    let parsed = rest.date().zip(Some(rest.time())).and_then(|(date, time)| Some((date, time?)));
    let Some((date, (time, nanoseconds))) = parsed else { return Err(Fault::Text) };
    let offset = rest.zone().filter(|_| rest.0.is_empty()).ok_or(Fault::Text)?;
    let seconds = since_1970(date.and_time(NaiveTime::MIN), 0).mantissa + time - offset;
    if nanoseconds == 0 {
        return Ok(Decimal::new(seconds, 0));
    }
    let whole = seconds.checked_mul(1_000_000_000).ok_or(Fault::TooLarge)?;
    Ok(Decimal::new(whole + nanoseconds, 9))
}

/// The part of a field that is not parsed yet.
struct Scanner<'a>(&'a [u8]);

impl Scanner<'_> {
    /// Takes `least` to `most` digits.
    fn digits(&mut self, least: usize, most: usize) -> Option<i64> {
        let n = self.0.iter().take(most).take_while(|b| b.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at_checked(n).filter(|_| n >= least)?;
        self.0 = rest;
        Some(digits.iter().fold(0, |v, b| 10 * v + i64::from(b - b'0')))
    }

    /// Takes one of `bytes` if it is next.
    fn take(&mut self, bytes: &[u8]) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if bytes.contains(first) => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes `2023-11-14` or `2023-11`.
    fn date(&mut self) -> Option<NaiveDate> {
        let year = self.digits(4, 4)?;
        let month = if self.take(b"-/") { self.digits(1, 2)? } else { return None };
        let day = if self.take(b"-/") { self.digits(1, 2)? } else { 1 };
        NaiveDate::from_ymd_opt(year as i32, month as u32, day as u32)
    }

    /// Takes a time of day, if there is one: the seconds since midnight, and the nanoseconds of a second.
    fn time(&mut self) -> Option<(i64, i64)> {
        if !self.take(b"Tt ") {
            return Some((0, 0));
        }
        let (hours, mut minutes, mut seconds, mut nanoseconds) = (self.digits(1, 2)?, 0, 0, 0);
        if self.take(b":") {
            minutes = self.digits(2, 2)?;
            if self.take(b":") {
                seconds = self.digits(2, 2)?;
                if self.take(b".,") {
                    let before = self.0.len();
                    let part = self.digits(1, 9)?;
                    nanoseconds = part * 10i64.pow(9 - (before - self.0.len()) as u32);
                    let _beyond_nanoseconds = self.digits(0, usize::MAX);
                }
            }
        }
        // A leap second is second 60.
        (hours < 24 && minutes < 60 && seconds <= 60)
            .then_some((3_600 * hours + 60 * minutes + seconds, nanoseconds))
    }

    /// Takes a zone, if there is one: its seconds east of UTC.
    fn zone(&mut self) -> Option<i64> {
        while self.take(b" ") {}
        if self.0.eq_ignore_ascii_case(b"UTC") || self.0.eq_ignore_ascii_case(b"GMT") {
            self.0 = &[];
        }
        if self.0.is_empty() || self.take(b"Zz") {
            return Some(0);
        }
        let west = self.take(b"-");
        if !west && !self.take(b"+") {
            return None;
        }
        let hours = self.digits(2, 2)?;
        let minutes = if self.take(b":") || !self.0.is_empty() { self.digits(2, 2)? } else { 0 };
        let east = 3_600 * hours + 60 * minutes;
        (hours < 24 && minutes < 60).then_some(if west { -east } else { east })
    }
}

/// The times of a data set: converts between the file's times and ticks since the first event.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeScale {
    /// Number of ticks per second.
    pub ticks_per_second: f64,
    /// Time of the first event, in ticks from second 0 of the file's times on.
    pub origin: i64,
    /// How the file writes times.
    pub format: TimeFormat,
}

impl TimeScale {
    /// Converts a time, written as in the file, to ticks since the first event.
    ///
    /// If there are 1, 10, 100, .. ticks per second, the conversion is exact. With any other number of ticks
    /// per second, the time is rounded to the nearest tick.
    ///
    /// # Errors
    /// Data if `text` is not a time of the file's format, if it is not a whole number of ticks, or if it is
    /// too far from the first event.
    ///
    /// ```
    /// use tgnn_data::{TimeFormat, TimeScale};
    /// let scale = TimeScale { ticks_per_second: 1.0, origin: 86_400, format: TimeFormat::Iso };
    /// assert_eq!((scale.ticks("1970-01-02 00:00:05")?, scale.text(5).as_str()), (5, "1970-01-02T00:00:05"));
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn ticks(&self, text: &str) -> Result<i64> {
        self.parse(text.as_bytes())
            .map_err(|what| Error::new(tgnn::error::ErrorKind::Data, what).remedy(self.remedy()))
    }

    /// Writes a time, given in ticks since the first event, as the file would.
    pub fn text(&self, ticks: i64) -> String {
        self.format.text(self.origin.saturating_add(ticks), self.ticks_per_second)
    }

    /// Converts a field as [`ticks`](Self::ticks) does; the error says what is wrong.
    pub(crate) fn parse(&self, field: &[u8]) -> Result<i64, String> {
        let time = self.format.parse(field).map_err(|fault| fault.describe(field, "a time"))?;
        self.to_ticks(time).ok_or_else(|| {
            format!(
                "{} is not a valid time of the data set (ticks per second: {})",
                super::text::shown(field),
                self.ticks_per_second
            )
        })
    }

    /// Returns how to write a time.
    pub(crate) fn remedy(&self) -> String {
        match &self.format {
            TimeFormat::Iso => "write a date and time as in the data, such as 2023-11-14T22:13:29".to_owned(),
            TimeFormat::Pattern(pattern) => format!("write times as in the data, by the pattern {pattern}"),
            unit => format!("write a time as in the data, a number in the unit {unit}"),
        }
    }

    /// Converts a time in seconds as [`to_ticks`](Self::to_ticks) does, but cuts off digits that are finer
    /// than a tick.
    #[cfg(feature = "formats")]
    pub(crate) fn cut(&self, time: Decimal) -> Option<i64> {
        let digits = (0..time.digits).find(|&d| 10f64.powi(d as i32) == self.ticks_per_second)?;
        self.to_ticks(Decimal::new(time.mantissa.div_euclid(10i64.pow(time.digits - digits)), digits))
    }

    /// Whether a time is so far from the events, the last of which is at `last`, that it must be in another
    /// unit: by more than a year and a hundred times their span. Both are in ticks.
    #[doc(hidden)]
    pub fn is_far(&self, ticks: i64, last: i64) -> bool {
        let distance = ticks.abs_diff(ticks.clamp(0, last.max(0))) as f64;
        distance > 100.0 * last as f64 && distance > 366.0 * 86_400.0 * self.ticks_per_second
    }

    /// Converts a time in seconds to ticks since the first event; `None` if it is not a whole number of ticks
    /// or too far from the first event.
    pub(crate) fn to_ticks(&self, time: Decimal) -> Option<i64> {
        // Half the range of i64, so that a difference of two times never overflows.
        let in_range = |t: &i64| t.unsigned_abs() < 1 << 62;
        let digits = (0..=9u32).find(|&d| 10f64.powi(d as i32) == self.ticks_per_second);
        let ticks = match digits {
            Some(digits) => 10i64.checked_pow(digits.checked_sub(time.digits)?)?.checked_mul(time.mantissa),
            None => {
                let seconds = time.mantissa as f64 / 10f64.powi(time.digits as i32);
                Some((seconds * self.ticks_per_second).round() as i64).filter(in_range)
            }
        };
        ticks?.checked_sub(self.origin).filter(in_range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(format: &str, text: &str) -> Result<(i64, u32), Fault> {
        let time = format.parse::<TimeFormat>().unwrap().parse(text.as_bytes())?;
        Ok((time.mantissa, time.digits))
    }

    #[test]
    fn iso_dates_and_times_are_read_with_and_without_zone() {
        for (text, want) in [
            ("1970-01-01", (0, 0)),
            ("1970-02", (31 * 86_400, 0)),
            ("2023-11-14T22:13:29", (1_700_000_009, 0)),
            ("2023/11/14 22:13:29", (1_700_000_009, 0)),
            ("2023-11-14 22:13:29.250", (170_000_000_925, 2)),
            ("2023-11-14T22:13:29Z", (1_700_000_009, 0)),
            ("2023-11-14 22:13:29 UTC", (1_700_000_009, 0)),
            ("2023-11-14T23:13:29+01:00", (1_700_000_009, 0)),
            ("2023-11-14T17:13:29-0500", (1_700_000_009, 0)),
            ("2023-11-14T23:13+01", (1_700_000_009 - 29, 0)),
            ("1969-12-31 23:59:59.5", (-5, 1)),
            ("2016-12-31T23:59:60Z", (1_483_228_800, 0)),
        ] {
            assert_eq!(seconds("iso", text), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "2023",
            "2023-13-01",
            "2023-02-30",
            "14.11.2023",
            "2023-11-14T25:00",
            "2023-11-14T10:00 CET",
            "x",
            "2023-11-14T",
        ] {
            assert_eq!(seconds("iso", text), Err(Fault::Text), "{text}");
        }
        assert_eq!(seconds("iso", ""), Err(Fault::Empty));
        assert_eq!(seconds("%d.%m.%Y", "2023-11-14"), Err(Fault::Text));
    }

    #[test]
    fn units_and_patterns_give_exact_seconds() {
        for (format, text, want) in [
            ("s", "1.5", (15, 1)),
            ("ms", "1700000009250", (170_000_000_925, 2)),
            ("ms", "1.5", (15, 4)),
            ("us", "2500000", (25, 1)),
            ("ns", "1.6", (2, 9)),
            ("min", "2", (120, 0)),
            ("h", "0.5", (1_800, 0)),
            ("d", "3", (259_200, 0)),
            ("%d.%m.%Y", "14.11.2023", (1_699_920_000, 0)),
            ("%m/%d/%Y %H:%M", "11/14/2023 22:13", (1_699_999_980, 0)),
            ("%a %b %d %H:%M:%S %z %Y", "Tue Nov 14 23:13:29 +0100 2023", (1_700_000_009, 0)),
            ("%Y%m", "197002", (31 * 86_400, 0)),
            ("%Y", "1971", (365 * 86_400, 0)),
            ("%Y%m%d.0", "19700102.0", (86_400, 0)),
            ("%Y%m%d", "19700102.0", (86_400, 0)),
            ("%Y%m%d%H", "1970010205", (86_400 + 5 * 3_600, 0)),
            ("%Y-%m-%d %I %p", "1970-01-02 05 PM", (86_400 + 17 * 3_600, 0)),
            ("%Y%m%d%H%M%S", "19700101000105", (65, 0)),
            ("%s", "1700000009", (1_700_000_009, 0)),
            ("%Y-%j", "1970-032", (31 * 86_400, 0)),
        ] {
            assert_eq!(seconds(format, text), Ok(want), "{format} {text}");
        }
    }

    #[test]
    fn the_unit_is_guessed_from_the_size_of_the_first_time() {
        for (field, format) in [
            ("0", TimeFormat::Seconds),
            ("1700000009.5", TimeFormat::Seconds),
            ("1700000009250", TimeFormat::Milliseconds),
            ("1700000009250000", TimeFormat::Microseconds),
            ("1700000009250000000", TimeFormat::Nanoseconds),
            ("2023-11-14", TimeFormat::Iso),
        ] {
            assert_eq!(TimeFormat::guess(field.as_bytes()), format, "{field}");
        }
    }

    #[test]
    fn whole_numbers_may_be_dates() {
        let of_dates = |fields: &[&str]| {
            TimeFormat::of_dates(fields.iter().map(|f| f.as_bytes())).map(|format| format.to_string())
        };
        for (fields, pattern) in [
            (&["201501", "201512"][..], "%Y%m"),
            (&["20200131", "20200201"], "%Y%m%d"),
            (&["20200131.0"], "%Y%m%d"),
            (&["2015010100", "2015010123"], "%Y%m%d%H"),
            (&["201501010059"], "%Y%m%d%H%M"),
            (&["20150101000000"], "%Y%m%d%H%M%S"),
            (&["1986", "2016"], "%Y"),
        ] {
            assert_eq!(of_dates(fields).as_deref(), Some(pattern), "{fields:?}");
        }
        for none in
            [&["1600000015"][..], &["20200131", "20200132"], &["201501", "20150101"], &["-2015"], &["x"], &[]]
        {
            assert_eq!(of_dates(none), None, "{none:?}");
        }
    }

    #[test]
    fn times_are_written_as_they_were_read() {
        for (format, ticks_per_second, text) in [
            ("s", 1.0, "1700000009"),
            ("s", 100.0, "1.25"),
            ("ms", 1000.0, "1700000009250"),
            ("iso", 10.0, "2023-11-14T22:13:29.500"),
            ("iso", 1.0, "1969-12-31T23:59:59"),
            ("%d.%m.%Y", 1.0, "14.11.2023"),
        ] {
            let format: TimeFormat = format.parse().unwrap();
            let scale = TimeScale { ticks_per_second, origin: 7, format };
            assert_eq!(scale.text(scale.ticks(text).unwrap()), text);
        }
    }

    #[test]
    fn a_time_that_is_not_of_the_data_says_how_to_write_it() {
        let scale = TimeScale { ticks_per_second: 1.0, origin: 0, format: TimeFormat::Iso };
        let e = scale.ticks("5").unwrap_err().to_string();
        assert_eq!(e, "`5` is not a time; write a date and time as in the data, such as 2023-11-14T22:13:29");
        let e = TimeScale { format: TimeFormat::Seconds, ..scale }.ticks("0.5").unwrap_err().to_string();
        assert!(e.starts_with("`0.5` is not a valid time of the data set (ticks per second: 1); "), "{e}");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(field in proptest::collection::vec(any::<u8>(), 0..40)) {
            for format in [TimeFormat::Iso, TimeFormat::Nanoseconds, TimeFormat::Pattern("%Y-%m-%d".into())] {
                let _ = format.parse(&field);
            }
            let _ = TimeFormat::guess(&field);
        }

        #[test]
        fn iso_reads_back(seconds in -60_000_000_000i64..60_000_000_000) {
            let scale = TimeScale { ticks_per_second: 1.0, origin: 0, format: TimeFormat::Iso };
            prop_assert_eq!(scale.ticks(&scale.text(seconds)).unwrap(), seconds);
        }
    }
}
