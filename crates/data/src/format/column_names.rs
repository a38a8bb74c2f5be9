//! Names of columns, and the roles that they suggest.
use crate::{node_names::Side, text::similar};

/// Role of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Src,
    Dst,
    Time,
    /// Name that often means the time, which counts if no column has a surer one.
    LikelyTime,
    Label,
    /// Event number, which is also the event's row in a separate feature file.
    Index,
    Feature,
    /// First feature column; all columns after it are features, too.
    Features,
    Other,
}

/// Returns the role that a column's name suggests.
pub(super) fn role(name: &str) -> Role {
    let name = name.trim().to_ascii_lowercase().replace([' ', '-', '.'], "_");
    match name.as_str() {
        "u" | "src" | "source" | "user" | "user_id" | "userid" | "from" | "sender" | "source_id"
        | "src_id" | "from_id" | "fromnodeid" | "head" | "origin" | "author" | "customer" | "customer_id"
        | "payer" | "subject" | "source_node" => Role::Src,
        "i" | "dst" | "target" | "item" | "item_id" | "itemid" | "to" | "dest" | "destination"
        | "receiver" | "recipient" | "target_id" | "dst_id" | "to_id" | "tonodeid" | "tail" | "product"
        | "product_id" | "payee" | "merchant" | "object" | "target_node" => Role::Dst,
        "ts" | "t" | "time" | "timestamp" | "unixtime" | "unix_time" | "unixts" | "seconds" | "step"
        | "snapshot" => Role::Time,
        "date" | "datetime" | "day" | "created" | "when" | "epoch" => Role::LikelyTime,
        "label" | "state_label" | "labels" => Role::Label,
        "idx" | "edge_idx" | "edge_id" | "event_id" | "eid" => Role::Index,
        "rating" | "weight" | "feature" | "value" | "sign" => Role::Feature,
        "comma_separated_list_of_features" | "features" => Role::Features,
        _ if ["_time", "_at", "_date", "_ts", "_timestamp", "time_hour", "timestamp_ms"]
            .iter()
            .any(|end| name.ends_with(end)) =>
        {
            Role::LikelyTime
        }
        _ => {
            let digits = name.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_');
            let stem = &name[..name.len() - digits.len()];
            let numbered = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            match stem.trim_end_matches('_') {
                "" | "f" | "feat" | "feature" | "x" | "attr" if numbered => Role::Feature,
                _ => Role::Other,
            }
        }
    }
}

/// Returns the kind of node whose ids a column of this name has, if it tells.
pub(super) fn side(name: &str) -> Option<Side> {
    match role(name) {
        Role::Src => Some(Side::Source),
        Role::Dst => Some(Side::Destination),
        _ => None,
    }
}

/// Returns the index of the column called `wanted`, in any case of letters.
pub(super) fn position(names: &[String], wanted: &str) -> Option<usize> {
    names.iter().position(|n| n.trim().eq_ignore_ascii_case(wanted))
}

/// Returns the end of an error about a column that is not there: a similar name, or all names.
pub(super) fn suggestion(names: &[String], wanted: &str) -> String {
    match similar(names.iter().map(String::as_str), wanted) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("the columns are {}", listed(names)),
    }
}

/// Lists the names of columns, at most twelve of them.
pub(crate) fn listed(names: &[String]) -> String {
    let mut shown: Vec<&str> = names.iter().map(String::as_str).filter(|n| !n.is_empty()).take(12).collect();
    if names.len() > 12 {
        shown.push("…");
    }
    shown.join(", ")
}
