//! Which column holds what: said by the user, read from a header, or fixed by a layout.
use crate::error::{Error, Result};
use std::str::FromStr;

/// The columns of a table of events, counted from 1.
///
/// Written `src=2,dst=3,time=1`, optionally with `label=4` and `features=5-` (to the end of the row), `features=5-8`
/// or `features=5`.
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
    /// First and last feature column, both included; no last: to the end of the row.
    pub features: Option<(usize, Option<usize>)>,
}

impl FromStr for Columns {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |what: String| {
            Error::usage(format!("columns `{text}`: {what}"))
                .remedy("write src=1,dst=2,time=3 and, where there are any, label=4,features=5-")
        };
        let number = |s: &str| match s.trim().parse::<usize>() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(bad(format!("`{s}` is not a column; the first is 1"))),
        };
        let (mut single, mut features) = ([None; 4], None);
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| bad(format!("`{part}` has no `=`")))?;
            let slot = match name.trim() {
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
            single[slot] = Some(number(value)?);
        }
        match single {
            [Some(src), Some(dst), Some(time), label] => Ok(Columns { src, dst, time, label, features }),
            _ => Err(bad("src, dst and time are all needed".into())),
        }
    }
}

/// A shorthand for the fixed layouts.
pub(super) const fn columns(
    src: usize,
    dst: usize,
    time: usize,
    label: Option<usize>,
    features: Option<(usize, Option<usize>)>,
) -> Columns {
    Columns { src, dst, time, label, features }
}

/// What a column of a header is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Src,
    Dst,
    Time,
    Label,
    /// The event's number, which is also its row in a separate feature file.
    Index,
    Feature,
    /// A feature, and so is everything after it.
    Features,
    Other,
}

/// The role that a column's name suggests.
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

/// A header whose columns are understood.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub columns: Columns,
    /// The event's number, from 1.
    pub index: Option<usize>,
    /// Names of columns that are not read.
    pub ignored: Vec<String>,
}

/// Finds source, destination, time and the rest by name, in any order; or says in words what is missing.
pub(super) fn from_header(names: &[String]) -> Result<Header, String> {
    let mut roles: Vec<Role> = names.iter().map(|n| role(n)).collect();
    // `i` is the item of `u,i` but the first of the pair `i,j`.
    if let (Some(i), Some(j)) = (position(names, "i"), position(names, "j"))
        && !roles.contains(&Role::Src)
    {
        (roles[i], roles[j]) = (Role::Src, Role::Dst);
    }
    let one = |wanted: Role, what: &str| {
        let mut found = roles.iter().enumerate().filter(|(_, r)| **r == wanted).map(|(i, _)| i);
        match (found.next(), found.next()) {
            (Some(a), Some(b)) => Err(format!("`{}` and `{}` both look like the {what}", names[a], names[b])),
            (first, _) => Ok(first.map(|i| i + 1)),
        }
    };
    let need =
        |wanted, what: &str| one(wanted, what)?.ok_or_else(|| format!("no column is named like a {what}"));
    let (src, dst, time) =
        (need(Role::Src, "source")?, need(Role::Dst, "destination")?, need(Role::Time, "time")?);
    let is_feature = |r: &Role| matches!(r, Role::Feature | Role::Features);
    let features = roles.iter().position(is_feature).map(|first| {
        let run = roles[first..].iter().take_while(|r| **r == Role::Feature).count();
        let open = roles.get(first + run) == Some(&Role::Features);
        (first + 1, if open { None } else { Some(first + run) })
    });
    let read = |i: usize| features.is_some_and(|(a, b)| i + 1 >= a && b.is_none_or(|b| i < b));
    let ignored = names
        .iter()
        .enumerate()
        .filter(|(i, n)| !n.is_empty() && !read(*i) && (roles[*i] == Role::Other || is_feature(&roles[*i])))
        .map(|(_, n)| n.clone())
        .collect();
    let columns = Columns { src, dst, time, label: one(Role::Label, "label")?, features };
    Ok(Header { columns, index: one(Role::Index, "event number")?, ignored })
}

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
