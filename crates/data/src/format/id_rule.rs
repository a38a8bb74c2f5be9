//! Ids of a column of numbers, of which a few are written differently or are missing.
use super::{
    cell::{Cell, Row},
    number::{Decimal, Fault, parse_decimal, parse_id},
    sample::Sample,
};
use crate::{
    ids::IdField,
    name_table::NameTable,
    text::{counted, shown},
};
use std::collections::HashMap;
use tgnn::error::Error;

/// Numbers from which on a float does not tell neighbouring integers apart.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// How to read the ids of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[doc(hidden)]
pub struct IdRule {
    /// Whether all ids of the sample are whole numbers. Then a word such as `nan` is no name, and `1e+05` is
    /// a number.
    numbers: bool,
    /// Whether none of them is negative, except for -1, which may mean that the id is missing.
    from_0: bool,
}

impl IdRule {
    /// Returns the rule for column `i` of a table.
    pub(super) fn infer(sample: &Sample, i: usize) -> Self {
        let ids = || sample.present(i).filter(|field| !is_minus_1(&Cell::Text(field)));
        let is_whole = |field: &[u8]| {
            parse_decimal(field).is_ok_and(|d| d.digits == 0) || parse_id(field) == Err(Fault::TooLarge)
        };
        IdRule {
            numbers: ids().next().is_some() && ids().all(is_whole),
            from_0: ids().all(|field| !field.starts_with(b"-")),
        }
    }

    /// Returns the rule where all ids so far are `numbers`, or are names.
    #[cfg(feature = "formats")]
    #[doc(hidden)]
    pub fn among(numbers: bool) -> Self {
        IdRule { numbers, from_0: numbers }
    }

    /// Whether the cell has no id.
    pub(super) fn lacks(self, cell: &Cell<'_>) -> bool {
        cell.id() == Err(Fault::Empty) || self.numbers && cell.is_missing()
    }

    /// Whether the cell has -1 where that may mean that the id is missing.
    pub(super) fn is_doubtful(self, cell: &Cell<'_>) -> bool {
        self.numbers && self.from_0 && is_minus_1(cell)
    }

    /// Returns the id in a cell. Among numbers, a number in any notation is one.
    pub(super) fn id<'a>(self, cell: &Cell<'a>) -> Result<IdField<'a>, Fault> {
        let id = cell.id()?;
        if self.numbers && cell.is_missing() {
            return Err(Fault::Empty);
        }
        match (id, cell) {
            (IdField::Text(text), Cell::Text(_)) if self.numbers => match in_other_notation(&text) {
                Some(number) => Ok(IdField::Number(number)),
                None => Ok(IdField::Text(text)),
            },
            (id, _) => Ok(id),
        }
    }

    /// Returns the id of a node in cell `i`.
    pub(super) fn node<'r>(self, row: &'r dyn Row, i: usize, missing: &str) -> Result<IdField<'r>, Error> {
        let cell = row.cell(i);
        self.id(&cell).map_err(|f| {
            let what = match (f, &cell) {
                (Fault::Empty, Cell::Text([_, ..])) => {
                    format!("{} is not a node id among numbers", cell.shown())
                }
                _ => cell.describe(f, "a node id"),
            };
            row.error(Some(i), what).remedy(match f {
                Fault::Empty => missing,
                Fault::TooLarge => "save ids as integers or text",
                _ => cell.remedy("save the file as UTF-8"),
            })
        })
    }
}

/// Whether the cell has the number -1.
fn is_minus_1(cell: &Cell<'_>) -> bool {
    match cell {
        Cell::Text(field) => matches!(*field, b"-1" | b"-1.0"),
        Cell::Number(number) => number.whole() == Some(-1),
        _ => false,
    }
}

/// Returns the whole number that `text` writes with a sign or an exponent, such as `+25` and `1e+05`. A
/// number with leading zeros is a name.
fn in_other_notation(text: &str) -> Option<u64> {
    let is_padded = text.trim_start_matches('+').starts_with('0');
    match parse_decimal(text.as_bytes()) {
        Ok(Decimal { mantissa, digits: 0, .. }) if !is_padded => u64::try_from(mantissa).ok(),
        _ => None,
    }
}

