//! Times that are divided into columns, of which only one would be read: the days of a column of times of day
//! would become one.
use super::{columns::ColumnName, header_row::Fields, sample::Sample};
use crate::time_format::{TimeFormat, is_date_word, words};

/// Numbers from here on are whole times: 1973-03-03 in seconds.
const OLDEST_UNIX_TIME: f64 = 1e8;
/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// What is not read of a time, and what to do.
pub(super) struct SplitTime {
    pub what: String,
    pub remedy: String,
}

/// Returns what is wrong if the column `time` has only a part of the times, and others have the rest.
pub(super) fn find(names: &[String], time: usize, sample: &Sample) -> Option<SplitTime> {
    let columns = Columns { names, sample };
    columns.day_of_month(time).or_else(|| columns.day(time)).or_else(|| columns.clock(time))
}

/// The columns of a table with a header.
struct Columns<'a> {
    names: &'a [String],
    sample: &'a Sample,
}

impl Columns<'_> {
    /// Returns the first column of which `holds` is true.
    fn position(&self, holds: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.names.len()).find(|&i| holds(i))
    }

    /// Returns the first column with one of these names, but for blanks and `_`.
    fn called(&self, names: &[&str]) -> Option<usize> {
        self.position(|i| names.contains(&&*self.names[i].to_ascii_lowercase().replace(['_', ' '], "")))
    }

    /// Whether column `i` has values, and `holds` is true for all of them.
    fn all(&self, i: usize, holds: impl Fn(&[u8]) -> bool) -> bool {
        let mut present = self.sample.present(i).peekable();
        present.peek().is_some() && present.all(holds)
    }

    /// Whether column `i` has numbers from `first` to `last`.
    fn are_in(&self, i: usize, first: f64, last: f64) -> bool {
        let is_in = |number: f64| (first..=last).contains(&number);
        self.all(i, |field| number(field).is_some_and(is_in))
    }

    /// Whether column `i` has dates without a time of day.
    fn are_days(&self, i: usize) -> bool {
        self.all(i, |field| field.len() <= 10 && TimeFormat::Iso.parse(field).is_ok())
    }

    /// Whether column `i` has times of day, such as `22:13` and `10:13:20 PM`.
    fn are_clocks(&self, i: usize) -> bool {
        self.all(i, is_clock)
    }

    /// Returns the pattern of the dates in column `i`.
    fn pattern_of_days(&self, i: usize) -> Option<String> {
        match self.are_days(i) {
            true if self.all(i, |field| field.contains(&b'-')) => Some("%Y-%m-%d".into()),
            true => Some("%Y/%m/%d".into()),
            false => Some(TimeFormat::of_dates(self.sample.present(i)).first()?.to_string()),
        }
    }

    /// Returns the pattern of the times of day in column `i`.
    fn pattern_of_clocks(&self, i: usize) -> Option<&'static str> {
        let has_digits = |n: usize| {
            let is_minute = |field: &[u8]| field[n - 2..] < b"60"[..] && field[..2] < b"24"[..];
            self.all(i, |field| field.len() == n && field.iter().all(u8::is_ascii_digit) && is_minute(field))
        };
        let has = |b: u8| self.all(i, |field| field.contains(&b));
        let colons = |n: usize| self.all(i, |field| field.iter().filter(|b| **b == b':').count() == n);
        match self.are_clocks(i) {
            true if has(b'M') || has(b'm') => Some(if colons(1) { "%I:%M %p" } else { "%I:%M:%S %p" }),
            true => Some(if colons(1) { "%H:%M" } else { "%H:%M:%S" }),
            false if has_digits(4) => Some("%H%M"),
            false if has_digits(6) => Some("%H%M%S"),
            false => None,
        }
    }

    /// Returns how to join columns to a time by a pattern; without one, by the format of dates.
    fn join(&self, columns: &[usize], pattern: Option<String>) -> String {
        let names = columns.iter().map(|&i| ColumnName::Name(self.names[i].clone()).to_string());
        let columns = format!("--columns time={}", names.collect::<Vec<_>>().join("+"));
        match pattern {
            Some(pattern) => format!("give {columns} --time-format '{pattern}'"),
            None => format!("give {columns}"),
        }
    }

    /// Returns what is wrong with days of the month that have a column of months beside them.
    fn day_of_month(&self, time: usize) -> Option<SplitTime> {
        let day = self.called(&["day", "dayofmonth", "mday", "dd"]).filter(|day| *day == time)?;
        let month = self.called(&["month", "mon", "mm"])?;
        if !self.are_in(day, 1.0, 31.0) {
            return None;
        }
        let name = match self.are_in(month, 1.0, 12.0) {
            true => "%m",
            false if self.all(month, |field| field.len() == 3) => "%b",
            false => "%B",
        };
        let known = [
            (self.called(&["year", "yyyy", "yr"]), "%Y"),
            (Some(month), name),
            (Some(day), "%d"),
            (self.called(&["hour", "hr", "hh"]), "%H"),
            (self.called(&["minute", "min"]), "%M"),
        ];
        let parts: Vec<(usize, &str)> =
            known.into_iter().filter_map(|(column, part)| Some((column?, part))).collect();
        let columns: Vec<usize> = parts.iter().map(|part| part.0).collect();
        let pattern = parts.iter().map(|part| part.1).collect::<Vec<_>>().join(" ");
        let what = format!(
            "`{}` is a day of the month, and `{}` would not be read",
            self.names[day], self.names[month]
        );
        Some(SplitTime { what, remedy: self.join(&columns, Some(pattern)) })
    }

    /// Returns what is wrong with dates that have a column of hours or of times of day beside them.
    fn day(&self, time: usize) -> Option<SplitTime> {
        let pattern = self.pattern_of_days(time).filter(|days| days.contains("%d") || days.contains("%j"))?;
        let own = words(&self.names[time]);
        let is_part = |i: usize, ends: &[&str]| {
            let words = words(&self.names[i]);
            let before = [&words, &own].map(|words| words.split_last().map(|(_, before)| before));
            let same = words.len() == 1 || before[0] == before[1];
            i != time && same && words.last().is_some_and(|word| ends.contains(&&**word))
        };
        let is_clock = |i: usize| {
            let is_called = is_part(i, &["time", "clock"]) || self.called(&["timeofday"]) == Some(i);
            is_called && self.are_clocks(i)
        };
        let is_hour = |i: usize| is_part(i, &["hour", "hr", "hh"]) && self.are_in(i, 0.0, 23.0);
        let other = self.position(is_clock).or_else(|| self.position(is_hour))?;
        let minute = self.called(&["minute", "min"]).filter(|_| is_hour(other));
        let plain = self.are_days(time) && minute.is_none();
        let clock = if is_hour(other) { "%H" } else { self.pattern_of_clocks(other)? };
        let pattern = match minute {
            Some(_) => format!("{pattern} {clock} %M"),
            None => format!("{pattern} {clock}"),
        };
        let columns: Vec<usize> = [Some(time), Some(other), minute].into_iter().flatten().collect();
        let what = format!(
            "`{}` has days, and the time of day in `{}` would not be read",
            self.names[time], self.names[other]
        );
        let pattern = Some(pattern).filter(|pattern| !plain || pattern.contains("%p"));
        Some(SplitTime { what, remedy: self.join(&columns, pattern) })
    }

    /// Returns what is wrong with times of day, or numbers that may be some, that have a column of days
    /// beside them.
    fn clock(&self, time: usize) -> Option<SplitTime> {
        let day = self.position(|i| i != time && self.is_folded(time, i))?;
        let [time_name, day_name] = [time, day].map(|i| &self.names[i]);
        let plain = self.are_days(day) && self.are_clocks(time);
        let remedy = match (self.pattern_of_days(day), self.pattern_of_clocks(time)) {
            (_, Some(clock)) if plain && !clock.contains("%p") => self.join(&[day, time], None),
            (Some(days), Some(clock)) => self.join(&[day, time], Some(format!("{days} {clock}"))),
            (None, Some(clock)) => {
                let how = format!("{} with a pattern of dates", self.join(&[day, time], None));
                format!("{how}, such as --time-format '%d/%m/%Y {clock}'")
            }
            (_, None) => "write the date and the time of day in one column".into(),
        };
        let alone = ColumnName::Name(time_name.clone());
        Some(SplitTime {
            what: format!(
                "`{time_name}` may be a time of day, and the days in `{day_name}` would not be read"
            ),
            remedy: format!("{remedy}, or --columns time={alone} if that is the whole time"),
        })
    }

    /// Whether the times of day in column `time` belong to the days in column `day`: it is called so, and its
    /// days pass while the times do not.
    fn is_folded(&self, time: usize, day: usize) -> bool {
        let (own, words) = (words(&self.names[time]), words(&self.names[day]));
        let is_date = |last: &str| is_date_word(last) || last == "dt";
        let Some((_, before)) = words.split_last().filter(|(last, _)| is_date(last)) else {
            return false;
        };
        let is_day = |field: &[u8]| {
            !field.contains(&b':') && number(field).is_none_or(|number| number < OLDEST_UNIX_TIME)
        };
        let is_step = own.last().is_some_and(|word| word == "step" || word == "snapshot");
        if is_step || !self.all(day, is_day) {
            return false;
        }
        let is_sure = before.is_empty() || own.split_last().is_some_and(|(_, own)| own == before);
        if self.are_clocks(time) {
            return is_sure;
        }
        if !self.are_in(time, 0.0, OLDEST_UNIX_TIME) {
            return false;
        }
        let pairs: Vec<(&[u8], f64)> =
            self.rows().filter_map(|row| Some((&**row.get(day)?, number(row.get(time)?)?))).collect();
        let changes = || pairs.windows(2).filter(|pair| pair[0].0 != pair[1].0);
        let passes = changes().next().is_some();
        let ascend = changes().all(|pair| comes_before(pair[0].0, pair[1].0));
        let goes_on = changes().all(|pair| pair[0].1 < pair[1].1);
        match is_sure {
            true => self.are_in(time, 0.0, DAY) && !(passes && goes_on) || passes && ascend && !goes_on,
            false => passes && ascend && !goes_on,
        }
    }

    /// Returns the rows of the sample that are whole.
    fn rows(&self) -> impl Iterator<Item = &Fields> {
        self.sample.rows.iter().take(self.sample.whole)
    }
}

/// Returns the number that a field writes.
fn number(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Whether a date, or a number of a day, comes before another.
fn comes_before(a: &[u8], b: &[u8]) -> bool {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a < b,
        _ => a < b,
    }
}

/// Whether a field is a time of day, such as `9:05`, `22:13:20.5` or `10:13 PM`.
fn is_clock(field: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(field) else { return false };
    let lower = text.to_ascii_lowercase();
    let text = lower.strip_suffix("am").or_else(|| lower.strip_suffix("pm")).unwrap_or(&lower).trim_end();
    let parts: Vec<&str> = text.split(':').collect();
    let (whole, fraction) = parts.last().map_or(("", ""), |last| last.split_once('.').unwrap_or((last, "0")));
    let is_number = |part: &&str| (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    (2..=3).contains(&parts.len())
        && parts[..parts.len() - 1].iter().all(is_number)
        && is_number(&whole)
        && fraction.bytes().all(|b| b.is_ascii_digit())
}
