//! Graphs and signals as arrays of NumPy and PyTorch, in the layouts of PyTorch Geometric Temporal's loaders.
//!
//! | files | contents | loaders |
//! | --- | --- | --- |
//! | `adj_mat.npy` and `node_values.npy`, both with the same prefix, in a folder or a zip archive | weights `[vertices, vertices]`, 0 where there is no edge; a signal `[steps, vertices, columns]` | METR-LA, PEMS-BAY |
//! | `NAME_dataset.npy` and a `.pt`, in a folder | a signal; edges `[edges, 3]`: source, destination, weight | SI diffusion, advection-diffusion, wave equation |
//!
//! A signal becomes features and targets in the same way as a [series](super::series).
use super::{SnapshotOptions, Snapshots, build::Edges, npy_archive::Archive, series::Signal};
use crate::{
    Features,
    format::{folder_name, stem},
    npy::Array,
};
use std::path::{Path, PathBuf};
use tgnn::error::{Error, Result};

/// Endings of the names of arrays.
const VALUES: &str = "node_values.npy";
const ADJACENCY: &str = "adj_mat.npy";
const DATASET: &str = "_dataset.npy";
/// The signal whose loader predicts the second column.
const SI: &str = "SI_equation_dataset.npy";

/// Where the arrays of a data set are.
pub(super) enum Arrays {
    /// Signal and matrix.
    Matrix { signal: PathBuf, matrix: PathBuf },
    /// Signal and list of edges.
    List { signal: PathBuf, edges: PathBuf },
    /// An archive, and the names of signal and matrix in it.
    Archive { archive: Box<Archive>, path: PathBuf, signal: String, matrix: String },
}

/// Finds the arrays of a data set in a folder, beside a signal, or in an archive; `None` if there is none.
pub(super) fn find(path: &Path) -> Result<Option<Arrays>> {
    if path.is_dir() {
        return in_folder(path, None);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !path.is_file() {
        return Ok(None);
    }
    if name.ends_with(VALUES) || name.ends_with(DATASET) {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return in_folder(folder, Some(&name));
    }
    if is_foreign(&name) {
        return Err(foreign(path));
    }
    let Some(archive) = Archive::open(path)? else { return Ok(None) };
    let Some([signal, matrix]) = pair(path, &archive.members, None)? else { return Ok(None) };
    Ok(Some(Arrays::Archive { archive: Box::new(archive), path: path.to_owned(), signal, matrix }))
}

/// Finds the arrays in a folder: those of the `wanted` signal, or else of the only one.
fn in_folder(folder: &Path, wanted: Option<&str>) -> Result<Option<Arrays>> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::io(folder, "cannot read the folder", e))?;
    let mut names: Vec<String> =
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if let Some([signal, matrix]) = pair(folder, &names, wanted)? {
        return Ok(Some(Arrays::Matrix { signal: folder.join(signal), matrix: folder.join(matrix) }));
    }
    if let Some(signal) = only(folder, &names, DATASET, wanted)? {
        let edges = only(folder, &names, ".pt", None)?.ok_or_else(|| {
            Error::data(folder, format!("there is {signal}, but no .pt file of edges"))
                .remedy("put the tensor of edges beside it")
        })?;
        return Ok(Some(Arrays::List { signal: folder.join(signal), edges: folder.join(edges) }));
    }
    // The layout of PeMS and PeMS-All-LA.
    let matrix = names.iter().any(|name| name.ends_with("adj_mat.pkl") || name.ends_with("adj_mx.pkl"));
    match names.iter().find(|name| is_hdf5(name)) {
        Some(signal) if matrix => Err(foreign(&folder.join(signal))),
        _ => Ok(None),
    }
}

/// Returns the names of a signal and its matrix: those of the `wanted` signal, or else of the only one.
fn pair(place: &Path, names: &[String], wanted: Option<&str>) -> Result<Option<[String; 2]>> {
    let Some(signal) = only(place, names, VALUES, wanted)? else { return Ok(None) };
    let matrix = signal.replace(VALUES, ADJACENCY);
    if !names.contains(&matrix) {
        return Err(Error::data(place, format!("there is {signal}, but no {matrix}"))
            .remedy("put the matrix of weights beside it"));
    }
    Ok(Some([signal, matrix]))
}

/// Returns the `wanted` name, or else the only one with this ending.
fn only(place: &Path, names: &[String], end: &str, wanted: Option<&str>) -> Result<Option<String>> {
    let found: Vec<&String> =
        names.iter().filter(|name| name.ends_with(end) && wanted.is_none_or(|w| w == *name)).collect();
    match found[..] {
        [] => Ok(None),
        [name] => Ok(Some(name.clone())),
        [a, b, ..] => Err(Error::usage(format!("{} has both {a} and {b}", place.display()))
            .remedy("give the path of the one to read, or a folder for each")),
    }
}

