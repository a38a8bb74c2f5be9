//! Times that are numbers: units, and the time from which they count.
use super::TimeFormat;
use crate::format::number::{Decimal, Fault, MAX_DIGITS, parse_decimal, parse_decimal_to};

/// A unit of times, and the time that is its number 0.
pub(super) struct Unit {
    pub format: TimeFormat,
    pub name: &'static str,
    /// A unit is so many times `10^-digits` seconds.
    pub seconds: i64,
    pub digits: u32,
    /// Seconds from 1970-01-01 UTC to number 0.
    pub origin: i64,
    /// What the name means, if it does not tell.
    pub about: &'static str,
    /// Words in the name of a column that tell the unit.
    pub words: &'static [&'static str],
}

const fn unit(format: TimeFormat, name: &'static str, seconds: i64, digits: u32) -> Unit {
    Unit { format, name, seconds, digits, origin: 0, about: "", words: &[] }
}

impl Unit {
    const fn since(mut self, origin: i64, about: &'static str) -> Self {
        self.origin = origin;
        self.about = about;
        self
    }

    const fn called(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }
}

const DAY: i64 = 86_400;

/// All units.
pub(super) static UNITS: [Unit; 16] = [
    unit(TimeFormat::Seconds, "s", 1, 0).called(&["s", "sec", "secs", "second", "seconds"]),
    unit(TimeFormat::Milliseconds, "ms", 1, 3).called(&[
        "ms",
        "msec",
        "millis",
        "millisecond",
        "milliseconds",
    ]),
    unit(TimeFormat::Microseconds, "us", 1, 6).called(&[
        "us",
        "usec",
        "micros",
        "microsecond",
        "microseconds",
    ]),
    unit(TimeFormat::Nanoseconds, "ns", 1, 9).called(&["ns", "nsec", "nanos", "nanosecond", "nanoseconds"]),
    unit(TimeFormat::Minutes, "min", 60, 0).called(&["mins", "minute", "minutes"]),
    unit(TimeFormat::Hours, "h", 3_600, 0).called(&["hour", "hours"]),
    unit(TimeFormat::Days, "d", DAY, 0).called(&["day", "days", "dayno", "daynum"]),
    unit(TimeFormat::Weeks, "w", 7 * DAY, 0).called(&["week", "weeks"]),
    unit(TimeFormat::Excel, "excel", DAY, 0)
        .since(-25_569 * DAY, "days since 1899-12-30")
        .called(&["excel", "serial"]),
    unit(TimeFormat::Julian, "julian", DAY, 0)
        .since(-2_440_587 * DAY - DAY / 2, "Julian days")
        .called(&["julian", "jd"]),
    unit(TimeFormat::ModifiedJulian, "mjd", DAY, 0)
        .since(-40_587 * DAY, "modified Julian days")
        .called(&["mjd"]),
    unit(TimeFormat::Matlab, "matlab", DAY, 0)
        .since(-719_529 * DAY, "days of MATLAB's datenum")
        .called(&["matlab", "datenum"]),
    unit(TimeFormat::DotNet, "dotnet", 1, 7)
        .since(-62_135_596_800, "ticks of .NET: 100 ns since the year 1")
        .called(&["dotnet"]),
    unit(TimeFormat::FileTime, "filetime", 1, 7)
        .since(-11_644_473_600, "100 ns since 1601, as in Windows")
        .called(&["filetime"]),
    unit(TimeFormat::WebKit, "webkit", 1, 6)
        .since(-11_644_473_600, "microseconds since 1601, as in Chrome")
        .called(&["webkit", "chrome"]),
    unit(TimeFormat::Cocoa, "cocoa", 1, 0).since(978_307_200, "seconds since 2001").called(&["cocoa"]),
];

impl Unit {
    /// Converts a field to seconds since 1970, exactly to the nanosecond.
    pub(super) fn parse(&self, field: &[u8]) -> Result<Decimal, Fault> {
        let number = match parse_decimal(field)? {
            // A ninth digit of a day is 86 microseconds.
            Decimal { rounded: true, .. } if self.seconds > 1 => (MAX_DIGITS..=FINEST)
                .rev()
                .find_map(|digits| parse_decimal_to(field, digits).ok())
                .ok_or(Fault::TooLarge)?,
            number => number,
        };
        to_seconds(number, self.seconds, self.digits, self.origin)
    }

    /// Returns the seconds since 1970 of a number, for comparisons.
    pub(super) fn approximate(&self, number: f64) -> f64 {
        number * self.seconds as f64 / 10f64.powi(self.digits as i32) + self.origin as f64
    }

    /// Writes a time, given in ticks since 1970: exactly, if few digits do.
    pub(super) fn text(&self, ticks: i64, ticks_per_second: f64) -> String {
        let digits = (0..=MAX_DIGITS).find(|&d| 10f64.powi(d as i32) == ticks_per_second);
        if let Some(per_second) = digits.map(|digits| 10i128.pow(digits)) {
            let since = i128::from(ticks) - i128::from(self.origin) * per_second;
            let (of, per_unit) = (since * 10i128.pow(self.digits), i128::from(self.seconds) * per_second);
            let exact = (0..=FINEST).find(|&d| of * 10i128.pow(d) % per_unit == 0);
            if let Some(digits) = exact {
                return decimal(of * 10i128.pow(digits) / per_unit, digits as usize);
            }
        }
        let seconds = ticks as f64 / ticks_per_second - self.origin as f64;
        (seconds * 10f64.powi(self.digits as i32) / self.seconds as f64).to_string()
    }
}

/// Digits after the point that a number of days needs to be exact to the nanosecond.
const FINEST: u32 = 14;

/// Writes `mantissa / 10^digits`.
fn decimal(mantissa: i128, digits: usize) -> String {
    let sign = if mantissa < 0 { "-" } else { "" };
    let text = format!("{:0width$}", mantissa.unsigned_abs(), width = digits + 1);
    let (whole, part) = text.split_at(text.len() - digits);
    let point = if part.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{part}")
}

/// Converts a number of units of `seconds / 10^digits` seconds to seconds.
pub(crate) fn in_unit(number: Decimal, seconds: i64, digits: u32) -> Result<Decimal, Fault> {
    to_seconds(number, seconds, digits, 0)
}

/// Converts a number of units, whose number 0 is `origin`, to seconds.
fn to_seconds(number: Decimal, seconds: i64, digits: u32, origin: i64) -> Result<Decimal, Fault> {
    let digits = number.digits + digits;
    let since = i128::from(number.mantissa) * i128::from(seconds);
    let mantissa = since + i128::from(origin) * 10i128.pow(digits);
    let cut = 10i128.pow(digits.saturating_sub(MAX_DIGITS));
    let rounded = i64::try_from((mantissa + cut / 2).div_euclid(cut)).map_err(|_| Fault::TooLarge)?;
    Ok(Decimal {
        rounded: number.rounded || mantissa % cut != 0,
        ..Decimal::new(rounded, digits.min(MAX_DIGITS))
    })
}
