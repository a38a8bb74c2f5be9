//! JODIE CSV: `user_id,item_id,timestamp,state_label,comma_separated_list_of_features`.
//!
//! The header has one name for all features; a row is `user,item,time,label,f1,f2,…`. Users and items are numbered
//! apart, both from 0. Source: Kumar et al., KDD 2019 (Wikipedia, Reddit, MOOC, LastFM).
use super::{
    columns::{Columns, columns},
    layout::Layout,
    sample::Sample,
};

/// Where the columns are if no header says otherwise.
pub(super) const COLUMNS: Columns = columns(1, 2, 3, Some(4), Some((5, None)));

/// Users and items by name, or the name that stands for all features.
pub(super) fn recognises(sample: &Sample) -> bool {
    let users = ["user_id", "user", "userid"].iter().any(|n| sample.names(n));
    let items = ["item_id", "item", "itemid"].iter().any(|n| sample.names(n));
    (users && items) || sample.names("comma_separated_list_of_features")
}

/// Adds what a JODIE header leaves unsaid.
pub(super) fn complete(layout: &mut Layout, sample: &Sample) {
    layout.separate = true;
    // Some copies drop the name of the features from the header but keep the features.
    let names = sample.header.as_ref().map_or(0, Vec::len);
    if layout.columns.features.is_none() && names > 0 && sample.width() > names {
        layout.columns.features = Some((names + 1, None));
    }
}
