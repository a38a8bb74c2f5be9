//! Names of files and data sets.
use crate::text::counted;
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};

/// Returns the last component of a folder's canonical path, or an empty string if there is none in UTF-8.
pub(crate) fn folder_name(path: &Path) -> String {
    path.canonicalize().ok().and_then(|p| Some(p.file_name()?.to_str()?.to_owned())).unwrap_or_default()
}

/// Returns a file's name without folder, `.gz` and extension.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
}

/// Entries of a folder or an archive that are not read.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    names: Vec<String>,
    /// Number of entries that nobody expects to be read: hidden ones, and those that Spark writes beside its
    /// parts.
    hidden: usize,
}

/// Number of entries that are named.
const NAMED: usize = 3;

impl LeftOut {
    /// Adds an entry, of which `name` is shown.
    pub(crate) fn add(&mut self, name: String) {
        match is_hidden(&name) {
            true => self.hidden += 1,
            false => self.names.push(name),
        }
    }

    /// Says which entries of `path` are not read, beside `read` ones; `None` if there are none.
    pub(crate) fn note(&self, path: &Path, read: usize) -> Option<String> {
        let all = read + self.names.len() + self.hidden;
        (all > read).then(|| {
            let entries = counted(all as u64, "entry");
            format!("{read} of {entries} of {} are read, not {}", path.display(), self.listed())
        })
    }

    /// Lists the entries: the names of the first ones, and the numbers of the others.
    pub(crate) fn listed(&self) -> String {
        let mut names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(NAMED);
        names.truncate(NAMED);
        let mut parts: Vec<String> = names.into_iter().map(str::to_owned).collect();
        parts.extend((more > 0).then(|| format!("{more} more")));
        parts.extend((self.hidden > 0).then(|| counted(self.hidden as u64, "hidden entry")));
        parts.join(", ")
    }
}

/// Whether an entry is hidden, a checksum, or a mark of Spark, or is in such a folder.
pub(super) fn is_hidden(path: &str) -> bool {
    const MARKS: [&str; 7] =
        ["_SUCCESS", "_committed", "_started", "_metadata", "_common_metadata", "_temporary", "__MACOSX"];
    path.split('/').any(|name| {
        name.starts_with('.') && !matches!(name, "." | "..")
            || name.ends_with(".crc")
            || MARKS.iter().any(|mark| name.starts_with(mark))
    })
}

/// Whether a file is about the others, by its name, such as `README.txt`. A table called `citation.csv` is
/// not.
fn is_about(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = ["readme", "license", "licence", "copying", "notice", "citation", "changelog"];
    let (stem, end) = name.split_once('.').unwrap_or((&name, ""));
    matches!(end, "" | "txt" | "md" | "rst") && words.contains(&stem)
}

/// Whether the file called `name` has one of the endings `ends`, perhaps before that of a compression, and is
/// not one about the others.
pub(super) fn ends_in(name: &str, ends: &[&str]) -> bool {
    let lower = name.to_lowercase();
    let plain = uncompressed(&lower);
    !is_hidden(&lower) && !is_about(&lower) && ends.iter().any(|end| plain.ends_with(end))
}

/// Returns a name without the ending of a compression.
pub(super) fn uncompressed(name: &str) -> &str {
    [".gz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// Returns the entries of a folder, in natural order of their names.
pub(super) fn entries(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|e| Error::io(dir, "cannot read the folder", e))?;
    let named = |entry: fs::DirEntry| (entry.file_name().to_string_lossy().into_owned(), entry.path());
    let mut entries: Vec<_> = entries.into_iter().map(named).collect();
    entries.sort_by_cached_key(|(name, _)| natural(name));
    Ok(entries)
}

/// Returns the files of a folder whose names end in one of `ends`, before an ending of a compression, in
/// natural order of the names, and the other entries but those called like one of `beside`.
pub(crate) fn files_by_name(dir: &Path, ends: &[&str], beside: &[&str]) -> Result<(Vec<PathBuf>, LeftOut)> {
    let (mut files, mut left_out) = (Vec::new(), LeftOut::default());
    for (name, path) in entries(dir)? {
        match path.is_file() && ends_in(&name, ends) {
            true => files.push(path),
            false if beside.contains(&&*name) => {}
            false => left_out.add(name),
        }
    }
    Ok((files, left_out))
}

/// Says which entries of a folder are not read, beside those that `is_read` says are.
pub(super) fn others(dir: &Path, is_read: impl Fn(&str) -> bool) -> Option<String> {
    let (mut left_out, mut known) = (LeftOut::default(), 0);
    for (name, _) in entries(dir).ok()? {
        if is_read(&name) {
            known += 1;
        } else {
            left_out.add(name);
        }
    }
    left_out.note(dir, known)
}

/// Returns the sort key of natural order: the name split into pairs of text and number, then the name itself.
/// A number sorts by its count of digits, then by the digits, so that it may be arbitrarily long.
pub(super) fn natural(name: &str) -> (Vec<(String, usize, String)>, String) {
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
