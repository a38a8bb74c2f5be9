//! Original ids of nodes: whole numbers or text.
use super::{
    format::number::{Fault, parse_id},
    name_table::{NameTable, Texts},
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt};

/// Id of a node, as its file writes it.
///
/// Whole numbers from 0 to 2^64 - 1 without leading zeros are numbers; everything else is text: `u36`, `-1`,
/// `007`.
///
/// ```
/// use tgnn_data::NodeId;
/// assert_eq!((NodeId::parse("36"), NodeId::parse("u36")), (NodeId::Number(36), NodeId::Text("u36".into())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NodeId {
    /// Whole number.
    Number(u64),
    /// Any other id.
    Text(Box<str>),
}

impl NodeId {
    /// Returns the id that `text` writes.
    pub fn parse(text: &str) -> Self {
        IdField::text(Cow::Borrowed(text)).into()
    }
}

impl From<IdField<'_>> for NodeId {
    fn from(id: IdField<'_>) -> Self {
        match id {
            IdField::Number(n) => NodeId::Number(n),
            IdField::Text(text) => NodeId::Text(text.into()),
        }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeId::Number(n) => n.fmt(f),
            NodeId::Text(text) => f.write_str(text),
        }
    }
}

/// Id in a field of an input, not yet copied.
#[derive(Debug, PartialEq)]
pub(crate) enum IdField<'a> {
    Number(u64),
    Text(Cow<'a, str>),
}

impl<'a> IdField<'a> {
    /// Returns the id in a field of text.
    pub(crate) fn parse(field: &'a [u8]) -> Result<Self, Fault> {
        let field = trimmed(field);
        match number(field) {
            Some(n) => Ok(IdField::Number(n)),
            None if field.is_empty() => Err(Fault::Empty),
            None => Ok(IdField::Text(std::str::from_utf8(field).map_err(|_| Fault::Encoding)?.into())),
        }
    }

    /// Returns the id as text.
    fn into_text(self) -> Cow<'a, str> {
        match self {
            IdField::Number(n) => Cow::Owned(n.to_string()),
            IdField::Text(text) => text,
        }
    }

    /// Returns the id that `text` writes.
    pub(crate) fn text(text: Cow<'a, str>) -> Self {
        match number(text.as_bytes()) {
            Some(n) => IdField::Number(n),
            None => IdField::Text(text),
        }
    }
}

/// Removes blanks at both ends, even those that no keyboard shows, such as a no-break space or a byte order
/// mark.
#[inline]
pub(crate) fn trimmed(field: &[u8]) -> &[u8] {
    let is_plain = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_graphic);
    if is_plain(field.first()) && is_plain(field.last()) {
        return field;
    }
    let is_blank = |c: char| c.is_whitespace() || matches!(c, '\u{feff}' | '\u{200b}');
    std::str::from_utf8(field).map_or(field, |text| text.trim_matches(is_blank).as_bytes())
}

/// Returns the number that `field` writes without leading zeros.
fn number(field: &[u8]) -> Option<u64> {
    if !field.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let padded = field.len() > 1 && field[0] == b'0' && field[1].is_ascii_digit();
    parse_id(field).ok().filter(|_| !padded)
}

/// The ids of sources and destinations of a file, event by event.
///
/// They are kept as numbers until the first id that is text; from then on, as numbers of names in order of
/// first appearance.
#[derive(Debug, Default)]
pub(super) struct IdColumns {
    pub src: Vec<u64>,
    pub dst: Vec<u64>,
    /// The names, if the ids are text.
    pub names: Option<NameTable>,
    /// Of a [block](Self::of_block) with a text: the ids of both ends of all events, not yet numbered.
    texts: Option<Texts>,
    is_block: bool,
}

impl IdColumns {
    /// Wraps columns of numbers, or of numbers of `names`.
    pub(super) fn new(src: Vec<u64>, dst: Vec<u64>, names: Option<NameTable>) -> Self {
        IdColumns { src, dst, names, texts: None, is_block: false }
    }

    /// Starts the ids of events that are appended to those of others.
    pub(super) fn of_block() -> Self {
        IdColumns { is_block: true, ..IdColumns::default() }
    }

    /// Appends the ids of an event.
    pub(super) fn push(&mut self, src: IdField<'_>, dst: IdField<'_>) {
        let are_numbers = self.names.is_none() && self.texts.is_none();
        if let (true, IdField::Number(src), IdField::Number(dst)) = (are_numbers, &src, &dst) {
            self.src.push(*src);
            self.dst.push(*dst);
            return;
        }
        let [src, dst] = [src, dst].map(IdField::into_text);
        if self.is_block {
            let texts = self.texts();
            texts.push(&src);
            texts.push(&dst);
            self.src.push(0);
            self.dst.push(0);
            return;
        }
        let names = self.named();
        let (src, dst) = (names.number(&src), names.number(&dst));
        self.src.push(src);
        self.dst.push(dst);
    }

