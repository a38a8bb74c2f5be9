//! Files of a single graph: edge lists and matrices.
use super::{
    column_names::{Role, listed, role},
    delimiter::Delimiter,
    fields::{self, Writing},
    input::Input,
    number::{is_number, parse_f32, parse_id},
    records::{Record, Records, Shape, is_empty, may_be_comment, records, text_of_comment, wrong_width},
    table::{VALUES, take},
};
use crate::{LineCounts, text::counted};
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
    /// Whether there is a column of weights; `None` if there is no edge.
    pub weighted: Option<bool>,
    /// What the lines are; those of edges count as events.
    pub lines: LineCounts,
    /// What the user should know of the columns.
    pub note: Option<String>,
}

/// The columns of an edge list.
struct EdgeColumns {
    ends: [usize; 2],
    weight: Option<usize>,
    width: usize,
    note: Option<String>,
}

/// Names of a column of weights.
const WEIGHTS_NAMED: [&str; 8] = ["weight", "weights", "w", "value", "count", "strength", "amount", "rating"];

impl EdgeColumns {
    /// Returns the columns of rows without a header: source, destination, and perhaps a weight.
    fn in_order(row: &Record<'_>, delimiter: Delimiter) -> Result<Self> {
        let width = row.len();
        if !(2..=3).contains(&width) {
            return Err(row
                .error(None, format!("a row of {} is not an edge", counted(width as u64, "column")))
                .remedy(SHAPE));
        }
        // pandas numbers the columns of a table without names, and writes the numbers.
        let is_numbered =
            delimiter != Delimiter::Blanks && (0..width).all(|i| row.field(i) == i.to_string().as_bytes());
        let note =
            is_numbered.then(|| "the first line, which numbers the columns, is read as an edge".into());
        Ok(EdgeColumns { ends: [0, 1], weight: (width == 3).then_some(2), width, note })
    }

    /// Returns the columns by their names. Columns of other names are the ends in their order, if neither end
    /// is named.
    fn named(names: &[String]) -> Result<Self, String> {
        let at = |wanted: Role| names.iter().position(|name| role(name) == wanted);
        let is_weight = |name: &String| WEIGHTS_NAMED.contains(&name.trim().to_ascii_lowercase().as_str());
        let is_index = |i: &usize| names[*i].trim().is_empty() || role(&names[*i]) == Role::Index;
        let (ends, by_place) = match (at(Role::Src), at(Role::Dst)) {
            (Some(src), Some(dst)) => ([src, dst], false),
            (None, None) => {
                let mut others = (0..names.len()).filter(|i| !is_index(i) && !is_weight(&names[*i]));
                match (others.next(), others.next()) {
                    (Some(src), Some(dst)) => ([src, dst], true),
                    _ => return Err(format!("the header names no edge: its columns are {}", listed(names))),
                }
            }
            (src, _) => {
                let what = if src.is_none() { "source" } else { "destination" };
                return Err(format!("the header names no {what}; its columns are {}", listed(names)));
            }
        };
        let weight = (0..names.len()).find(|i| !ends.contains(i) && is_weight(&names[*i]));
        let is_read = |i: &usize| ends.contains(i) || weight == Some(*i) || names[*i].trim().is_empty();
        let unread: Vec<String> =
            (0..names.len()).filter(|i| !is_read(i)).map(|i| names[i].clone()).collect();
        let ends_note =
            by_place.then(|| format!("edges lead from `{}` to `{}`", names[ends[0]], names[ends[1]]));
        let unread = (!unread.is_empty()).then(|| format!("columns not read: {}", listed(&unread)));
        let notes: Vec<String> = ends_note.into_iter().chain(unread).collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Ok(EdgeColumns { ends, weight, width: names.len(), note })
    }
}

