//! A folder of edge lists, a file a step, in the order of their names: the layout of AS-733 (Leskovec et al. 2005).
//!
//! Names are ordered as people do: `step2` before `step10`. A line is `src dst` or `src dst weight`; ids may have gaps, which are
//! closed over all files. `features.npy` has a row a vertex, or a row per step and vertex; where it has a row for every id, ids
//! are vertices, and those without an edge are vertices, too.
use super::{
    SnapshotOptions, Snapshots,
    build::{Edges, weighs},
};
use crate::{
    data::{
        Features, Ids,
        format::{
            folder_name,
            graph::{EdgeList, edge_list},
            stem,
        },
    },
    error::{Error, Result},
};
use rayon::prelude::*;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// How the names of edge lists end, perhaps with `.gz` behind it.
const ENDS: [&str; 6] = [".txt", ".csv", ".tsv", ".edges", ".edgelist", ".el"];
/// What vertices are known by.
pub(super) const FEATURES: &str = "features.npy";

/// Reads such a folder.
pub(super) fn read(dir: &Path, options: &SnapshotOptions) -> Result<Snapshots> {
    let files = lists(dir)?;
    if files.is_empty() {
        return Err(Error::data(dir, "the folder has neither events nor edge lists").remedy(
            "give a folder of edge lists, a .txt or .csv a step, or one that `tgnn-bench data import` wrote",
        ));
    }
    let weights = options.reads_weights(dir)?;
    let read: Vec<Result<EdgeList>> = files.par_iter().map(|f| edge_list(f, weights)).collect();
    let lists = read.into_iter().collect::<Result<Vec<_>>>()?;
    let weighted = weighted(&files, &lists)? && weights;
    let features = dir.join(FEATURES);
    let features = features.is_file().then(|| Features::read(&features)).transpose()?;
    let ids = ids(&lists);
    let most = ids.last().copied();
    let numbered = |rows: usize| most.is_none_or(|id| id < rows as u64);
    // Rows for ids that no edge names: the ids are the vertices.
    let dense = ids.len();
    let all = features
        .as_ref()
        .map(Features::rows)
        .filter(|&rows| numbered(rows) && rows != dense && rows != dense * files.len());
    let nodes = all.unwrap_or(dense);
    if nodes == 0 {
        return Err(
            Error::data(dir, "there is no edge in any file").remedy("write `src dst`, a line an edge")
        );
    }
    if nodes >= u32::MAX as usize {
        return Err(Error::data(dir, format!("{nodes} vertices, of at most 2^32 - 2")).remedy("take fewer"));
    }
    if let Some(f) = features.as_ref().filter(|f| ![nodes, nodes * files.len()].contains(&f.rows())) {
        let what = format!("{} rows of features for {nodes} vertices in {} steps", f.rows(), files.len());
        return Err(Error::data(dir.join(FEATURES), what)
            .remedy("there must be a row a vertex, or one per step and vertex"));
    }
    let number = |id: u64| if all.is_some() { id as u32 } else { ids.partition_point(|&i| i < id) as u32 };
    let edges = |list: &EdgeList| -> Edges {
        list.edges.iter().map(|&(src, dst, w)| (number(src), number(dst), w)).collect()
    };
    let steps = lists.par_iter().map(edges).collect();
    let labels = files.iter().map(|f| stem(f)).collect();
    let weighted = weighs(options.weights, weighted);
    let mut s = Snapshots::of_edges(folder_name(dir), nodes, steps, labels, weighted)?;
    s.features = features;
    s.ids = Some(ids).filter(|ids| all.is_none() && most != Some(ids.len() as u64 - 1)).map(Ids::new);
    s.mark_present(options.presence)?;
    Ok(s)
}

/// The edge lists of a folder, in order.
fn lists(dir: &Path) -> Result<Vec<PathBuf>> {
    let all = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let all = all.map_err(|e| Error::io(dir, "cannot read the folder", e))?;
    let name = |p: &PathBuf| p.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_list = |p: &PathBuf| {
        let name = name(p).to_lowercase();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        p.is_file() && !plain.starts_with('.') && ENDS.iter().any(|end| plain.ends_with(end))
    };
    let mut files: Vec<PathBuf> = all.into_iter().map(|e| e.path()).filter(is_list).collect();
    files.sort_by_cached_key(|p| natural(&name(p)));
    Ok(files)
}

/// A name as words and numbers in turn; a number sorts by the length of its digits, then by them, however long it is.
fn natural(name: &str) -> (Vec<(String, usize, String)>, String) {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(word);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (digits, after) = after.split_at(digits);
        let digits = digits.trim_start_matches('0');
        parts.push((word.to_owned(), digits.len(), digits.to_owned()));
        rest = after;
    }
    (parts, name.to_owned())
}

/// Whether files have weights: all that have an edge, or none.
fn weighted(files: &[PathBuf], lists: &[EdgeList]) -> Result<bool> {
    let mut known = files.iter().zip(lists).filter_map(|(f, list)| Some((f, list.weighted?)));
    let Some((first, weighted)) = known.next() else { return Ok(false) };
    match known.find(|(_, w)| *w != weighted) {
        None => Ok(weighted),
        Some((file, _)) => {
            let (with, without) = if weighted { (first, file) } else { (file, first) };
            Err(Error::data(without, format!("edges have no weights, those of {} have", with.display()))
                .remedy("weigh all or none"))
        }
    }
}

