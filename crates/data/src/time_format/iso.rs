//! Dates and times of ISO 8601.
use super::pattern::with_nanoseconds;
use crate::format::number::{Decimal, Fault};
use chrono::{NaiveDate, NaiveTime};

/// Converts a date, or a date and time, of ISO 8601. A day may be missing, a blank may stand for `T`, and `/`
/// for `-`.
pub(super) fn iso(field: &[u8]) -> Result<Decimal, Fault> {
    if field.is_empty() {
        return Err(Fault::Empty);
    }
    let mut rest = Scanner(field);
    let parsed = rest.date().zip(Some(rest.time())).and_then(|(date, time)| Some((date, time?)));
    let Some((date, (time, nanoseconds, cut))) = parsed else { return Err(Fault::Text) };
    let offset = rest.zone().filter(|_| rest.0.is_empty()).ok_or(Fault::Text)?;
    let seconds = date.and_time(NaiveTime::MIN).and_utc().timestamp() + time - offset;
    with_nanoseconds(seconds, nanoseconds, cut)
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

    /// Takes a time of day, if there is one: the seconds since midnight, the nanoseconds of a second, and
    /// whether there are finer digits.
    fn time(&mut self) -> Option<(i64, u32, bool)> {
        if !self.take(b"Tt ") {
            return Some((0, 0, false));
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
        (hours < 24 && minutes < 60 && seconds <= 60).then_some((
            3_600 * hours + 60 * minutes + seconds,
            nanoseconds,
            cut,
        ))
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
