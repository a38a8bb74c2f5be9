//! Machines: the rates of their devices and of the links between ranks, for predictions.
//!
//! Ranks are on devices in their order: the first devices of the first node, then those of the next one. A
//! message takes the latency of its link, and its bytes at the rate of the slowest link that they share. A
//! device has one link to all other devices of its node; a node has one link to the network, which its
//! devices share. Both carry their rate in either direction at the same time.
use super::CostModel;
use crate::{
    data::text::toml_error,
    error::{Error, Result},
    runtime::comm::Sent,
};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A machine that may not exist here.
///
/// ```
/// use tgnn::plan::Machine;
/// let v100 = Machine::named("v100")?; // or a file: Machine::named("mine.toml")
/// assert_eq!(v100.devices(), 64);
/// assert!(v100.check_ranks(128).is_err());
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name, for results and messages.
    pub name: String,
    /// What the machine is, in one line.
    pub about: String,
    /// A device.
    pub device: DeviceRates,
    /// The devices of a node.
    pub node: NodeLinks,
    /// What joins the nodes; `None` if there is one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

/// The rates that ops reach on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceRates {
    /// The device's name.
    pub name: String,
    /// Memory, in bytes.
    pub memory_bytes: f64,
    /// Bytes per second that an op reads and writes.
    pub bytes_per_second: f64,
    /// Operations per second, in f32; a multiply-add counts as two.
    pub flops_per_second: f64,
    /// Seconds of every op in addition to those that follow from the rates.
    pub seconds_per_op: f64,
}

/// The devices of a node, and the links between them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeLinks {
    /// Number of devices.
    pub devices: usize,
    /// Bytes per second of a device's link, in either direction.
    pub bytes_per_second: f64,
    /// Seconds of a message without bytes.
    pub latency: f64,
}

/// The nodes, and the network between them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Number of nodes.
    pub nodes: usize,
    /// Bytes per second of a node's link, in either direction; all devices of the node share it.
    pub bytes_per_second: f64,
    /// Seconds of a message without bytes.
    pub latency: f64,
}

