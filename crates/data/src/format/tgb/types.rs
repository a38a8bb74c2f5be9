//! Sets of TGB whose edges have types: temporal knowledge graphs (`tkgl-*`) and temporal heterogeneous graphs
//! (`thgl-*`).
//!
//! | sets | columns | nodes and types are |
//! | --- | --- | --- |
//! | thgl-myket, thgl-github, thgl-software; tkgl-polecat, tkgl-icews, tkgl-yago | `time,head,tail,type` | numbers |
//! | tkgl-wikidata, tkgl-smallpedia | `time,head,tail,type` | names |
//! | thgl-forum | `time,head,tail,type,num_words,score` | numbers |
//!
//! Nodes are numbered in the order they appear, names of types, too; numbers of types stay. A temporal
//! knowledge graph also has the inverse of every edge, whose type is the edge's type plus the number of
//! types; it follows the edges of its time. All of this is as in `py-tgb` 2.3. The type of an edge is its
//! class, and one-hot edge features; of more than [`MOST_ONE_HOT`] types it is hashed. A heterogeneous graph
//! has the types of its nodes as one-hot node features. Source: Gastinger, Huang et al., NeurIPS 2024.
use super::{
    super::{
        delimiter::Delimiter,
        input::Input,
        number::{Fault, parse_decimal, parse_f32, parse_id},
        options::ReadOptions,
        records::{Record, Shape, records},
        table::{IDS, TIMES, VALUES, fault, take},
    },
    appearance::Appearance,
    node_files,
};
use crate::{
    Classes, EncodedColumn, Encoding, FeatureEncoding, Features, feature_columns::hash_words, raw::Raw,
    text::counted,
};
use std::path::Path;
use tgnn::error::{Error, Result};

/// Maximum number of types that are one-hot edge features.
pub(super) const MOST_ONE_HOT: usize = 64;
/// Number of edge features into which more types are hashed.
const HASHED: usize = 32;
/// Divisor of the number of words and of the score of a message.
const MOST: f64 = 10_000.0;

/// Layout of a set's edge list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Layout {
    Numbers,
    Names,
    Messages,
}

/// The sets and their layouts.
pub(super) const SETS: [(&str, Layout); 9] = [
    ("tkgl-polecat", Layout::Numbers),
    ("tkgl-icews", Layout::Numbers),
    ("tkgl-yago", Layout::Numbers),
    ("tkgl-wikidata", Layout::Names),
    ("tkgl-smallpedia", Layout::Names),
    ("thgl-myket", Layout::Numbers),
    ("thgl-github", Layout::Numbers),
    ("thgl-software", Layout::Numbers),
    ("thgl-forum", Layout::Messages),
];

/// Returns the layout of a set, if it has types of edges.
pub(super) fn layout_of(set: &str) -> Option<Layout> {
    SETS.iter().find(|(known, _)| *known == set).map(|&(_, layout)| layout)
}

/// Reads the edge list `file` of `set`, and the types of its nodes, which lie beside it.
pub(super) fn read(file: &Path, set: &str, layout: Layout, options: &ReadOptions) -> Result<Raw> {
    let mut edges = Edges::new(file, layout);
    edges.raw.name = set.to_owned();
    let mut records = records(Input::open(file)?, Shape::of(Delimiter::Byte(b',')));
    let Some(header) = records.header()? else {
        return Err(Error::data(file, "the file is empty").remedy("fetch the data set again"));
    };
    let column = (header.len() > 3).then(|| String::from_utf8_lossy(header.field(3)).into_owned());
    while let Some(row) = records.next()? {
        edges.push(&row, options.strict)?;
    }
    edges.raw.lines = Some(records.counts());
    let nodes = std::mem::take(&mut edges.nodes);
    let mut raw = edges.finish(set.starts_with("tkgl-"), &column.unwrap_or_else(|| "type".into()))?;
    raw.notes.push("nodes numbered in the order they appear, as TGB does".into());
    if set.starts_with("thgl-") && nodes.len() > 0 {
        let types = file.with_file_name(format!("{set}_nodetype.csv"));
        raw.node_features = Some((node_files::types(&types, &nodes, &mut raw.notes)?, types));
    }
    Ok(raw)
}

/// The edges read so far.
struct Edges {
    layout: Layout,
    raw: Raw,
    nodes: Appearance,
    /// Names of types, in the layout with names.
    names: Appearance,
    types: Vec<u32>,
    /// Words and scores of messages.
    values: Vec<f32>,
    latest: i64,
}

impl Edges {
    fn new(file: &Path, layout: Layout) -> Self {
        Edges {
            layout,
            raw: Raw::new(file),
            nodes: Appearance::default(),
            names: Appearance::default(),
            types: Vec::new(),
            values: Vec::new(),
            latest: i64::MIN,
        }
    }

