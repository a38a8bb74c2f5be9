//! Exact parsing of numbers in text, without allocation.
use crate::text::shown;

/// Maximum number of digits after the decimal point of a time. With nanoseconds, a Unix time still fits an
/// `i64`.
pub(crate) const MAX_DIGITS: u32 = 9;

/// Reason why a field is not a valid number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Empty field.
    Empty,
    /// Not a number at all.
    Text,
    /// Negative number where only non-negative ones are valid.
    Negative,
    /// Number out of the type's range.
    TooLarge,
    /// `nan`, `inf`, or a value outside the range of `f32`.
    NotFinite,
    /// Bytes that are not UTF-8.
    Encoding,
}

impl Fault {
    /// Describes the fault of `field`, which should have been `what`, for example "a time".
    pub(crate) fn describe(self, field: &[u8], what: &str) -> String {
        match self {
            Fault::Empty => format!("an empty field is not {what}"),
            Fault::Text => format!("{} is not {what}", shown(field)),
            Fault::Negative => format!("{} is negative, so it is not {what}", shown(field)),
            Fault::TooLarge => format!("{} is too large for {what}", shown(field)),
            Fault::NotFinite => format!("{} is not a finite number, so it is not {what}", shown(field)),
            Fault::Encoding => format!("{} is not text in UTF-8, so it is not {what}", shown(field)),
        }
    }
}

/// The number `mantissa / 10^digits`, with the smallest `digits` that represents it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    /// All significant digits, as one integer.
    pub mantissa: i64,
    /// Significant digits after the point, at most [`MAX_DIGITS`].
    pub digits: u32,
    /// Whether digits beyond the ninth after the point were rounded away.
    pub rounded: bool,
}

impl Decimal {
    /// Returns `mantissa / 10^digits`, normalised; `digits` is at most [`MAX_DIGITS`].
    pub(crate) fn new(mut mantissa: i64, mut digits: u32) -> Self {
        while digits > 0 && mantissa % 10 == 0 {
            mantissa /= 10;
            digits -= 1;
        }
        Decimal { mantissa, digits, rounded: false }
    }
}

/// Parses a non-negative integer. `7.0`, as spreadsheets and data frames write integers, is 7.
pub(crate) fn parse_id(field: &[u8]) -> Result<u64, Fault> {
    let end = field.iter().position(|&b| b == b'.').unwrap_or(field.len());
    if field[end..].iter().skip(1).any(|&b| b != b'0') {
        return Err(Fault::Text);
    }
    let mut id = 0u64;
    for &b in &field[..end] {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            let negative = field[0] == b'-' && end > 1 && field[1..end].iter().all(u8::is_ascii_digit);
            return Err(if negative { Fault::Negative } else { Fault::Text });
        }
        id = id.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit))).ok_or(Fault::TooLarge)?;
    }
    match end {
        0 if field.is_empty() => Err(Fault::Empty),
        0 => Err(Fault::Text),
        _ => Ok(id),
    }
}

/// Parses numbers such as `-12`, `1082008561.0`, `0.25` or `1.28e9`, never through floating point.
///
/// The result is exact unless there are more than [`MAX_DIGITS`] significant digits after the decimal point:
/// then it is rounded, halves away from zero, and [`Decimal::rounded`] is set.
pub(crate) fn parse_decimal(field: &[u8]) -> Result<Decimal, Fault> {
    parse_decimal_to(field, MAX_DIGITS)
}

/// Parses a number as [`parse_decimal`] does, with at most `most` digits after the decimal point.
pub(crate) fn parse_decimal_to(field: &[u8], most: u32) -> Result<Decimal, Fault> {
    let (negative, body) = match field {
        [] => return Err(Fault::Empty),
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, field),
    };
    // Fast path: nearly every time is a plain integer.
    if (1..=18).contains(&body.len()) && body.iter().all(u8::is_ascii_digit) {
        let value = body.iter().fold(0i64, |v, &b| v * 10 + i64::from(b - b'0'));
        return Ok(Decimal { mantissa: if negative { -value } else { value }, digits: 0, rounded: false });
    }
    let (number, exponent) = match body.iter().position(|&b| b == b'e' || b == b'E') {
        Some(at) => (&body[..at], parse_exponent(&body[at + 1..])?),
        None => (body, 0),
    };
    let point = number.iter().position(|&b| b == b'.').unwrap_or(number.len());
    let (whole, part) = (&number[..point], number.get(point + 1..).unwrap_or_default());
    if whole.len() + part.len() == 0 || !whole.iter().chain(part).all(u8::is_ascii_digit) {
        return Err(Fault::Text);
    }
    let digit = |i: usize| if i < whole.len() { whole[i] } else { part[i - whole.len()] } - b'0';
    let mut end = whole.len() + part.len();
    let mut exponent = exponent - part.len() as i64;
    while end > 0 && digit(end - 1) == 0 {
        end -= 1;
        exponent += 1;
    }
    let mut up = false;
    let rounded = end > 0 && exponent < -i64::from(most);
    if rounded {
        let cut = usize::try_from(-i64::from(most) - exponent).unwrap_or(usize::MAX);
        up = cut <= end && digit(end - cut) >= 5;
        end = end.saturating_sub(cut);
        exponent = -i64::from(most);
    }
    let mut mantissa = 0i64;
    for i in 0..end {
        let shifted = mantissa.checked_mul(10).and_then(|m| m.checked_add(i64::from(digit(i))));
        mantissa = shifted.ok_or(Fault::TooLarge)?;
    }
    mantissa = mantissa.checked_add(i64::from(up)).ok_or(Fault::TooLarge)?;
    if mantissa == 0 {
        return Ok(Decimal { mantissa: 0, digits: 0, rounded });
    }
    while exponent > 0 {
        mantissa = mantissa.checked_mul(10).ok_or(Fault::TooLarge)?;
        exponent -= 1;
    }
    // Rounding up can leave trailing zeros, as with 0.9999999999.
    while exponent < 0 && mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    Ok(Decimal { mantissa: if negative { -mantissa } else { mantissa }, digits: (-exponent) as u32, rounded })
}

