//! How the columns of a file become features, so that later events of the same file are read alike.
use serde::{Deserialize, Serialize};

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
}
