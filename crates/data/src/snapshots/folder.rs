//! A folder of edge lists, one file per step: the layout of AS-733 (Leskovec et al. 2005).
//!
//! Files are in the order of the dates in their names, else in natural order: `step2` before `step10`. A line
//! is `src dst` or `src dst weight`. Ids may have gaps; vertices are numbered densely over all files.
//! `features.npy` has one row per vertex, or one row per step and vertex. If its number of rows fits neither
//! and all ids are below that number, ids are used as vertices directly, and ids without an edge are
//! vertices, too.
use super::{
    SnapshotOptions, Snapshots,
    build::{Edges, weighs},
};
use crate::{
    Features, Ids, LineCounts,
    format::{
        file_dates::{self, FileDates},
        files_by_name, folder_name,
        graph::{EdgeList, edge_list},
        stem,
    },
    text::counted,
};
use indexmap::IndexMap;
use rayon::prelude::*;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};

/// Name endings of edge lists; an additional `.gz` or `.zst` is allowed.
const ENDS: [&str; 6] = [".txt", ".csv", ".tsv", ".edges", ".edgelist", ".el"];
/// File with the options that made the snapshots. It marks folders that this crate wrote.
pub(super) const MADE: &str = "snapshots.json";
/// File of vertex features.
pub(super) const FEATURES: &str = "features.npy";

/// Reads a folder of edge lists.
pub(super) fn read(dir: &Path, options: &SnapshotOptions) -> Result<Snapshots> {
    let (files, mut left_out) = files_by_name(dir, &ENDS, &[FEATURES, MADE])?;
    if files.is_empty() {
        return Err(Error::data(dir, "the folder has neither events nor edge lists").remedy(
            "give a folder with one edge list (.txt or .csv) per step, or one that `tgnn-bench data import` wrote",
        ));
    }
    let files = in_order(files)?;
    let weights = options.reads_weights(dir)?;
    let results: Vec<Result<EdgeList>> = files.par_iter().map(|f| edge_list(f, weights)).collect();
    let lists = results.into_iter().collect::<Result<Vec<_>>>()?;
    let (files, lists, copies) = without_copies(files, lists);
    copies.into_iter().for_each(|copy| left_out.add(copy));
    let twins = twins(&files);
    let mut lines = LineCounts::default();
    lists.iter().for_each(|list| lines += list.lines);
    let weighted = weighted(&files, &lists)? && weights;
    let features = dir.join(FEATURES);
    let features = features.is_file().then(|| Features::read(&features)).transpose()?;
    let ids = ids(&lists);
    let last_id = ids.last().copied();
    let covers_ids = |rows: usize| last_id.is_none_or(|id| id < rows as u64);
    // If there are rows for ids without edges, ids are used as vertices directly.
    let dense = ids.len();
    let direct = features
        .as_ref()
        .map(Features::rows)
        .filter(|&rows| covers_ids(rows) && rows != dense && rows != dense * files.len());
    let nodes = direct.unwrap_or(dense);
    if nodes == 0 {
        return Err(
            Error::data(dir, "there is no edge in any file").remedy("write one edge `src dst` per line")
        );
    }
    if nodes >= u32::MAX as usize {
        return Err(Error::data(dir, format!("{nodes} vertices; at most 2^32 - 2 are supported"))
            .remedy("use fewer vertices"));
    }
    if let Some(f) = features.as_ref().filter(|f| ![nodes, nodes * files.len()].contains(&f.rows())) {
        let what = format!("{} rows of features for {nodes} vertices in {} steps", f.rows(), files.len());
        return Err(Error::data(dir.join(FEATURES), what)
            .remedy("there must be one row per vertex, or one per step and vertex"));
    }
    let vertex = |id: u64| if direct.is_some() { id as u32 } else { ids.partition_point(|&i| i < id) as u32 };
    let edges = |list: &EdgeList| -> Edges {
        list.edges.iter().map(|&(src, dst, w)| (vertex(src), vertex(dst), w)).collect()
    };
    let steps = lists.par_iter().map(edges).collect();
    let labels = files.iter().map(|f| stem(f)).collect();
    let weighted = weighs(options.weights, weighted);
    let mut s = Snapshots::of_edges(folder_name(dir), nodes, steps, labels, weighted)?;
    s.features = features;
    let renumbered = direct.is_none() && last_id != Some(dense as u64 - 1);
    s.ids = renumbered.then(|| Ids::new(ids));
    s.mark_present(options.presence)?;
    s.notes.extend(left_out.note(dir, files.len()));
    s.notes.extend(lines.note(dir));
    s.notes.extend(column_notes(&files, &lists));
    s.notes.extend(twins);
    Ok(s)
}

/// Leaves out the files that have the edges of another one of the same name before the endings, such as
/// `s1.txt.gz` beside `s1.txt`. Also returns what is told of them.
fn without_copies(files: Vec<PathBuf>, lists: Vec<EdgeList>) -> (Vec<PathBuf>, Vec<EdgeList>, Vec<String>) {
    let (mut kept, mut copies): (Vec<(PathBuf, EdgeList)>, _) = (Vec::new(), Vec::new());
    let mut of_stem: HashMap<String, Vec<usize>> = HashMap::new();
    let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for (file, list) in files.into_iter().zip(lists) {
        let others = of_stem.entry(stem(&file)).or_default();
        match others.iter().find(|at| kept[**at].1.edges == list.edges) {
            Some(at) => copies.push(format!("{} (a copy of {})", name(&file), name(&kept[*at].0))),
            None => {
                others.push(kept.len());
                kept.push((file, list));
            }
        }
    }
    let (files, lists) = kept.into_iter().unzip();
    (files, lists, copies)
}

