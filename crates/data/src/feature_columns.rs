//! How the columns of a file become features, so that later events of the same file are read alike.
use super::text::{counted, some_of};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The columns of a file that are features, in order.
///
/// The widths of the columns add up to the width of the features.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeatureEncoding(pub Vec<EncodedColumn>);

/// A column of a file that is one or several features.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedColumn {
    /// Name in the header, or the number of the column from 1.
    pub name: String,
    /// How its values become features.
    pub values: Encoding,
}

/// How the values of a column become features.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Encoding {
    /// So many numbers: 1, or the length of the list.
    Numbers(usize),
    /// One feature per category, 1 for the category of the event. Another category is all zeros.
    OneHot(Vec<Box<str>>),
    /// So many features. Every word of the text adds 1 or -1 to one of them.
    Hashed(usize),
}

impl Encoding {
    /// Returns the number of features.
    pub fn width(&self) -> usize {
        match self {
            Encoding::Numbers(width) | Encoding::Hashed(width) => *width,
            Encoding::OneHot(categories) => categories.len(),
        }
    }
}

impl FeatureEncoding {
    /// Returns the encoding of features that are no columns of a file: numbers, called `f0`, `f1`, ...
    pub fn numbers(width: usize) -> Self {
        let column = |i| EncodedColumn { name: format!("f{i}"), values: Encoding::Numbers(1) };
        FeatureEncoding((0..width).map(column).collect())
    }

    /// Returns the number of features of all columns.
    pub fn width(&self) -> usize {
        self.0.iter().map(|column| column.values.width()).sum()
    }

    /// Returns the names of the features, such as `km` and `carrier=AA`.
    pub fn names(&self) -> Vec<String> {
        let of_column = |EncodedColumn { name, values }: &EncodedColumn| -> Vec<String> {
            match values {
                Encoding::Numbers(1) => vec![name.clone()],
                Encoding::Numbers(width) => (0..*width).map(|i| format!("{name}[{i}]")).collect(),
                Encoding::OneHot(categories) => categories.iter().map(|c| format!("{name}={c}")).collect(),
                Encoding::Hashed(width) => (0..*width).map(|i| format!("{name}#{i}")).collect(),
            }
        };
        self.0.iter().flat_map(of_column).collect()
    }
}

impl FeatureEncoding {
    /// Says in what the columns of other data differ from these, on which a model was trained, so that a
    /// feature does not mean the same; `None` if they do not. Columns without a header have no names to
    /// compare.
    pub fn difference(&self, data: &Self) -> Option<String> {
        let is_named = |columns: &Self| columns.0.iter().any(|c| c.name.parse::<usize>().is_err());
        let named = is_named(self) && is_named(data);
        let names = |columns: &Self| columns.0.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        let (ours, theirs) = (names(data), names(self));
        if self.0.len() != data.0.len() || named && ours != theirs {
            return Some(match named {
                true => format!("the columns are {}; the model's are {}", listed(&ours), listed(&theirs)),
                false => {
                    let columns = counted(ours.len() as u64, "column");
                    format!("the data have {columns}, the model {}", theirs.len())
                }
            });
        }
        let differs = |(theirs, ours): (&EncodedColumn, &EncodedColumn)| {
            let what = theirs.values.difference(&ours.values)?;
            Some(format!("the column `{}` {what}", ours.name))
        };
        self.0.iter().zip(&data.0).find_map(differs)
    }
}

impl Encoding {
    /// Says how a column of other data differs from this one of a model.
    fn difference(&self, data: &Self) -> Option<String> {
        match (self, data) {
            (theirs, ours) if theirs == ours => None,
            (Encoding::OneHot(theirs), Encoding::OneHot(ours)) => {
                let without = |a: &[Box<str>], b: &[Box<str>]| {
                    let b: HashSet<&Box<str>> = b.iter().collect();
                    a.iter()
                        .filter(|name| !b.contains(name))
                        .map(|name| format!("`{name}`"))
                        .collect::<Vec<_>>()
                };
                let (new, gone) = (without(ours, theirs), without(theirs, ours));
                Some(match (&new[..], &gone[..]) {
                    ([], []) => "has its categories in another order".to_owned(),
                    ([], _) => format!("lacks categories of the model: {}", listed(&gone)),
                    (_, []) => format!("has categories that the model lacks: {}", listed(&new)),
                    _ => {
                        let (new, gone) = (listed(&new), listed(&gone));
                        format!("has categories that the model lacks: {new}; and lacks of its: {gone}")
                    }
                })
            }
            (theirs, ours) => Some(format!("is {}; the model's is {}", ours.kind(), theirs.kind())),
        }
    }

