//! Dates in the names of files, one file per day or month.
use chrono::NaiveDate;
use std::path::Path;
use tgnn::error::Error;

/// How names write a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// `2023-11-14`, `20231114`, `2023_11_14`.
    YearMonthDay,
    /// `14-11-2023`.
    DayMonthYear,
    /// `11-14-2023`.
    MonthDayYear,
    /// `14-Nov-2023`.
    DayNameYear,
    /// `Nov-2023`.
    NameYear,
    /// `2023-11`.
    YearMonth,
}

impl Pattern {
    /// All patterns; a name that fits an earlier one is not tried by a later one.
    const ALL: [Pattern; 6] = [
        Pattern::YearMonthDay,
        Pattern::DayMonthYear,
        Pattern::MonthDayYear,
        Pattern::DayNameYear,
        Pattern::NameYear,
        Pattern::YearMonth,
    ];
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// What the names of files say about days.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileDates {
    /// Days from 1970-01-01 on, one for each file.
    Days(Vec<i64>),
    /// Day and month can be told apart in no name.
    Ambiguous,
    /// Not every name has a date.
    None,
}

/// Finds the dates in the names of files: all of them are written in one way.
pub(crate) fn of_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> FileDates {
    let days = |pattern| names.clone().map(|name| day(name, pattern)).collect::<Option<Vec<i64>>>();
    let found: Vec<(Pattern, Vec<i64>)> =
        Pattern::ALL.into_iter().filter_map(|pattern| Some((pattern, days(pattern)?))).collect();
    match &found[..] {
        [] => FileDates::None,
        [(Pattern::DayMonthYear, first), (Pattern::MonthDayYear, second), ..] if first != second => {
            FileDates::Ambiguous
        }
        [(_, days), ..] => FileDates::Days(days.clone()),
    }
}

/// Returns the error for files of which `first` is one, whose dates are [`Ambiguous`](FileDates::Ambiguous).
pub(crate) fn ambiguous(first: &Path) -> Error {
    Error::data(first, "the date in the name may be day and month, or month and day")
        .remedy("name the files such as 2023-11-14.csv")
}

/// Returns the days from 1970-01-01 to the date in a file's name, without its folder.
fn day(path: &str, pattern: Pattern) -> Option<i64> {
    let name = path.rsplit('/').next()?;
    let words = words(name);
    let number =
        |word: &str, digits: usize| -> Option<u32> { (word.len() == digits).then(|| word.parse().ok())? };
    let short = |word: &str| number(word, 2).or_else(|| number(word, 1));
    let month = |word: &str| {
        let word = word.get(..3)?.to_ascii_lowercase();
        MONTHS.iter().position(|month| *month == word).map(|at| at as u32 + 1)
    };
    let named = |word: &str| word.chars().all(char::is_alphabetic).then(|| month(word)).flatten();
    let date = |parts: &[&str]| match (pattern, parts) {
        (Pattern::YearMonthDay, [date, ..]) if date.len() == 8 => {
            Some((number(&date[..4], 4)?, number(&date[4..6], 2)?, number(&date[6..], 2)?))
        }
        (Pattern::YearMonthDay, [y, m, d, ..]) => Some((number(y, 4)?, number(m, 2)?, number(d, 2)?)),
        (Pattern::DayMonthYear, [d, m, y, ..]) | (Pattern::MonthDayYear, [m, d, y, ..]) => {
            Some((number(y, 4)?, short(m)?, short(d)?))
        }
        (Pattern::DayNameYear, [d, m, y, ..]) => Some((number(y, 4)?, named(m)?, short(d)?)),
        (Pattern::NameYear, [m, y, ..]) => Some((number(y, 4)?, named(m)?, 1)),
        (Pattern::YearMonth, [date, ..]) if date.len() == 6 => {
            Some((number(&date[..4], 4)?, number(&date[4..], 2)?, 1))
        }
        (Pattern::YearMonth, [y, m, ..]) => Some((number(y, 4)?, number(m, 2)?, 1)),
        _ => None,
    };
    (0..words.len()).find_map(|at| {
        let (year, month, day) = date(&words[at..])?;
        let date =
            NaiveDate::from_ymd_opt(year as i32, month, day).filter(|_| (1800..2200).contains(&year))?;
        Some(date.signed_duration_since(NaiveDate::default()).num_days())
    })
}

/// Divides a name into words: runs of digits and runs of letters.
fn words(name: &str) -> Vec<&str> {
    let kind = |c: char| (c.is_ascii_digit(), c.is_alphabetic());
    let (mut words, mut start) = (Vec::new(), 0);
    for (at, c) in name.char_indices() {
        let next = at + c.len_utf8();
        if name[next..].chars().next().map(kind) != Some(kind(c)) {
            words.push(&name[start..next]);
            start = next;
        }
    }
    words.retain(|word| word.chars().all(char::is_alphanumeric));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dates_in_names_are_found_if_all_are_written_in_one_way() {
        let days = |names: &[&str]| of_names(names.iter().copied());
        for names in [
            &["as-733/as20000102.txt"][..],
            &["2000-01-02.csv"],
            &["events_2000_01_02_v2.csv"],
            &["02-Jan-2000.csv"],
        ] {
            assert_eq!(days(names), FileDates::Days(vec![10_958]), "{names:?}");
        }
        assert_eq!(days(&["02-01-2000.csv", "13-01-2000.csv"]), FileDates::Days(vec![10_958, 10_969]));
        assert_eq!(days(&["1-2-2000.csv", "1-13-2000.csv"]), FileDates::Days(vec![10_958, 10_969]));
        assert_eq!(days(&["Jan-2000.csv", "december 1999.csv"]), FileDates::Days(vec![10_957, 10_926]));
        assert_eq!(days(&["2000-01.csv", "1999-12.csv"]), FileDates::Days(vec![10_957, 10_926]));
        assert_eq!(days(&["01-02-2000.csv", "01-03-2000.csv"]), FileDates::Ambiguous);
        assert_eq!(days(&["02-02-2000.csv"]), FileDates::Days(vec![10_989]));
        for names in
            [&["2000.01.02/part"][..], &["day7.csv"], &["20001399.csv"], &["2000-01-02.csv", "b.csv"]]
        {
            assert_eq!(days(names), FileDates::None, "{names:?}");
        }
    }
}