/// Returns a note if two files have one name before the endings.
fn twins(files: &[PathBuf]) -> Option<String> {
    let mut seen: HashMap<String, &PathBuf> = HashMap::new();
    let twin = files.iter().find_map(|file| Some((seen.insert(stem(file), file)?, file)));
    twin.map(|(a, b)| {
        format!("{} and {} are two steps; if one is a copy, remove it", a.display(), b.display())
    })
}

/// Returns the notes on columns of edge lists, each once, with a file that it is about.
fn column_notes(files: &[PathBuf], lists: &[EdgeList]) -> Vec<String> {
    let mut notes: IndexMap<&str, (&PathBuf, u64)> = IndexMap::new();
    for (file, note) in files.iter().zip(lists).filter_map(|(file, list)| Some((file, list.note.as_deref()?)))
    {
        notes.entry(note).or_insert((file, 0)).1 += 1;
    }
    let told = |(note, (file, count)): (&str, (&PathBuf, u64))| match count {
        1 => format!("{}: {note}", file.display()),
        n => format!("{} and {}: {note}", file.display(), counted(n - 1, "other file")),
    };
    notes.into_iter().map(told).collect()
}

/// Sorts files by the dates in their names, if all names have one; else they keep their order.
fn in_order(files: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let names: Vec<String> = files.iter().map(|file| stem(file)).collect();
    match file_dates::of_names(names.iter().map(String::as_str)) {
        FileDates::Days(days) => {
            let mut order: Vec<usize> = (0..files.len()).collect();
            order.sort_by_key(|&i| days[i]);
            Ok(order.into_iter().map(|i| files[i].clone()).collect())
        }
        FileDates::Ambiguous => Err(file_dates::ambiguous(&files[0])),
        FileDates::None => Ok(files),
    }
}

/// Whether a folder has edge lists.
pub(super) fn has_lists(dir: &Path) -> bool {
    files_by_name(dir, &ENDS, &[]).is_ok_and(|(files, _)| !files.is_empty())
}

/// Whether the files have weights; files without edges do not count.
fn weighted(files: &[PathBuf], lists: &[EdgeList]) -> Result<bool> {
    let mut known = files.iter().zip(lists).filter_map(|(f, list)| Some((f, list.weighted?)));
    let Some((first, weighted)) = known.next() else { return Ok(false) };
    match known.find(|(_, w)| *w != weighted) {
        None => Ok(weighted),
        Some((file, _)) => {
            let (with, without) = if weighted { (first, file) } else { (file, first) };
            Err(Error::data(without, format!("edges have no weights, but those of {} have", with.display()))
                .remedy("give weights in all files or in none"))
        }
    }
}

/// Returns all ids, ascending and without duplicates.
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
    use crate::{EdgeWeights, npy};
    use std::fs;

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
    fn files_are_steps_in_natural_order_and_ids_are_numbered_densely_over_all_files() {
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
    fn weights_are_optional_but_all_files_must_have_them_or_none() {
        let dir = folder(&[("a.csv", "src,dst,weight\n0,1,0.5\n0,1,2\n"), ("b.csv", "")]);
        let s = read_with(&dir, &SnapshotOptions::default()).unwrap();
        assert_eq!((s.weight, s.ids), (Some(vec![2.5]), None));
        let none = SnapshotOptions { weights: EdgeWeights::None, ..SnapshotOptions::default() };
        assert_eq!(read_with(&dir, &none).unwrap().weight, None);
        let second = SnapshotOptions { weights: EdgeWeights::Feature(2), ..SnapshotOptions::default() };
        assert!(read_with(&dir, &second).unwrap_err().to_string().contains("has only one weight per edge"));
        fs::write(dir.path().join("c.csv"), "1,0\n").unwrap();
        let e = read_with(&dir, &SnapshotOptions::default()).unwrap_err().to_string();
        assert!(
            e.contains("c.csv: edges have no weights, but those of ")
                && e.ends_with("a.csv have; give weights in all files or in none"),
            "{e}"
        );
    }

    #[test]
    fn features_have_a_row_per_vertex_or_per_step_and_vertex() {
        let with_rows = |rows: usize| {
            let dir = folder(&[("1.el", "0 3\n"), ("2.el", "1 3\n")]);
            npy::write(dir.path().join(FEATURES), &[rows, 1], &vec![1f32; rows]).unwrap();
            read_with(&dir, &SnapshotOptions::default())
        };
        assert_eq!(
            with_rows(3).map(|s| (s.nodes, s.features_change(), s.ids.is_some())).unwrap(),
            (3, false, true)
        );
        assert_eq!(
            with_rows(6).map(|s| (s.nodes, s.features_change(), s.ids.is_some())).unwrap(),
            (3, true, true)
        );
        assert_eq!(
            with_rows(5).map(|s| (s.nodes, s.features_change(), s.ids.is_some())).unwrap(),
            (5, false, false)
        );
        assert!(
            with_rows(2)
                .unwrap_err()
                .to_string()
                .contains("features.npy: 2 rows of features for 3 vertices in 2 steps; ")
        );
    }

    #[test]
    fn of_several_faulty_files_the_first_is_reported() {
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
