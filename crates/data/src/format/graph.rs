//! Files of a single graph: edge lists and matrices.
use super::{
    delimiter::Delimiter,
    input::Input,
    number::{is_number, parse_f32, parse_id},
    records::{Record, Records, Shape, is_empty, may_be_comment, records, wrong_width},
    table::{VALUES, take},
};
use crate::LineCounts;
use std::{
    io::{BufRead, Read},
    path::Path,
};
use tgnn::error::{Error, Result};

const IDS: &str = "ids are integers from 0";
const SHAPE: &str = "write `src dst` or `src dst weight` on each line";
const WEIGHTS: &str = "weights must be finite and above 0; to ignore them, set snapshots.weights = \"none\"";

/// Edges of a file, in its order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct EdgeList {
    /// Source, destination and weight; the weight is 1 if the file has none or if weights are not read.
    pub edges: Vec<(u64, u64, f32)>,
    /// Whether there is a third column; `None` if there is no edge.
    pub weighted: Option<bool>,
    /// What the lines are; those of edges count as events.
    pub lines: LineCounts,
}

/// Reads a text file of edges, optionally gzipped, with or without a header. `weights` says whether to read a
/// third column.
pub(crate) fn edge_list(path: &Path, weights: bool) -> Result<EdgeList> {
    let mut list = EdgeList::default();
    let mut rows = open(path)?;
    let (mut width, mut headers) = (0, 0);
    while let Some(row) = rows.next()? {
        if width == 0 {
            width = row.len();
            if !(2..=3).contains(&width) {
                return Err(row
                    .error(None, format!("a row of {width} columns is not an edge"))
                    .remedy(SHAPE));
            }
            let header = (0..2).all(|i| !is_number(row.field(i)));
            if header {
                headers = 1;
                continue;
            }
        }
        same_width(&row, width)?;
        let weight = match (width, weights) {
            (3, true) => take(&row, 2, parse_f32, "a weight", WEIGHTS)?,
            _ => 1.0,
        };
        if weight <= 0.0 {
            return Err(row.error(Some(2), format!("the weight of an edge is {weight}")).remedy(WEIGHTS));
        }
        let id = |i| take(&row, i, parse_id, "a vertex id", IDS);
        list.edges.push((id(0)?, id(1)?, weight));
        list.weighted = Some(width == 3);
    }
    list.lines = rows.counts().with_headers(headers);
    Ok(list)
}

/// Matrix of numbers.
#[derive(Debug, PartialEq)]
pub(crate) struct Matrix {
    /// Fields of the header; empty if there is none.
    pub names: Vec<String>,
    pub cols: usize,
    /// Values in row-major order.
    pub values: Vec<f32>,
    /// What the lines are; rows count as events.
    pub lines: LineCounts,
}

/// Reads a table of numbers, each at least `least`; `header` says whether the first line is a header.
pub(crate) fn matrix(path: &Path, header: bool, least: f32) -> Result<Matrix> {
    let mut matrix = Matrix { names: Vec::new(), cols: 0, values: Vec::new(), lines: LineCounts::default() };
    let mut rows = open(path)?;
    while let Some(row) = rows.next()? {
        if matrix.cols == 0 {
            matrix.cols = row.len();
            if header {
                let name = |i| String::from_utf8_lossy(row.field(i)).into_owned();
                matrix.names = (0..row.len()).map(name).collect();
                continue;
            }
        }
        same_width(&row, matrix.cols)?;
        for i in 0..row.len() {
            let value = take(&row, i, parse_f32, "a value", VALUES)?;
            if value < least {
                let what = format!("{value} is below {least}");
                return Err(row.error(Some(i), what).remedy("fix the value"));
            }
            matrix.values.push(value);
        }
    }
    matrix.lines = rows.counts().with_headers(header.into());
    if matrix.values.is_empty() {
        return Err(
            Error::data(path, "there is no row of numbers").remedy("write one row of numbers per line")
        );
    }
    Ok(matrix)
}

/// Reads all bytes of a file, decompressed if it is gzipped.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>> {
    let (mut reader, failure) = Input::open(path)?.into_reader();
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|e| failure.error(e))?;
    Ok(bytes)
}

