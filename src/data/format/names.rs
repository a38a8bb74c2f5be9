//! Data set names derived from paths.
use std::path::Path;

/// Returns the last component of a folder's canonical path, or an empty string if there is none in UTF-8.
pub(in crate::data) fn folder_name(path: &Path) -> String {
    path.canonicalize().ok().and_then(|p| Some(p.file_name()?.to_str()?.to_owned())).unwrap_or_default()
}

/// Returns a file's name without folder, `.gz` and extension.
pub(in crate::data) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
}
