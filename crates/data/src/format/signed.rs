//! SNAP signed networks: `source,target,rating,time`, with or without a header.
//!
//! The rating becomes an edge feature of width 1. Sources: Bitcoin OTC and Alpha (Kumar et al., ICDM 2016);
//! KONECT's `src dst weight time` has the same order.
use super::{header::HeaderColumns, sample::Sample};

/// Columns if no header says otherwise.
pub(super) const COLUMNS: HeaderColumns = HeaderColumns::fixed(1, 2, 4, None, Some((3, Some(3))));

/// Returns the note on a file without a header that is taken for this layout; `bipartite` is what the user
/// says about its nodes.
pub(super) fn guess(bipartite: Option<bool>) -> String {
    let kinds = match bipartite {
        None => "; if users and items are numbered separately, give --bipartite",
        Some(_) => "",
    };
    format!("without a header, read as source, destination, rating, time{kinds}")
}

/// Maximum absolute value of a rating; Unix times are larger.
const LARGEST_RATING: f64 = 1000.0;

/// Whether there are four columns, of which the header names one as a rating and none as a label. Without a
/// header: whether the third of four columns is always small and the fourth always large.
pub(super) fn recognises(sample: &Sample) -> bool {
    if sample.header.is_some() {
        return ["rating", "feature", "weight", "sign"].iter().any(|n| sample.names(n))
            && sample.width() == 4
            && !sample.names("label");
    }
    sample.width() == 4
        && sample.are_numbers(2)
        && sample.are_times(3)
        && sample.numbers(2).all(|x| x.abs() <= LARGEST_RATING)
        && sample.numbers(3).all(|t| t > LARGEST_RATING)
}