    fn kind(&self) -> String {
        match self {
            Encoding::Numbers(1) => "a number".into(),
            Encoding::Numbers(width) => format!("a list of {width} numbers"),
            Encoding::OneHot(categories) => format!("{} categories", categories.len()),
            Encoding::Hashed(width) => format!("hashed into {width} features"),
        }
    }
}

/// Lists names, at most eight of them.
fn listed(names: &[String]) -> String {
    some_of(names, 8)
}

/// How columns of files became features of edges and nodes; `None` for features that are no columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Encodings {
    /// Edge features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<FeatureEncoding>,
    /// Node features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<FeatureEncoding>,
}

impl Encodings {
    /// Whether no features are columns.
    pub fn is_empty(&self) -> bool {
        self.edge.is_none() && self.node.is_none()
    }
}

/// Appends the features of a text. Each of its words adds 1 or -1 to one of them, as the word's CRC-32
/// decides.
pub(super) fn hash_words(text: &str, buckets: usize, to: &mut Vec<f32>) {
    let first = to.len();
    to.resize(first + buckets, 0.0);
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let hash = crc32fast::hash(word.to_lowercase().as_bytes());
        let sign = if hash >> 31 == 0 { 1.0 } else { -1.0 };
        to[first + (hash & 0x7fff_ffff) as usize % buckets] += sign;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_name_their_features() {
        let column = |name: &str, values| EncodedColumn { name: name.into(), values };
        let encoding = FeatureEncoding(vec![
            column("km", Encoding::Numbers(1)),
            column("carrier", Encoding::OneHot(["AA".into(), "UA".into()].to_vec())),
            column("note", Encoding::Hashed(2)),
        ]);
        assert_eq!(encoding.width(), 5);
        assert_eq!(encoding.names(), ["km", "carrier=AA", "carrier=UA", "note#0", "note#1"]);
        let mut features = Vec::new();
        hash_words("a B, b", 2, &mut features);
        assert_eq!(features.iter().map(|v: &f32| v.abs()).sum::<f32>() % 2.0, 1.0);
        let json = serde_json::to_string(&encoding).unwrap();
        assert_eq!(serde_json::from_str::<FeatureEncoding>(&json).unwrap(), encoding);
    }
    #[test]
    fn columns_that_mean_something_else_are_told_apart() {
        let encoding = |columns: &[(&str, Encoding)]| {
            let column = |(name, values): &(&str, Encoding)| EncodedColumn {
                name: (*name).into(),
                values: values.clone(),
            };
            FeatureEncoding(columns.iter().map(column).collect())
        };
        let of = |names: &[&str]| Encoding::OneHot(names.iter().map(|name| (*name).into()).collect());
        let number = || Encoding::Numbers(1);
        let model = encoding(&[("km", number()), ("kind", of(&["cash", "visa"]))]);
        let said = |columns: &[(&str, Encoding)]| model.difference(&encoding(columns)).unwrap_or_default();
        let kind = |names: &[&str]| said(&[("km", number()), ("kind", of(names))]);
        assert_eq!(kind(&["cash", "visa"]), "");
        assert_eq!(
            kind(&["visa", "wire"]),
            "the column `kind` has categories that the model lacks: `wire`; and lacks of its: `cash`"
        );
        assert_eq!(kind(&["visa"]), "the column `kind` lacks categories of the model: `cash`");
        assert_eq!(
            kind(&["cash", "visa", "wire"]),
            "the column `kind` has categories that the model lacks: `wire`"
        );
        assert_eq!(kind(&["visa", "cash"]), "the column `kind` has its categories in another order");
        assert_eq!(
            said(&[("km", number()), ("kind", Encoding::Hashed(2))]),
            "the column `kind` is hashed into 2 features; the model's is 2 categories"
        );
        assert_eq!(
            said(&[("kind", of(&["cash", "visa"])), ("km", number())]),
            "the columns are kind, km; the model's are km, kind"
        );
        assert_eq!(said(&[("4", number()), ("5", of(&["cash", "visa"]))]), "");
        assert_eq!(said(&[("4", number())]), "the data have 1 column, the model 2");
        let hashed = |a, b| encoding(&[("a", Encoding::Hashed(a)), ("b", Encoding::Hashed(b))]);
        let said = hashed(8, 4).difference(&hashed(4, 8)).unwrap();
        assert_eq!(said, "the column `a` is hashed into 4 features; the model's is hashed into 8 features");
    }
}