/// Whether a name is that of an HDF5 file.
fn is_hdf5(name: &str) -> bool {
    name.ends_with(".h5") || name.ends_with(".hdf5")
}

/// Whether a name is that of a file that only other programs read.
fn is_foreign(name: &str) -> bool {
    is_hdf5(name) || name.ends_with(".pkl") || name.ends_with(".pickle")
}

/// Returns the error of a file in HDF5 or a pickle.
fn foreign(path: &Path) -> Error {
    let kind = if is_hdf5(&path.to_string_lossy()) { "HDF5" } else { "a pickle" };
    Error::data(path, format!("this is {kind}, which is not read"))
        .remedy("save node_values.npy and adj_mat.npy by the lines of Python in docs/snapshots.md")
}

impl Arrays {
    /// Reads the snapshots.
    pub(super) fn read(self, options: &SnapshotOptions) -> Result<Snapshots> {
        let name = |signal: &Path| {
            let folder = signal.canonicalize().ok().and_then(|p| Some(folder_name(p.parent()?)));
            folder.unwrap_or_else(|| stem(signal))
        };
        match self {
            Arrays::Matrix { signal, matrix } => {
                of_matrix(name(&signal), &Array::open(&signal)?, &Array::open(&matrix)?, options)
            }
            Arrays::Archive { mut archive, path, signal, matrix } => {
                let (signal, matrix) = (archive.array(&signal)?, archive.array(&matrix)?);
                of_matrix(stem(&path), &signal, &matrix, options)
            }
            Arrays::List { signal, edges } => {
                let weighted = options.reads_weights(&edges)?;
                let name = name(&signal);
                let signal = read_signal(&Array::open(&signal)?, options)?;
                let edges = list(&edges, signal.nodes, weighted)?;
                Snapshots::of_series(name, (vec![edges], weighted), signal, options)
            }
        }
    }
}

/// Creates snapshots of a signal on the graph of a matrix of weights.
fn of_matrix(name: String, signal: &Array, matrix: &Array, options: &SnapshotOptions) -> Result<Snapshots> {
    let weighted = options.reads_weights(matrix.path())?;
    let signal = read_signal(signal, options)?;
    let v = signal.nodes;
    if matrix.shape() != [v, v] {
        let what = format!("the matrix has the shape {:?}, but there are {v} vertices", matrix.shape());
        return Err(
            Error::data(matrix.path(), what).remedy("give a matrix with a row and a column per vertex")
        );
    }
    let mut edges = Edges::new();
    for (i, weight) in matrix.to_f32().into_iter().enumerate().filter(|(_, w)| *w != 0.0) {
        if !(weight > 0.0 && weight.is_finite()) {
            let what = format!("entry [{}, {}] is {weight}", i / v, i % v);
            return Err(Error::data(matrix.path(), what).remedy("weights must be 0 or above, and finite"));
        }
        edges.push(((i / v) as u32, (i % v) as u32, if weighted { weight } else { 1.0 }));
    }
    Snapshots::of_series(name, (vec![edges], weighted), signal, options)
}

/// Reads a signal `[steps, vertices]` or `[steps, vertices, columns]`.
fn read_signal(array: &Array, options: &SnapshotOptions) -> Result<Signal> {
    let path = array.path();
    let (nodes, columns) = match *array.shape() {
        [_, nodes] => (nodes, 1),
        [_, nodes, columns] => (nodes, columns),
        _ => (0, 0),
    };
    if nodes == 0 || columns == 0 || array.shape()[0] == 0 {
        let what = format!("an array of shape {:?} is not a signal", array.shape());
        return Err(Error::data(path, what).remedy("save values as [steps, vertices, columns]"));
    }
    if array.shape().len() == 3 && !array.is_c_order() {
        return Err(Error::data(path, "the array is in Fortran's order")
            .remedy("save numpy.ascontiguousarray(values)"));
    }
    let loaders = usize::from(path.ends_with(SI));
    let target = options.target_column(path, columns, loaders)?;
    let values = array.to_f32();
    if let Some(i) = values.iter().position(|value| !value.is_finite()) {
        let (row, k) = (i / columns, i % columns);
        let what = format!("value [{}, {}, {k}] is {}", row / nodes, row % nodes, values[i]);
        return Err(Error::data(path, what).remedy("replace values that are missing"));
    }
    Ok(Signal { values, nodes, columns, target })
}