/// Reads a text file of edges, optionally gzipped, with or without a header. `weights` says whether to read a
/// column of weights.
pub(crate) fn edge_list(path: &Path, weights: bool) -> Result<EdgeList> {
    let mut list = EdgeList::default();
    let (mut rows, comments, delimiter) = open(path)?;
    let (mut columns, mut headers) = (None, 0);
    while let Some(row) = rows.next()? {
        if columns.is_none() && (0..row.len().min(2)).all(|i| !is_number(row.field(i))) && row.len() > 1 {
            let names: Vec<String> =
                (0..row.len()).map(|i| String::from_utf8_lossy(row.field(i)).into_owned()).collect();
            let named = EdgeColumns::named(&names);
            columns = Some(named.map_err(|what| row.error(None, what).remedy(SHAPE))?);
            headers = 1;
            continue;
        }
        let columns = match &columns {
            Some(columns) => columns,
            None => {
                let of_comment = comments.iter().rev().find(|names| names.len() == row.len());
                let named = of_comment.and_then(|names| EdgeColumns::named(names).ok());
                columns.insert(match named {
                    Some(named) => named,
                    None => EdgeColumns::in_order(&row, delimiter)?,
                })
            }
        };
        same_width(&row, columns.width)?;
        let weight = match (columns.weight, weights) {
            (Some(i), true) => take(&row, i, parse_f32, "a weight", WEIGHTS)?,
            _ => 1.0,
        };
        if weight <= 0.0 {
            return Err(row
                .error(columns.weight, format!("the weight of an edge is {weight}"))
                .remedy(WEIGHTS));
        }
        let id = |i| take(&row, i, parse_id, "a vertex id", IDS);
        list.edges.push((id(columns.ends[0])?, id(columns.ends[1])?, weight));
        list.weighted = Some(columns.weight.is_some());
    }
    list.lines = rows.counts().with_headers(headers);
    list.note = columns.and_then(|columns| columns.note);
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
    let (mut rows, ..) = open(path)?;
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

/// Opens a text file. Also returns the comments before its first row that name the ends of an edge, as
/// fields, and the delimiter, by the first row.
fn open(path: &Path) -> Result<(Records<impl BufRead>, Vec<Vec<String>>, Delimiter)> {
    let input = Input::open(path)?;
    let mut lines = input.head().split(|&b| b == b'\n');
    let mut comments = Vec::new();
    let first = lines.by_ref().filter(|line| !is_empty(line)).find(|line| {
        let is_comment = may_be_comment(line);
        comments.extend(is_comment.then(|| text_of_comment(line)));
        !is_comment
    });
    let delimiter = Delimiter::of_lines(&[first.unwrap_or_default()]);
    let mut spans = Vec::new();
    let mut fields = |text: &&[u8]| {
        fields::split(text, Writing::of(delimiter), &mut spans);
        spans.iter().map(|&(a, b)| String::from_utf8_lossy(&text[a..b]).into_owned()).collect()
    };
    let named = |names: &Vec<String>| {
        [Role::Src, Role::Dst].iter().all(|wanted| names.iter().any(|name| role(name) == *wanted))
    };
    let comments = comments.iter().map(&mut fields).filter(named).collect();
    Ok((records(input, Shape::of(delimiter)), comments, delimiter))
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
            let wanted =
                EdgeList { edges: vec![(1, 7, 1.0), (7, 3, 1.0)], weighted: Some(false), lines, note: None };
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
    fn a_header_names_the_columns_of_edges() {
        let of = |text: &str| {
            let (_dir, path) = file(text);
            edge_list(&path, true).map(|list| (list.edges, list.note))
        };
        for text in [
            "target,source\n7,1\n",
            "weight,src,dst\n1,1,7\n",
            ",src,dst\n0,1,7\n",
            "# dst src\n# of 2023\n7 1\n",
            "dst,id,src\n7,5,1\n",
        ] {
            assert_eq!(of(text).unwrap().0, [(1, 7, 1.0)], "{text}");
        }
        let note = |text: &str| of(text).unwrap().1.unwrap();
        assert_eq!(note("src,dst,type\n1,7,3\n"), "columns not read: type");
        assert_eq!(note("city,to_city\n1,7\n"), "edges lead from `city` to `to_city`");
        assert!(note("0,1\n1,7\n").starts_with("the first line, which numbers the columns,"));
        let e = of("src,city\n1,7\n").unwrap_err().to_string();
        assert!(
            e.contains("g.txt:1: the header names no destination; its columns are src, city; write"),
            "{e}"
        );
    }

    #[test]
    fn errors_in_edge_lists_name_line_and_column() {
        for (text, said) in [
            ("1 2\n1 x\n", "g.txt:2:3: `x` is not a vertex id; ids are integers from 0"),
            ("1 2\n1 2 3\n", "g.txt:2:5: this row has 3 columns, the first one has 2; "),
            ("1 2 0\n", "g.txt:1:5: the weight of an edge is 0; weights must be finite and above 0; "),
            ("1\n", "g.txt:1: a row of 1 column is not an edge; write `src dst`"),
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
