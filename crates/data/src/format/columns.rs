//! Columns as the user names them.
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use tgnn::error::{Error, Result};

/// Remedy for columns that cannot be parsed.
const SYNTAX: &str = "write src=A,dst=B,time=C, optionally followed by label=D,features=E+F,one-hot=G,hashed=H:32, \
                      with names of columns or their numbers from 1";
/// Number of features that a column is hashed to by default.
const BUCKETS: usize = 16;
/// Maximum number of features that a column is hashed to.
const MOST_BUCKETS: usize = 1 << 16;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnName {
    /// Position, from 1.
    Number(usize),
    /// Name in the header. It counts as written, else in any case of letters.
    Name(String),
}

/// Columns whose values become features of an event or a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeatureColumns {
    /// A column of numbers or of lists of numbers.
    Values(ColumnName),
    /// Columns of numbers from the first to the last position, both inclusive and counted from 1; `None`: to
    /// the end of the row.
    Range(usize, Option<usize>),
    /// A column of categories: one feature per category, 1 where the row has it.
    OneHot(ColumnName),
    /// A column of text: its words are hashed to so many features, each with a sign (Weinberger et al., ICML
    /// 2009).
    Hashed(ColumnName, usize),
}

/// Columns of a table, by name or position. What is not given is recognised by the header.
///
/// A name in double quotes may be a number or contain `,`, `+`, `:` and doubled quotes.
///
/// As text: `src=origin,dst=dest,time=time_hour`, optionally followed by `label=`, `features=`, `one-hot=`
/// and `hashed=`. Several columns are joined by `+`; several columns of `time` form one time, such as
/// `time=date+clock`. `features=5-` are all columns from the fifth on.
///
/// ```
/// # use tgnn_data::{ColumnName, Columns, FeatureColumns};
/// let columns: Columns = "src=origin,time=1,features=distance+5-".parse()?;
/// assert_eq!(columns.src, Some(ColumnName::Name("origin".into())));
/// assert_eq!(columns.time, [ColumnName::Number(1)]);
/// assert_eq!(columns.features[1], FeatureColumns::Range(5, None));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Columns {
    /// Source node.
    pub src: Option<ColumnName>,
    /// Destination node.
    pub dst: Option<ColumnName>,
    /// Time. The parts of several columns are joined by a blank.
    pub time: Vec<ColumnName>,
    /// Label of the event.
    pub label: Option<ColumnName>,
    /// Id of the row, in a table of features.
    pub id: Option<ColumnName>,
    /// Features, in this order.
    pub features: Vec<FeatureColumns>,
}

impl Columns {
    /// Returns the columns that are given by a name.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let features = self.features.iter().filter_map(|columns| match columns {
            FeatureColumns::Values(name) | FeatureColumns::OneHot(name) | FeatureColumns::Hashed(name, _) => {
                Some(name)
            }
            FeatureColumns::Range(..) => None,
        });
        let single = [&self.src, &self.dst, &self.label].into_iter().flatten();
        single.chain(&self.time).chain(features).filter_map(|column| match column {
            ColumnName::Name(name) => Some(&**name),
            ColumnName::Number(_) => None,
        })
    }

    /// Whether source, destination and time are given by their positions.
    pub(super) fn are_numbers(&self) -> bool {
        let is_number = |column: &ColumnName| matches!(column, ColumnName::Number(_));
        let ends = [&self.src, &self.dst].iter().all(|column| column.as_ref().is_some_and(is_number));
        ends && !self.time.is_empty() && self.time.iter().all(is_number)
    }
}

impl ColumnName {
    /// Parses a name, which may be in quotes, or a position from 1; the error says what is wrong.
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text.trim() {
            "" | "\"\"" => Err("a column has no name"),
            quoted if quoted.starts_with('"') => match quoted[1..].strip_suffix('"') {
                Some(name) => Ok(ColumnName::Name(name.replace("\"\"", "\""))),
                None => Err("a quote is opened and never closed"),
            },
            name => match name.parse() {
                Ok(0) => Err("there is no column 0: the first is 1"),
                Ok(n) => Ok(ColumnName::Number(n)),
                Err(_) => Ok(ColumnName::Name(name.to_owned())),
            },
        }
    }
}

impl fmt::Display for ColumnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnName::Number(n) => n.fmt(f),
            ColumnName::Name(name) if needs_quotes(name) => write!(f, "\"{}\"", name.replace('"', "\"\"")),
            ColumnName::Name(name) => f.write_str(name),
        }
    }
}

/// Whether a name without quotes would be something else.
fn needs_quotes(name: &str) -> bool {
    name.contains([',', '+', ':', '"'])
        || name.trim() != name
        || range(name).is_some()
        || name.parse::<usize>().is_ok()
}

/// Divides a text at a mark that is not in quotes.
fn divided(text: &str, mark: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        quoted ^= c == '"';
        c == mark && !quoted
    })
}

/// Parses `5-` and `5-8`; `None` if `text` is not a range of positions.
fn range(text: &str) -> Option<(usize, Option<usize>)> {
    let (first, last) = text.split_once('-')?;
    let first = first.trim().parse().ok().filter(|first| *first > 0)?;
    match last.trim() {
        "" => Some((first, None)),
        last => Some((first, Some(last.parse().ok()?))),
    }
}

