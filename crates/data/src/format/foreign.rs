//! Files that are no table of text, and what to do about them.

/// First bytes of texts that are no tables, what they are, and what to do.
const OTHER_TEXTS: [(&[u8], &str, &str); 13] = [
    (b"{", "is JSON, but not one object per line", "write one event per line: src,dst,time, or one object"),
    (
        b"[",
        "is a JSON array",
        "write one object per line, in pandas by to_json(file, orient=\"records\", lines=True)",
    ),
    (b"<!doctype", HTML, "give the address of the data themselves"),
    (b"<html", HTML, "give the address of the data themselves"),
    (b"<?xml", XML, AS_TABLE),
    (b"<gexf", XML, AS_TABLE),
    (b"<graphml", XML, AS_TABLE),
    (b"version https://git-lfs", "is a pointer of Git LFS, not the file", "fetch the file: git lfs pull"),
    (
        b"%%matrixmarket",
        "is a matrix of Matrix Market",
        "write its entries as lines of src,dst, without the line of sizes",
    ),
    (b"insert into", SQL, AS_TABLE),
    (b"create table", SQL, AS_TABLE),
    (b"-- ", SQL, AS_TABLE),
    (b"begin transaction", SQL, AS_TABLE),
];
const HTML: &str = "is a page of the web";
const XML: &str = "is XML";
const SQL: &str = "is SQL";
/// First bytes of files that are no text, what they are, and what to do.
const FOREIGN: [(&[u8], &str, &str); 18] = [
    (b"\x93NUMPY", "is one NumPy array", "give the folder that holds src.npy"),
    (b"PK\x03\x04", "is a zip archive, or an Excel workbook", "unpack it first, or save it as CSV"),
    (b"\xd0\xcf\x11\xe0", "is an Excel workbook", "save it as CSV"),
    (b"\xff\xfe", UTF_16, AS_UTF_8),
    (b"\xfe\xff", UTF_16, AS_UTF_8),
    (b"BZh", "is compressed by bzip2", "unpack it by bunzip2, or compress it by gzip or zstd"),
    (b"\xfd7zXZ", "is compressed by xz", "unpack it by unxz, or compress it by gzip or zstd"),
    (b"\x04\x22\x4d\x18", "is compressed by lz4", "unpack it by unlz4, or compress it by gzip or zstd"),
    (b"\x1f\x9d", "is compressed by compress", "unpack it by uncompress, or compress it by gzip or zstd"),
    (b"7z\xbc\xaf", "is a 7z archive", "unpack it first"),
    (b"Rar!", "is a RAR archive", "unpack it first"),
    (b"\x89HDF", "is an HDF5 file", "save its table as CSV or Parquet"),
    (b"SQLite format 3", "is an SQLite database", "save its table as CSV or Parquet"),
    (b"\x80\x04", PICKLE, AS_TABLE),
    (b"\x80\x05", PICKLE, AS_TABLE),
    (b"ORC", "is an ORC file", AS_TABLE),
    (b"FEA1", "is a Feather file of version 1", "write it again: today's Feather files are Arrow"),
    (b"Obj\x01", "is an Avro file", AS_TABLE),
];
const UTF_16: &str = "is text in UTF-16";
const AS_UTF_8: &str = "save it as UTF-8";
const PICKLE: &str = "is a pickle of Python";
const AS_TABLE: &str = "save its table as CSV or Parquet";

/// Returns what a file is that is no table of text, and what to do about it.
pub(super) fn unreadable(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let begins = |mark: &[u8]| head.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark));
    let marks: &[_] = if is_text(head) { &OTHER_TEXTS } else { &FOREIGN };
    if let Some((_, what, remedy)) = marks.iter().find(|(mark, ..)| begins(mark)) {
        return Some((*what, *remedy));
    }
    if head.contains(&0) {
        let every_second = |from: usize| head.iter().take(64).skip(from).step_by(2).all(|b| *b == 0);
        return Some(match every_second(0) || every_second(1) {
            true => (UTF_16, AS_UTF_8),
            false => ("is a binary file", "write the events as text, or as a folder of .npy"),
        });
    }
    if is_text(head) && has_tuples(head) {
        return Some(("has rows in parentheses", "remove them: write 1,2,3, not (1,2,3)"));
    }
    let is_mac = head.contains(&b'\r') && !head.contains(&b'\n') && head.trim_ascii_end().contains(&b'\r');
    is_mac.then_some(("ends its lines like an old Mac, in CR only", "convert it, such as by tr '\\r' '\\n'"))
}

/// Whether the rows of a text are in parentheses, as Python writes tuples, perhaps after a header.
fn has_tuples(head: &[u8]) -> bool {
    let lines: Vec<&[u8]> =
        head.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).take(5).collect();
    let is_tuple = |line: &&[u8]| {
        let row = line.strip_suffix(b",").unwrap_or(line);
        match row {
            [b'(', within @ .., b')'] | [b'[', within @ .., b']'] => {
                !within.iter().any(|b| matches!(b, b'(' | b')' | b'[' | b']'))
            }
            _ => false,
        }
    };
    // The end of the sample may cut off a line.
    let whole = &lines[..lines.len().clamp(1, 4).min(lines.len())];
    let rows = if whole.len() > 1 { &whole[1..] } else { whole };
    !rows.is_empty() && rows.iter().all(is_tuple)
}

/// Whether the first bytes of a file are text.
fn is_text(head: &[u8]) -> bool {
    let begin = &head[..head.len().min(256)];
    // The end may cut off a letter.
    let is_utf_8 = std::str::from_utf8(begin).map_or_else(|e| e.error_len().is_none(), |_| true);
    is_utf_8 && begin.iter().all(|b| *b > 8)
}
