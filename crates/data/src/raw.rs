//! Conversion of the raw events of a file to valid [`Events`]: sorting, renumbering and checks.
use super::{
    Classes, Encodings, Events, FeatureEncoding, Features, Ids, LineCounts, doubts,
    ids::IdColumns,
    name_table::NameTable,
    node_labels::RawLabels,
    node_rows::NodeRows,
    text::{counted, grouped},
    time_format::TimeFormat,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tgnn::error::{Error, Result};

/// Labels of events.
#[derive(Debug)]
pub(super) struct Labels {
    /// Numbers, or indices of `names`; NaN where a label is missing.
    pub values: Vec<f32>,
    /// The different labels in the order of their letters, if they are text.
    pub names: Option<Arc<[Box<str>]>>,
}

impl Labels {
    /// Wraps labels that are numbers.
    pub(super) fn numbers(values: Vec<f32>) -> Self {
        Labels { values, names: None }
    }
}

/// Events as in a file: with original ids and absolute times, in the order of the file.
pub(super) struct Raw {
    /// The name of the input in errors.
    pub file: PathBuf,
    pub name: String,
    /// The ids of sources and destinations.
    pub ids: IdColumns,
    /// Ticks since the file's epoch.
    pub time: Vec<i64>,
    pub ticks_per_second: f64,
    pub time_format: TimeFormat,
    pub label: Option<Labels>,
    pub classes: Option<Classes>,
    pub node_labels: Option<RawLabels>,
    /// One row per event, in the order of the file.
    pub edge_features: Option<Features>,
    /// How columns of the file became the edge features, if they did.
    pub encoding: Option<FeatureEncoding>,
    /// How columns of separate tables became features.
    pub tables: Encodings,
    /// Node features and the file that they come from.
    pub node_features: Option<(NodeRows, PathBuf)>,
    /// Whether sources and destinations are numbered separately, so that equal ids are different nodes.
    pub separate: bool,
    /// Whether every id from the smallest to the largest destination is a node, even without events, unless
    /// the range is too sparse.
    pub dense_destinations: bool,
    /// Whether nothing tells what sources and destinations are.
    pub unnamed: bool,
    /// The events' numbers, if the file has them and they are not consecutive.
    pub numbers: Option<Vec<u64>>,
    /// Rows of the file that are no events because they lack a value, in ascending order.
    pub left_out: Vec<usize>,
    /// What became of the lines, where all rows count as events.
    pub lines: Option<LineCounts>,
    /// Rows of several lines, and the numbers of their lines.
    pub long_rows: Vec<(usize, u64)>,
    pub notes: Vec<String>,
}

impl Raw {
    /// Starts without events.
    pub(super) fn new(file: &Path) -> Self {
        Raw {
            file: file.to_owned(),
            name: String::new(),
            ids: IdColumns::default(),
            time: Vec::new(),
            ticks_per_second: 1.0,
            time_format: TimeFormat::Seconds,
            label: None,
            classes: None,
            node_labels: None,
            edge_features: None,
            encoding: None,
            tables: Encodings::default(),
            node_features: None,
            separate: false,
            dense_destinations: false,
            unnamed: false,
            numbers: None,
            left_out: Vec::new(),
            lines: None,
            long_rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Sorts by time, numbers nodes densely, subtracts the first event's time from all times, and checks the
    /// result. `bipartite` overrides the detection of bipartite streams.
    pub(super) fn build(mut self, bipartite: Option<bool>) -> Result<Events> {
        if self.ids.src.is_empty() {
            return Err(Error::data(&self.file, "there are no events").remedy("write at least one"));
        }
        check_count(&self.file, self.ids.src.len(), "events")?;
        self.sort();
        let numbering = Numbering::new(&self, bipartite);
        check_count(&self.file, numbering.ids.len(), "nodes")?;
        self.doubt(&numbering, bipartite);
        let (src, dst) = numbering.apply(&self.ids.src, &self.ids.dst);
        let moved = numbering.moved();
        let split = numbering.split;
        let origin = self.shift_times()?;
        let node_labels = match self.node_labels.take() {
            Some(labels) => {
                Some(labels.build(origin, |id| numbering.node(id), &self.file, &mut self.notes)?)
            }
            None => None,
        };
        let (nodes, numbers) = (numbering.ids.len(), numbering.ids);
        let ids = match self.ids.names.take() {
            Some(names) => Some(Ids::named(in_order(&names, &numbers))),
            None => moved.then(|| Ids::new(numbers)),
        };
        let node_features = match self.node_features.take() {
            Some((rows, file)) => Some(rows.by_node(ids.as_ref(), nodes, split, &file, &mut self.notes)?),
            None => None,
        };
        let lines = self.line_counts();
        let (label, label_names) = self.label.take().map(|labels| (labels.values, labels.names)).unzip();
        let mut events = Events {
            name: self.name,
            src: src.into(),
            dst: dst.into(),
            time: self.time.into(),
            label,
            label_names: label_names.flatten(),
            classes: self.classes,
            node_labels,
            nodes,
            first_destination: split.map(|f| f as u32),
            ticks_per_second: self.ticks_per_second,
            origin,
            time_format: self.time_format,
            ids,
            edge_features: self.edge_features,
            encoding: self.encoding,
            tables: self.tables,
            node_features,
            lines,
            notes: self.notes,
        };
        events.validate(&self.file)?;
        events.note_labels();
        Ok(events)
    }

    /// Subtracts the first time from all times, which are sorted. Returns the first time.
    fn shift_times(&mut self) -> Result<i64> {
        let origin = self.time[0];
        // The last difference is the largest.
        if self.time.last().is_none_or(|last| last.checked_sub(origin).is_none()) {
            return Err(
                Error::data(&self.file, "the times span more than 2^63 ticks").remedy("correct the times")
            );
        }
        self.time.iter_mut().for_each(|t| *t -= origin);
        Ok(origin)
    }

    /// Notes what may not be meant, and whether ids were numbered anew.
    fn doubt(&mut self, numbering: &Numbering, bipartite: Option<bool>) {
        let named = self.ids.names.is_some();
        self.notes.extend(doubts::of_times(&self.time, self.ticks_per_second, &self.time_format));
        self.notes.extend(doubts::of_destinations(&self.ids.dst));
        if self.unnamed && bipartite.is_none() && numbering.split.is_none() && !named {
            self.notes.extend(doubts::of_numbers(&unique(&self.ids.src), &unique(&self.ids.dst)));
        }
        if numbering.moved() && !named {
            self.notes.push(numbering.note());
        }
    }

    /// Returns what became of the lines.
    fn line_counts(&self) -> Option<LineCounts> {
        let mut lines = self.lines?;
        let is_out = |row: &usize| self.left_out.binary_search(row).is_ok();
        let further = self.long_rows.iter().filter(|(row, _)| is_out(row)).map(|(_, lines)| lines - 1);
        lines.incomplete = self.left_out.len() as u64 + further.sum::<u64>();
        lines.events -= lines.incomplete;
        Some(lines)
    }

    /// Returns the number of rows of the file.
    pub(super) fn rows(&self) -> usize {
        self.ids.src.len() + self.left_out.len()
    }

    /// Returns the rows of the file that are events.
    pub(super) fn kept(&self) -> Vec<usize> {
        self.kept_rows().collect()
    }

    /// Returns the rows of the file that are events, one by one.
    pub(super) fn kept_rows(&self) -> impl Iterator<Item = usize> {
        (0..self.rows()).filter(|row| self.left_out.binary_search(row).is_err())
    }

    /// Leaves out the `events` (in ascending order), which lack features.
    pub(super) fn leave_out(&mut self, events: &[usize]) {
        if events.is_empty() {
            return;
        }
        let rows = self.kept();
        let order: Vec<u32> = (0..self.ids.src.len() as u32)
            .filter(|e| events.binary_search(&(*e as usize)).is_err())
            .collect();
        self.left_out.extend(events.iter().map(|&event| rows[event]));
        self.left_out.sort_unstable();
        self.notes.extend(left_out_note(events.len()));
        self.reorder(&order);
    }

    /// Sorts by time. The sort is stable: events with equal times keep the order of the file.
    pub(super) fn sort(&mut self) {
        let mut latest = i64::MIN;
        let is_late = |t: &&i64| {
            latest = latest.max(**t);
            **t < latest
        };
        let late = self.time.iter().filter(is_late).count();
        if late == 0 {
            return;
        }
        self.notes.push(format!("sorted {}", counted(late as u64, "out-of-order event")));
        let mut order: Vec<u32> = (0..self.time.len() as u32).collect();
        order.sort_by_key(|&i| self.time[i as usize]);
        self.reorder(&order);
    }

    /// Makes event `order[k]` event `k`, for all `k`.
    fn reorder(&mut self, order: &[u32]) {
        fn permute<T: Copy>(values: &mut Vec<T>, order: &[u32]) {
            *values = order.iter().map(|&i| values[i as usize]).collect();
        }
        permute(&mut self.ids.src, order);
        permute(&mut self.ids.dst, order);
        permute(&mut self.time, order);
        if let Some(label) = &mut self.label {
            permute(&mut label.values, order);
        }
        let rows = || order.iter().map(|&i| i as usize);
        if let Some(classes) = &mut self.classes {
            *classes = classes.gather(rows());
        }
        if let Some(features) = &mut self.edge_features {
            *features = features.gather(rows());
        }
    }
}

/// Returns a note about so many rows that lack a value; `None` if there are none.
pub(super) fn left_out_note(rows: usize) -> Option<String> {
    (rows > 0).then(|| format!("left out {} with a missing value", counted(rows as u64, "row")))
}

/// Checks that `n` fits the 32 bits of node and event numbers.
fn check_count(file: &Path, n: usize, what: &str) -> Result<()> {
    if n > u32::MAX as usize {
        return Err(Error::data(
            file,
            format!("{} {what}; at most {} are possible", grouped(n as u64), u32::MAX),
        )
        .remedy("split the file"));
    }
    Ok(())
}

/// Returns the names of the nodes, given the index of each node's name.
fn in_order(names: &NameTable, indices: &[u64]) -> Vec<Box<str>> {
    indices.iter().map(|&i| names.get(i as usize).into()).collect()
}

/// Original ids by node: node `n` has the id `ids[n]`, which is the index of a name if ids are text.
struct Numbering {
    ids: Vec<u64>,
    /// The first destination, if sources and destinations are different kinds of nodes.
    split: Option<usize>,
}

impl Numbering {
    /// Numbers nodes in ascending order of their original ids, with sources before destinations in a
    /// bipartite stream. Ids that are dense and in this order already keep their numbers.
    fn new(raw: &Raw, bipartite: Option<bool>) -> Self {
        let (mut sources, mut destinations) = (unique(&raw.ids.src), unique(&raw.ids.dst));
        if let (true, Some(&first), Some(&last)) =
            (raw.dense_destinations, destinations.first(), destinations.last())
            && table_size(last - first, raw.ids.dst.len()).is_some()
        {
            destinations = (first..=last).collect();
        }
        let two_sided = bipartite.unwrap_or_else(|| raw.separate || disjoint(&sources, &destinations));
        let split = two_sided.then_some(sources.len());
        sources.extend_from_slice(&destinations);
        if !two_sided {
            sources.sort_unstable();
            sources.dedup();
        }
        Numbering { ids: sources, split }
    }

    /// Returns the node with the original id `id`: of a source and a destination, the source.
    fn node(&self, id: u64) -> Option<u32> {
        let (sources, rest) = self.ids.split_at(self.split.unwrap_or(0));
        let destination = || Some(rest.binary_search(&id).ok()? + sources.len());
        sources.binary_search(&id).ok().or_else(destination).map(|node| node as u32)
    }

    /// Whether a node's number is not its original id.
    fn moved(&self) -> bool {
        self.ids.iter().enumerate().any(|(n, &id)| n as u64 != id)
    }

    /// Describes the renumbering for [`Events::notes`].
    fn note(&self) -> String {
        let largest = self.ids.iter().max().copied().unwrap_or(0);
        match self.split {
            Some(f) => format!(
                "ids renumbered: {}, then {}",
                counted(f as u64, "source"),
                counted((self.ids.len() - f) as u64, "destination")
            ),
            None => format!(
                "ids renumbered: {} ids of up to {}",
                grouped(self.ids.len() as u64),
                grouped(largest)
            ),
        }
    }

    /// Returns the node numbers of sources and destinations.
    fn apply(&self, src: &[u64], dst: &[u64]) -> (Vec<u32>, Vec<u32>) {
        if !self.moved() {
            let narrow = |ids: &[u64]| ids.iter().map(|&id| id as u32).collect();
            return (narrow(src), narrow(dst));
        }
        let (sources, destinations) = self.ids.split_at(self.split.unwrap_or(0));
        let sources = if self.split.is_some() { sources } else { destinations };
        (ranks(src, sources, 0), ranks(dst, destinations, self.split.unwrap_or(0) as u32))
    }
}

/// Returns the size of a table indexed by id, or `None` if the ids up to `largest` are too sparse for one.
/// The bound keeps the table's memory in proportion to the `n` events; real ids are seldom sparser.
fn table_size(largest: u64, n: usize) -> Option<usize> {
    (largest < 4 * n as u64 + (1 << 20)).then(|| largest as usize + 1)
}

/// Returns the unique ids in ascending order.
fn unique(ids: &[u64]) -> Vec<u64> {
    let largest = ids.iter().max().copied().unwrap_or(0);
    if let Some(size) = table_size(largest, ids.len()) {
        let mut seen = vec![false; size];
        ids.iter().for_each(|&id| seen[id as usize] = true);
        return (0..=largest).filter(|&id| seen[id as usize]).collect();
    }
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Returns the index of every id in `known`, plus `first`. `known` ascends and contains all ids.
fn ranks(ids: &[u64], known: &[u64], first: u32) -> Vec<u32> {
    if let Some(size) = known.last().and_then(|&largest| table_size(largest, ids.len())) {
        let mut rank_of_id = vec![0; size];
        known.iter().zip(first..).for_each(|(&id, n)| rank_of_id[id as usize] = n);
        return ids.iter().map(|&id| rank_of_id[id as usize]).collect();
    }
    ids.iter().map(|id| first + known.partition_point(|k| k < id) as u32).collect()
}

/// Whether two ascending lists have no id in common.
fn disjoint(a: &[u64], b: &[u64]) -> bool {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x == y {
            return false;
        }
        if x < y { i += 1 } else { j += 1 }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::IdField;
    use proptest::prelude::*;

    fn raw(events: &[(u64, u64, i64)]) -> Raw {
        let mut raw = Raw::new(Path::new("events"));
        for &(src, dst, time) in events {
            raw.ids.src.push(src);
            raw.ids.dst.push(dst);
            raw.time.push(time);
        }
        raw
    }

    #[test]
    fn contiguous_ids_keep_their_numbers() {
        let e = raw(&[(0, 1, 5), (1, 2, 7)]).build(None).unwrap();
        assert_eq!(
            (e.src.to_vec(), e.dst.to_vec(), e.time.to_vec(), e.origin, e.nodes),
            (vec![0, 1], vec![1, 2], vec![0, 2], 5, 3)
        );
        assert!(e.ids.is_none() && e.notes.is_empty() && e.first_destination.is_none());
    }

    #[test]
    fn sparse_and_huge_ids_are_numbered_in_ascending_order() {
        let e = raw(&[(u64::MAX, 7, 0), (7, 1 << 40, 0)]).build(None).unwrap();
        assert_eq!((e.src.as_slice(), e.dst.as_slice()), (&[2, 0][..], &[0, 1][..]));
        assert_eq!(e.ids.unwrap().numbers().unwrap(), [7, 1 << 40, u64::MAX]);
        assert!(e.notes[0].contains("3 ids of up to 18,446,744,073,709,551,615"));
    }

    #[test]
    fn names_are_numbered_as_they_appear_with_sources_first_if_there_are_two_kinds() {
        let build = |pairs: &[(&str, &str)], bipartite| {
            let mut raw = Raw::new(Path::new("events"));
            for (i, (src, dst)) in pairs.iter().enumerate() {
                raw.ids.push(IdField::text((*src).into()), IdField::text((*dst).into()));
                raw.time.push(i as i64);
            }
            let e = raw.build(bipartite).unwrap();
            let names = e.ids.unwrap().iter().map(|id| id.to_string()).collect::<Vec<_>>().join(" ");
            (e.src.to_vec(), e.dst.to_vec(), e.first_destination, names, e.notes.len())
        };
        let one_kind = [("b", "a"), ("a", "c"), ("c", "b")];
        assert_eq!(build(&one_kind, None), (vec![0, 1, 2], vec![1, 2, 0], None, "b a c".into(), 0));
        let two_kinds = [("b", "x"), ("a", "x"), ("b", "y")];
        let split = (vec![0, 1, 0], vec![2, 2, 3], Some(2), "b a x y".into(), 0);
        assert_eq!(build(&two_kinds, None), split);
        let shared = (vec![0, 1, 2], vec![4, 3, 5], Some(3), "b a c b a c".into(), 0);
        assert_eq!(build(&[("b", "a"), ("a", "b"), ("c", "c")], Some(true)), shared);
    }

    #[test]
    fn ids_from_one_are_shifted() {
        let e = raw(&[(1, 2, 0), (2, 3, 0)]).build(None).unwrap();
        assert_eq!((e.src.to_vec(), e.dst.to_vec(), e.nodes), (vec![0, 1], vec![1, 2], 3));
    }

    #[test]
    fn a_bipartite_stream_has_its_sources_first() {
        let e = raw(&[(10, 3, 0), (12, 4, 0)]).build(None).unwrap();
        assert_eq!(
            (e.src.as_slice(), e.dst.as_slice(), e.first_destination),
            (&[0, 1][..], &[2, 3][..], Some(2))
        );
        assert_eq!(e.ids.unwrap().numbers().unwrap(), [10, 12, 3, 4]);
    }

    #[test]
    fn separate_numbering_shifts_destinations_and_can_be_forced() {
        let both = [(0, 0, 0), (1, 0, 0), (0, 1, 0)];
        let e = raw(&both).build(Some(true)).unwrap();
        assert_eq!(
            (e.src.to_vec(), e.dst.to_vec(), e.first_destination),
            (vec![0, 1, 0], vec![2, 2, 3], Some(2))
        );
        assert_eq!(raw(&both).build(None).unwrap().first_destination, None);
        assert_eq!(raw(&[(0, 1, 0)]).build(Some(false)).unwrap().first_destination, None);
        let mut separate = raw(&both);
        separate.separate = true;
        assert_eq!(separate.build(None).unwrap().nodes, 4);
    }

    #[test]
    fn sorting_is_stable_and_moves_labels_and_features_too() {
        let mut raw = raw(&[(0, 1, 9), (1, 0, 3), (0, 2, 9), (2, 0, 3)]);
        raw.label = Some(Labels::numbers(vec![0., 1., 2., 3.]));
        raw.classes = Some(Classes::new(4, 1, vec![0, 1, 2, 3]).unwrap());
        raw.edge_features = Some(Features::from_vec(4, 1, vec![0., 1., 2., 3.]).unwrap());
        let e = raw.build(None).unwrap();
        assert_eq!(
            (e.src.as_slice(), e.time.as_slice(), e.origin),
            (&[1, 2, 0, 0][..], &[0, 0, 6, 6][..], 3)
        );
        assert_eq!(e.label.unwrap(), [1., 3., 0., 2.]);
        assert_eq!(*e.classes.unwrap().table(), [1, 3, 0, 2]);
        assert_eq!(e.edge_features.unwrap().values(), [1., 3., 0., 2.]);
        assert_eq!(e.notes, ["sorted 2 out-of-order events"]);
    }

    #[test]
    fn times_too_far_apart_and_too_many_nodes_are_refused() {
        let e = raw(&[(0, 1, i64::MIN), (0, 1, i64::MAX)]).build(None).unwrap_err().to_string();
        assert!(e.contains("2^63 ticks"), "{e}");
        assert!(check_count(Path::new("x"), 1 << 32, "nodes").is_err());
        assert!(check_count(Path::new("x"), u32::MAX as usize, "nodes").is_ok());
    }

    proptest! {
        #[test]
        fn renumbering_loses_nothing(
            events in proptest::collection::vec((0u64..30, 0u64..30, -50i64..50), 1..60),
            factor in prop_oneof![Just(1u64), Just(1 << 50)],
            bipartite in proptest::option::of(any::<bool>()),
        ) {
            let scaled: Vec<_> = events.iter().map(|&(s, d, t)| (s * factor, d * factor, t)).collect();
            let e = raw(&scaled).build(bipartite).unwrap();
            let id = |n: u32| e.ids.as_ref().map_or(u64::from(n), |ids| ids.numbers().unwrap()[n as usize]);
            let back: Vec<_> = (0..e.len()).map(|i| (id(e.src[i]), id(e.dst[i]), e.time[i] + e.origin)).collect();
            let mut sorted = scaled.clone();
            sorted.sort_by_key(|e| e.2);
            prop_assert_eq!(back, sorted);
        }
    }
}
