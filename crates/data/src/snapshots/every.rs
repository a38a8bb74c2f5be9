//! Cutting an event stream into steps.
use crate::{
    Events,
    text::{counted, grouped, span},
};
use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveTime};
use serde::{Deserialize, Serialize};
use std::{fmt, ops::Range, str::FromStr};
use tgnn::error::{Error, ErrorKind, Result};

/// Maximum number of steps of a stream.
const MOST_STEPS: usize = 1 << 20;
/// Units of a window and their lengths in seconds, longest first.
const UNITS: [(&str, u64); 5] = [("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Length of a step.
///
/// As text: `2w`, `7d`, `36h`, `90m` or `600s` (windows from the first event on), `1000e` (1000 events),
/// `day`, `week`, `month` or `year` (of the calendar in UTC, weeks starting on Monday), or `step`.
///
/// ```
/// use tgnn_data::Every;
/// assert_eq!("7d".parse::<Every>()?, Every::Seconds(604_800));
/// assert_eq!(Every::Seconds(129_600).to_string(), "36h");
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Every {
    /// Window of this many seconds, at least 1; the first window starts at the first event.
    Seconds(u64),
    /// This many events, at least 1.
    Events(u64),
    /// Calendar day.
    Day,
    /// Calendar week, starting on Monday.
    Week,
    /// Calendar month.
    Month,
    /// Calendar year.
    Year,
    /// The time of an event is its step number. There is a step for each number from the first to the last.
    Step,
}

impl FromStr for Every {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let windows = || {
            let (number, unit) = s.split_at_checked(s.len().checked_sub(1)?)?;
            let n = number.parse::<u64>().ok().filter(|n| *n > 0)?;
            if unit == "e" {
                return Some(Every::Events(n));
            }
            let (_, seconds) = UNITS.iter().find(|u| u.0 == unit)?;
            n.checked_mul(*seconds).filter(|n| *n <= i64::MAX as u64).map(Every::Seconds)
        };
        match s {
            "day" => Ok(Every::Day),
            "week" => Ok(Every::Week),
            "month" => Ok(Every::Month),
            "year" => Ok(Every::Year),
            "step" => Ok(Every::Step),
            _ => windows().ok_or_else(|| {
                Error::usage(format!("there is no snapshots.every `{s}`"))
                    .remedy("give day, week, month, year, step, or a window such as 2w, 7d, 36h, 90m, 600s or 1000e (events)")
            }),
        }
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Every::Day => "day",
            Every::Week => "week",
            Every::Month => "month",
            Every::Year => "year",
            Every::Step => "step",
            Every::Events(n) => return write!(f, "{n}e"),
            Every::Seconds(n) => {
                let (unit, size) = unit(*n);
                return write!(f, "{}{unit}", n / size);
            }
        })
    }
}

/// Returns the longest unit that divides a window, and its length in seconds.
fn unit(seconds: u64) -> (&'static str, u64) {
    UNITS.into_iter().find(|u| seconds.is_multiple_of(u.1)).unwrap_or(("s", 1))
}

impl TryFrom<String> for Every {
    type Error = Error;
    fn try_from(s: String) -> Result<Self> {
        s.parse()
    }
}

impl From<Every> for String {
    fn from(every: Every) -> Self {
        every.to_string()
    }
}

/// Steps of a stream.
#[derive(Debug, PartialEq)]
pub(super) struct Cut {
    /// Events of each step.
    pub events: Vec<Range<usize>>,
    /// Name of each step.
    pub labels: Vec<String>,
    /// Note to the user about the steps.
    pub note: Option<String>,
}

impl Every {
    /// Cuts a stream into steps. Every event belongs to a step, and steps without events are kept.
    pub(super) fn cut(self, events: &Events) -> Result<Cut> {
        let n = events.len();
        if let Every::Events(size) = self {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            check_steps(events, n.div_ceil(size))?;
            let events_from = |first: usize| first..n.min(first.saturating_add(size));
            let rest = n % size;
            return Ok(Cut {
                events: (0..n).step_by(size).map(events_from).collect(),
                labels: (0..n).step_by(size).map(|i| format!("event {}", grouped(i as u64))).collect(),
                note: (rest > 0).then(|| format!("the last step has {}", counted(rest as u64, "event"))),
            });
        }
        let starts = self.starts(events)?;
        let first: Vec<usize> = starts
            .iter()
            .map(|(start, _)| events.time.partition_point(|&t| i128::from(t) < *start))
            .collect();
        let ends = first.iter().skip(1).copied().chain([n]);
        Ok(Cut {
            events: first.iter().zip(ends).map(|(&a, b)| a..b).collect(),
            note: self.doubt(events, starts.len()),
            labels: starts.into_iter().map(|s| s.1).collect(),
        })
    }

