//! What to do about a data set of TGB that is not there.
use crate::text::similar;
use std::path::Path;
use tgnn::error::{Error, Result};

/// Beginnings of the names of TGB's data sets, by task: links, properties of nodes, links with types of
/// edges, and links with types of edges and nodes.
pub(super) const KINDS: [&str; 4] = ["tgbl-", "tgbn-", "tkgl-", "thgl-"];

/// The data sets of `py-tgb` 2.3 (`tgb/utils/info.py`).
pub(crate) const SETS_OF_TGB: [&str; 22] = [
    "tgbl-enron",
    "tgbl-uci",
    "tgbl-wiki",
    "tgbl-subreddit",
    "tgbl-lastfm",
    "tgbl-review",
    "tgbl-coin",
    "tgbl-flight",
    "tgbl-comment",
    "tgbn-trade",
    "tgbn-genre",
    "tgbn-reddit",
    "tgbn-token",
    "tkgl-polecat",
    "tkgl-icews",
    "tkgl-yago",
    "tkgl-wikidata",
    "tkgl-smallpedia",
    "thgl-myket",
    "thgl-github",
    "thgl-forum",
    "thgl-software",
];

/// Returns the name that `path` gives a data set of TGB, such as `tgbl-wiki` for `tgbl-wiki` and for a folder
/// `datasets/tgbl_wiki`; `None` if it does not look like one.
pub(crate) fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.replacen('_', "-", 1);
    let is_set = |set: &str| !set.is_empty() && !set.contains('.');
    KINDS.iter().any(|kind| name.strip_prefix(kind).is_some_and(is_set)).then_some(name)
}

/// Returns `error` about the missing data set `name` with the way to get it, by the package `py-tgb`.
pub(crate) fn remedy<T>(error: Error, name: &str) -> Result<T> {
    if !SETS_OF_TGB.contains(&name) {
        let kind = KINDS.iter().find(|kind| name.starts_with(*kind)).unwrap_or(&KINDS[0]);
        let all: Vec<&str> = SETS_OF_TGB.into_iter().filter(|set| set.starts_with(kind)).collect();
        return Err(error.remedy(match similar(SETS_OF_TGB, name) {
            Some(known) => format!("TGB has no {name}; did you mean {known}?"),
            None => format!("TGB has no {name}, but {}", all.join(", ")),
        }));
    }
    let (module, class) = match name.starts_with("tgbn-") {
        true => ("nodeproppred", "NodePropPredDataset"),
        false => ("linkproppred", "LinkPropPredDataset"),
    };
    // The package puts its data into its own folder.
    let print =
        format!("from tgb.{module}.dataset import {class} as D; print(D('{name}', root='datasets').root)");
    Err(error.remedy(format!(
        "fetch it with `pip install py-tgb` and `python -c \"{print}\"`, and give the folder that it prints"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::error::ErrorKind;

    #[test]
    fn every_set_says_how_to_get_it_and_a_name_that_tgb_lacks_is_told() {
        let missing = |path: &str| {
            let name = name_of(Path::new(path))?;
            Some(remedy::<()>(Error::new(ErrorKind::Io, path), &name).unwrap_err().to_string())
        };
        for set in SETS_OF_TGB {
            let (folder, class) =
                (set.replace('-', "_"), if set.starts_with("tgbn") { "NodeProp" } else { "LinkProp" });
            for path in [set, &folder, &format!("datasets/{folder}")] {
                let text = missing(path).unwrap();
                assert!(text.contains(&format!("D('{set}', ")) && text.contains(class), "{text}");
            }
        }
        assert!(missing("tgbl-wkii").unwrap().ends_with("TGB has no tgbl-wkii; did you mean tgbl-wiki?"));
        let text = missing("thgl-nothing").unwrap();
        assert!(text.ends_with("but thgl-myket, thgl-github, thgl-forum, thgl-software"), "{text}");
        for other in ["tgbl-", "wikipedia", "tgbx-wiki", "tgbl-wiki.csv"] {
            assert_eq!(missing(other), None);
        }
    }
}