impl Machine {
    /// Names and files of the machines that come with the program.
    const PRESETS: [(&str, &str); 2] = [
        ("v100", include_str!("../../machines/v100.toml")),
        ("h100", include_str!("../../machines/h100.toml")),
    ];
    /// Returns the names of the machines that come with the program.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        Self::PRESETS.iter().map(|&(name, _)| name)
    }
    /// Returns the machine `name`, or, if `name` ends in `.toml`, the machine in that file.
    ///
    /// # Errors
    /// `Usage` if `name` is neither; `Io` if the file cannot be read; the errors of [`parse`](Self::parse),
    /// with the file's name.
    pub fn named(name: &str) -> Result<Self> {
        if let Some((_, text)) = Self::PRESETS.iter().find(|preset| preset.0 == name) {
            return Self::parse(text);
        }
        let path = Path::new(name);
        if path.extension().is_none_or(|e| e != "toml") {
            let names: Vec<&str> = Self::presets().collect();
            return Err(Error::usage(format!("there is no machine `{name}`"))
                .remedy(format!("give {}, or a file: MACHINE.toml", names.join(", "))));
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "cannot read", e))?;
        Self::parse(&text).map_err(|e| e.in_file(path))
    }
    /// Parses a machine from TOML.
    ///
    /// # Errors
    /// `Usage`, with line and column, for a key that is unknown or missing, or a value of the wrong type;
    /// `Usage` for a number that is not positive.
    pub fn parse(text: &str) -> Result<Self> {
        let machine: Machine = toml::from_str(text).map_err(|e| toml_error(&e, text))?;
        let Machine { device, node, network, .. } = &machine;
        let nodes = network.map_or(1, |network| network.nodes);
        let (network_rate, network_latency) = network.map_or((1.0, 0.0), |n| (n.bytes_per_second, n.latency));
        let positive = [
            ("device.memory_bytes", device.memory_bytes),
            ("device.bytes_per_second", device.bytes_per_second),
            ("device.flops_per_second", device.flops_per_second),
            ("node.devices", node.devices as f64),
            ("node.bytes_per_second", node.bytes_per_second),
            ("network.nodes", nodes as f64),
            ("network.bytes_per_second", network_rate),
        ];
        let seconds = [
            ("device.seconds_per_op", device.seconds_per_op),
            ("node.latency", node.latency),
            ("network.latency", network_latency),
        ];
        let wrong = |&&(_, value): &&(&str, f64)| !(value > 0.0 && value.is_finite());
        let wrong_seconds = |&&(_, value): &&(&str, f64)| !(0.0..1.0).contains(&value);
        if let Some((key, value)) = positive.iter().find(wrong) {
            return Err(Error::usage(format!("{key} is {value}")).remedy("give a positive number"));
        }
        if let Some((key, value)) = seconds.iter().find(wrong_seconds) {
            return Err(Error::usage(format!("{key} is {value}")).remedy("give seconds from 0 to less than 1"));
        }
        Ok(machine)
    }
    /// Returns this computer, as it was measured: the rates of its fastest ops, and the links between its
    /// ranks. It has a device for each of `ranks` ranks.
    pub fn here(costs: &CostModel, links: NodeLinks, ranks: usize) -> Self {
        let &CostModel { bytes_per_second, flops_per_second, seconds_per_op, .. } = costs;
        let (name, memory_bytes) = ("CPU".to_owned(), f64::INFINITY);
        Machine {
            name: "here".into(),
            about: "this computer, as if it had cores for every rank".into(),
            device: DeviceRates { name, memory_bytes, bytes_per_second, flops_per_second, seconds_per_op },
            node: NodeLinks { devices: ranks, ..links },
            network: None,
        }
    }
    /// Returns the number of devices.
    pub fn devices(&self) -> usize {
        self.network.map_or(1, |network| network.nodes).saturating_mul(self.node.devices)
    }
    /// Checks that each of `ranks` ranks has a device.
    ///
    /// # Errors
    /// `Usage` otherwise.
    pub fn check_ranks(&self, ranks: usize) -> Result<()> {
        if ranks > self.devices() {
            let what = format!("machine {} has {} devices for {ranks} ranks", self.name, self.devices());
            return Err(Error::usage(what).remedy("take fewer ranks, or a larger machine"));
        }
        Ok(())
    }
    /// Returns the costs of ops on a device, by its rates.
    pub fn cost_model(&self) -> CostModel {
        let DeviceRates { bytes_per_second, flops_per_second, seconds_per_op, .. } = self.device;
        CostModel::of_rates(bytes_per_second, flops_per_second, seconds_per_op)
    }
    /// Returns the seconds that a collective takes on each rank, given what each rank sends.
    pub fn seconds_of(&self, sent: &[&Sent]) -> Vec<f64> {
        let ranks = sent.len();
        let node_of = |rank: usize| rank / self.node.devices;
        let mut within = vec![[0u64; 2]; ranks]; // bytes out of and into each device, within its node
        let mut between = vec![[0u64; 2]; ranks.div_ceil(self.node.devices)]; // and of each node
        for (from, sent) in sent.iter().enumerate() {
            for (to, &bytes) in sent.bytes.iter().enumerate().take(ranks).filter(|&(to, _)| to != from) {
                if node_of(from) == node_of(to) {
                    within[from][0] += bytes;
                    within[to][1] += bytes;
                } else {
                    between[node_of(from)][0] += bytes;
                    between[node_of(to)][1] += bytes;
                }
            }
        }
        let (rate, latency) = self.network.map_or((1.0, 0.0), |n| (n.bytes_per_second, n.latency));
        let most = |[out, into]: [u64; 2], rate: f64| out.max(into) as f64 / rate;
        let seconds = |rank: usize| {
            let first = node_of(rank) * self.node.devices;
            let neighbors = (first + self.node.devices).min(ranks) - first - 1;
            let others = ranks - 1 - neighbors;
            let rounds = sent[rank].rounds as f64;
            let messages = neighbors as f64 * self.node.latency + others as f64 * latency;
            let bytes = most(within[rank], self.node.bytes_per_second).max(most(between[node_of(rank)], rate));
            rounds * messages + bytes
        };
        (0..ranks).map(seconds).collect()
    }
}