    /// Returns a note if the last window ends after the last event, or if calendar steps mean little because
    /// times begin at 0.
    fn doubt(self, events: &Events, steps: usize) -> Option<String> {
        let size = match self {
            Every::Seconds(size) => size,
            Every::Events(_) | Every::Step => return None,
            _ if events.origin != 0 => return None,
            _ => {
                return Some(format!(
                    "times begin at 0, so each {self} is a calendar {self} counted from 1970"
                ));
            }
        };
        let over = (steps as f64 * size as f64) - events.span_seconds();
        // Windows exclude their end, so a full last window ends one tick after the last event.
        (over > 1.0 / events.ticks_per_second)
            .then(|| format!("the last step is not full: it ends {} after the last event", span(over)))
    }

    /// Returns the start of every step, in ticks since the first event, and its label; none for steps of a
    /// fixed number of events.
    fn starts(self, events: &Events) -> Result<Vec<(i128, String)>> {
        let mut starts = Starts::new(events);
        match self {
            Every::Events(_) => {}
            Every::Seconds(size) => starts.add_windows(size)?,
            Every::Step => starts.add_numbers()?,
            Every::Day | Every::Week | Every::Month | Every::Year => starts.add_dates(self)?,
        }
        Ok(starts.list)
    }

    /// Returns the first day of the calendar step that contains `day`.
    fn floor(self, day: NaiveDate) -> Option<NaiveDate> {
        match self {
            Every::Week => day.checked_sub_days(Days::new(day.weekday().num_days_from_monday().into())),
            Every::Month => day.with_day(1),
            Every::Year => day.with_day(1)?.with_month(1),
            _ => Some(day),
        }
    }

    /// Returns the first day of the next calendar step.
    fn next(self, first: NaiveDate) -> Option<NaiveDate> {
        match self {
            Every::Week => first.checked_add_days(Days::new(7)),
            Every::Month => first.checked_add_months(Months::new(1)),
            Every::Year => first.checked_add_months(Months::new(12)),
            _ => first.checked_add_days(Days::new(1)),
        }
    }

    /// Returns the label of the calendar step that begins on the day `first`.
    fn label(self, first: NaiveDate) -> String {
        match self {
            Every::Month => format!("{:04}-{:02}", first.year(), first.month()),
            Every::Year => format!("{:04}", first.year()),
            _ => first.to_string(),
        }
    }
}

/// Collector of the starts of steps, up to the last event.
struct Starts<'a> {
    events: &'a Events,
    /// Original time of the first event, in ticks.
    origin: i128,
    /// Time of the last event, in ticks since the first.
    last: i128,
    /// Start in ticks since the first event, and label.
    list: Vec<(i128, String)>,
}

impl<'a> Starts<'a> {
    fn new(events: &'a Events) -> Self {
        let last = events.time.last().copied().unwrap_or(0);
        Starts { events, origin: events.origin.into(), last: last.into(), list: Vec::new() }
    }

    /// Appends a step unless it starts after the last event; returns whether it did append it.
    fn push(&mut self, start: i128, label: String) -> Result<bool> {
        let within = start <= self.last;
        if within {
            self.list.push((start, label));
            check_steps(self.events, self.list.len())?;
        }
        Ok(within)
    }

    /// Returns the original time of the first event in whole seconds, rounded down.
    fn origin_seconds(&self) -> i64 {
        (self.origin as f64 / self.events.ticks_per_second).floor() as i64
    }

    /// Adds windows of `size` seconds from the first event on.
    fn add_windows(&mut self, size: u64) -> Result<()> {
        let origin_seconds = self.origin_seconds();
        let (unit, seconds_per_unit) = unit(size);
        for k in 0.. {
            let seconds = k * i128::from(size);
            let label = if self.origin == 0 {
                format!("+{}{unit}", seconds / i128::from(seconds_per_unit))
            } else {
                moment(i128::from(origin_seconds) + seconds, size)
            };
            if !self.push(ticks(seconds, self.events.ticks_per_second), label)? {
                break;
            }
        }
        Ok(())
    }

