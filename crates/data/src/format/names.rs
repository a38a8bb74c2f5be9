//! Names of files and data sets.
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

/// Returns the files of a folder whose names end in one of `ends`, before an ending of a compression, in
/// natural order of the names. Hidden files are left out.
pub(crate) fn files_by_name(dir: &Path, ends: &[&str]) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|e| Error::io(dir, "cannot read the folder", e))?;
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_wanted = |path: &PathBuf| {
        let name = name(path).to_lowercase();
        let plain = [".gz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        path.is_file() && !plain.starts_with('.') && ends.iter().any(|end| plain.ends_with(end))
    };
    let mut files: Vec<PathBuf> = entries.into_iter().map(|e| e.path()).filter(is_wanted).collect();
    files.sort_by_cached_key(|path| natural(&name(path)));
    Ok(files)
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