/// Whether a cell has a float that is too large to tell its neighbours apart.
pub(super) fn is_inexact(cell: &Cell<'_>) -> bool {
    matches!(cell, Cell::Number(value) if value.float().is_some_and(|v| v.abs() > EXACT))
}

/// Returns a note if texts among the ids are the same number in different notations, such as `007` and `7`.
pub(super) fn same_numbers(names: &NameTable) -> Option<String> {
    let mut numbers: Vec<(u64, usize)> =
        names.iter().enumerate().filter_map(|(i, name)| Some((in_any_notation(name)?, i))).collect();
    numbers.sort_unstable();
    let mut same = numbers.chunk_by(|a, b| a.0 == b.0).filter(|group| group.len() > 1);
    let first = same.next()?;
    let [a, b] = [first[0].1, first[1].1].map(|i| shown(names.get(i).as_bytes()));
    let count = 1 + same.count() as u64;
    Some(format!(
        "{a} and {b} are different nodes, although they are the same number ({}); write ids in one way",
        counted(count, "such number")
    ))
}

/// Words that seldom name anything, and those that may.
const NO_NAMES: [&str; 16] = [
    "null",
    "none",
    "nan",
    "nil",
    "<na>",
    "(null)",
    "<null>",
    "(none)",
    "(blank)",
    "(not set)",
    "#null!",
    "#ref!",
    "undefined",
    "n/a",
    "n.a.",
    "#n/a",
];
const PERHAPS_NO_NAMES: [&str; 21] = [
    "na",
    "nat",
    "n.d.",
    "unknown",
    "unk",
    "missing",
    "void",
    "anonymous",
    "tbd",
    "not available",
    "[deleted]",
    "[removed]",
    "-",
    "--",
    "---",
    "?",
    ".",
    "..",
    "*",
    "_",
    "\\n",
];

/// Whether a text may stand for a value that is missing.
pub(super) fn may_be_missing(text: &str) -> bool {
    let is_in = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    is_in(&NO_NAMES) || is_in(&PERHAPS_NO_NAMES)
}

/// Returns a note if a node among named ones has an id that stands for a missing one, such as `null`. The
/// `ends` of events are indices of names. A word that may name a node counts if every hundredth end has it.
pub(super) fn missing_names<'a>(
    names: &NameTable,
    ends: impl Iterator<Item = &'a u64>,
    events: usize,
) -> Option<String> {
    let is_in = |words: &[&str], name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    let is_zero = |name: &str| {
        (name.len() > 2 && name.contains('0') && name.bytes().all(|b| matches!(b, b'0' | b'x' | b'-')))
            || !name.is_empty() && name.bytes().all(|b| matches!(b, b'"' | b'\''))
    };
    let mut counts: HashMap<u64, u64> = (0..)
        .zip(names.iter())
        .filter(|(_, name)| may_be_missing(name) || is_zero(name))
        .map(|(i, _)| (i, 0))
        .collect();
    if counts.is_empty() {
        return None;
    }
    for end in ends {
        if let Some(count) = counts.get_mut(end) {
            *count += 1;
        }
    }
    let mut found: Vec<(u64, &str)> =
        counts.into_iter().map(|(i, count)| (count, names.get(i as usize))).collect();
    found.retain(|(count, name)| is_in(&NO_NAMES, name) || 100 * count >= events as u64);
    found.sort_unstable_by(|a, b| b.cmp(a));
    let (count, first) = found.first()?;
    let first = shown(first.as_bytes());
    let more = found
        .get(1)
        .map_or(String::new(), |(count, name)| format!(", and {} in {count}", shown(name.as_bytes())));
    Some(format!(
        "{first} is a node, with {}{more}: if that means a missing node, remove such rows",
        counted(*count, "event")
    ))
}