/// Parses the exponent after `e`, clamped to ±9999; no valid time has an exponent of that size.
fn parse_exponent(text: &[u8]) -> Result<i64, Fault> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Text);
    }
    Ok(sign * digits.iter().fold(0i64, |v, &b| (v * 10 + i64::from(b - b'0')).min(9999)))
}

/// Parses a finite `f32`.
pub(crate) fn parse_f32(field: &[u8]) -> Result<f32, Fault> {
    if field.is_empty() {
        return Err(Fault::Empty);
    }
    let value: f32 = std::str::from_utf8(field).ok().and_then(|s| s.parse().ok()).ok_or(Fault::Text)?;
    if value.is_finite() { Ok(value) } else { Err(Fault::NotFinite) }
}

/// Whether a field parses as any number, finite or not; used to distinguish headers from data.
pub(crate) fn is_number(field: &[u8]) -> bool {
    std::str::from_utf8(field).is_ok_and(|s| s.parse::<f64>().is_ok())
}

/// Collector of times that stores all of them in the finest unit seen so far.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// All times so far, in ticks of `10^-digits` seconds.
    pub ticks: Vec<i64>,
    /// Maximum number of significant digits after the decimal point.
    pub digits: u32,
    /// Whether a time was rounded to [`MAX_DIGITS`] digits after the decimal point.
    pub rounded: bool,
    latest: i64,
}

impl Clock {
    /// Appends a time; returns whether it is earlier than a previous one.
    pub(crate) fn push(&mut self, time: Decimal) -> Result<bool, Fault> {
        self.rounded |= time.rounded;
        if time.digits > self.digits {
            // The unit changes at most nine times per file, so rescaling the whole history is cheap.
            let factor = 10i64.pow(time.digits - self.digits);
            for tick in self.ticks.iter_mut().chain([&mut self.latest]) {
                *tick = tick.checked_mul(factor).ok_or(Fault::TooLarge)?;
            }
            self.digits = time.digits;
        }
        let factor = 10i64.pow(self.digits - time.digits);
        let tick = time.mantissa.checked_mul(factor).ok_or(Fault::TooLarge)?;
        let late = !self.ticks.is_empty() && tick < self.latest;
        self.latest = if self.ticks.is_empty() { tick } else { self.latest.max(tick) };
        self.ticks.push(tick);
        Ok(late)
    }

    /// Whether the times of another clock fit one unit with these.
    pub(crate) fn fits(&self, other: &Clock) -> bool {
        let digits = self.digits.max(other.digits);
        let fits = |clock: &Clock| {
            let factor = 10i64.pow(digits - clock.digits);
            factor == 1 || clock.ticks.iter().all(|tick| tick.checked_mul(factor).is_some())
        };
        fits(self) && fits(other)
    }

    /// Appends the times of another clock, which [`fits`](Self::fits).
    pub(crate) fn append(&mut self, other: Clock) {
        let digits = self.digits.max(other.digits);
        let scaled = |tick: i64, of: u32| tick.saturating_mul(10i64.pow(digits - of));
        if digits > self.digits {
            let own = self.digits;
            self.ticks.iter_mut().for_each(|tick| *tick = scaled(*tick, own));
            self.latest = scaled(self.latest, own);
            self.digits = digits;
        }
        if let (false, latest) = (other.ticks.is_empty(), scaled(other.latest, other.digits)) {
            self.latest = if self.ticks.is_empty() { latest } else { self.latest.max(latest) };
        }
        self.ticks.extend(other.ticks.iter().map(|&tick| scaled(tick, other.digits)));
        self.rounded |= other.rounded;
    }

