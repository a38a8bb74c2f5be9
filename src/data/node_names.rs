//! Node numbers by original id, for a stream that goes on after training.
use super::Ids;
use std::collections::HashMap;

/// Maps original ids to node numbers, and numbers nodes that the data set does not have.
#[derive(Debug)]
pub struct NodeNames {
    /// Node numbers by id: of the sources and of the destinations if these share ids, else of all nodes in
    /// the first map. `None` if a node's id is its number.
    by_id: Option<[HashMap<u64, u32>; 2]>,
    /// Whether sources and destinations share ids, and so have separate maps.
    separate: bool,
    /// Number of nodes of the data set.
    known: usize,
    /// Maximum number of nodes.
    capacity: usize,
    /// The nodes that [`added`](Self::added) returns.
    new: Vec<[u64; 2]>,
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
        new: &[[u64; 2]],
    ) -> Self {
        let first = first.map_or(known, |f| f as usize);
        let (mut separate, mut by_id) = (false, None);
        if let Some(ids) = ids {
            let (sources, destinations) = ids.original().split_at(first);
            let number_by_id = |ids: &[u64], first: usize| -> HashMap<u64, u32> {
                ids.iter().zip(first as u32..).map(|(&id, v)| (id, v)).collect()
            };
            let mut maps = [number_by_id(sources, 0), number_by_id(destinations, first)];
            separate = destinations.iter().any(|id| maps[0].contains_key(id));
            if !separate {
                let destinations = std::mem::take(&mut maps[1]);
                maps[0].extend(destinations);
            }
            by_id = Some(maps);
        }
        let mut names = NodeNames { by_id, separate, known, capacity, new: Vec::new() };
        for &[id, side] in new {
            names.number(id, side == 1);
        }
        names
    }
    /// Returns the number of the node `id`, as a source or as a destination. An unknown id gets the next free
    /// number; `None` if the capacity is used up.
    pub fn number(&mut self, id: u64, destination: bool) -> Option<u32> {
        let Some(by_id) = &mut self.by_id else {
            return u32::try_from(id).ok().filter(|&v| (v as usize) < self.capacity);
        };
        let side = usize::from(destination && self.separate);
        if let Some(&v) = by_id[side].get(&id) {
            return Some(v);
        }
        let v = self.known + self.new.len();
        if v >= self.capacity {
            return None;
        }
        by_id[side].insert(id, v as u32);
        self.new.push([id, side as u64]);
        Some(v as u32)
    }
    /// Returns the nodes that the data set does not have, in the order of their numbers: the original id, and
    /// 1 for a destination if sources and destinations share ids, else 0.
    pub fn added(&self) -> &[[u64; 2]] {
        &self.new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of two sources and two destinations.
    fn names(ids: Option<&[u64]>, capacity: usize, new: &[[u64; 2]]) -> NodeNames {
        NodeNames::new(ids.map(|ids| Ids::new(ids.to_vec())).as_ref(), Some(2), 4, capacity, new)
    }

    #[test]
    fn ids_that_are_node_numbers_are_nodes_below_the_capacity() {
        let mut names = names(None, 6, &[]);
        assert_eq!([3, 5, 6, u64::MAX].map(|id| names.number(id, false)), [Some(3), Some(5), None, None]);
        assert!(names.added().is_empty());
    }

    #[test]
    fn new_ids_get_the_next_numbers_up_to_the_capacity_and_are_found_again() {
        let ids = Some(&[10, 20, 30, 40][..]);
        let mut first = names(ids, 6, &[]);
        let found = [(40, true), (30, false), (7, false), (8, true), (7, true), (9, false)];
        let found = found.map(|(id, destination)| first.number(id, destination));
        assert_eq!(found, [Some(3), Some(2), Some(4), Some(5), Some(4), None]);
        assert_eq!(first.added(), [[7, 0], [8, 0]]);
        let mut again = names(ids, 7, first.added());
        assert_eq!([again.number(8, false), again.number(9, false)], [Some(5), Some(6)]);
    }

    #[test]
    fn an_id_of_a_source_and_a_destination_is_two_nodes() {
        let mut names = names(Some(&[1, 2, 1, 3]), 6, &[]);
        let found = [(1, false), (1, true), (3, false), (3, true)].map(|(id, d)| names.number(id, d));
        assert_eq!(found, [Some(0), Some(2), Some(4), Some(3)]);
        assert_eq!(names.added(), [[3, 0]]);
    }
}