    /// Appends the ids of a block.
    pub(super) fn append(&mut self, block: IdColumns) {
        if let Some(texts) = block.texts {
            let numbers: Vec<u64> = self.named().numbers(&texts).collect();
            self.src.extend(numbers.iter().step_by(2));
            self.dst.extend(numbers.iter().skip(1).step_by(2));
        } else if self.names.is_none() {
            self.src.extend(block.src);
            self.dst.extend(block.dst);
        } else {
            let ends = block.src.into_iter().zip(block.dst);
            ends.for_each(|(src, dst)| self.push(IdField::Number(src), IdField::Number(dst)));
        }
    }

    /// Returns the names; all numbers so far become names.
    fn named(&mut self) -> &mut NameTable {
        if self.names.is_none() {
            let mut names = NameTable::default();
            for (src, dst) in self.src.iter_mut().zip(&mut self.dst) {
                for id in [src, dst] {
                    *id = names.number(&id.to_string());
                }
            }
            self.names = Some(names);
        }
        self.names.get_or_insert_default()
    }

    /// Returns the texts of a block; all numbers so far become texts.
    fn texts(&mut self) -> &mut Texts {
        if self.texts.is_none() {
            let mut texts = Texts::default();
            let ends = self.src.iter().zip(&self.dst).flat_map(|(src, dst)| [src, dst]);
            ends.for_each(|id| texts.push(&id.to_string()));
            self.texts = Some(texts);
        }
        self.texts.get_or_insert_default()
    }
}

/// The original ids of the nodes, as in the file that the events come from: all numbers or all text.
///
/// A source and a destination may share an id if the file numbers sources and destinations separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Numbers(Vec<u64>),
    Names(Vec<Box<str>>),
}

impl Ids {
    /// Wraps numbers: node `n` has the id `numbers[n]`.
    pub fn new(numbers: Vec<u64>) -> Self {
        Ids(Kind::Numbers(numbers))
    }

    /// Wraps text: node `n` has the id `names[n]`.
    pub fn named(names: Vec<Box<str>>) -> Self {
        Ids(Kind::Names(names))
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Numbers(numbers) => numbers.len(),
            Kind::Names(names) => names.len(),
        }
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the id of a node, or `None` if there are not so many nodes.
    pub fn get(&self, node: usize) -> Option<NodeId> {
        match &self.0 {
            Kind::Numbers(numbers) => numbers.get(node).copied().map(NodeId::Number),
            Kind::Names(names) => names.get(node).cloned().map(NodeId::Text),
        }
    }

    /// Returns the ids indexed by node, if they are numbers.
    pub fn numbers(&self) -> Option<&[u64]> {
        match &self.0 {
            Kind::Numbers(numbers) => Some(numbers),
            Kind::Names(_) => None,
        }
    }

    /// Returns the ids indexed by node, if they are text.
    pub fn names(&self) -> Option<&[Box<str>]> {
        match &self.0 {
            Kind::Numbers(_) => None,
            Kind::Names(names) => Some(names),
        }
    }

    /// Returns the ids in the order of the nodes.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> {
        (0..self.len()).filter_map(|node| self.get(node))
    }
}

impl FromIterator<NodeId> for Ids {
    /// Collects the ids of nodes in order; they are numbers if all of them are.
    fn from_iter<I: IntoIterator<Item = NodeId>>(ids: I) -> Self {
        let ids: Vec<NodeId> = ids.into_iter().collect();
        let number = |id: &NodeId| match id {
            NodeId::Number(n) => Some(*n),
            NodeId::Text(_) => None,
        };
        match ids.iter().map(number).collect() {
            Some(numbers) => Ids::new(numbers),
            None => Ids::named(ids.iter().map(|id| id.to_string().into()).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_numbers_and_all_else_is_text() {
        for (text, number) in [("0", 0), ("7.0", 7), ("18446744073709551615", u64::MAX)] {
            assert_eq!(NodeId::parse(text), NodeId::Number(number));
        }
        for text in ["007", "-1", "7.5", "1e3", "18446744073709551616", "EWR", "Zürich"] {
            assert_eq!(
                (NodeId::parse(text), NodeId::parse(text).to_string()),
                (NodeId::Text(text.into()), text.into())
            );
        }
        assert_eq!(IdField::parse(b""), Err(Fault::Empty));
        assert_eq!(IdField::parse(b"Z\xfcrich"), Err(Fault::Encoding));
    }

    #[test]
    fn the_first_text_turns_earlier_numbers_into_names() {
        let mut columns = IdColumns::default();
        for (src, dst) in [("3", "9"), ("9", "3"), ("3", "x"), ("x", "9.0"), ("y", "3")] {
            columns.push(IdField::text(src.into()), IdField::text(dst.into()));
        }
        let names: Vec<&str> = columns.names.as_ref().unwrap().iter().collect();
        assert_eq!(
            (names, columns.src, columns.dst),
            (vec!["3", "9", "x", "y"], vec![0, 1, 0, 2, 3], vec![1, 0, 2, 1, 0],)
        );
    }

    #[test]
    fn an_id_in_json_is_a_number_or_a_string() {
        let ids = vec![NodeId::Number(3), NodeId::Text("x".into())];
        let json = serde_json::to_string(&ids).unwrap();
        assert_eq!(json, r#"[3,"x"]"#);
        assert_eq!(serde_json::from_str::<Vec<NodeId>>(&json).unwrap(), ids);
    }
}