    /// Adds one step for each number from the time of the first event to that of the last.
    fn add_numbers(&mut self) -> Result<()> {
        // The file counts in seconds, or in ticks if a tick is longer than a second.
        let unit = self.events.ticks_per_second.max(1.0).round() as i128;
        let origin = self.origin;
        let is_fraction = |&t: &i64| (origin + i128::from(t)).rem_euclid(unit) != 0;
        if let Some(i) = self.events.time.iter().position(is_fraction) {
            let what = format!("the time of event {i} is not a whole number, so it is not a step");
            return Err(Error::data(&self.events.name, what).remedy("cut by time: --every week"));
        }
        for k in 0.. {
            if !self.push(k * unit, (origin / unit + k).to_string())? {
                break;
            }
        }
        Ok(())
    }

    /// Adds calendar days, weeks, months or years in UTC.
    fn add_dates(&mut self, every: Every) -> Result<()> {
        let events = self.events;
        let out_of_range = || {
            Error::data(&events.name, "a time is beyond the calendar")
                .remedy("times count seconds since 1970; use windows such as --every 7d")
        };
        let day = DateTime::from_timestamp(self.origin_seconds(), 0).ok_or_else(out_of_range)?.date_naive();
        let mut date = every.floor(day).ok_or_else(out_of_range)?;
        loop {
            let second = date.and_time(NaiveTime::MIN).and_utc().timestamp();
            let start = ticks(second.into(), events.ticks_per_second) - self.origin;
            if !self.push(start, every.label(date))? {
                return Ok(());
            }
            date = every.next(date).ok_or_else(out_of_range)?;
        }
    }
}

/// Returns a usage error if there are too many steps.
fn check_steps(events: &Events, steps: usize) -> Result<()> {
    if steps <= MOST_STEPS {
        return Ok(());
    }
    let what = format!("{} would become more than {} snapshots", events.name, grouped(MOST_STEPS as u64));
    Err(Error::new(ErrorKind::Usage, what).remedy("use longer steps: --every month"))
}

/// Returns the first tick that is not before `seconds`.
fn ticks(seconds: i128, per_second: f64) -> i128 {
    if per_second.fract() == 0.0 {
        return seconds * per_second as i128;
    }
    // 1/86,400 ticks per second (a tick is a day) is not exact in floating point: round results that are
    // almost whole.
    let exact = seconds as f64 * per_second;
    if (exact - exact.round()).abs() < 1e-6 { exact.round() as i128 } else { exact.ceil() as i128 }
}