/// Reads a list of edges `[edges, 3]` between `nodes` vertices: source, destination, weight.
fn list(path: &Path, nodes: usize, weighted: bool) -> Result<Edges> {
    let rows = Features::read(path)?;
    let bad = |what: String| Error::data(path, what).remedy("a row is: source, destination, weight above 0");
    if rows.cols() != 3 {
        return Err(bad(format!(
            "a tensor of shape [{}, {}] is not a list of edges",
            rows.rows(),
            rows.cols()
        )));
    }
    let edge = |i: usize| {
        let [src, dst, weight] = [0, 1, 2].map(|column| rows.row(i)[column]);
        let is_vertex = |v: f32| v >= 0.0 && v.fract() == 0.0 && (v as usize) < nodes;
        if !is_vertex(src) || !is_vertex(dst) {
            return Err(bad(format!("edge {i} is ({src}, {dst}), but the vertices are 0 to {}", nodes - 1)));
        }
        if weighted && weight <= 0.0 {
            return Err(bad(format!("edge {i} has the weight {weight}")));
        }
        Ok((src as u32, dst as u32, if weighted { weight } else { 1.0 }))
    };
    (0..rows.rows()).map(edge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Normalise, ReadOptions, npy};
    use std::fs;

    /// A folder with a matrix of two vertices and a signal of three steps and two columns.
    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let values: Vec<f32> = (0..12u8).map(f32::from).collect();
        npy::write(dir.path().join("node_values.npy"), &[3, 2, 2], &values).unwrap();
        npy::write(dir.path().join("adj_mat.npy"), &[2, 2], &[1f32, 0.5, 0.0, 2.0]).unwrap();
        dir
    }

    fn load(path: &Path, options: &SnapshotOptions) -> Result<Snapshots> {
        assert!(Snapshots::are_at(path), "{}", path.display());
        Snapshots::load(path.to_str().unwrap(), &ReadOptions::default(), options, 0)
    }

    fn said(path: &Path) -> String {
        let text = load(path, &SnapshotOptions::default()).unwrap_err().to_string();
        assert!(!text.contains('\n') && text.contains("; "), "{text}");
        text
    }

    #[test]
    fn a_matrix_and_a_signal_are_a_series_and_one_column_is_predicted() {
        let dir = folder();
        let options =
            SnapshotOptions { lags: 1, normalise: Normalise::Off, target: 2, ..SnapshotOptions::default() };
        let s = load(dir.path(), &options).unwrap();
        assert_eq!((s.len(), s.nodes, &s.src[..3], &s.dst[..3]), (3, 2, &[0, 0, 1][..], &[0, 1, 1][..]));
        assert_eq!(s.weight.as_ref().unwrap()[..3], [1.0, 0.5, 2.0]);
        assert_eq!((s.features.unwrap().row(3), s.targets.unwrap().row(3)), (&[6., 7.][..], &[7.][..]));
        let none = SnapshotOptions { weights: crate::EdgeWeights::None, ..options.clone() };
        assert_eq!(load(dir.path(), &none).unwrap().weight, None);
        let e = load(dir.path(), &SnapshotOptions { target: 3, ..options }).unwrap_err().to_string();
        assert!(
            e.contains("snapshots.target is 3, but ")
                && e.ends_with("has 2 columns; give a column from 1 to 2"),
            "{e}"
        );
        let values = [0f32, 1., 2., 3.];
        fs::remove_file(dir.path().join("node_values.npy")).unwrap();
        npy::write(dir.path().join("node_values.npy"), &[2, 2], &values).unwrap();
        assert_eq!(load(dir.path(), &SnapshotOptions::default()).unwrap().width(), 4);
    }

    #[test]
    fn arrays_that_do_not_fit_are_refused_with_their_place() {
        let with = |name: &str, shape: &[usize], values: &[f32]| {
            let dir = folder();
            fs::remove_file(dir.path().join(name)).unwrap();
            npy::write(dir.path().join(name), shape, values).unwrap();
            said(dir.path())
        };
        let e = with("adj_mat.npy", &[1, 3], &[1.0; 3]);
        assert!(
            e.contains("adj_mat.npy: the matrix has the shape [1, 3], but there are 2 vertices; "),
            "{e}"
        );
        let e = with("adj_mat.npy", &[2, 2], &[0.0, 1.0, -1.0, 0.0]);
        assert!(e.contains("adj_mat.npy: entry [1, 0] is -1; "), "{e}");
        let e = with("node_values.npy", &[4], &[1.0; 4]);
        assert!(e.contains("node_values.npy: an array of shape [4] is not a signal; "), "{e}");
        let e = with("node_values.npy", &[1, 2, 2], &[1.0, 1.0, 1.0, f32::NAN]);
        assert!(e.contains("node_values.npy: value [0, 1, 1] is NaN; "), "{e}");
        let dir = folder();
        let bytes = fs::read(dir.path().join("node_values.npy")).unwrap();
        let text = String::from_utf8_lossy(&bytes[..128]).replace("False", "True ");
        let fortran = [&bytes[..10], &text.as_bytes()[text.len() - 118..], &bytes[128..]].concat();
        fs::write(dir.path().join("node_values.npy"), fortran).unwrap();
        assert!(said(dir.path()).contains("node_values.npy: the array is in Fortran's order; "));
        fs::write(dir.path().join("node_values.npy"), &bytes[..100]).unwrap();
        assert!(said(dir.path()).contains("node_values.npy: the header is cut short; "));
    }

    #[test]
    fn a_missing_array_and_two_data_sets_in_a_folder_are_told() {
        let dir = folder();
        fs::copy(dir.path().join("node_values.npy"), dir.path().join("pems_node_values.npy")).unwrap();
        let e = said(dir.path());
        assert!(
            e.contains("has both node_values.npy and pems_node_values.npy; give the path of the one"),
            "{e}"
        );
        let one = load(&dir.path().join("node_values.npy"), &SnapshotOptions::default()).unwrap();
        assert_eq!(one.nodes, 2);
        let e = said(&dir.path().join("pems_node_values.npy"));
        assert!(e.contains(": there is pems_node_values.npy, but no pems_adj_mat.npy; "), "{e}");
    }

    #[test]
    fn hdf5_and_pickles_are_refused_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("pems_cali_adj_mat.pkl"), "").unwrap();
        fs::write(dir.path().join("pems_cali_speed.h5"), "").unwrap();
        let e = said(dir.path());
        assert!(
            e.contains("pems_cali_speed.h5: this is HDF5, which is not read; save node_values.npy"),
            "{e}"
        );
        assert!(said(&dir.path().join("pems_cali_adj_mat.pkl")).contains(".pkl: this is a pickle, which is"));
    }

    #[test]
    fn edges_in_a_tensor_must_be_between_vertices() {
        let dir = tempfile::tempdir().unwrap();
        let (signal, edges) = (dir.path().join("wave_dataset.npy"), dir.path().join("edges.pt"));
        npy::write(signal.clone(), &[3, 2, 1], &[1f32, 2., 3., 4., 5., 6.]).unwrap();
        assert!(said(&signal).contains(": there is wave_dataset.npy, but no .pt file of edges; "));
        let with = |rows: &[f32], cols: usize| {
            // Features are read from NumPy's files, too, by content.
            let _ = fs::remove_file(&edges);
            npy::write(edges.clone(), &[rows.len() / cols, cols], rows).unwrap();
            load(dir.path(), &SnapshotOptions::default()).map_err(|e| e.to_string())
        };
        assert_eq!(with(&[0., 1., 2.5, 1., 0., 0.5], 3).unwrap().weight.unwrap()[..2], [2.5, 0.5]);
        for (rows, cols, wanted) in [
            (&[0., 1., 1., 0.][..], 2, "edges.pt: a tensor of shape [2, 2] is not a list of edges; "),
            (&[0., 2., 1.], 3, "edges.pt: edge 0 is (0, 2), but the vertices are 0 to 1; "),
            (&[0., 0.5, 1.], 3, "edges.pt: edge 0 is (0, 0.5), but the vertices are 0 to 1; "),
            (&[0., 1., 0.], 3, "edges.pt: edge 0 has the weight 0; "),
        ] {
            let e = with(rows, cols).unwrap_err();
            assert!(e.contains(wanted), "{e}");
        }
    }

    #[cfg(feature = "formats")]
    #[test]
    fn a_damaged_archive_is_one_line_and_one_without_arrays_is_no_snapshots() {
        let golden = "../../tests/golden/foreign/temporal/metr_la/METR-LA.zip";
        let bytes = fs::read(golden).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("METR-LA.zip");
        for cut in [5, 100, bytes.len() / 2, bytes.len() - 3] {
            fs::write(&path, &bytes[..cut]).unwrap();
            let e = said(&path);
            assert!(e.contains("METR-LA.zip: the zip archive is damaged or cut short"), "{e}");
        }
        for at in (0..bytes.len()).step_by(7) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x55;
            fs::write(&path, &changed).unwrap();
            if let Err(e) = Snapshots::load(
                path.to_str().unwrap(),
                &ReadOptions::default(),
                &SnapshotOptions::default(),
                0,
            ) {
                assert!(!e.to_string().contains('\n'), "{e}");
            }
        }
        assert!(!Snapshots::are_at("../../tests/golden/foreign/f32.pt"));
    }
}
