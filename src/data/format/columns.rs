//! Meaning of columns: given by the user, read from a header, or fixed by a layout.
use crate::error::{Error, Result};
use std::str::FromStr;

/// Columns of a table of events, counted from 1.
///
/// As text: `src=2,dst=3,time=1`, optionally followed by `label=4`, and by `features=5-` (to the end of the
/// row), `features=5-8` or `features=5`.
///
/// ```
/// # use tgnn::data::Columns;
/// let columns: Columns = "src=2,dst=3,time=1,features=5-".parse()?;
/// assert_eq!((columns.src, columns.features), (2, Some((5, None))));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Source node.
    pub src: usize,
    /// Destination node.
    pub dst: usize,
    /// Time in seconds, integer or decimal.
    pub time: usize,
    /// Label of the event.
    pub label: Option<usize>,
    /// First and last feature column, both inclusive; if the last is `None`, features extend to the end of
    /// the row.
    pub features: Option<(usize, Option<usize>)>,
}

impl FromStr for Columns {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |what: String| {
            Error::usage(format!("columns `{text}`: {what}"))
                .remedy("write src=1,dst=2,time=3, optionally followed by label=4,features=5-")
        };
        let number = |s: &str| match s.trim().parse::<usize>() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(bad(format!("`{s}` is not a column; the first is 1"))),
        };
        let (mut single, mut features) = ([None; 4], None);
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| bad(format!("`{part}` has no `=`")))?;
            let index = match name.trim() {
                "src" => 0,
                "dst" => 1,
                "time" => 2,
                "label" => 3,
                "features" => {
                    let range = match value.split_once('-') {
                        None => (number(value)?, Some(number(value)?)),
                        Some((first, "")) => (number(first)?, None),
                        Some((first, last)) => (number(first)?, Some(number(last)?)),
                    };
                    if range.1.is_some_and(|last| last < range.0) {
                        return Err(bad(format!("the range `{value}` is empty")));
                    }
                    features = Some(range);
                    continue;
                }
                other => return Err(bad(format!("there is no `{other}`"))),
            };
            single[index] = Some(number(value)?);
        }
        match single {
            [Some(src), Some(dst), Some(time), label] => Ok(Columns { src, dst, time, label, features }),
            _ => Err(bad("src, dst and time are all needed".into())),
        }
    }
}

/// Constructs [`Columns`]; a shorthand for the fixed layouts.
pub(super) const fn columns(
    src: usize,
    dst: usize,
    time: usize,
    label: Option<usize>,
    features: Option<(usize, Option<usize>)>,
) -> Columns {
    Columns { src, dst, time, label, features }
}

/// Role of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Src,
    Dst,
    Time,
    Label,
    /// Event number, which is also the event's row in a separate feature file.
    Index,
    Feature,
    /// First feature column; all columns after it are features, too.
    Features,
    Other,
}

/// Returns the role that a column's name suggests.
pub(super) fn role(name: &str) -> Role {
    let name = name.trim().to_ascii_lowercase().replace([' ', '-', '.'], "_");
    match name.as_str() {
        "u" | "src" | "source" | "user" | "user_id" | "userid" | "from" | "sender" | "source_id"
        | "src_id" | "head" => Role::Src,
        "i" | "dst" | "target" | "item" | "item_id" | "itemid" | "to" | "dest" | "destination"
        | "receiver" | "target_id" | "dst_id" | "tail" => Role::Dst,
        "ts" | "t" | "time" | "timestamp" | "unixtime" | "unix_time" | "unixts" | "seconds" | "step"
        | "snapshot" => Role::Time,
        "label" | "state_label" | "labels" => Role::Label,
        "idx" | "edge_idx" | "edge_id" | "event_id" | "eid" => Role::Index,
        "rating" | "weight" | "feature" | "value" | "sign" => Role::Feature,
        "comma_separated_list_of_features" | "features" => Role::Features,
        _ => {
            let digits = name.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_');
            let stem = &name[..name.len() - digits.len()];
            let numbered = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            match stem.trim_end_matches('_') {
                "" | "f" | "feat" | "feature" | "x" | "attr" if numbered => Role::Feature,
                _ => Role::Other,
            }
        }
    }
}

/// Columns named by a header.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub columns: Columns,
    /// Column of event numbers, from 1.
    pub index: Option<usize>,
    /// Names of the columns that are not read.
    pub ignored: Vec<String>,
}

