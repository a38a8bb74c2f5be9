//! Dates and times of ISO 8601.
use super::pattern::with_nanoseconds;
use crate::format::number::{Decimal, Fault};
use chrono::{DateTime, Datelike, NaiveDate, NaiveTime};

/// Converts a date, or a date and time, of ISO 8601. A day may be missing, a blank may stand for `T`, and `/`
/// for `-`.
pub(super) fn iso(field: &[u8]) -> Result<Decimal, Fault> {
    if field.is_empty() {
        return Err(Fault::Empty);
    }
    let mut rest = Scanner(field);
    let parsed = rest.date().zip(Some(rest.time())).and_then(|(date, time)| Some((date, time?)));
    let Some((date, Clock { seconds: time, nanoseconds, cut, is_leap })) = parsed else {
        return Err(Fault::Text);
    };
    let offset = rest.zone().filter(|_| rest.0.is_empty()).ok_or(Fault::Text)?;
    let seconds = date.and_time(NaiveTime::MIN).and_utc().timestamp() + time - offset;
    if is_leap && !may_follow_leap(seconds) {
        return Err(Fault::Text);
    }
    with_nanoseconds(seconds, nanoseconds, cut)
}

/// Whether a date and time of ISO 8601 has a zone; `None` if it is a date.
pub(crate) fn has_zone(field: &[u8]) -> Option<bool> {
    // The date has 8 bytes or more.
    let time = field.iter().skip(8).position(|b| matches!(b, b'T' | b't' | b' '))?;
    Some(field[8 + time + 1..].iter().any(|b| matches!(b, b'+' | b'-') || b.is_ascii_alphabetic()))
}

/// Whether the second that ends at this time may have been one more than 60: one at the end of June or
/// December in UTC.
pub(super) fn may_follow_leap(seconds: i64) -> bool {
    let date = DateTime::from_timestamp(seconds, 0).map(|time| time.date_naive());
    seconds % 86_400 == 0 && date.is_some_and(|date| date.day() == 1 && [1, 7].contains(&date.month()))
}

/// A time of day: the seconds since midnight, the nanoseconds of a second, whether there are finer digits,
/// and whether the second is a leap second.
#[derive(Default)]
struct Clock {
    seconds: i64,
    nanoseconds: u32,
    cut: bool,
    is_leap: bool,
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

    /// Takes a time of day, if there is one.
    fn time(&mut self) -> Option<Clock> {
        if !self.take(b"Tt ") {
            return Some(Clock::default());
        }
        let (hours, mut minutes, mut seconds, mut nanoseconds) = (self.digits(1, 2)?, 0, 0, 0);
        let mut cut = false;
        if self.take(b":") {
            minutes = self.digits(2, 2)?;
            if self.take(b":") {
                seconds = self.digits(2, 2)?;
                if self.take(b".,") {
                    let before = self.0.len();
                    let part = self.digits(1, 9)?;
                    nanoseconds = part as u32 * 10u32.pow(9 - (before - self.0.len()) as u32);
                    while let Some((digit @ b'0'..=b'9', rest)) = self.0.split_first() {
                        cut |= *digit != b'0';
                        self.0 = rest;
                    }
                }
            }
        }
        // A leap second is second 60.
        (hours < 24 && minutes < 60 && seconds <= 60).then_some(Clock {
            seconds: 3_600 * hours + 60 * minutes + seconds,
            nanoseconds,
            cut,
            is_leap: seconds == 60,
        })
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