/// Whether a JSON file has rows: its first line is an object and others follow, or it is an array. A file
/// that cannot be read has none.
pub(crate) fn has_json_rows(path: &Path) -> bool {
    let Ok(input) = Input::open(path) else { return false };
    if input.head().trim_ascii_start().starts_with(b"[") {
        return true;
    }
    let mut lines = input.head().split(|&b| b == b'\n');
    let is_object = |line: &[u8]| serde_json::from_slice::<serde_json::Map<_, _>>(line).is_ok();
    lines.next().is_some_and(is_object) && lines.any(|line| !line.trim_ascii().is_empty())
}

/// Opens a text file and guesses its delimiter from the first line.
fn open(path: &Path) -> Result<Records<impl BufRead>> {
    let input = Input::open(path)?;
    let is_row = |line: &&[u8]| !is_empty(line) && !may_be_comment(line);
    let first = input.head().split(|&b| b == b'\n').find(is_row);
    let delimiter = Delimiter::of_lines(&[first.unwrap_or_default()]);
    Ok(records(input, Shape::of(delimiter)))
}

/// Returns a data error unless `row` has `width` columns.
fn same_width(row: &Record<'_>, width: usize) -> Result<()> {
    if row.len() == width { Ok(()) } else { Err(wrong_width(row, width, "the first one has")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g.txt");
        std::fs::write(&path, content).unwrap();
        (dir, path)
    }

    #[test]
    fn edges_are_read_below_comments_and_headers_with_and_without_weights() {
        let header = LineCounts { header: 1, events: 2, ..LineCounts::default() };
        for (text, lines) in [
            ("# a\n1 7\n\n7\t3\n", LineCounts { comments: 1, blank: 1, events: 2, ..LineCounts::default() }),
            ("src,dst\n1,7\n7,3", header),
            ("FromNodeId\tToNodeId\n1\t7\n7\t3\n", header),
        ] {
            let (_dir, path) = file(text);
            let wanted = EdgeList { edges: vec![(1, 7, 1.0), (7, 3, 1.0)], weighted: Some(false), lines };
            assert_eq!(edge_list(&path, true).unwrap(), wanted, "{text}");
        }
        let (_dir, path) = file("1 7 0.5\n");
        assert_eq!(edge_list(&path, true).unwrap().edges, [(1, 7, 0.5)]);
        assert_eq!(edge_list(&path, false).unwrap().edges, [(1, 7, 1.0)]);
        let (_dir, path) = file("# nothing\n");
        let none = edge_list(&path, true).unwrap();
        assert_eq!((none.edges, none.weighted, none.lines.comments), (vec![], None, 1));
    }

    #[test]
    fn errors_in_edge_lists_name_line_and_column() {
        for (text, said) in [
            ("1 2\n1 x\n", "g.txt:2:3: `x` is not a vertex id; ids are integers from 0"),
            ("1 2\n1 2 3\n", "g.txt:2:5: this row has 3 columns, the first one has 2; "),
            ("1 2 0\n", "g.txt:1:5: the weight of an edge is 0; weights must be finite and above 0; "),
            ("1\n", "g.txt:1: a row of 1 columns is not an edge; write `src dst`"),
            ("1 2 3 4\n", "a row of 4 columns is not an edge"),
        ] {
            let (_dir, path) = file(text);
            let e = edge_list(&path, true).unwrap_err().to_string();
            assert!(e.contains(said), "{e}");
        }
    }

    #[test]
    fn a_matrix_has_rows_of_equal_length() {
        let (_dir, path) = file("a,b\n1,2\n3,4\n");
        let names = ["a", "b"].map(str::to_owned).to_vec();
        assert_eq!(
            matrix(&path, true, 0.0).unwrap(),
            Matrix {
                names,
                cols: 2,
                values: vec![1., 2., 3., 4.],
                lines: LineCounts { header: 1, events: 2, ..LineCounts::default() }
            }
        );
        for (text, said) in [
            ("1,2\n3\n", "g.txt:2: this row has 1 column,"),
            ("1,2\n3,x\n", "g.txt:2:3: `x` is not a value"),
            ("1,2\n3,-1\n", "g.txt:2:3: -1 is below 0; "),
            ("", "g.txt: there is no row of numbers; "),
        ] {
            let (_dir, path) = file(text);
            let e = matrix(&path, false, 0.0).unwrap_err().to_string();
            assert!(e.contains(said), "{e}");
        }
    }
}