/// Parses one item of `features=`, `one-hot=` or `hashed=`; the error says what is wrong.
fn feature(role: &str, item: &str) -> Result<FeatureColumns, String> {
    let column = |name| ColumnName::parse(name).map_err(str::to_owned);
    match (role, range(item)) {
        ("features", Some((first, Some(last)))) if last < first => {
            Err(format!("the range `{item}` is empty"))
        }
        ("features", Some((first, last))) => Ok(FeatureColumns::Range(first, last)),
        ("features", None) => column(item).map(FeatureColumns::Values),
        ("one-hot", _) => column(item).map(FeatureColumns::OneHot),
        ("hashed", _) => {
            let unquoted = item.rfind('"').map_or(0, |end| end + 1);
            let (name, buckets) = match item[unquoted..]
                .rsplit_once(':')
                .map(|(_, n)| (&item[..item.len() - n.len() - 1], n))
            {
                None => (item, Some(BUCKETS)),
                Some((name, n)) => (name, n.parse().ok()),
            };
            let buckets = buckets.filter(|n| (1..=MOST_BUCKETS).contains(n));
            let buckets =
                buckets.ok_or_else(|| format!("`{item}` does not end in 1 to {MOST_BUCKETS} features"))?;
            Ok(FeatureColumns::Hashed(column(name)?, buckets))
        }
        _ => Err(format!("there is no `{role}`")),
    }
}

impl FromStr for Columns {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |what: String| Error::usage(format!("columns `{text}`: {what}")).remedy(SYNTAX);
        let mut columns = Columns::default();
        let column = |name: &str| ColumnName::parse(name).map_err(|what| bad(what.to_owned()));
        for part in divided(text, ',') {
            let (role, value) = part.split_once('=').ok_or_else(|| bad(format!("`{part}` has no `=`")))?;
            match role.trim() {
                "src" => columns.src = Some(column(value)?),
                "dst" => columns.dst = Some(column(value)?),
                "label" => columns.label = Some(column(value)?),
                "id" => columns.id = Some(column(value)?),
                "time" => columns.time = divided(value, '+').map(column).collect::<Result<_>>()?,
                role => {
                    let feature = |item| feature(role, item).map_err(bad);
                    columns.features.extend(divided(value, '+').map(feature).collect::<Result<Vec<_>>>()?);
                }
            }
        }
        Ok(columns)
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let single = [("src", &self.src), ("dst", &self.dst), ("label", &self.label), ("id", &self.id)];
        parts.extend(single.iter().filter_map(|(role, name)| Some(format!("{role}={}", (*name).as_ref()?))));
        parts.extend((!self.time.is_empty()).then(|| {
            format!("time={}", self.time.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"))
        }));
        parts.extend(self.features.iter().map(|columns| match columns {
            FeatureColumns::Values(name) => format!("features={name}"),
            FeatureColumns::Range(first, None) => format!("features={first}-"),
            FeatureColumns::Range(first, Some(last)) => format!("features={first}-{last}"),
            FeatureColumns::OneHot(name) => format!("one-hot={name}"),
            FeatureColumns::Hashed(name, buckets) => format!("hashed={name}:{buckets}"),
        }));
        f.write_str(&parts.join(","))
    }
}

impl TryFrom<String> for Columns {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Columns> for String {
    fn from(columns: Columns) -> Self {
        columns.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_read_back_as_they_are_written() {
        for text in [
            "src=2,dst=3,time=1",
            "src=origin,dst=dest,time=date+clock",
            "src=1,dst=2,label=4,time=3,features=5-,features=distance,one-hot=carrier,hashed=note:32",
            "id=airport,features=2-4",
            "src=\"a+b\",dst=\"x,\"\"y\"\"\",time=\"5\",features=\"5-\",hashed=\"a:b\":32",
        ] {
            let columns: Columns = text.parse().unwrap();
            assert_eq!((columns.to_string(), columns.to_string().parse().unwrap()), (text.into(), columns));
        }
        let columns: Columns = " src = a b , time=3, features = x + 7".parse().unwrap();
        assert_eq!(columns.to_string(), "src=a b,time=3,features=x,features=7");
        assert_eq!("hashed=note".parse::<Columns>().unwrap().to_string(), "hashed=note:16");
    }

    #[test]
    fn bad_columns_say_what_is_wrong_and_how_to_write_them() {
        for (text, said) in [
            ("src=0,dst=1,time=2", "there is no column 0"),
            ("src=,dst=1", "a column has no name"),
            ("src=1,dst=2,time=3,colour=4", "no `colour`"),
            ("src", "has no `=`"),
            ("src=1,dst=2,time=3,features=5-4", "is empty"),
            ("src=\"\",dst=2", "a column has no name"),
            ("src=\"a,dst=2", "a quote is opened and never closed"),
            ("hashed=note:0", "`note:0` does not end in 1 to 65536 features"),
        ] {
            let e = text.parse::<Columns>().unwrap_err().to_string();
            assert!(e.contains(said) && e.contains("; write src=A"), "{e}");
        }
    }
}
