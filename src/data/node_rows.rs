//! Node features as in their file, before the nodes of the events are numbered.
use super::{Features, Ids, NodeId, text::counted};
use crate::error::{Error, Result};
use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

/// Rows of node features.
pub(super) enum NodeRows {
    /// One row per node, or one row per original id from 0.
    Matrix(Features),
    /// Row of each id that the file names.
    ById(HashMap<NodeId, usize>, Features),
    /// One row per original id from 0, which are numbers.
    Numbered(Features),
}

impl NodeRows {
    /// Returns one row per node of a stream with `nodes` nodes, whose first destination is `split` if it is
    /// bipartite. A node that a file of ids lacks has zeros, with a note.
    ///
    /// # Errors
    /// Data if the file has neither a row per node nor a row per id, or no row of any node.
    pub(super) fn by_node(
        self,
        ids: Option<&Ids>,
        nodes: usize,
        split: Option<usize>,
        file: &Path,
        notes: &mut Vec<String>,
    ) -> Result<Features> {
        match self {
            NodeRows::Numbered(features) => Ok(match ids.and_then(Ids::numbers) {
                Some(numbers) => features.gather(numbers.iter().map(|&id| id as usize)),
                None => features,
            }),
            NodeRows::Matrix(features) => matrix(features, ids, nodes, split, file),
            NodeRows::ById(row_of, features) => {
                let id = |node: usize| match ids {
                    Some(ids) => ids.get(node),
                    None => Some(NodeId::Number(node as u64)),
                };
                let rows: Vec<Option<usize>> =
                    (0..nodes).map(|node| row_of.get(&id(node)?).copied()).collect();
                let found = rows.iter().flatten().collect::<HashSet<_>>().len();
                if found == 0 {
                    let first = id(0).map_or(String::new(), |id| id.to_string());
                    return Err(Error::data(file, "none of its ids is a node of the events")
                        .remedy(format!("write the ids as in the events, such as `{first}`")));
                }
                let without = rows.iter().filter(|row| row.is_none()).count();
                if without > 0 {
                    let nodes = counted(without as u64, "node");
                    notes.push(format!("{nodes} without node features: read as 0"));
                }
                if found < row_of.len() {
                    let rows = counted((row_of.len() - found) as u64, "row");
                    notes.push(format!("{rows} of node features of ids that have no event: not read"));
                }
                let mut values = vec![0.0; nodes * features.cols()];
                for (row, out) in rows.iter().zip(values.chunks_exact_mut(features.cols())) {
                    if let Some(row) = row {
                        out.copy_from_slice(features.row(*row));
                    }
                }
                Features::from_vec(nodes, features.cols(), values)
            }
        }
    }
}

/// Returns one row per node, from one row per node or one row per original id.
fn matrix(
    features: Features,
    ids: Option<&Ids>,
    nodes: usize,
    split: Option<usize>,
    file: &Path,
) -> Result<Features> {
    let rows = features.rows();
    if rows == nodes {
        return Ok(features);
    }
    let wrong = |of: String| Error::data(file, format!("{rows} rows of features for {nodes} nodes{of}"));
    let own: Vec<u64>;
    let numbers = match ids.map(Ids::numbers) {
        Some(Some(numbers)) => numbers,
        Some(None) => {
            let what = wrong(", whose ids are text".into());
            return Err(what.remedy("write a table (.csv or .parquet) with the ids in its first column"));
        }
        None => {
            own = (0..nodes as u64).collect();
            &own
        }
    };
    let largest = numbers.iter().max().copied().unwrap_or(0);
    // If a source and a destination share an id, the id does not determine a row.
    let distinct = split.is_none_or(|f| {
        let sources: HashSet<u64> = numbers[..f].iter().copied().collect();
        numbers[f..].iter().all(|id| !sources.contains(id))
    });
    if distinct && rows as u64 > largest {
        return Ok(features.gather(numbers.iter().map(|&id| id as usize)));
    }
    Err(wrong(format!(" with ids up to {largest}")).remedy("write a row per node, or a row per id from 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(rows: usize) -> Features {
        Features::from_vec(rows, 1, (0..rows).map(|v| v as f32).collect()).unwrap()
    }

    #[test]
    fn rows_of_a_matrix_belong_to_nodes_or_to_ids() {
        let ids = Ids::new(vec![2, 3, 5]);
        let by_node = |rows: usize, ids: &Ids| {
            let rows = NodeRows::Matrix(features(rows));
            rows.by_node(Some(ids), 3, None, Path::new("nodes.npy"), &mut Vec::new())
                .map(|f| f.values().to_vec())
        };
        assert_eq!(by_node(3, &ids).unwrap(), [0., 1., 2.]);
        assert_eq!(by_node(6, &ids).unwrap(), [2., 3., 5.]);
        let e = by_node(5, &ids).unwrap_err().to_string();
        assert!(e.starts_with("nodes.npy: 5 rows of features for 3 nodes with ids up to 5;"), "{e}");
        let named = Ids::named(["a", "b", "c"].map(Into::into).to_vec());
        let e = by_node(5, &named).unwrap_err().to_string();
        assert!(e.contains("3 nodes, whose ids are text; write a table"), "{e}");
    }

    #[test]
    fn rows_by_id_are_found_whatever_their_order_and_what_is_missing_is_told() {
        let ids = Ids::named(["a", "7", "c"].map(Into::into).to_vec());
        let by_id = |names: &[&str]| {
            let row_of = names.iter().enumerate().map(|(row, name)| (NodeId::Text((*name).into()), row));
            let (rows, mut notes) = (NodeRows::ById(row_of.collect(), features(names.len())), Vec::new());
            let found = rows.by_node(Some(&ids), 3, None, Path::new("nodes.csv"), &mut notes);
            found.map(|f| (f.values().to_vec(), notes))
        };
        let (values, notes) = by_id(&["x", "c", "a"]).unwrap();
        assert_eq!((values, notes.len()), (vec![2., 0., 1.], 2));
        assert!(notes[0].starts_with("1 node without") && notes[1].starts_with("1 row of node"), "{notes:?}");
        let e = by_id(&["x"]).unwrap_err().to_string();
        assert_eq!(
            e,
            "nodes.csv: none of its ids is a node of the events; write the ids as in the events, such as `a`"
        );
    }
}
