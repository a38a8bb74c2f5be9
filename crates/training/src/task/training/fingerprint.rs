//! Checksums by which a checkpoint recognises the data that it was trained on.
use bytemuck::{bytes_of, cast_slice};
use crc32fast::Hasher;
use serde::{Deserialize, Serialize};
use tgnn::runtime::NONE;
use tgnn_data::{Classes, Events, NodeLabels, Snapshots};

/// CRC-32 checksums of a data set as a model reads it: of node numbers and of times since the first event,
/// not of the ids and dates that the file has for them. Data without a part have 0 for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Who had events with whom, and when; the edges of all snapshots.
    pub events: u32,
    /// Edge features; vertex features, if the data are snapshots.
    pub edge_features: u32,
    /// Node features.
    pub node_features: u32,
    /// Labels of events and nodes; classes and targets of vertices.
    pub labels: u32,
}

/// Returns the checksum of columns, one after another.
fn sum(columns: &[&[u8]]) -> u32 {
    let mut hasher = Hasher::new();
    columns.iter().for_each(|column| hasher.update(column));
    hasher.finalize()
}

impl Fingerprint {
    /// Says in what the data `other` differ, if they do. Labels count if `labels` is set.
    pub(in crate::task) fn difference(
        &self,
        other: &Self,
        snapshots: bool,
        labels: bool,
    ) -> Option<&'static str> {
        let (events, features) = match snapshots {
            false => ("nodes or times of events differ", "edge features differ"),
            true => ("edges of snapshots differ", "vertex features differ"),
        };
        let same = [
            (self.events == other.events, events),
            (self.edge_features == other.edge_features, features),
            (self.node_features == other.node_features, "node features differ"),
            (!labels || self.labels == other.labels, "labels differ"),
        ];
        same.into_iter().find(|(same, _)| !same).map(|(_, what)| what)
    }
    pub(super) fn of_events(e: &Events) -> Self {
        let features = [&e.edge_features, &e.node_features];
        let [edge_features, node_features] = features.map(|f| f.as_ref().map_or(0, |f| sum(&[f.bytes()])));
        Fingerprint { events: stream(e), edge_features, node_features, labels: labels(e) }
    }
    pub(super) fn of_snapshots(s: &Snapshots) -> Self {
        let [features, targets] =
            [&s.features, &s.targets].map(|f| f.as_ref().map_or(&[][..], |f| f.bytes()));
        let steps: Vec<u64> = s.offsets.iter().map(|&at| at as u64).collect();
        let weight: &[f32] = s.weight.as_deref().unwrap_or(&[]);
        let present: &[bool] = s.present.as_deref().unwrap_or(&[]);
        let classes: &[u32] = s.classes.as_deref().unwrap_or(&[]);
        Fingerprint {
            events: sum(&[
                cast_slice(&steps),
                cast_slice(&s.src),
                cast_slice(&s.dst),
                cast_slice(weight),
                cast_slice(present),
            ]),
            edge_features: sum(&[features]),
            node_features: 0,
            labels: sum(&[targets, cast_slice(classes)]),
        }
    }
}

/// Returns the checksum of the events themselves.
pub(in crate::task) fn stream(e: &Events) -> u32 {
    let kinds = e.first_destination.unwrap_or(NONE);
    let columns = [cast_slice(&e.src), cast_slice(&e.dst), cast_slice(&e.time)];
    sum(&[columns[0], columns[1], columns[2], bytes_of(&e.ticks_per_second), bytes_of(&kinds)])
}

/// Returns the checksum of all labels.
fn labels(e: &Events) -> u32 {
    let of_events: &[f32] = e.label.as_deref().unwrap_or(&[]);
    let sets = e.classes.as_ref().map(Classes::table);
    let sets = sets.as_ref().map_or(&[][..], |table| cast_slice(table));
    let mut hasher = Hasher::new();
    [cast_slice(of_events), sets].into_iter().for_each(|column| hasher.update(column));
    e.label_names.iter().flat_map(|names| names.iter()).for_each(|name| {
        hasher.update(name.as_bytes());
        hasher.update(&[0]);
    });
    e.node_labels.iter().for_each(|labels| add_rows(labels, &mut hasher));
    hasher.finalize()
}

/// Adds labels of nodes.
fn add_rows(labels: &NodeLabels, hasher: &mut Hasher) {
    hasher.update(cast_slice(labels.times()));
    hasher.update(cast_slice(labels.nodes()));
    for (class, weight) in (0..labels.len()).flat_map(|row| labels.row(row)) {
        hasher.update(bytes_of(&class));
        hasher.update(bytes_of(&weight));
    }
}
