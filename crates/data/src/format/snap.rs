//! SNAP temporal networks and SocioPatterns: `src dst time`, no header, separated by blanks or any other
//! delimiter.
use super::{header::HeaderColumns, sample::Sample};

/// Columns of the layout.
pub(super) const COLUMNS: HeaderColumns = HeaderColumns::fixed(1, 2, 3, None, None);

/// Returns the columns of a file without a header: if its third column holds no times and only one other
/// does, the time comes there.
pub(super) fn columns(sample: &Sample) -> HeaderColumns {
    match (sample.are_times(2), sample.are_times(0), sample.are_times(1)) {
        (false, true, false) => HeaderColumns::fixed(2, 3, 1, None, None),
        (false, false, true) => HeaderColumns::fixed(1, 3, 2, None, None),
        _ => COLUMNS,
    }
}

/// Whether there are three columns and no header.
pub(super) fn recognises(sample: &Sample) -> bool {
    sample.header.is_none() && sample.width() == 3
}

/// Returns a warning if the first column looks like the time, as it is in some copies.
pub(super) fn doubt(sample: &Sample) -> Option<String> {
    let sorted = |column| sample.numbers(column).zip(sample.numbers(column).skip(1)).all(|(a, b)| a <= b);
    let varies = sample.numbers(0).next() != sample.numbers(0).last();
    (sample.rows.len() > 10 && varies && sorted(0) && !sorted(2)).then(|| {
        "read as src dst time, but the first column never decreases and the third does; \
         if the time comes first, give --columns src=2,dst=3,time=1"
            .to_owned()
    })
}
