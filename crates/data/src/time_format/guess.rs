//! How times are written where nothing says so: by their size, their digits, and the name of their column.
use super::{
    TimeFormat,
    unit::{UNITS, Unit},
};
use crate::{
    format::number::{Decimal, Fault, parse_decimal},
    text::shown,
};
use chrono::DateTime;
use std::ops::Range;

/// Formats of whole numbers by their size, each with the smallest number that is read so.
///
/// Of the units since 1970, a finer one begins where a time would be after the year 5000. Units that count
/// from long ago have the numbers of the years 1980 to 2099. As units since 1970, these would be times after
/// 2348, or in 1973 and 1974, or in 1989 and 1990.
const BY_SIZE: [(u64, TimeFormat); 10] = [
    (0, TimeFormat::Seconds),
    (100_000_000_000, TimeFormat::Milliseconds),
    (100_000_000_000_000, TimeFormat::Microseconds),
    (11_960_006_400_000_000, TimeFormat::WebKit),
    (15_746_918_400_000_000, TimeFormat::Microseconds),
    (100_000_000_000_000_000, TimeFormat::Nanoseconds),
    (119_600_064_000_000_000, TimeFormat::FileTime),
    (157_469_184_000_000_000, TimeFormat::Nanoseconds),
    (624_511_296_000_000_000, TimeFormat::DotNet),
    (662_380_416_000_000_000, TimeFormat::Nanoseconds),
];

/// Patterns of dates that are written as whole numbers, by their number of digits. Of the patterns of one
/// number, the first counts, but for days before and after months, of which neither is surer.
const DATES: [(usize, &[&str]); 7] = [
    (4, &["%Y"]),
    (6, &["%Y%m", "%y%m%d"]),
    (7, &["%Y%j"]),
    (8, &["%Y%m%d", "%d%m%Y", "%m%d%Y"]),
    (10, &["%Y%m%d%H"]),
    (12, &["%Y%m%d%H%M"]),
    (14, &["%Y%m%d%H%M%S"]),
];
/// First and last second of the dates that a whole number may be: from 1900 until 2099.
const DATED: Range<i64> = -2_208_988_800..4_102_444_800;

/// Seconds of an average year.
const YEAR: f64 = 31_556_952.0;
/// Years of most events.
const USUAL: Range<f64> = 1990.0..2040.0;
/// Years that events may have.
const POSSIBLE: Range<f64> = 1980.0..2040.0;

/// Units of numbers that a column of dates has, in the order in which they are tried.
const OF_DATES: [TimeFormat; 5] =
    [TimeFormat::Days, TimeFormat::Excel, TimeFormat::ModifiedJulian, TimeFormat::Julian, TimeFormat::Matlab];
/// Units of numbers that any column may have, if they are no seconds.
const OTHERS: [TimeFormat; 7] = [
    TimeFormat::Minutes,
    TimeFormat::Hours,
    TimeFormat::Days,
    TimeFormat::Excel,
    TimeFormat::ModifiedJulian,
    TimeFormat::Julian,
    TimeFormat::Matlab,
];

impl TimeFormat {
    /// Guesses how `field`, the first time of a file, is written: a number by its size.
    pub(crate) fn guess(field: &[u8]) -> Self {
        match parse_decimal(field) {
            Ok(Decimal { mantissa, digits, .. }) => {
                let size = mantissa.unsigned_abs() / 10u64.pow(digits);
                let fits = |of: &&(u64, TimeFormat)| {
                    of.0 <= size && (mantissa >= 0 || of.1.unit().is_some_and(|unit| unit.origin == 0))
                };
                BY_SIZE.iter().rfind(fits).map_or(TimeFormat::Seconds, |of| of.1.clone())
            }
            Err(Fault::Text | Fault::Empty) => TimeFormat::Iso,
            Err(_) => TimeFormat::Seconds,
        }
    }

    /// Returns the patterns of dates that all of `fields` may be, which are whole numbers, such as
    /// `20200131`: one, or both with days and months first if the fields do not tell which.
    pub(crate) fn of_dates<'a>(fields: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<Self> {
        let Some(first) = fields.clone().next() else { return Vec::new() };
        let digits = first.strip_suffix(b".0").unwrap_or(first);
        let patterns =
            DATES.iter().find(|(n, _)| *n == digits.len()).map_or(&[][..], |(_, patterns)| patterns);
        let patterns = patterns.iter().map(|pattern| TimeFormat::Pattern((*pattern).to_owned()));
        let has_digits = |field: &[u8]| field.len() == first.len() && field[0].is_ascii_digit();
        let fits = |pattern: &TimeFormat| {
            let is_date =
                |field: &[u8]| pattern.parse(field).is_ok_and(|date| DATED.contains(&date.mantissa));
            fields.clone().all(|field| has_digits(field) && is_date(field))
        };
        let mut fit: Vec<Self> = patterns.filter(fits).collect();
        let are_of_year =
            |pattern: &TimeFormat| matches!(pattern, TimeFormat::Pattern(p) if p.ends_with("%Y"));
        if !fit.first().is_some_and(are_of_year) {
            fit.truncate(1);
        }
        fit
    }

    /// Returns the unit in which to read the numbers `fields` of a column called `name`, if that is not told
    /// by their size, and what to say about them.
    pub(crate) fn of_numbers(name: &str, fields: &[&[u8]]) -> (Option<Self>, Option<String>) {
        let Some(numbers) = Numbers::new(name, fields) else { return (None, None) };
        match numbers.unit_by_name() {
            Some(unit) if numbers.are_gps() => (Some(unit.format.clone()), Some(numbers.told_gps(unit))),
            Some(unit) => (Some(unit.format.clone()), Some(numbers.told(unit))),
            None if numbers.are_gps() => (None, Some(numbers.told_gps(numbers.guessed))),
            None => (None, numbers.doubt()),
        }
    }
}

