//! Loading snapshots from any supported path.
use super::{SnapshotOptions, Snapshots, arrays, folder, json, series};
use crate::{self as data, ReadOptions, format};
use std::path::Path;
use tgnn::error::{Error, Result};

impl Snapshots {
    /// Reads snapshots, or events that are then cut into snapshots:
    ///
    /// | path | result |
    /// | --- | --- |
    /// | a `.json` file | the result of PyTorch Geometric Temporal's loaders: a series, or one step per object |
    /// | a folder or zip archive with `adj_mat.npy` and `node_values.npy`, or `NAME_dataset.npy` and a `.pt`; or the `.npy` of the signal in a folder | a series: a graph as an array, and values of one or several columns per step and vertex |
    /// | a folder with `NAME_adj.csv` and another `NAME_*.csv` | a series: a graph as a matrix, and one row of values per step |
    /// | a folder of `.txt`, `.csv`, `.tsv`, `.edges`, `.edgelist` or `.el`, optionally with `.gz` | one step per file |
    /// | any path or name that [`load`](data::load) accepts | its events, [cut](Self::of_events) into snapshots |
    ///
    /// `seed` determines random features.
    ///
    /// # Errors
    /// Io if there is no such file or it cannot be read; data, with line and column, if it cannot be parsed;
    /// usage if the options contradict the input.
    pub fn load(
        path_or_name: &str,
        read: &ReadOptions,
        options: &SnapshotOptions,
        seed: u64,
    ) -> Result<Self> {
        options.validate()?;
        data::start_threads(0)?;
        let path = Path::new(path_or_name);
        let folder = || path.is_dir() && !format::is_folder_of_events(path);
        let mut s = if !read.says_events() && (Self::are_at(path) || folder()) {
            read.refuse_writing("snapshots")?;
            read_files(path, options)?
        } else {
            let s = Self::of_events(&data::load(path_or_name, read)?, options, seed)?;
            return s.validate(path_or_name).map(|()| s);
        };
        if options.classes {
            let what = format!("snapshots.classes is set, but {path_or_name} has no labels");
            return Err(Error::usage(what).remedy("leave it out, or give events that have labels"));
        }
        s.choose_features(options, seed)?;
        s.validate(path_or_name)?;
        Ok(s)
    }

    /// Whether there are snapshots at `path`, by the names of files, rather than events. Files may be
    /// damaged.
    pub fn are_at(path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        let folder = path.is_dir() && !format::is_folder_of_events(path);
        folder && (series::tables(path).is_some() || folder::has_lists(path))
            || (folder || path.is_file()) && !matches!(arrays::find(path), Ok(None))
            || path.is_file() && json::is_here(path)
    }
}

/// Reads files of snapshots.
fn read_files(path: &Path, options: &SnapshotOptions) -> Result<Snapshots> {
    if let Some(arrays) = arrays::find(path)? {
        return arrays.read(options);
    }
    options.target_column(path, 1, 0)?;
    match series::tables(path) {
        _ if path.is_file() => json::read(path, options),
        Some(files) => series::read_tables(&files, options),
        None => folder::read(path, options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EdgeWeights, Every, Normalise, VertexFeatures};
    use std::fs;

    fn load(path: &Path, options: &SnapshotOptions) -> Snapshots {
        Snapshots::load(path.to_str().unwrap(), &ReadOptions::default(), options, 1).unwrap()
    }

    #[test]
    fn a_bundled_name_is_cut_and_gets_the_requested_features() {
        let options = SnapshotOptions { features: VertexFeatures::Degree, ..SnapshotOptions::default() };
        let s = Snapshots::load("wikipedia", &ReadOptions::default(), &options, 1).unwrap();
        assert_eq!((s.len(), s.width(), s.features_change()), (5, 2, true));
        let none = Snapshots::load("no such", &ReadOptions::default(), &options, 1).unwrap_err();
        assert_eq!(none.kind(), tgnn::error::ErrorKind::Io);
    }

    #[test]
    fn a_table_with_a_column_of_steps_has_one_step_per_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("steps.csv");
        fs::write(&path, "src,dst,step,weight\n0,1,0,2\n1,2,0,1\n0,1,2,0.5\n").unwrap();
        let options = SnapshotOptions {
            every: Every::Step,
            weights: EdgeWeights::Feature(1),
            ..SnapshotOptions::default()
        };
        let s = load(&path, &options);
        assert_eq!((s.labels.join(" "), &s.offsets[..]), ("0 1 2".into(), &[0, 2, 2, 3][..]));
        assert_eq!(s.weight.unwrap(), [2.0, 1.0, 0.5]);
    }

    #[test]
    fn folders_are_recognised_by_their_contents() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        at("los_adj.csv", "1,0.5\n0.5,1\n");
        at("los_speed.csv", "773869,767541\n64,67\n62,68\n60,69\n");
        let s = load(
            dir.path(),
            &SnapshotOptions { normalise: Normalise::Off, lags: 1, ..SnapshotOptions::default() },
        );
        assert_eq!((s.name.as_str(), s.len(), s.nodes, s.src.len()), ("los", 3, 2, 12));
        assert_eq!(s.ids.unwrap().numbers().unwrap(), [773869, 767541]);
        assert_eq!(
            (s.weight.unwrap()[..4].to_vec(), s.targets.unwrap().row(3)[0]),
            (vec![1.0, 0.5, 0.5, 1.0], 68.0)
        );
        let second = SnapshotOptions { target: 2, ..SnapshotOptions::default() };
        let e = Snapshots::load(dir.path().to_str().unwrap(), &ReadOptions::default(), &second, 1);
        assert!(e.unwrap_err().to_string().ends_with(" has 1 column; give a column from 1 to 1"));
        at("los_speed.csv", "773869\n64\n");
        let e = Snapshots::load(
            dir.path().to_str().unwrap(),
            &ReadOptions::default(),
            &SnapshotOptions::default(),
            1,
        );
        assert!(
            e.unwrap_err().to_string().contains("the adjacency matrix is [2, 2], but there are 1 vertices; ")
        );
        fs::remove_file(dir.path().join("los_adj.csv")).unwrap();
        at("los_speed.csv", "0,1\n");
        at("train.txt", "0 1\n");
        let classes = SnapshotOptions { classes: true, ..SnapshotOptions::default() };
        let e = Snapshots::load(dir.path().to_str().unwrap(), &ReadOptions::default(), &classes, 1);
        assert!(e.unwrap_err().to_string().contains("has no labels; "));
        let s = load(dir.path(), &SnapshotOptions::default());
        assert_eq!((s.labels.join(" "), s.src.len()), ("los_speed train".into(), 2));
        let events = crate::bundled().unwrap();
        crate::save(&events, dir.path().join("events"), false).unwrap();
        assert_eq!(load(&dir.path().join("events"), &SnapshotOptions::default()).len(), 5);
    }
}