    /// Appends the edge of a row.
    fn push(&mut self, row: &Record<'_>, strict: bool) -> Result<()> {
        let wanted = if self.layout == Layout::Messages { 6 } else { 4 };
        if row.len() < wanted {
            let what = format!("this row has {} columns, expected {wanted}", row.len());
            return Err(row.error(None, what).remedy("fix or remove the row"));
        }
        let time = take(row, 0, parse_whole, "a time in whole seconds", TIMES)?;
        if strict && time < self.latest {
            return Err(row
                .error(Some(0), "this event is earlier than one before it")
                .remedy("sort the file by time, or leave out --strict"));
        }
        self.latest = self.latest.max(time);
        for i in [1, 2] {
            if self.layout != Layout::Names {
                take(row, i, parse_id, "a node id", IDS)?;
            }
            let node = self.nodes.number_in(row, i, "a node's name")?;
            if i == 1 { &mut self.raw.ids.src } else { &mut self.raw.ids.dst }.push(node);
        }
        let number = match self.layout {
            Layout::Names => self.names.number_in(row, 3, "a type's name")?,
            _ => take(row, 3, parse_id, "a type", IDS)?,
        };
        self.types.push(u32::try_from(number).map_err(|_| fault(row, 3, Fault::TooLarge, "a type", IDS))?);
        self.raw.time.push(time);
        if self.layout == Layout::Messages {
            for (i, what) in [(4, "a number of words"), (5, "a score")] {
                let value = f64::from(take(row, i, parse_f32, what, VALUES)?);
                self.values.push((value / MOST) as f32);
            }
        }
        Ok(())
    }

    /// Returns the edges in order of time, with their inverses if `inverse`. The column of types is called
    /// `column`.
    fn finish(self, inverse: bool, column: &str) -> Result<Raw> {
        let mut raw = self.raw;
        let edges = self.types.len();
        if edges == 0 {
            return Ok(raw);
        }
        raw.classes = Some(classes(&raw.file, self.types)?);
        if !self.values.is_empty() {
            raw.edge_features = Some(Features::from_vec(edges, self.values.len() / edges, self.values)?);
        }
        raw.sort();
        let mut types = raw.classes.take().map_or(Vec::new(), |sorted| sorted.table().to_vec());
        if inverse {
            let count = distinct(&types).len() as u32;
            types = with_inverses(&mut raw, &types, count);
            raw.notes.push(format!("with {}, as TGB makes them", counted(edges as u64, "inverse edge")));
        }
        raw.classes = Some(classes(&raw.file, types.clone())?);
        encode(&mut raw, &types, column)?;
        Ok(raw)
    }
}

/// Returns the types of the edges of `file` as their classes.
fn classes(file: &Path, types: Vec<u32>) -> Result<Classes> {
    let count = types.iter().max().map_or(0, |&last| last as usize + 1);
    Classes::new(count, 1, types).map_err(|e| e.in_file(file))
}

/// Parses an integer.
fn parse_whole(field: &[u8]) -> Result<i64, Fault> {
    let number = parse_decimal(field)?;
    if number.digits == 0 && !number.rounded { Ok(number.mantissa) } else { Err(Fault::Text) }
}

/// Returns the different numbers, in ascending order.
fn distinct(numbers: &[u32]) -> Vec<u32> {
    let last = numbers.iter().max().map_or(0, |&last| last as usize);
    let mut seen = vec![false; last + 1];
    numbers.iter().for_each(|&n| seen[n as usize] = true);
    (0..=last as u32).filter(|&n| seen[n as usize]).collect()
}

/// Puts the inverses of all edges of a time behind them, and returns the types of all. `raw` is sorted by
/// time.
fn with_inverses(raw: &mut Raw, types: &[u32], types_before: u32) -> Vec<u32> {
    let (src, dst) = (std::mem::take(&mut raw.ids.src), std::mem::take(&mut raw.ids.dst));
    let time = std::mem::take(&mut raw.time);
    let mut all = Vec::with_capacity(2 * types.len());
    let mut first = 0;
    for now in time.chunk_by(|a, b| a == b) {
        let edges = first..first + now.len();
        for (from, to, added) in [(&src, &dst, 0), (&dst, &src, types_before)] {
            raw.ids.src.extend_from_slice(&from[edges.clone()]);
            raw.ids.dst.extend_from_slice(&to[edges.clone()]);
            raw.time.extend_from_slice(now);
            all.extend(types[edges.clone()].iter().map(|t| t + added));
        }
        first = edges.end;
    }
    all
}

/// Puts the code of every event's type before its features.
fn encode(raw: &mut Raw, types: &[u32], column: &str) -> Result<()> {
    let different = distinct(types);
    let one_hot = different.len() <= MOST_ONE_HOT;
    let mut code_of = vec![Vec::new(); different.last().map_or(0, |&last| last as usize + 1)];
    for (i, &t) in different.iter().enumerate() {
        let code = &mut code_of[t as usize];
        if one_hot {
            code.resize(different.len(), 0.0);
            code[i] = 1.0;
        } else {
            hash_words(&t.to_string(), HASHED, code);
        }
    }
    let (values, how) = if one_hot {
        let names = different.iter().map(|t| t.to_string().into()).collect();
        (Encoding::OneHot(names), "one-hot".to_owned())
    } else {
        (Encoding::Hashed(HASHED), format!("hashed into {HASHED}"))
    };
    let types_here = counted(different.len() as u64, "type");
    raw.notes.push(format!("{types_here} of edges: classes of the events, and edge features ({how})"));
    let mut columns = vec![EncodedColumn { name: column.to_owned(), values }];
    let others = raw.edge_features.take();
    if others.is_some() {
        let scaled =
            |name: &str| EncodedColumn { name: format!("{name}/{MOST}"), values: Encoding::Numbers(1) };
        columns.extend(["num_words", "score"].map(scaled));
    }
    let encoding = FeatureEncoding(columns);
    let width = encoding.width();
    let mut all = Vec::with_capacity(types.len() * width);
    for (i, &t) in types.iter().enumerate() {
        all.extend_from_slice(&code_of[t as usize]);
        if let Some(others) = &others {
            all.extend_from_slice(others.row(i));
        }
    }
    raw.edge_features = Some(Features::from_vec(types.len(), width, all)?);
    raw.encoding = Some(encoding);
    Ok(())
}
