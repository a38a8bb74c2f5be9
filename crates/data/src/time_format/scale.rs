//! The times of a data set, as ticks since its first event.
use super::TimeFormat;
use crate::format::number::Decimal;
use tgnn::error::{Error, Result};

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
                crate::text::shown(field),
                self.ticks_per_second
            )
        })
    }

    /// Returns how to write a time.
    pub(crate) fn remedy(&self) -> String {
        match &self.format {
            TimeFormat::Iso => "write a date and time as in the data, such as 2023-11-14T22:13:29".to_owned(),
            TimeFormat::Pattern(_) => self.format.advice(),
            unit => format!("write a time as in the data, a number in the unit {}", unit.described()),
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
