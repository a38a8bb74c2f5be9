//! Names of columns, and the roles that they suggest.
use super::columns::ColumnName;
use crate::{
    node_names::Side,
    text::{shown, similar, some_of},
};

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
    /// Features; columns after it that have no name are features, too.
    Features,
    Other,
}

/// Returns the role that a column's name suggests.
pub(super) fn role(name: &str) -> Role {
    let name = name.trim().to_ascii_lowercase().replace([' ', '-', '.'], "_");
    // Neo4j may name a group of ids: `:START_ID(Person)`.
    let name = if name.starts_with(':') { name.split('(').next().unwrap_or(&name) } else { &name };
    match name {
        "u" | "src" | "source" | "user" | "user_id" | "userid" | "from" | "sender" | "source_id"
        | "src_id" | "from_id" | "fromnodeid" | "head" | "origin" | "author" | "customer" | "customer_id"
        | "payer" | "subject" | "source_node" | "from_address" | "start_station_id" | "nameorig"
        | ":start_id" => Role::Src,
        "i" | "dst" | "target" | "item" | "item_id" | "itemid" | "to" | "dest" | "destination"
        | "receiver" | "recipient" | "target_id" | "dst_id" | "to_id" | "tonodeid" | "tail" | "product"
        | "product_id" | "payee" | "merchant" | "object" | "target_node" | "to_address"
        | "end_station_id" | "namedest" | ":end_id" => Role::Dst,
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

/// Returns the index of the first column called `wanted`, a known name, in any case of letters.
pub(super) fn position(names: &[String], wanted: &str) -> Option<usize> {
    names.iter().position(|n| n.trim().eq_ignore_ascii_case(wanted))
}

/// Why a column that the user names may be one of two, and what to do.
pub(super) struct Ambiguity {
    pub what: String,
    pub remedy: String,
}

/// Returns the index of the column that the user names; `None` if there is none.
pub(super) fn given(names: &[String], column: &ColumnName) -> Result<Option<usize>, Ambiguity> {
    match column {
        ColumnName::Number(n) => {
            let called = named(names, &n.to_string())?;
            match (called, names.get(n - 1)) {
                (Some(at), Some(other)) if at + 1 != *n => Err(Ambiguity {
                    what: format!("`{n}` is the name of column {}, and the number of `{other}`", at + 1),
                    remedy: format!("write the name in quotes, \"{n}\", or name the other column"),
                }),
                (Some(at), None) => Ok(Some(at)),
                _ => Ok(Some(n - 1)),
            }
        }
        ColumnName::Name(name) => named(names, name),
    }
}

/// Returns the index of the column called `wanted`, else in any case of letters.
fn named(names: &[String], wanted: &str) -> Result<Option<usize>, Ambiguity> {
    let is_exact = |name: &&String| name.trim() == wanted;
    let any_case = !names.iter().any(|name| is_exact(&name));
    let is_called = |name: &&String| is_exact(name) || any_case && name.trim().eq_ignore_ascii_case(wanted);
    let mut found = (0..names.len()).filter(|&i| is_called(&&names[i]));
    match (found.next(), found.next()) {
        (Some(a), Some(b)) => Err(Ambiguity {
            what: format!("two columns are called `{wanted}`: {} and {}", a + 1, b + 1),
            remedy: "give the number of the one that is meant".into(),
        }),
        (found, _) => Ok(found),
    }
}

/// Returns the end of an error about a column that is not there: a similar name, or all names.
pub(super) fn suggestion(names: &[String], wanted: &str) -> String {
    // pandas numbers columns of one name: `Account`, `Account.1`.
    let numbered = wanted.rsplit_once('.').filter(|(_, n)| n.parse::<usize>().is_ok());
    if let Some(Err(ambiguity)) = numbered.map(|(name, _)| named(names, name)) {
        return format!("{}; {}", ambiguity.what, ambiguity.remedy);
    }
    match similar(names.iter().map(String::as_str), wanted) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("the columns are {}", listed(names)),
    }
}

/// Lists the names of columns, at most twelve of them.
pub(crate) fn listed(names: &[String]) -> String {
    let named = names.iter().filter(|name| !name.is_empty());
    let named: Vec<String> = named.map(|name| shown(name.as_bytes()).trim_matches('`').to_owned()).collect();
    some_of(&named, 12)
}