/// The first numbers of a column of times.
struct Numbers<'a> {
    /// The words in the name of the column.
    words: Vec<String>,
    first: &'a [u8],
    range: [f64; 2],
    /// The unit by size.
    guessed: &'static Unit,
}

impl<'a> Numbers<'a> {
    /// Collects numbers; `None` if one of the fields is none.
    fn new(name: &str, fields: &[&'a [u8]]) -> Option<Self> {
        let first = *fields.first()?;
        let guessed = TimeFormat::guess(first).unit()?;
        let mut range = [f64::INFINITY, f64::NEG_INFINITY];
        for field in fields {
            let number = approximate(parse_decimal(field).ok()?);
            range = [range[0].min(number), range[1].max(number)];
        }
        Some(Numbers { words: words(name), first, range, guessed })
    }

    /// Whether all numbers are in some years if they have this unit.
    fn are_in(&self, years: &Range<f64>, unit: &Unit) -> bool {
        self.range.iter().all(|number| years.contains(&(1970.0 + unit.approximate(*number) / YEAR)))
    }

    /// Returns another unit than by size, if the name tells it and the numbers then are usual dates.
    fn unit_by_name(&self) -> Option<&'static Unit> {
        let is_usual = |unit: &&Unit| self.are_in(&USUAL, unit);
        let of_dates = || OF_DATES.iter().filter_map(TimeFormat::unit).find(is_usual);
        let are_dates =
            !self.are_in(&POSSIBLE, self.guessed) && self.words.iter().any(|word| is_date_word(word));
        self.called().filter(is_usual).or_else(|| are_dates.then(of_dates).flatten())
    }

    /// Returns the unit that the name tells, if it is not that by size.
    fn called(&self) -> Option<&'static Unit> {
        let is_called = |unit: &&Unit| self.words.iter().any(|word| unit.words.contains(&word.as_str()));
        UNITS.iter().find(is_called).filter(|unit| unit.format != self.guessed.format)
    }

    /// Says that the name tells the unit.
    fn told(&self, unit: &Unit) -> String {
        format!(
            "{} and the other times are read by --time-format {}, because of the column's name: the first is {}; \
             if they are seconds, give --time-format s",
            shown(self.first),
            unit.format.described(),
            self.date(unit)
        )
    }

    /// Whether the name says that they are times of GPS.
    fn are_gps(&self) -> bool {
        self.words.iter().any(|word| word.starts_with("gps"))
    }

    /// Says that times of GPS count from another day.
    fn told_gps(&self, unit: &Unit) -> String {
        format!(
            "{} and the other times are read in {} since 1970, and the column's name says GPS, which counts from \
             1980-01-06: dates are wrong, differences right",
            shown(self.first),
            unit.format
        )
    }

    /// Returns a doubt about the unit by size.
    fn doubt(&self) -> Option<String> {
        let (first, guessed) = (shown(self.first), &self.guessed.format);
        if let Some(unit) = self.called().filter(|unit| unit.origin == 0) {
            return Some(format!(
                "{first} is read in {guessed}; if it is in {0}, as the column's name says, give --time-format {0}",
                unit.format
            ));
        }
        if self.are_in(&POSSIBLE, self.guessed) {
            return None;
        }
        let date = self.date(self.guessed);
        let others: Vec<&Unit> =
            OTHERS.iter().filter_map(TimeFormat::unit).filter(|unit| self.are_in(&USUAL, unit)).collect();
        if !others.is_empty() {
            let dates =
                others.iter().map(|unit| format!("in {} it is {}", unit.format.described(), self.date(unit)));
            let names: Vec<&str> = others.iter().map(|unit| unit.name).collect();
            return Some(format!(
                "{first} is read in {guessed} since 1970, which is {date}; {}: if so, give --time-format {}",
                dates.collect::<Vec<_>>().join(", "),
                names.join(" or ")
            ));
        }
        if self.words.iter().any(|word| is_date_word(word)) {
            return Some(format!(
                "{first} is read in {guessed} since 1970, which is {date}; if it is a date, as the column's name \
                 says, give its format, such as --time-format %d%m%Y"
            ));
        }
        let is_far = 1970.0 + self.guessed.approximate(self.range[0]) / YEAR >= POSSIBLE.end;
        is_far.then(|| {
            format!(
                "{first} is read in {guessed} since 1970, which is {date}: is it in another unit? give it, such as \
                 --time-format ms"
            )
        })
    }

    /// Returns the date of the first time.
    fn date(&self, unit: &Unit) -> String {
        let number = parse_decimal(self.first).map_or(0.0, approximate);
        let date = DateTime::from_timestamp(unit.approximate(number).floor() as i64, 0);
        date.map_or_else(|| "no date".to_owned(), |date| date.format("%Y-%m-%d").to_string())
    }
}

/// Returns a number as a float.
fn approximate(number: Decimal) -> f64 {
    number.mantissa as f64 / 10f64.powi(number.digits as i32)
}

/// Returns the words in a name such as `order_date` or `orderDate`, in lower case.
pub(crate) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let starts = c.is_uppercase() && was_lower;
        if (starts || !c.is_alphanumeric()) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    words
}

/// Whether the name of a column says that it has dates.
pub(crate) fn is_named_date(name: &str) -> bool {
    words(name).iter().any(|word| is_date_word(word))
}

/// Whether a word in the name of a column means a date or a day.
pub(crate) fn is_date_word(word: &str) -> bool {
    let days = ["day", "days", "datum", "fecha", "tag", "jour", "dia", "giorno"];
    word.ends_with("date") && !word.ends_with("update") || days.contains(&word)
}
