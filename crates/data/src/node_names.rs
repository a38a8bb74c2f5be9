//! Nodes by original id: the ids that users write, and those of a stream that goes on after training.
use super::{Ids, NodeId, text::shown};
use std::collections::HashMap;
use tgnn::error::{Error, Result};

/// One of the two kinds of nodes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Where events come from.
    Source,
    /// Where they go.
    Destination,
}

/// Maps original ids to node numbers, and numbers nodes that the data set does not have.
#[derive(Debug)]
pub struct NodeNames {
    /// Node numbers by id: of the sources and of the destinations if these share ids, else of all nodes in
    /// the first map. `None` if a node's id is its number.
    by_id: Option<[HashMap<NodeId, u32>; 2]>,
    /// Whether ids are text: then a number in an input is a name, too.
    named: bool,
    /// Whether sources and destinations share ids, and so have separate maps.
    separate: bool,
    /// Number of nodes of the data set.
    known: usize,
    /// Maximum number of nodes.
    capacity: usize,
    /// The nodes that [`added`](Self::added) returns.
    new: Vec<(NodeId, u8)>,
    /// Places in `new` by node number, if a node's id is its number.
    new_numbers: HashMap<u32, usize>,
}

impl NodeNames {
    /// Maps the `ids` of the `known` nodes of a data set whose first destination is `first`, if it is
    /// bipartite. Then numbers the `new` nodes, which an earlier map [`added`](Self::added). All node numbers
    /// are below `capacity`.
    pub fn new(
        ids: Option<&Ids>,
        first: Option<u32>,
        known: usize,
        capacity: usize,
        new: &[(NodeId, u8)],
    ) -> Self {
        let first = first.map_or(known, |f| f as usize);
        let (mut separate, mut by_id) = (false, None);
        if let Some(ids) = ids {
            let mut maps = [HashMap::new(), HashMap::new()];
            for (v, id) in ids.iter().enumerate() {
                // Of two nodes with an id, the second is a destination.
                let known = maps[0].contains_key(&id);
                let side = usize::from(v >= first || known);
                separate |= known;
                maps[side].insert(id, v as u32);
            }
            if !separate {
                let destinations = std::mem::take(&mut maps[1]);
                maps[0].extend(destinations);
            }
            by_id = Some(maps);
        }
        let named = ids.is_some_and(|ids| ids.names().is_some());
        let (new_numbers, added) = (HashMap::new(), new);
        let mut names = NodeNames { by_id, named, separate, known, capacity, new: Vec::new(), new_numbers };
        for (id, side) in added {
            names.number(id, *side == 1);
        }
        names
    }

