//! Reads the negatives that come with TGB's data sets: pickles of a dictionary per part.
//!
//! | sets | key | value |
//! | --- | --- | --- |
//! | `tgbl-*` | `(source, destination, time)` | the negatives of the event |
//! | `thgl-*`, tkgl-wikidata | `(time, source, type)` | the negatives of all such events |
//! | other `tkgl-*` | `(time, source, type)` | the destinations that are no negatives: all others are |
//!
//! The rules are those of `query_batch` in `py-tgb` 2.3 (`tgb/linkproppred/*_negative_sampler.py`).
use super::{
    Events, GivenNegatives,
    negative_names::{Names, REMEDY},
    pickle::{Pickle, Value},
    text::grouped,
};
use memmap2::Mmap;
use std::{collections::HashMap, fs::File, ops::Range, path::Path};
use tgnn::{
    error::{Error, Result},
    runtime::check_room,
};

/// What the dictionaries of a set hold.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// The negatives of an event.
    OfEvent,
    /// The negatives of all events with one time, source and type.
    OfSource,
    /// The destinations of such events; every other destination is a negative.
    AllBut,
}

impl Rule {
    fn for_set(set: &str) -> Self {
        match set {
            "tkgl-wikidata" => Rule::OfSource,
            _ if set.starts_with("thgl-") => Rule::OfSource,
            _ if set.starts_with("tkgl-") => Rule::AllBut,
            _ => Rule::OfEvent,
        }
    }

    /// Describes a key.
    fn key(self) -> &'static str {
        if self == Rule::OfEvent { "(source, destination, time)" } else { "(time, source, type)" }
    }
}

/// The key of a list.
type Key = [i64; 3];

/// Reads the negatives of the events `range` from a pickle, whose name begins with that of the set.
pub(super) fn read(file: &Path, events: &Events, range: Range<usize>) -> Result<GivenNegatives> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let set = name.split('_').next().unwrap_or_default();
    let rule = Rule::for_set(set);
    // Every node is a destination, because every edge has its inverse.
    let destinations = match rule {
        Rule::AllBut => events.first_destination.unwrap_or(0)..events.nodes as u32,
        _ => 0..0,
    };
    let candidates = range.len() * destinations.len();
    check_room(
        &format!(
            "{set} ranks each event against all {} nodes: its negatives",
            grouped(destinations.len() as u64)
        ),
        4 * candidates,
        "take another protocol, such as --protocol disttgl",
    )?;
    let handle = File::open(file).map_err(|e| Error::io(file, "cannot open", e))?;
    // SAFETY: the map is read-only and is dropped before this function returns. The contract of reading a
    // file forbids that any process shortens or rewrites it meanwhile.
    let map = unsafe { Mmap::map(&handle) }.map_err(|e| Error::io(file, "cannot map", e))?;
    let pickle = Pickle::read(file, &map, 0)?;
    let lists = lists(file, &pickle, rule)?;
    let names = Names::new(events);
    let mut given = GivenNegatives::new(&range);
    given.nodes.reserve(candidates);
    let mut is_taken = vec![false; if rule == Rule::AllBut { events.nodes } else { 0 }];
    for i in range {
        let key = key_of(file, events, rule, i)?;
        let list = *lists.get(&key).ok_or_else(|| missing(file, rule, i, key))?;
        if rule == Rule::AllBut {
            let met: Vec<u32> =
                pickle.numbers(list)?.iter().map(|n| given.node(file, &names, n)).collect::<Result<_>>()?;
            met.iter().for_each(|&v| is_taken[v as usize] = true);
            given.nodes.extend(destinations.clone().filter(|&v| !is_taken[v as usize]));
            met.iter().for_each(|&v| is_taken[v as usize] = false);
        } else {
            for node in pickle.numbers(list)?.iter() {
                let node = given.node(file, &names, node)?;
                given.nodes.push(node);
            }
        }
        given.offsets.push(given.nodes.len());
    }
    Ok(given)
}

/// Returns the lists of a pickle by key.
fn lists<'a>(file: &Path, pickle: &Pickle<'a>, rule: Rule) -> Result<HashMap<Key, Value<'a>>> {
    let bad = |what: String| Error::data(file, what).remedy(REMEDY);
    let entries = pickle
        .entries(pickle.root)
        .ok_or_else(|| bad("the pickle is not a dictionary of negatives".into()))?;
    let mut lists = HashMap::with_capacity(entries.len());
    for &(key, list) in entries {
        let numbers = match pickle.members(key) {
            Some(&[a, b, c]) => pickle.whole(a).zip(pickle.whole(b)).zip(pickle.whole(c)),
            _ => None,
        };
        let ((a, b), c) = numbers.ok_or_else(|| bad(format!("a key is not {}", rule.key())))?;
        lists.insert([a, b, c], list);
    }
    Ok(lists)
}

/// Returns the key of event `i`.
fn key_of(file: &Path, events: &Events, rule: Rule, i: usize) -> Result<Key> {
    let id = |node: u32| {
        events.ids.as_ref().map_or(node.into(), |ids| ids.numbers().map_or(0, |ids| ids[node as usize]))
            as i64
    };
    let (source, time) = (id(events.src[i]), events.origin.wrapping_add(events.time[i]));
    if rule == Rule::OfEvent {
        return Ok([source, id(events.dst[i]), time]);
    }
    match events.classes.as_ref().map(|types| types.get(i)) {
        Some(&[class]) => Ok([time, source, class.into()]),
        _ => Err(Error::data(file, format!("event {} has no type", grouped(i as u64))).remedy(REMEDY)),
    }
}

/// Returns the error for event `i`, which has no list.
fn missing(file: &Path, rule: Rule, i: usize, key: Key) -> Error {
    let event = grouped(i as u64);
    let which = match (rule, key) {
        (Rule::OfEvent, [source, destination, time]) => {
            format!("from {source} to {destination} at time {time}")
        }
        (_, [time, source, kind]) => format!("from {source} with type {kind} at time {time}"),
    };
    Error::data(file, format!("no negatives for event {event}, {which}")).remedy(REMEDY)
}