/// Returns the number that a text writes, with leading zeros or separators of thousands, too.
fn in_any_notation(text: &str) -> Option<u64> {
    let first = *text.as_bytes().first()?;
    if !first.is_ascii_digit() && first != b'+' {
        return None;
    }
    let joined: String;
    let mut groups = text.split([',', ' ', '\u{a0}', '\u{202f}', '\'']);
    let is_first = groups.next().is_some_and(|group| group.trim_start_matches('+').len() <= 3);
    let in_thousands = is_first && groups.clone().all(|group| group.len() == 3);
    let plain = match groups.next() {
        Some(_) if in_thousands => {
            joined = text.chars().filter(|c| c.is_ascii_digit()).collect();
            &joined
        }
        _ => text,
    };
    match parse_decimal(plain.as_bytes()) {
        Ok(Decimal { mantissa, digits: 0, .. }) => u64::try_from(mantissa).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Scalar;

    #[test]
    fn a_number_has_many_notations() {
        let other = |text| in_other_notation(text);
        assert_eq!([other("1e+05"), other("2.6e+4"), other("+25")], [Some(100_000), Some(26_000), Some(25)]);
        assert!(["007", "1,025", "x", "-1", "1.5", "0x10"].iter().all(|text| other(text).is_none()));
        let any = |text| in_any_notation(text);
        assert_eq!(
            [any("007"), any("1,025"), any("+1 025"), any("1e3")],
            [Some(7), Some(1025), Some(1025), Some(1000)]
        );
        assert!(["", "a7", "1,0,2", "1,5", "12345,678", "7.5", "-3"].iter().all(|text| any(text).is_none()));
    }

    #[test]
    fn among_numbers_a_word_for_a_missing_value_is_no_id() {
        let numbers = IdRule { numbers: true, from_0: true };
        for word in ["nan", "NULL", "None", "NA", ""] {
            assert_eq!(numbers.id(&Cell::Text(word.as_bytes())), Err(Fault::Empty));
            assert_eq!(IdRule::default().id(&Cell::Text(word.as_bytes())).is_ok(), !word.is_empty());
        }
        assert!(
            numbers.is_doubtful(&Cell::Number(Scalar::Int(-1))) && !numbers.is_doubtful(&Cell::Text(b"-2"))
        );
        assert_eq!(numbers.id(&Cell::Text(b"1e+05")), Ok(IdField::Number(100_000)));
        assert_eq!(numbers.id(&Cell::Text(b"x")), Ok(IdField::Text("x".into())));
    }

    #[test]
    fn a_name_for_a_missing_node_is_told_with_its_events() {
        let names = |names: &[&str]| names.iter().copied().collect::<NameTable>();
        let note = |all: &[&str], ends: &[u64]| missing_names(&names(all), ends.iter(), ends.len());
        assert_eq!(
            note(&["a", "null", "None"], &[0, 1, 1, 2]).unwrap(),
            "`null` is a node, with 2 events, and `None` in 1: if that means a missing node, remove such rows"
        );
        let thousand: Vec<u64> = (0..1000).map(|i| u64::from(i == 0)).collect();
        assert!(note(&["a", "NaN"], &thousand).is_some() && note(&["a", "NA"], &thousand).is_none());
        assert!(note(&["a", "NA"], &[0, 1]).is_some() && note(&["a", "0x000000"], &[0, 1]).is_some());
        assert!(note(&["a", "b0", "00a"], &[0, 1, 2]).is_none());
    }

    #[test]
    fn names_that_are_one_number_are_told() {
        let names = |names: &[&str]| names.iter().copied().collect::<NameTable>();
        let note = same_numbers(&names(&["7", "a", "007", "12", "1,025"])).unwrap();
        assert!(
            note.starts_with("`7` and `007` are different nodes") && note.contains("1 such number"),
            "{note}"
        );
        assert_eq!(same_numbers(&names(&["7", "08", "9"])), None);
    }
}