/// Finds source, destination, time and the optional columns by name, in any order.
///
/// # Errors
/// A description of the column that is missing or ambiguous.
pub(super) fn from_header(names: &[String]) -> Result<Header, String> {
    let mut roles: Vec<Role> = names.iter().map(|n| role(n)).collect();
    // `i` is the destination in `u,i` but the source in `i,j`.
    if let (Some(i), Some(j)) = (position(names, "i"), position(names, "j"))
        && !roles.contains(&Role::Src)
    {
        (roles[i], roles[j]) = (Role::Src, Role::Dst);
    }
    let at_most_one = |wanted: Role, what: &str| {
        let mut found = roles.iter().enumerate().filter(|(_, r)| **r == wanted).map(|(i, _)| i);
        match (found.next(), found.next()) {
            (Some(a), Some(b)) => Err(format!("`{}` and `{}` both look like the {what}", names[a], names[b])),
            (first, _) => Ok(first.map(|i| i + 1)),
        }
    };
    let required = |wanted, what: &str| {
        at_most_one(wanted, what)?.ok_or_else(|| format!("no column is named like a {what}"))
    };
    let src = required(Role::Src, "source")?;
    let dst = required(Role::Dst, "destination")?;
    let time = required(Role::Time, "time")?;
    let is_feature = |r: &Role| matches!(r, Role::Feature | Role::Features);
    let features = roles.iter().position(is_feature).map(|first| {
        let run = roles[first..].iter().take_while(|r| **r == Role::Feature).count();
        let open = roles.get(first + run) == Some(&Role::Features);
        (first + 1, if open { None } else { Some(first + run) })
    });
    let is_read =
        |i: usize| features.is_some_and(|(first, last)| i + 1 >= first && last.is_none_or(|last| i < last));
    let ignored = names
        .iter()
        .enumerate()
        .filter(|(i, n)| {
            !n.is_empty() && !is_read(*i) && (roles[*i] == Role::Other || is_feature(&roles[*i]))
        })
        .map(|(_, n)| n.clone())
        .collect();
    let columns = Columns { src, dst, time, label: at_most_one(Role::Label, "label")?, features };
    Ok(Header { columns, index: at_most_one(Role::Index, "event number")?, ignored })
}

/// Returns the index of the column called `wanted`, from 0.
fn position(names: &[String], wanted: &str) -> Option<usize> {
    names.iter().position(|n| n.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Result<Header, String> {
        from_header(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn columns_are_read_from_words() {
        assert_eq!("src=2,dst=3,time=1".parse::<Columns>().unwrap(), columns(2, 3, 1, None, None));
        let all: Columns = "time=3, src=1, dst=2, label=4, features=5-8".parse().unwrap();
        assert_eq!(all, columns(1, 2, 3, Some(4), Some((5, Some(8)))));
    }

    #[test]
    fn bad_columns_say_what_is_wrong_and_how_to_write_them() {
        for (text, said) in [
            ("src=1,dst=2", "src, dst and time are all needed"),
            ("src=0,dst=1,time=2", "`0` is not a column"),
            ("src=1,dst=2,time=x", "`x` is not a column"),
            ("src=1,dst=2,time=3,colour=4", "no `colour`"),
            ("src", "has no `=`"),
            ("src=1,dst=2,time=3,features=5-4", "is empty"),
        ] {
            let e = text.parse::<Columns>().unwrap_err().to_string();
            assert!(e.contains(said) && e.contains("; write src=1"), "{e}");
        }
    }

    #[test]
    fn a_header_names_columns_in_any_order() {
        let h = header("time,target,source,rating").unwrap();
        assert_eq!(h.columns, columns(3, 2, 1, None, Some((4, Some(4)))));
        let h = header(",u,i,ts,label,idx").unwrap();
        assert_eq!((h.columns, h.index), (columns(2, 3, 4, Some(5), None), Some(6)));
        let h = header("t,i,j,Ci").unwrap();
        assert_eq!((h.columns, h.ignored), (columns(2, 3, 1, None, None), vec!["Ci".to_owned()]));
        let h = header("src,dst,f0,f1,ts,f2").unwrap();
        assert_eq!((h.columns.features, h.ignored), (Some((3, Some(4))), vec!["f2".to_owned()]));
    }

    #[test]
    fn a_header_that_names_too_little_or_too_much_says_so() {
        assert!(header("u,i,label").unwrap_err().contains("time"));
        assert!(header("u,i,ts,time").unwrap_err().contains("`ts` and `time`"));
    }
}
