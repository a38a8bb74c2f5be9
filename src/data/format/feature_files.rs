//! Files of edge and node features that belong to an event file.
use super::options::ReadOptions;
use crate::{
    data::{Features, raw::Raw},
    error::{Error, Result},
};
use std::path::{Path, PathBuf};

/// Adds features to `raw` from the files named in `options`, or else from the (edge, node) feature files
/// `beside` that were found next to the events.
///
/// # Errors
/// Data if the number of feature rows does not match the events, or if the event numbers have gaps, so that
/// rows of edge features cannot be matched to events by position; otherwise the errors of reading the files.
pub(in crate::data) fn attach(
    raw: &mut Raw,
    options: &ReadOptions,
    beside: (Option<PathBuf>, Option<PathBuf>),
) -> Result<()> {
    let (edges_beside, nodes_beside) = beside;
    if let Some(file) = options.edge_features.as_ref().or(edges_beside.as_ref()) {
        if !raw.numbered {
            return Err(Error::data(
                &raw.file,
                "the event numbers have gaps, so rows of edge features cannot be matched to events",
            )
            .remedy("write the features in the order of the events and remove the column of event numbers"));
        }
        raw.edge_features = Some(edge_rows(file, raw.src.len())?);
    }
    if let Some(file) = options.node_features.as_ref().or(nodes_beside.as_ref()) {
        raw.node_features = Some((Features::read(file)?, file.clone()));
    }
    Ok(())
}

/// Reads one row of edge features per event. If the file has `events + 1` rows, row 0 is dropped as padding:
/// some data sets number their events from 1.
pub(in crate::data) fn edge_rows(file: &Path, events: usize) -> Result<Features> {
    let features = Features::read(file)?;
    match features.rows() {
        n if n == events => Ok(features),
        n if n == events + 1 => Ok(features.skip_first()),
        n => Err(Error::data(file, format!("{n} rows of features for {events} events"))
            .remedy("there must be one row per event, and at most one padding row before them")),
    }
}