/// Formats a Unix time as date and time, without seconds if `size`, the length of the windows, is whole
/// minutes.
fn moment(second: i128, size: u64) -> String {
    let at = i64::try_from(second).ok().and_then(|s| DateTime::from_timestamp(s, 0));
    let Some(at) = at.map(|at| at.naive_utc()) else { return format!("second {second}") };
    let text = at.to_string();
    let length = if size.is_multiple_of(60) { text.len() - 3 } else { text.len() };
    text[..length].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(origin: i64, ticks_per_second: f64, time: &[i64]) -> Events {
        let mut events = crate::bundled().unwrap();
        events.src = vec![0; time.len()].into();
        events.dst = vec![9_000; time.len()].into();
        (events.time, events.label) = (time.to_vec().into(), None);
        (events.origin, events.ticks_per_second) = (origin, ticks_per_second);
        events
    }

    fn cut(every: &str, events: &Events) -> Vec<(String, Range<usize>)> {
        let cut = every.parse::<Every>().unwrap().cut(events).unwrap();
        cut.labels.into_iter().zip(cut.events).collect()
    }

    fn sizes(every: &str, events: &Events) -> Vec<usize> {
        cut(every, events).iter().map(|(_, r)| r.len()).collect()
    }

    #[test]
    fn lengths_of_steps_are_parsed_and_printed() {
        for (text, every, again) in [
            ("7d", Every::Seconds(604_800), "1w"),
            ("36h", Every::Seconds(129_600), "36h"),
            ("90m", Every::Seconds(5_400), "90m"),
            ("600s", Every::Seconds(600), "10m"),
            ("1000e", Every::Events(1000), "1000e"),
            ("week", Every::Week, "week"),
            ("step", Every::Step, "step"),
        ] {
            assert_eq!((text.parse::<Every>().unwrap(), every.to_string().as_str()), (every, again));
        }
        for text in ["", "0d", "7", "d", "-1d", "7x", "1.5d", "weekly", "99999999999999999w", "7µ"] {
            let e = text.parse::<Every>().unwrap_err().to_string();
            assert!(e.starts_with(&format!("there is no snapshots.every `{text}`; give day, ")), "{e}");
        }
    }

    #[test]
    fn windows_count_from_the_first_event_and_empty_ones_stay() {
        let e = events(1_000_000_000, 1000.0, &[0, 9_999, 10_000, 30_000, 30_500]);
        assert_eq!(sizes("10s", &e), [2, 1, 0, 2]);
        assert_eq!(cut("10s", &e)[1].0, "1970-01-12 13:46:50");
        let note = Every::Seconds(10).cut(&e).unwrap().note.unwrap();
        assert_eq!(note, "the last step is not full: it ends 9.5 seconds after the last event");
        assert_eq!(cut("1m", &events(0, 1.0, &[0, 61])).last().unwrap().0, "+1m");
    }

    #[test]
    fn windows_of_events_have_equal_sizes_and_the_last_has_the_rest() {
        let e = events(5, 1.0, &[0, 0, 0, 1, 2]);
        assert_eq!(cut("2e", &e)[1], ("event 2".into(), 2..4));
        assert_eq!(sizes("2e", &e), [2, 2, 1]);
        assert_eq!(Every::Events(2).cut(&e).unwrap().note.unwrap(), "the last step has 1 event");
    }

    #[test]
    fn days_weeks_months_and_years_begin_at_midnight_of_calendar_days() {
        // Sunday 2004-02-29 23:59:59, then the second after, then a year later.
        let leap = 1_078_099_199;
        let e = events(leap * 1000, 1000.0, &[0, 1000, 366 * 86_400_000]);
        assert_eq!(cut("day", &e)[..2], [("2004-02-29".into(), 0..1), ("2004-03-01".into(), 1..2)]);
        assert_eq!(cut("week", &e)[..2], [("2004-02-23".into(), 0..1), ("2004-03-01".into(), 1..2)]);
        assert_eq!(cut("month", &e)[..2], [("2004-02".into(), 0..1), ("2004-03".into(), 1..2)]);
        assert_eq!(cut("year", &e), [("2004".into(), 0..2), ("2005".into(), 2..3)]);
        assert_eq!((sizes("month", &e).len(), sizes("day", &e).len()), (14, 367));
        let note = Every::Week.cut(&events(0, 1.0, &[0])).unwrap().note.unwrap();
        assert_eq!(note, "times begin at 0, so each week is a calendar week counted from 1970");
        assert_eq!(cut("year", &events(-1, 1.0, &[0, 1])), [("1969".into(), 0..1), ("1970".into(), 1..2)]);
    }

    #[test]
    fn ticks_of_a_day_are_cut_exactly() {
        let days: Vec<i64> = (0..400).collect();
        let e = events(0, 1.0 / 86_400.0, &days);
        assert!(sizes("1d", &e).iter().all(|&n| n == 1) && sizes("day", &e).iter().all(|&n| n == 1));
        assert_eq!(sizes("1w", &e)[..57], [7; 57]);
        assert_eq!(sizes("36h", &e)[..4], [2, 1, 2, 1]);
    }

    #[test]
    fn times_can_be_step_numbers_and_missing_numbers_are_empty_steps() {
        let e = events(3, 1.0, &[0, 0, 2]);
        assert_eq!(cut("step", &e), [("3".into(), 0..2), ("4".into(), 2..2), ("5".into(), 2..3)]);
        let e = events(30, 10.0, &[0, 10, 15]);
        let said = Every::Step.cut(&e).unwrap_err().to_string();
        assert!(said.contains("the time of event 2 is not a whole number"), "{said}");
        assert_eq!(sizes("step", &events(0, 1.0 / 86_400.0, &[0, 1, 1])), [1, 2]);
    }

    #[test]
    fn too_many_steps_are_refused_before_they_are_made() {
        let e = events(0, 1.0, &[0, 1 << 21]);
        assert!(Every::Seconds(1).cut(&e).unwrap_err().to_string().contains("more than 1,048,576 snapshots"));
        let e = events(i64::MAX / 2, 1.0, &[0, 1]);
        assert!(Every::Month.cut(&e).unwrap_err().to_string().contains("beyond the calendar"));
    }
}
