//! The columns of events: which one is the source, the destination, the time.
use super::{
    column_names::{Role, position, role},
    sample::Sample,
};

/// Numbers from here on may be times in a column of any name: 1973-03-03 in seconds.
pub(super) const OLDEST_UNIX_TIME: i64 = 100_000_000;

/// Columns that a header names, counted from 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HeaderColumns {
    pub src: Option<usize>,
    pub dst: Option<usize>,
    pub time: Option<usize>,
    pub label: Option<usize>,
    /// Event numbers.
    pub index: Option<usize>,
    /// First and last column of features; the last is `None` if all further columns are features.
    pub features: Option<(usize, Option<usize>)>,
    /// Whether source and destination are named as different kinds, so that equal ids are different nodes.
    pub separate: bool,
    /// Notes on columns that were chosen although others might be meant.
    pub notes: Vec<String>,
}

impl HeaderColumns {
    /// Returns the columns of a fixed layout, given from 1.
    pub(super) const fn fixed(
        src: usize,
        dst: usize,
        time: usize,
        label: Option<usize>,
        features: Option<(usize, Option<usize>)>,
    ) -> Self {
        const fn from_0(i: Option<usize>) -> Option<usize> {
            match i {
                Some(i) => Some(i - 1),
                None => None,
            }
        }
        let features = match features {
            Some((first, last)) => Some((first - 1, from_0(last))),
            None => None,
        };
        let (src, dst, time) = (Some(src - 1), Some(dst - 1), Some(time - 1));
        HeaderColumns {
            src,
            dst,
            time,
            label: from_0(label),
            index: None,
            features,
            separate: false,
            notes: Vec::new(),
        }
    }

    /// Finds source, destination, time and the optional columns by name, in any order. If the names tell two
    /// of the first three, the third is found by its place and its values.
    pub(super) fn find(names: &[String], sample: &Sample) -> Result<Self, String> {
        let mut roles: Vec<Role> = names.iter().map(|n| role(n)).collect();
        // `i` is the destination in `u,i` but the source in `i,j`.
        if let (Some(i), Some(j)) = (position(names, "i"), position(names, "j"))
            && !roles.contains(&Role::Src)
        {
            (roles[i], roles[j]) = (Role::Src, Role::Dst);
        }
        let single = |wanted: Role, what: &str| {
            let mut found = (0..roles.len()).filter(|&i| roles[i] == wanted);
            match (found.next(), found.next()) {
                (Some(a), Some(b)) => {
                    Err(format!("`{}` and `{}` both look like the {what}", names[a], names[b]))
                }
                (first, _) => Ok(first),
            }
        };
        let mut named = HeaderColumns {
            src: single(Role::Src, "source")?,
            dst: single(Role::Dst, "destination")?,
            time: None,
            label: single(Role::Label, "label")?,
            index: single(Role::Index, "event number")?,
            features: features(names, &roles),
            separate: false,
            notes: Vec::new(),
        };
        named.choose_time(names, &roles, sample);
        named.complete(names, &roles, sample);
        if let (Some(src), Some(dst)) = (named.src, named.dst) {
            named.separate = are_kinds(&names[src], &names[dst]);
        }
        Ok(named)
    }

    /// Chooses the time among the columns that look like one.
    fn choose_time(&mut self, names: &[String], roles: &[Role], sample: &Sample) {
        let with = |wanted: Role| (0..roles.len()).filter(move |&i| roles[i] == wanted);
        let times = |i: &usize| sample.are_times(*i);
        let found: Vec<usize> = match with(Role::Time).next() {
            Some(_) => with(Role::Time).collect(),
            // If none of them is a time, the error about its format is the best.
            None if with(Role::LikelyTime).any(|i| times(&i)) => {
                with(Role::LikelyTime).filter(times).collect()
            }
            None => with(Role::LikelyTime).collect(),
        };
        // Of several, the first that holds times.
        self.time = found.iter().copied().find(times).or(found.first().copied());
        if let (Some(time), [_, _, ..]) = (self.time, &found[..]) {
            let others: Vec<&str> =
                found.iter().filter(|i| **i != time).map(|&i| names[i].as_str()).collect();
            self.notes.push(format!(
                "time is `{}`; for another column, such as `{}`, give --columns time={}",
                names[time], others[0], others[0]
            ));
        }
    }

    /// Finds the one of source, destination and time that no name tells, if the other two are known.
    fn complete(&mut self, names: &[String], roles: &[Role], sample: &Sample) {
        let free = |i: &usize| matches!(roles[*i], Role::Other | Role::LikelyTime) && !names[*i].is_empty();
        let is_node = |i: &usize| free(i) && !sample.are_decimals(*i);
        let (found, what) = match (self.src, self.dst, self.time) {
            (Some(src), None, Some(time)) => {
                let other = |i: &usize| is_node(i) && *i != time;
                let found = (src + 1..roles.len()).find(other).or_else(|| (0..src).rev().find(other));
                self.dst = found;
                (found, "destination")
            }
            (None, Some(dst), Some(time)) => {
                let other = |i: &usize| is_node(i) && *i != time;
                let found = (0..dst).rev().find(other).or_else(|| (dst + 1..roles.len()).find(other));
                self.src = found;
                (found, "source")
            }
            (Some(_), Some(_), None) => {
                let free = || (0..roles.len()).filter(|i| free(i) && sample.are_times(*i));
                let is_date = |i: &usize| !sample.are_numbers(*i);
                let is_unix = |i: &usize| sample.numbers(*i).all(|t| t >= OLDEST_UNIX_TIME as f64);
                let found = free().find(is_date).or_else(|| free().find(is_unix));
                self.time = found;
                (found, "time")
            }
            _ => return,
        };
        self.notes.extend(found.map(|i| {
            let role = ["src", "dst", "time"]
                [["source", "destination", "time"].iter().position(|w| *w == what).unwrap_or(2)];
            format!(
                "no column is named like a {what}: read `{}`; for another, give --columns {role}=NAME",
                names[i]
            )
        }));
    }
}

/// Whether a source called `src` and a destination called `dst` are different kinds of nodes: somebody, and
/// not one of the general words for a destination.
fn are_kinds(src: &str, dst: &str) -> bool {
    let person =
        ["user", "customer", "reviewer", "author"].iter().any(|p| src.to_ascii_lowercase().starts_with(p));
    let thing = ["item", "product", "merchant"].iter().any(|t| dst.to_ascii_lowercase().starts_with(t));
    person && (thing || role(dst) == Role::Other && !dst.to_ascii_lowercase().contains("user"))
}

/// Returns the first run of columns that look like features. If it ends in a name for all features, the
/// columns without names after it belong to it.
fn features(names: &[String], roles: &[Role]) -> Option<(usize, Option<usize>)> {
    let is_feature = |role: &Role| matches!(role, Role::Feature | Role::Features);
    let first = roles.iter().position(is_feature)?;
    let end = first + roles[first..].iter().take_while(|role| is_feature(role)).count();
    let is_open = roles[end - 1] == Role::Features && names[end..].iter().all(String::is_empty);
    Some((first, (!is_open).then_some(end - 1)))
}
