//! Times by a pattern of `strftime`.
//!
//! The library skips what it does not understand, such as the name of a zone, and takes short numbers where
//! others follow at once. Here these are errors, so that no time is read as another.
use super::iso::may_follow_leap;
use crate::format::number::{Decimal, Fault};
use chrono::{
    DateTime, Weekday,
    format::{Fixed, Item, Numeric, Parsed, StrftimeItems, parse_and_remainder},
};
use std::iter;

/// Names of zones that are UTC. All others are ambiguous.
const UTC: [&str; 3] = ["UTC", "GMT", "Z"];

/// Times that a pattern must write and read back, in seconds since 1970.
const SAMPLES: [i64; 4] = [981_173_106, 1_672_177_509, 931_999_996, 1_698_796_800 + 86_399];

/// Checks that what a pattern writes can be read back by it; the error says why not, after the pattern.
pub(super) fn check(pattern: &str) -> Result<(), &'static str> {
    let items: Vec<Item<'_>> = StrftimeItems::new(pattern).collect();
    let has = |wanted: &[Item<'_>]| items.iter().any(|item| wanted.contains(item));
    let (am_pm, hours) =
        ([Item::Fixed(Fixed::UpperAmPm), Item::Fixed(Fixed::LowerAmPm)], has_12_hours(&items));
    if items.contains(&Item::Error) {
        return Err("");
    }
    if hours != has(&am_pm) {
        return Err(if hours { ": `%I` needs `%p`" } else { ": `%p` needs `%I`" });
    }
    let texts: Vec<String> = SAMPLES
        .iter()
        .filter_map(|&s| Some(DateTime::from_timestamp(s, 0)?.format(pattern).to_string()))
        .collect();
    if texts.iter().all(|text| *text == texts[0]) {
        return Err(": it has no part of a date or a time");
    }
    let reads_back = |text: &String| {
        let time = read(text, pattern).ok().and_then(|time| DateTime::from_timestamp(time.seconds, 0));
        time.is_some_and(|time| time.format(pattern).to_string() == *text)
    };
    match texts.iter().all(reads_back) {
        true => Ok(()),
        false => Err(": its parts do not make up one time"),
    }
}

/// Whether a pattern has hours of 12.
fn has_12_hours(items: &[Item<'_>]) -> bool {
    items.iter().any(|item| matches!(item, Item::Numeric(Numeric::Hour12, _)))
}

/// Whether a pattern has the name of a zone.
pub(super) fn has_zone_name(pattern: &str) -> bool {
    StrftimeItems::new(pattern).any(|item| item == Item::Fixed(Fixed::TimezoneName))
}

/// Whether a pattern has nothing of a date.
pub(super) fn lacks_date(pattern: &str) -> bool {
    use Numeric::{Hour, Hour12, Minute, Nanosecond, Second};
    StrftimeItems::new(pattern).all(|item| match item {
        Item::Numeric(part, _) => matches!(part, Hour | Hour12 | Minute | Second | Nanosecond),
        Item::Fixed(part) => !matches!(
            part,
            Fixed::ShortMonthName
                | Fixed::LongMonthName
                | Fixed::ShortWeekdayName
                | Fixed::LongWeekdayName
                | Fixed::RFC2822
                | Fixed::RFC3339
        ),
        _ => true,
    })
}

/// Converts a field by a pattern. A whole number may end in `.0`, as data frames write it.
pub(super) fn parse(field: &[u8], pattern: &str) -> Result<Decimal, Fault> {
    let text = std::str::from_utf8(field).map_err(|_| Fault::Encoding)?;
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    let whole = text.strip_suffix(".0").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    let time = [Some(text), whole].into_iter().flatten().find_map(|text| read(text, pattern).ok());
    let Time { seconds, nanoseconds, cut } = time.ok_or(Fault::Text)?;
    with_nanoseconds(seconds, nanoseconds, cut)
}

/// A time: its whole seconds since 1970 UTC, its nanoseconds, and whether digits were cut off.
struct Time {
    seconds: i64,
    nanoseconds: u32,
    cut: bool,
}

/// The text is not what the pattern says.
struct Mismatch;

impl From<chrono::ParseError> for Mismatch {
    fn from(_: chrono::ParseError) -> Self {
        Mismatch
    }
}

/// Parses a time. A part of a date or a time that the pattern does not have is the first: 1970, January, 0 h.
fn read(text: &str, pattern: &str) -> Result<Time, Mismatch> {
    let mut parts = Parsed::new();
    let (mut rest, mut cut) = (text, false);
    // Whether the text before ends in a number, and whether that is shorter than usual.
    let mut number: Option<bool> = None;
    for item in StrftimeItems::new(pattern) {
        let before = rest;
        let taken = |rest: &str| &before[..before.len() - rest.len()];
        match item {
            Item::Fixed(Fixed::TimezoneName) => {
                rest = utc(rest).ok_or(Mismatch)?;
                parts.set_offset(0)?;
            }
            Item::Fixed(Fixed::TimezoneOffset | Fixed::TimezoneOffsetColon) if utc(rest).is_some() => {
                rest = utc(rest).ok_or(Mismatch)?;
                parts.set_offset(0)?;
            }
            // The library takes `%f` for a number of nanoseconds. In Python and elsewhere it is a fraction.
            Item::Numeric(Numeric::Nanosecond, _) => (rest, cut) = fraction(rest, &mut parts)?,
            Item::Fixed(Fixed::Nanosecond) => {
                if let Some(digits) = rest.strip_prefix('.') {
                    (rest, cut) = fraction(digits, &mut parts)?;
                }
            }
            Item::Numeric(ref kind, _) => {
                rest = parse_and_remainder(&mut parts, rest, iter::once(&item))?;
                let digits = taken(rest).trim_start();
                let short = digits.len() < width(kind);
                let joined = before.starts_with(|c: char| c.is_ascii_digit());
                if short && is_year(kind) || joined && number.is_some_and(|before| before || short) {
                    return Err(Mismatch);
                }
                number = Some(short);
                continue;
            }
            item => rest = parse_and_remainder(&mut parts, rest, iter::once(item))?,
        }
        if !taken(rest).is_empty() {
            number = None;
        }
    }
    if !rest.is_empty() {
        return Err(Mismatch);
    }
    let offset = parts.offset().unwrap_or(0);
    if parts.timestamp().is_none() {
        complete_date(&mut parts)?;
        complete_time(&mut parts)?;
    }
    let local = parts.to_naive_datetime_with_offset(offset)?.and_utc();
    let (seconds, nanoseconds) = (local.timestamp() - i64::from(offset), local.timestamp_subsec_nanos());
    // The library writes a leap second as one of more than 10^9 nanoseconds.
    if nanoseconds >= 1_000_000_000 && !may_follow_leap(seconds + 1) {
        return Err(Mismatch);
    }
    Ok(Time { seconds, nanoseconds, cut })
}

/// Takes the name of a zone that is UTC, after blanks; `None` if there is another word.
fn utc(text: &str) -> Option<&str> {
    let text = text.trim_start();
    UTC.iter().find_map(|name| {
        let (start, rest) = text.split_at_checked(name.len())?;
        let ends = !rest.starts_with(|c: char| c.is_alphanumeric() || "+-_/".contains(c));
        (ends && start.eq_ignore_ascii_case(name)).then_some(rest)
    })
}

/// Takes the digits after the point of a second; also returns whether some are finer than a nanosecond.
fn fraction<'a>(text: &'a str, parts: &mut Parsed) -> Result<(&'a str, bool), Mismatch> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let (taken, beyond) = digits.split_at(end.min(9));
    if taken.is_empty() {
        return Err(Mismatch);
    }
    let value = taken.bytes().fold(0, |v, b| 10 * v + i64::from(b - b'0'));
    parts.set_nanosecond(value * 10i64.pow(9 - taken.len() as u32))?;
    Ok((rest, beyond.bytes().any(|b| b != b'0')))
}

