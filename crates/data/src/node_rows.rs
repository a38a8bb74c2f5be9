//! Node features as in their file, before the nodes of the events are numbered.
use super::{
    Features, Ids, NodeId, NodeNames,
    node_names::Side,
    text::{counted, grouped, shown},
};
use std::{collections::HashSet, path::Path};
use tgnn::error::{Error, Result};

/// Rows of node features.
pub(super) enum NodeRows {
    /// One row per node, or one row per original id from 0.
    Matrix(Features),
    /// One row per id of a table.
    ById {
        /// The id of each row; `None` if the row is left out.
        ids: Vec<Option<NodeId>>,
        /// Whether the name of the column says that all of them are sources or destinations.
        side: Option<Side>,
        features: Features,
    },
    /// One row per original id from 0, which are numbers.
    Numbered(Features),
}

impl NodeRows {
    /// Returns one row per node of a stream with `nodes` nodes, whose first destination is `split` if it is
    /// bipartite. A node that a table lacks has zeros, with a note.
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
            NodeRows::Matrix(features) => matrix(features, ids, nodes, split, file, notes),
            NodeRows::ById { ids: of_rows, side, features } => {
                let names = NodeNames::new(ids, split.map(|first| first as u32), nodes, nodes, &[]);
                let rows = rows_by_node(&of_rows, side, &names, nodes, file)?;
                notes.extend(table_notes(&rows, of_rows.iter().flatten().count(), split));
                notes.extend(side.filter(|_| names.share_ids()).map(|side| side_note(side, file)));
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

/// Returns the row of each node, given the ids of the rows.
fn rows_by_node(
    ids: &[Option<NodeId>],
    side: Option<Side>,
    names: &NodeNames,
    nodes: usize,
    file: &Path,
) -> Result<Vec<Option<usize>>> {
    let mut rows = vec![None; nodes];
    for (row, id) in ids.iter().enumerate().filter_map(|(row, id)| Some((row, id.as_ref()?))) {
        let found = names.lookup(&id.to_string(), side);
        let Some(node) = found.map_err(|e| Error::data(file, format!("row {}: {e}", row + 1)))? else {
            continue;
        };
        if let Some(first) = rows[node as usize].replace(row) {
            let id = shown(id.to_string().as_bytes());
            let what = format!("rows {} and {} are both of node {id}", first + 1, row + 1);
            return Err(Error::data(file, what).remedy("write one row per node"));
        }
    }
    if rows.iter().all(Option::is_none) {
        let example = names.example().unwrap_or_else(|| ", such as `0`".into());
        return Err(Error::data(file, "none of its ids is a node of the events")
            .remedy(format!("write the ids as in the events{example}")));
    }
    Ok(rows)
}

/// Returns notes about nodes without a row, and rows without a node.
fn table_notes(rows: &[Option<usize>], given: usize, split: Option<usize>) -> Vec<String> {
    let mut notes = Vec::new();
    let without = rows.iter().filter(|row| row.is_none()).count();
    if without > 0 {
        let all_of = |rows: &[Option<usize>]| rows.len() == without && rows.iter().all(Option::is_none);
        let what = match split.map(|first| rows.split_at(first)) {
            Some((sources, _)) if all_of(sources) => ", which are all sources",
            Some((_, destinations)) if all_of(destinations) => ", which are all destinations",
            _ => "",
        };
        notes.push(format!("{} without node features{what}: read as 0", counted(without as u64, "node")));
    }
    let unused = given - (rows.len() - without);
    if unused > 0 {
        let rows = counted(unused as u64, "row");
        notes.push(format!("{rows} of node features of ids that have no event: not read"));
    }
    notes
}

/// Says whose ids those of a table are, as the name of their column tells.
fn side_note(side: Side, file: &Path) -> String {
    let (of, prefix) = match side {
        Side::Source => ("sources", "dst"),
        Side::Destination => ("destinations", "src"),
    };
    let file = file.display();
    format!(
        "an id in {file} that a source and a destination share is read as one of {of}; else write {prefix}:ID"
    )
}

/// Returns one row per node, from one row per node or one row per original id.
fn matrix(
    features: Features,
    ids: Option<&Ids>,
    nodes: usize,
    split: Option<usize>,
    file: &Path,
    notes: &mut Vec<String>,
) -> Result<Features> {
    let rows = features.rows();
    if rows == nodes {
        let order = if split.is_some() { "sources by their ids, then destinations" } else { "by their ids" };
        let order = if ids.is_some_and(|ids| ids.names().is_some()) { "as they appear" } else { order };
        notes.extend(ids.map(|_| format!("rows of {} are of the nodes: {order}", file.display())));
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
    let shared = split.is_some_and(|first| {
        let sources: HashSet<u64> = numbers[..first].iter().copied().collect();
        numbers[first..].iter().any(|id| sources.contains(id))
    });
    if shared {
        let what = wrong(", and sources and destinations share ids".into());
        return Err(
            what.remedy("write a row per node, sources first, or a table with ids such as src:3 and dst:3")
        );
    }
    if rows as u64 > largest {
        if rows as u64 > largest + 1 {
            let (file, more) = (file.display(), grouped(rows as u64 - largest - 1));
            notes.push(format!(
                "rows of {file} are of the ids from 0; the last {more} have no event: not read"
            ));
        }
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
            let named = names.iter().map(|name| Some(NodeId::Text((*name).into())));
            let rows = NodeRows::ById { ids: named.collect(), side: None, features: features(names.len()) };
            let mut notes = Vec::new();
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

    /// Two users (1 and 2) and two items (1 and 3).
    fn shared(ids: &[&str], side: Option<Side>) -> Result<(Vec<f32>, Vec<String>)> {
        let rows = NodeRows::ById {
            ids: ids.iter().map(|id| Some(NodeId::parse(id))).collect(),
            side,
            features: Features::from_vec(ids.len(), 1, (1..=ids.len()).map(|v| v as f32).collect())?,
        };
        let mut notes = Vec::new();
        let nodes = Ids::new(vec![1, 2, 1, 3]);
        let found = rows.by_node(Some(&nodes), 4, Some(2), Path::new("users.csv"), &mut notes)?;
        Ok((found.values().to_vec(), notes))
    }

    #[test]
    fn an_id_that_a_source_and_a_destination_share_must_say_which_of_them_it_is() {
        let e = shared(&["2", "1"], None).unwrap_err().to_string();
        assert_eq!(e, "users.csv: row 2: `1` is a source and a destination; write src:1 or dst:1");
        assert_eq!(shared(&["src:1", "2", "dst:1", "3"], None).unwrap().0, [1., 2., 3., 4.]);
        let (values, notes) = shared(&["1", "2"], Some(Side::Source)).unwrap();
        assert_eq!(values, [1., 2., 0., 0.]);
        assert_eq!(notes[0], "2 nodes without node features, which are all destinations: read as 0");
        assert!(notes[1].contains("share is read as one of sources; else write dst:ID"), "{notes:?}");
        assert_eq!(shared(&["1", "3"], Some(Side::Destination)).unwrap().0, [0., 0., 1., 2.]);
        let e = shared(&["src:1", "1"], Some(Side::Source)).unwrap_err().to_string();
        assert_eq!(e, "users.csv: rows 1 and 2 are both of node `1`; write one row per node");
        let e = shared(&["8"], None).unwrap_err().to_string();
        assert!(e.ends_with("write the ids as in the events, such as `src:1`"), "{e}");
    }

    #[test]
    fn rows_of_an_array_cannot_be_told_apart_where_ids_are_shared() {
        let by_node = |rows: usize| {
            let nodes = Ids::new(vec![1, 2, 1, 3]);
            let rows = NodeRows::Matrix(features(rows));
            rows.by_node(Some(&nodes), 4, Some(2), Path::new("users.npy"), &mut Vec::new())
        };
        let e = by_node(3).unwrap_err().to_string();
        assert!(
            e.starts_with(
                "users.npy: 3 rows of features for 4 nodes, and sources and destinations share ids; "
            ),
            "{e}"
        );
        assert_eq!(by_node(4).unwrap().values(), [0., 1., 2., 3.]);
    }
}
