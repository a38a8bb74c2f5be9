//! JODIE CSV: `user_id,item_id,timestamp,state_label,comma_separated_list_of_features`.
//!
//! The header has one name for all features; a row is `user,item,time,label,f1,f2,…`. Users and items are
//! numbered separately, both from 0. Source: Kumar et al., KDD 2019 (Wikipedia, Reddit, MOOC, LastFM).
use super::{column_names::position, header::HeaderColumns, sample::Sample};

/// Columns if no header says otherwise.
pub(super) const COLUMNS: HeaderColumns = HeaderColumns::fixed(1, 2, 3, Some(4), Some((5, None)));

/// JODIE's name for all features.
pub(super) const FEATURES: &str = "comma_separated_list_of_features";

/// Whether there is a header of this layout.
pub(super) fn recognises(sample: &Sample) -> bool {
    sample.header.as_deref().is_some_and(is_header)
}

/// Whether a header names users and items, or has JODIE's name for all features.
pub(super) fn is_header(names: &[String]) -> bool {
    let has_one = |wanted: &[&str]| wanted.iter().any(|name| position(names, name).is_some());
    let (users, items) = (["user_id", "user", "userid"], ["item_id", "item", "itemid"]);
    has_one(&users) && has_one(&items) || has_one(&[FEATURES])
}

/// Returns the range of feature columns, from 0, given the range that the header names.
///
/// Some copies drop the name of the features from the header but keep the features: if the header names no
/// features and rows are longer than the header, all columns beyond the header are features.
pub(super) fn features(
    named: Option<(usize, Option<usize>)>,
    sample: &Sample,
) -> Option<(usize, Option<usize>)> {
    let names = sample.header.as_ref().map_or(0, Vec::len);
    let unnamed = || (names > 0 && sample.width() > names).then_some((names, None));
    named.or_else(unnamed)
}