/// Returns the number of digits of a part, where others follow at once.
fn width(part: &Numeric) -> usize {
    match part {
        Numeric::Year | Numeric::IsoYear => 4,
        Numeric::Ordinal => 3,
        Numeric::Quarter | Numeric::NumDaysFromSun | Numeric::WeekdayFromMon | Numeric::Timestamp => 1,
        _ => 2,
    }
}

/// Whether a part is a year, which always has four digits: `23` is not the year 23.
fn is_year(part: &Numeric) -> bool {
    matches!(part, Numeric::Year | Numeric::IsoYear)
}

/// Sets the parts of a date that are missing: the year 1970, and the first month, day or day of a week.
fn complete_date(parts: &mut Parsed) -> Result<(), Mismatch> {
    let by_iso_week =
        parts.isoyear().is_some() || parts.isoyear_mod_100().is_some() || parts.isoweek().is_some();
    let has_year = parts.year().is_some() || parts.year_div_100().is_some() || parts.year_mod_100().is_some();
    if !has_year && !by_iso_week {
        parts.set_year(1970)?;
    }
    if parts.ordinal().is_some() {
        return Ok(());
    }
    if parts.day().is_none() && parts.month().is_none() {
        let first = match () {
            _ if parts.week_from_sun().is_some() => Some(Weekday::Sun),
            _ if parts.week_from_mon().is_some() || by_iso_week => Some(Weekday::Mon),
            _ => None,
        };
        if let Some(first) = first {
            parts.set_weekday(parts.weekday().unwrap_or(first))?;
            return Ok(());
        }
    }
    let quarter = parts.quarter().unwrap_or(1);
    parts.set_month(parts.month().unwrap_or(3 * quarter - 2).into())?;
    parts.set_day(parts.day().unwrap_or(1).into())?;
    Ok(())
}

/// Sets the parts of a time that are missing to 0.
fn complete_time(parts: &mut Parsed) -> Result<(), Mismatch> {
    if parts.hour_mod_12().is_none() && parts.hour_div_12().is_none() {
        parts.set_hour(0)?;
    }
    parts.set_minute(parts.minute().unwrap_or(0).into())?;
    parts.set_second(parts.second().unwrap_or(0).into())?;
    Ok(())
}

/// Joins seconds and nanoseconds; `cut` says that finer digits were cut off.
pub(super) fn with_nanoseconds(seconds: i64, mut nanoseconds: u32, cut: bool) -> Result<Decimal, Fault> {
    let mut digits = 9;
    while digits > 0 && nanoseconds.is_multiple_of(10) {
        nanoseconds /= 10;
        digits -= 1;
    }
    let whole = seconds.checked_mul(10i64.pow(digits)).ok_or(Fault::TooLarge)?;
    let mantissa = whole.checked_add(nanoseconds.into()).ok_or(Fault::TooLarge)?;
    Ok(Decimal { rounded: cut, ..Decimal::new(mantissa, digits) })
}