/// All ids, ascending.
fn ids(lists: &[EdgeList]) -> Vec<u64> {
    let mut ids: Vec<u64> = Vec::new();
    for list in lists {
        let known = ids.len();
        let fresh = |id: &u64| ids[..known].binary_search(id).is_err();
        let new: Vec<u64> = list.edges.iter().flat_map(|e| [e.0, e.1]).filter(fresh).collect();
        ids.extend(new);
        ids.sort_unstable();
        ids.dedup();
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{EdgeWeights, npy};

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
        dir
    }

    fn read_with(dir: &tempfile::TempDir, options: &SnapshotOptions) -> Result<Snapshots> {
        let s = read(dir.path(), options)?;
        s.validate("folder").map(|()| s)
    }

    #[test]
    fn a_file_is_a_step_in_natural_order_and_ids_are_closed_up_over_all() {
        let dir = folder(&[
            ("as10.txt", "# From To\n30 7\n"),
            ("as2.txt", "7 900\n7\t900\n900 7\n"),
            ("as003.txt", "# nobody\n"),
            ("README.md", "1 2 3"),
        ]);
        let s = read_with(&dir, &SnapshotOptions::default()).unwrap();
        assert_eq!(s.labels, ["as2", "as003", "as10"]);
        assert_eq!(
            (&s.offsets[..], &s.src[..], &s.dst[..]),
            (&[0, 2, 2, 3][..], &[0, 2, 1][..], &[2, 0, 0][..])
        );
        assert_eq!(s.ids, Some(Ids::new(vec![7, 30, 900])));
        assert_eq!((s.weight.as_ref(), s.notes[0].as_str()), (None, "merged 1 repeated edge"));
        assert!(!s.has(1, 1) && s.has(2, 1) && s.has(2, 2));
        let counted = SnapshotOptions { weights: EdgeWeights::Count, ..SnapshotOptions::default() };
        assert_eq!(read_with(&dir, &counted).unwrap().weight.unwrap(), [2., 1., 1.]);
    }

    #[test]
    fn weights_are_read_unless_they_are_not_wanted_and_all_files_have_them_or_none() {
        let dir = folder(&[("a.csv", "src,dst,weight\n0,1,0.5\n0,1,2\n"), ("b.csv", "")]);
        let s = read_with(&dir, &SnapshotOptions::default()).unwrap();
        assert_eq!((s.weight, s.ids), (Some(vec![2.5]), None));
        let none = SnapshotOptions { weights: EdgeWeights::None, ..SnapshotOptions::default() };
        assert_eq!(read_with(&dir, &none).unwrap().weight, None);
        let second = SnapshotOptions { weights: EdgeWeights::Feature(2), ..SnapshotOptions::default() };
        assert!(read_with(&dir, &second).unwrap_err().to_string().contains("has one weight an edge"));
        fs::write(dir.path().join("c.csv"), "1,0\n").unwrap();
        let e = read_with(&dir, &SnapshotOptions::default()).unwrap_err().to_string();
        assert!(
            e.contains("c.csv: edges have no weights, those of ")
                && e.ends_with("a.csv have; weigh all or none"),
            "{e}"
        );
    }

    #[test]
    fn features_lie_beside_the_lists_a_row_a_vertex_or_a_row_per_step_and_vertex() {
        let of = |rows: usize| {
            let dir = folder(&[("1.el", "0 3\n"), ("2.el", "1 3\n")]);
            npy::write(dir.path().join(FEATURES), &[rows, 1], &vec![1f32; rows]).unwrap();
            read_with(&dir, &SnapshotOptions::default())
        };
        assert_eq!(of(3).map(|s| (s.nodes, s.features_change(), s.ids.is_some())).unwrap(), (3, false, true));
        assert_eq!(of(6).map(|s| (s.nodes, s.features_change(), s.ids.is_some())).unwrap(), (3, true, true));
        assert_eq!(
            of(5).map(|s| (s.nodes, s.features_change(), s.ids.is_some())).unwrap(),
            (5, false, false)
        );
        assert!(
            of(2)
                .unwrap_err()
                .to_string()
                .contains("features.npy: 2 rows of features for 3 vertices in 2 steps; ")
        );
    }

    #[test]
    fn a_fault_in_the_first_file_of_many_is_the_one_that_is_told() {
        let dir = folder(&[("a.txt", "0 1\n"), ("b.txt", "0 x\n"), ("c.txt", "y 1\n")]);
        let e = read_with(&dir, &SnapshotOptions::default()).unwrap_err().to_string();
        assert!(e.contains("b.txt:1:3: `x` is not a vertex id; "), "{e}");
        let e = read_with(&folder(&[("a.txt", "# none\n")]), &SnapshotOptions::default())
            .unwrap_err()
            .to_string();
        assert!(e.contains("there is no edge in any file"), "{e}");
        let e = read_with(&folder(&[("a.pdf", "")]), &SnapshotOptions::default()).unwrap_err().to_string();
        assert!(e.contains("neither events nor edge lists"), "{e}");
    }
}
