//! Values drawn at random.
use super::values;
use crate::task::config::table::{text_of, value_of};
use tgnn::{
    error::{Error, Result},
    runtime::philox::Key,
};
use toml::Value;

/// How a key's value is drawn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Draw {
    /// One of several values.
    OneOf(Vec<Value>),
    /// A number between two others.
    Between {
        /// The smallest one.
        low: f64,
        /// The largest one.
        high: f64,
        /// Whether its logarithm is uniform, instead of the number.
        log: bool,
        /// Whether it is a whole number.
        whole: bool,
    },
}

fn wrong(key: &str, text: &str) -> Error {
    Error::usage(format!("random {key}: `{text}` is not a range"))
        .remedy("give LOW..HIGH, log:LOW..HIGH with 0 < LOW < HIGH, or values such as tgn,jodie")
}

impl Draw {
    /// Parses `low..high`, `log:low..high`, or values separated by commas. A range is of whole numbers if
    /// both ends are written as such.
    ///
    /// # Errors
    /// `Usage`, with the key, for anything else.
    pub fn parse(key: &str, text: &str) -> Result<Self> {
        let (log, range) = text.strip_prefix("log:").map_or((false, text), |range| (true, range));
        let Some((low, high)) = range.split_once("..") else {
            let listed = if log { Err(wrong(key, text)) } else { values(text) };
            return listed.map(Draw::OneOf);
        };
        let [low, high] = [low, high].map(|end| value_of(end.trim()));
        let whole = low.is_integer() && high.is_integer();
        let number = |value: &Value| value.as_float().or(value.as_integer().map(|n| n as f64));
        let (Some(low), Some(high)) = (number(&low), number(&high)) else { return Err(wrong(key, text)) };
        let fits = low.is_finite() && high.is_finite() && low < high && (!log || low > 0.0);
        if fits { Ok(Draw::Between { low, high, log, whole }) } else { Err(wrong(key, text)) }
    }
    /// Reads the value of a key in a file: a range as text, or a list of values.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn of_value(key: &str, value: &Value) -> Result<Self> {
        match value {
            Value::Array(list) if !list.is_empty() => Ok(Draw::OneOf(list.clone())),
            Value::String(text) => Self::parse(key, text),
            other => Err(wrong(key, &text_of(other))),
        }
    }
    /// Returns draw number `index` of a key. Other keys have other draws.
    pub fn value(&self, key: &str, seed: u64, index: u32) -> Value {
        let salt = crc32fast::hash(key.as_bytes());
        let word = Key::new(seed, salt, [index, 0]).draw(0)[0];
        match self {
            Draw::OneOf(values) => {
                let at = (u64::from(word) * values.len() as u64) >> 32;
                values[at as usize].clone()
            }
            &Draw::Between { low, high, log, whole } => {
                let x = (f64::from(word) + 0.5) / 2f64.powi(32);
                match (log, whole) {
                    // Every whole number gets the same share, both ends included.
                    (false, true) => Value::Integer((low + x * (high - low + 1.0)).floor() as i64),
                    (false, false) => Value::Float(rounded(low + x * (high - low)).clamp(low, high)),
                    (true, _) => {
                        let drawn = (low.ln() + x * (high / low).ln()).exp();
                        match whole {
                            true => Value::Integer(drawn.round().clamp(low, high) as i64),
                            false => Value::Float(rounded(drawn).clamp(low, high)),
                        }
                    }
                }
            }
        }
    }
    /// Returns values with which a key can be checked: the ends of the range, or all.
    pub(super) fn ends(&self) -> Vec<Value> {
        match self {
            Draw::OneOf(values) => values.clone(),
            &Draw::Between { low, high, whole: true, .. } => {
                vec![Value::Integer(low as i64), Value::Integer(high as i64)]
            }
            &Draw::Between { low, high, .. } => vec![Value::Float(low), Value::Float(high)],
        }
    }
}

/// Rounds to four digits, so that names and files are easy to read.
fn rounded(x: f64) -> f64 {
    format!("{x:.3e}").parse().unwrap_or(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str) -> Vec<Value> {
        let draw = Draw::parse("key", text).unwrap();
        (0..1000).map(|i| draw.value("key", 7, i)).collect()
    }

    #[test]
    fn draws_stay_in_their_range_and_fill_it() {
        let whole: Vec<i64> = drawn("3..5").iter().map(|v| v.as_integer().unwrap()).collect();
        for n in 3..=5 {
            let share = whole.iter().filter(|&&x| x == n).count();
            assert!((280..390).contains(&share), "{n}: {share}");
        }
        let logs: Vec<f64> = drawn("log:1e-5..1e-1").iter().map(|v| v.as_float().unwrap()).collect();
        assert!(logs.iter().all(|x| (1e-5..=1e-1).contains(x)));
        let below = logs.iter().filter(|&&x| x < 1e-3).count();
        assert!((440..560).contains(&below), "half of the draws are below the geometric mean: {below}");
        let linear: Vec<f64> = drawn("0..0.5").iter().map(|v| v.as_float().unwrap()).collect();
        let mean = linear.iter().sum::<f64>() / 1000.0;
        assert!((0.24..0.26).contains(&mean) && linear.iter().all(|x| (0.0..=0.5).contains(x)), "{mean}");
        let words = drawn("tgn,jodie");
        let first = words.iter().filter(|v| v.as_str() == Some("tgn")).count();
        assert!((440..560).contains(&first) && words.iter().any(|v| v.as_str() == Some("jodie")), "{first}");
        assert!(drawn("log:1..100").iter().all(|v| (1..=100).contains(&v.as_integer().unwrap())));
    }

    #[test]
    fn wrong_ranges_are_refused_in_one_line() {
        for text in
            ["5..1", "1..1", "log:0..1", "log:-1..1", "a..b", "1..", "..2", "1..nan", "0..inf", "log:3"]
        {
            let e = Draw::parse("batch", text).unwrap_err().to_string();
            let start = format!("random batch: `{text}` is not a range; give LOW..HIGH");
            assert!(e.starts_with(&start) && !e.contains('\n'), "{e}");
        }
        assert!(Draw::of_value("batch", &Value::Integer(3)).is_err());
        assert!(Draw::of_value("batch", &Value::Array(vec![])).is_err());
    }
}