    /// Returns the id as the data set writes it: in a data set whose ids are text, a number is text, too.
    fn as_written<'a>(&self, id: &'a NodeId) -> std::borrow::Cow<'a, NodeId> {
        match id {
            NodeId::Number(n) if self.named => std::borrow::Cow::Owned(NodeId::Text(n.to_string().into())),
            id => std::borrow::Cow::Borrowed(id),
        }
    }

    /// Returns the number of the node `id` of an event, as its source or as its destination. An unknown id
    /// gets the next free number; `None` if the capacity is used up.
    pub fn number(&mut self, id: &NodeId, destination: bool) -> Option<u32> {
        let v = self.asked(id, destination)?;
        if let Some(at) = self.place_of_added(v) {
            self.new[at].1 |= u8::from(destination);
        }
        Some(v)
    }

    /// Returns the number of the node `id` of a question, as [`number`](Self::number) does. Whoever asks
    /// [forgets](Self::forget) the nodes that it added.
    pub fn asked(&mut self, id: &NodeId, destination: bool) -> Option<u32> {
        let id = self.as_written(id);
        let Some(by_id) = &mut self.by_id else {
            let NodeId::Number(n) = &*id else { return None };
            let v = u32::try_from(*n).ok().filter(|&v| (v as usize) < self.capacity)?;
            if v as usize >= self.known && !self.new_numbers.contains_key(&v) {
                self.new_numbers.insert(v, self.new.len());
                self.new.push((id.into_owned(), 0));
            }
            return Some(v);
        };
        let side = usize::from(destination && self.separate);
        if let Some(&v) = by_id[side].get(&*id) {
            return Some(v);
        }
        let v = self.known + self.new.len();
        if v >= self.capacity {
            return None;
        }
        let id = id.into_owned();
        by_id[side].insert(id.clone(), v as u32);
        // Of a shared id, this says which of the two nodes it is.
        self.new.push((id, side as u8));
        Some(v as u32)
    }

    /// Returns the place of a node in [`added`](Self::added).
    fn place_of_added(&self, node: u32) -> Option<usize> {
        match self.by_id {
            None => self.new_numbers.get(&node).copied(),
            Some(_) => (node as usize).checked_sub(self.known),
        }
    }

    /// Returns the node that a user calls `text`: its id, with `src:` or `dst:` before it if a source and a
    /// destination have the same id.
    ///
    /// # Errors
    /// Usage if there is no such node, or if there are two.
    ///
    /// ```
    /// use tgnn_data::{Ids, NodeNames};
    /// let ids = Ids::named(["EWR", "JFK", "JFK", "LAX"].map(Into::into).to_vec());
    /// let names = NodeNames::new(Some(&ids), Some(2), 4, 4, &[]);
    /// assert_eq!((names.find("LAX")?, names.find("dst:JFK")?), (3, 2));
    /// assert!(names.find("JFK").is_err() && names.find("SFO").is_err());
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn find(&self, text: &str) -> Result<u32> {
        self.lookup(text, None)?.ok_or_else(|| self.unknown(text))
    }

    /// Returns the node that a user calls `text`, as [`find`](Self::find) does; `None` if there is none. If a
    /// source and a destination have the id, `side` says which of them is meant.
    pub(super) fn lookup(&self, text: &str, side: Option<Side>) -> Result<Option<u32>> {
        let sides = [Side::Source, Side::Destination].map(|side| self.of_side(text, side));
        let found = match (sides, side) {
            ([Some(_), Some(_)], None) if self.separate => {
                let id = shown(text.as_bytes());
                let plain = id.trim_matches('`');
                return Err(Error::usage(format!("{id} is a source and a destination"))
                    .remedy(format!("write src:{plain} or dst:{plain}")));
            }
            ([source, destination], None) => source.or(destination),
            (sides, Some(side)) => sides[side as usize],
        };
        Ok(found.or_else(|| match text.split_once(':')? {
            ("src", id) => self.of_side(id, Side::Source),
            ("dst", id) => self.of_side(id, Side::Destination),
            _ => None,
        }))
    }

    /// Returns the node of this side with the id `text`; any node if sides do not share ids.
    fn of_side(&self, text: &str, side: Side) -> Option<u32> {
        let id = NodeId::parse(text);
        let Some(by_id) = &self.by_id else {
            let NodeId::Number(n) = id else { return None };
            return u32::try_from(n).ok().filter(|&v| (v as usize) < self.known);
        };
        let map = if self.separate { side as usize } else { 0 };
        by_id[map].get(&*self.as_written(&id)).copied()
    }

    /// Returns the error for an id that no node has.
    fn unknown(&self, text: &str) -> Error {
        let remedy = match &self.by_id {
            None => format!("nodes are 0 to {}", self.known.saturating_sub(1)),
            Some(_) => format!("give ids of the data set{}", self.example().unwrap_or_default()),
        };
        Error::usage(format!("{} is not a node", shown(text.as_bytes()))).remedy(remedy)
    }

    /// Returns `, such as` the id of the first node.
    pub(super) fn example(&self) -> Option<String> {
        let first = self.by_id.as_ref()?[0].iter().min_by_key(|(_, v)| **v)?.0;
        let ambiguous = self.lookup(&first.to_string(), None).is_err();
        let id = if ambiguous { format!("src:{first}") } else { first.to_string() };
        Some(format!(", such as {}", shown(id.as_bytes())))
    }

    /// Whether a source and a destination may have the same id.
    pub(super) fn share_ids(&self) -> bool {
        self.separate
    }

    /// Whether ids are text, among which a number is text, too.
    pub fn are_names(&self) -> bool {
        self.named
    }

    /// Returns the maximum number of nodes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether a node's id is its number, so that no other id can be a node.
    pub fn are_numbers(&self) -> bool {
        self.by_id.is_none()
    }

    /// Forgets the nodes that the data set does not have, but for the first `kept` of them.
    pub fn forget(&mut self, kept: usize) {
        for (id, destination) in self.new.drain(kept.min(self.new.len())..) {
            if let Some(by_id) = &mut self.by_id {
                by_id[usize::from(destination == 1 && self.separate)].remove(&id);
            }
        }
        self.new_numbers.retain(|_, at| *at < kept);
    }

    /// Returns the nodes that the data set does not have, in the order in which they came: the original id,
    /// and 1 for one that was a destination, else 0.
    pub fn added(&self) -> &[(NodeId, u8)] {
        &self.new
    }

    /// Returns the number of the node at place `i` of [`added`](Self::added).
    pub fn number_of_added(&self, i: usize) -> u32 {
        match (&self.by_id, &self.new[i].0) {
            (None, NodeId::Number(n)) => *n as u32,
            _ => (self.known + i) as u32,
        }
    }

    /// Returns the original id of a node that the data set does not have; `None` if nobody asked for it.
    pub fn id_of_added(&self, node: u32) -> Option<&NodeId> {
        self.new.get(self.place_of_added(node)?).map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u64]) -> Ids {
        Ids::new(numbers.to_vec())
    }

    /// Returns the names of two sources and two destinations.
    fn names(ids: Option<&Ids>, capacity: usize, new: &[(NodeId, u8)]) -> NodeNames {
        NodeNames::new(ids, Some(2), 4, capacity, new)
    }

    #[test]
    fn ids_that_are_node_numbers_are_nodes_below_the_capacity() {
        let mut names = names(None, 6, &[]);
        let found = [3, 5, 6, u64::MAX].map(|id| names.number(&NodeId::Number(id), false));
        assert_eq!(found, [Some(3), Some(5), None, None]);
        assert_eq!(names.number(&NodeId::parse("x"), false), None);
        assert_eq!((names.added(), names.number_of_added(0)), (&[(NodeId::Number(5), 0)][..], 5));
        names.number(&NodeId::Number(5), true);
        assert_eq!(
            (names.added(), names.id_of_added(5)),
            (&[(NodeId::Number(5), 1)][..], Some(&NodeId::Number(5)))
        );
        assert_eq!(self::names(None, 6, names.added()).added(), names.added());
        names.forget(0);
        assert_eq!((names.added(), names.id_of_added(5)), (&[][..], None));
        assert_eq!(names.find("3").unwrap(), 3);
        assert_eq!(names.find("4").unwrap_err().to_string(), "`4` is not a node; nodes are 0 to 3");
    }

    #[test]
    fn new_ids_get_the_next_numbers_up_to_the_capacity_and_are_found_again() {
        let ids = ids(&[10, 20, 30, 40]);
        let mut first = names(Some(&ids), 6, &[]);
        let found = [("40", true), ("30", false), ("x", false), ("8", true), ("x", true), ("9", false)];
        let found = found.map(|(id, destination)| first.number(&NodeId::parse(id), destination));
        assert_eq!(found, [Some(3), Some(2), Some(4), Some(5), Some(4), None]);
        assert_eq!(first.added(), [(NodeId::parse("x"), 1), (NodeId::Number(8), 1)]);
        assert_eq!((first.number_of_added(1), first.id_of_added(5)), (5, Some(&NodeId::Number(8))));
        first.forget(1);
        assert_eq!(first.number(&NodeId::Number(9), false), Some(5));
        assert_eq!(first.added(), [(NodeId::parse("x"), 1), (NodeId::Number(9), 0)]);
        first.forget(1);
        assert_eq!(first.number(&NodeId::Number(8), true), Some(5));
        let mut again = names(Some(&ids), 7, first.added());
        assert_eq!(
            [again.number(&NodeId::Number(8), false), again.number(&NodeId::Number(9), false)],
            [Some(5), Some(6)]
        );
    }

    #[test]
    fn an_id_of_a_source_and_a_destination_is_two_nodes() {
        let ids = ids(&[1, 2, 1, 3]);
        let mut names = names(Some(&ids), 6, &[]);
        let found = [(1, false), (1, true), (3, false), (3, true)];
        let found = found.map(|(id, d)| names.number(&NodeId::Number(id), d));
        assert_eq!(found, [Some(0), Some(2), Some(4), Some(3)]);
        assert_eq!(names.added(), [(NodeId::Number(3), 0)]);
    }

    #[test]
    fn a_number_among_names_is_a_name() {
        let ids = Ids::named(["a", "7", "b", "c"].map(Into::into).to_vec());
        let mut names = names(Some(&ids), 5, &[]);
        assert_eq!((names.number(&NodeId::Number(7), false), names.find("7").unwrap()), (Some(1), 1));
        let e = names.find("9").unwrap_err().to_string();
        assert_eq!(e, "`9` is not a node; give ids of the data set, such as `a`");
    }
}
