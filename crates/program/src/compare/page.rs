//! The page of a comparison: one file of HTML that a browser opens without any other.
use super::{cells::Cells, table};
use crate::output::json;
use serde::Serialize;
use tgnn::error::Result;
use tgnn_training::task::comparison::{Comparison, LaneSpan};

const HTML: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The timeline of a line's first run that has one.
pub type Timelines = Vec<(usize, Vec<LaneSpan>)>;

/// What the script draws.
#[derive(Serialize)]
struct Content<'a> {
    about: String,
    table: Cells,
    comparison: &'a Comparison,
    /// Indices of lines, and the spans of their lanes.
    timelines: &'a Timelines,
}

/// Returns the page.
pub(super) fn page(comparison: &Comparison, timelines: &Timelines) -> Result<String> {
    let content =
        Content { about: table::about(comparison), table: table::cells(comparison), comparison, timelines };
    // Names of runs may hold anything, `</script>` too.
    let content = json(&content)?.replace('<', "\\u003c");
    let parts = [("/*css*/", CSS), ("/*script*/", SCRIPT), ("/*content*/", &content)];
    Ok(parts.into_iter().fold(HTML.to_owned(), |page, (place, part)| page.replacen(place, part, 1)))
}
