//! Reads the negatives that come with a data set.
//!
//! TGB has negatives for every event of its validation and test parts. A folder of `.npy` files may have
//! `val_negatives.npy` and `test_negatives.npy`: `[events of the part, m]` integers, one row per event in
//! time order, padded with -1 if an event has fewer than `m`. The nodes have the same ids as in `src.npy` and
//! `dst.npy`.
use super::{
    Events, GivenNegatives, Part, Split,
    format::tgb,
    native,
    negative_names::{Names, REMEDY},
    npy::Array,
    scalar::Scalar,
    text::grouped,
    tgb_negatives,
};
use std::{
    ops::Range,
    path::{Path, PathBuf},
};
use tgnn::error::{Error, Result};

impl GivenNegatives {
    /// Reads the negatives of `part`, the events `range` of the `events` that [`load`](super::load) read from
    /// `data`. Returns `None` if `data` has no negatives for this part.
    ///
    /// # Errors
    /// Io if a file cannot be read; data, naming the file and event, if a file is damaged, lacks the
    /// negatives of an event, or has a node that the events do not have.
    pub fn beside(data: &str, part: Part, events: &Events, range: Range<usize>) -> Result<Option<Self>> {
        let data = Path::new(data);
        if let Some(file) = tgb::negatives(data, part) {
            return tgb_negatives::read(&file, events, range).map(Some);
        }
        match array_file(data, part) {
            Some(file) => from_array(&file, &names(data, events), range).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the negatives of both parts, split as `data` defines the parts: by time for TGB, by the number
    /// of rows of the files for a folder of `.npy` files.
    ///
    /// # Errors
    /// Those of [`beside`](Self::beside); data if a folder has negatives for more events than the stream has.
    pub fn all_beside(data: &str, events: &Events) -> Result<[Option<Self>; 2]> {
        let (val, test) = match [Part::Val, Part::Test].map(|part| array_file(Path::new(data), part)) {
            [None, None] if tgb::edge_list(Path::new(data)).is_none() => return Ok([None, None]),
            [None, None] => {
                let [train, val] = Split::fractions(&events.name);
                let split = Split::by_time(events, train, val)?;
                (split.val, split.test)
            }
            files => {
                let mut end = events.len();
                // The parts end the stream, so the ranges are cut from the end.
                let mut cut_range = |file: &Option<PathBuf>| -> Result<Range<usize>> {
                    let Some(file) = file else { return Ok(end..end) };
                    let rows = Array::open(file)?.shape().first().copied().unwrap_or(0);
                    let start = end.checked_sub(rows).ok_or_else(|| {
                        let what = format!("{} rows, more than the stream has events", grouped(rows as u64));
                        Error::data(file, what).remedy(REMEDY)
                    })?;
                    Ok(start..std::mem::replace(&mut end, start))
                };
                let test = cut_range(&files[1])?;
                (cut_range(&files[0])?, test)
            }
        };
        Ok([Self::beside(data, Part::Val, events, val)?, Self::beside(data, Part::Test, events, test)?])
    }
}

/// Returns the file of a part's negatives in a folder of `.npy` files, if it exists.
fn array_file(data: &Path, part: Part) -> Option<PathBuf> {
    let file = data.join(part.file());
    (native::is_native(data) && file.is_file()).then_some(file)
}

/// Returns the map for the arrays of a folder. Arrays that `data import` wrote hold node numbers already.
fn names(data: &Path, events: &Events) -> Names {
    if native::is_imported(data) { Names::Same(events.nodes) } else { Names::new(events) }
}

/// Reads the negatives of the events `range` from an array with one row per event.
fn from_array(file: &Path, names: &Names, range: Range<usize>) -> Result<GivenNegatives> {
    let array = Array::open(file)?;
    let bad = |what: String| Error::data(file, what).remedy(REMEDY);
    let &[rows, cols] = array.shape() else {
        return Err(bad(format!("an array of shape {:?} instead of [events, negatives]", array.shape())));
    };
    if rows != range.len() {
        let (rows, events) = (grouped(rows as u64), grouped(range.len() as u64));
        return Err(bad(format!("{rows} rows of negatives for the {events} events of the part")));
    }
    let mut given = GivenNegatives::new(&range);
    for (i, node) in array.scalars().enumerate() {
        if node != Scalar::Int(-1) {
            let node = given.node(file, names, node)?;
            given.nodes.push(node);
        }
        if (i + 1) % cols == 0 {
            given.offsets.push(given.nodes.len());
        }
    }
    given.offsets.resize(rows + 1, given.nodes.len());
    Ok(given)
}