    /// Returns the number of ticks per second.
    pub(crate) fn ticks_per_second(&self) -> f64 {
        10f64.powi(self.digits as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decimal(text: &str) -> (i64, u32) {
        let d = parse_decimal(text.as_bytes()).unwrap();
        (d.mantissa, d.digits)
    }

    #[test]
    fn decimal_times_are_exact() {
        assert_eq!(decimal("1289241911.72836"), (128924191172836, 5));
        assert_eq!(decimal("1082008561.0"), (1082008561, 0));
        assert_eq!(decimal("1.28e9"), (1280000000, 0));
        assert_eq!(decimal("1.5E-3"), (15, 4));
        assert_eq!(decimal("-0.250"), (-25, 2));
        assert_eq!(decimal(".5"), (5, 1));
        assert_eq!(decimal("5."), (5, 0));
        assert_eq!(decimal("0.000"), (0, 0));
        assert_eq!(decimal("9007199254740993"), (9007199254740993, 0));
        assert_eq!(decimal("9223372036854775807"), (i64::MAX, 0));
    }

    #[test]
    fn digits_beyond_nanoseconds_are_rounded_and_reported() {
        let d = parse_decimal(b"0.30000000000000004").unwrap();
        assert_eq!((d.mantissa, d.digits, d.rounded), (3, 1, true));
        assert_eq!(decimal("0.9999999999"), (1, 0));
        assert_eq!(decimal("1e-300"), (0, 0));
        assert_eq!(decimal("0.0000000005"), (1, 9));
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in ["x", "12x", "1.2.3", "1e", "--1", ".", "-", "nan", "inf", "1 2", "0x10"] {
            assert_eq!(parse_decimal(text.as_bytes()), Err(Fault::Text), "{text}");
        }
        assert_eq!(parse_decimal(b""), Err(Fault::Empty));
        for text in ["1e40", "9223372036854775808", "12345678901234567890123", "1e99999999999"] {
            assert_eq!(parse_decimal(text.as_bytes()), Err(Fault::TooLarge), "{text}");
        }
    }

    #[test]
    fn ids_are_non_negative_integers() {
        assert_eq!(parse_id(b"007"), Ok(7));
        assert_eq!(parse_id(b"7.0"), Ok(7));
        assert_eq!(parse_id(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_id(b"18446744073709551616"), Err(Fault::TooLarge));
        assert_eq!(parse_id(b"-3"), Err(Fault::Negative));
        for text in ["7.5", "-", "a", "1e3", ".0", "+1", "-a"] {
            assert_eq!(parse_id(text.as_bytes()), Err(Fault::Text), "{text}");
        }
        assert_eq!(parse_id(b""), Err(Fault::Empty));
    }

    #[test]
    fn features_must_be_finite() {
        assert_eq!(parse_f32(b"-1.5e2"), Ok(-150.0));
        for text in ["nan", "inf", "-Infinity", "1e39"] {
            assert_eq!(parse_f32(text.as_bytes()), Err(Fault::NotFinite), "{text}");
        }
        assert_eq!(parse_f32(b"x"), Err(Fault::Text));
    }

    #[test]
    fn a_clock_rescales_its_times_when_a_finer_one_comes() {
        let mut clock = Clock::default();
        let late: Vec<bool> =
            ["3", "2.5", "4.25"].map(|t| clock.push(parse_decimal(t.as_bytes()).unwrap()).unwrap()).to_vec();
        assert_eq!((clock.ticks, clock.digits, late), (vec![300, 250, 425], 2, vec![false, true, false]));
    }

    #[test]
    fn a_clock_refuses_times_that_no_common_unit_can_hold() {
        let mut clock = Clock::default();
        clock.push(parse_decimal(b"9000000000000000000").unwrap()).unwrap();
        assert_eq!(clock.push(parse_decimal(b"0.5").unwrap()), Err(Fault::TooLarge));
    }

    proptest! {
        #[test]
        fn every_decimal_reads_back(mantissa in -1_000_000_000_000i64..1_000_000_000_000, digits in 0u32..9) {
            let scale = 10i64.pow(digits);
            let sign = if mantissa < 0 { "-" } else { "" };
            let (whole, part) = (mantissa.abs() / scale, mantissa.abs() % scale);
            let text = format!("{sign}{whole}.{part:0width$}", width = digits as usize);
            let d = parse_decimal(text.as_bytes()).unwrap();
            prop_assert_eq!(d.mantissa * 10i64.pow(digits - d.digits), mantissa);
        }

        #[test]
        fn no_bytes_panic(field in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (parse_decimal(&field), parse_id(&field), parse_f32(&field));
        }
    }
}
