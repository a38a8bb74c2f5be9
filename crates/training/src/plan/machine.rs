//! Machines: the rates of their devices and of the links between ranks, for predictions.
//!
//! Ranks are on devices in order: the first devices of the first node, then those of the next. A device has
//! one link to the other devices of its node; a node has one link to the network, which its devices share. A
//! link carries its rate in both directions at the same time. In a collective, each rank sends its messages
//! one after the other, for each of which the link takes some seconds in addition to its bytes.
use super::CostModel;
use serde::{Deserialize, Serialize};
use std::path::Path;
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::comm::Sent,
};
use tgnn_data::text::toml_error;

/// A machine that may not exist here.
///
/// ```
/// use tgnn_training::plan::Machine;
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
    /// Seconds of a message in addition to its bytes.
    pub seconds_per_message: f64,
}

/// The nodes, and the network between them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Number of nodes.
    pub nodes: usize,
    /// Bytes per second of a node's link, in either direction; all devices of the node share it.
    pub bytes_per_second: f64,
    /// Seconds of a message in addition to its bytes.
    pub seconds_per_message: f64,
}

impl Machine {
    /// Names and files of the machines that come with the program.
    const PRESETS: [(&str, &str); 9] = [
        ("v100", include_str!("../../machines/v100.toml")),
        ("v100-pytorch", include_str!("../../machines/v100-pytorch.toml")),
        ("t4", include_str!("../../machines/t4.toml")),
        ("t4-pytorch", include_str!("../../machines/t4-pytorch.toml")),
        ("a100", include_str!("../../machines/a100.toml")),
        ("a100-pytorch", include_str!("../../machines/a100-pytorch.toml")),
        ("rtx4090", include_str!("../../machines/rtx4090.toml")),
        ("rtx4090-pytorch", include_str!("../../machines/rtx4090-pytorch.toml")),
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
            let names: Vec<&str> = Self::presets().chain(["a file: MACHINE.toml"]).collect();
            return Err(Error::unknown(ErrorKind::Usage, "machine", name, &names));
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
        let (network_rate, network_seconds) =
            network.map_or((1.0, 0.0), |n| (n.bytes_per_second, n.seconds_per_message));
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
            ("node.seconds_per_message", node.seconds_per_message),
            ("network.seconds_per_message", network_seconds),
        ];
        let wrong = |&&(_, value): &&(&str, f64)| !(value > 0.0 && value.is_finite());
        let wrong_seconds = |&&(_, value): &&(&str, f64)| !(0.0..1.0).contains(&value);
        if let Some((key, value)) = positive.iter().find(wrong) {
            return Err(Error::usage(format!("{key} is {value}")).remedy("give a positive number"));
        }
        if let Some((key, value)) = seconds.iter().find(wrong_seconds) {
            return Err(
                Error::usage(format!("{key} is {value}")).remedy("give seconds from 0 to less than 1")
            );
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
    /// Returns the seconds that a collective takes on each rank, given what each rank sends. Every rank must
    /// have a device ([`check_ranks`](Self::check_ranks)).
    pub fn seconds_of(&self, sent: &[&Sent]) -> Vec<f64> {
        let ranks = sent.len();
        let node_of = |rank: usize| rank / self.node.devices;
        let group_of = |rank: usize| sent[rank].group(rank, ranks);
        let mut within = vec![[0u64; 2]; ranks]; // bytes out of and into each device, within its node
        let mut between = vec![[0u64; 2]; ranks.div_ceil(self.node.devices)]; // and of each node
        for (from, sent) in sent.iter().enumerate() {
            for (to, &bytes) in group_of(from).zip(&sent.bytes).filter(|&(to, _)| to != from) {
                if node_of(from) == node_of(to) {
                    within[from][0] += bytes;
                    within[to][1] += bytes;
                } else {
                    between[node_of(from)][0] += bytes;
                    between[node_of(to)][1] += bytes;
                }
            }
        }
        let (rate, per_message) =
            self.network.map_or((1.0, 0.0), |n| (n.bytes_per_second, n.seconds_per_message));
        let most = |[out, into]: [u64; 2], rate: f64| out.max(into) as f64 / rate;
        let seconds = |rank: usize| {
            let group = group_of(rank);
            let neighbors = group.clone().filter(|&other| node_of(other) == node_of(rank)).count() - 1;
            let others = group.len() - 1 - neighbors;
            let rounds = sent[rank].rounds as f64;
            let messages = neighbors as f64 * self.node.seconds_per_message + others as f64 * per_message;
            let bytes =
                most(within[rank], self.node.bytes_per_second).max(most(between[node_of(rank)], rate));
            rounds * messages + bytes
        };
        (0..ranks).map(seconds).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two nodes of two devices: 10 bytes a second within a node, 5 between nodes.
    fn two_nodes() -> Machine {
        let node = NodeLinks { devices: 2, bytes_per_second: 10.0, seconds_per_message: 0.25 };
        let network = Some(Network { nodes: 2, bytes_per_second: 5.0, seconds_per_message: 0.5 });
        Machine { node, network, ..Machine::named("h100").unwrap() }
    }

    #[test]
    fn a_collective_takes_its_messages_and_the_bytes_of_its_busiest_link() {
        let sent = |bytes: [u64; 4]| Sent { bytes: bytes.into(), rounds: 1 };
        // One message within the node, two to the other node.
        let messages = 0.25 + 2.0 * 0.5;
        let nothing = sent([0; 4]);
        let seconds = |of: [&Sent; 4]| two_nodes().seconds_of(&of);
        assert_eq!(seconds([&nothing; 4]), [messages; 4]);
        // Within the first node: only its two devices are busy.
        let within = sent([0, 20, 0, 0]);
        let want = [messages + 2.0, messages + 2.0, messages, messages];
        assert_eq!(seconds([&within, &nothing, &nothing, &nothing]), want);
        // Both devices of the first node send to the other node by one link, and receive nothing. The other
        // direction adds nothing, because it carries less.
        let between = sent([0, 0, 10, 0]);
        let back = sent([15, 0, 0, 0]);
        assert_eq!(seconds([&between, &between, &back, &nothing]), [messages + 4.0; 4]);
        // Every round has its messages; the bytes are those of all rounds.
        let rounds = Sent { rounds: 3, ..between };
        assert_eq!(seconds([&rounds, &rounds, &nothing, &nothing])[0], 3.0 * messages + 4.0);
        // Groups of two ranks, each within a node, or of one.
        let pair = Sent { bytes: vec![0, 20], rounds: 1 };
        let none = Sent { bytes: vec![0, 0], rounds: 1 };
        assert_eq!(seconds([&none, &none, &pair, &none]), [0.25, 0.25, 0.25 + 2.0, 0.25 + 2.0]);
        let alone = Sent { bytes: vec![0], rounds: 1 };
        assert_eq!(seconds([&alone; 4]), [0.0; 4]);
        // Two ranks are on one node.
        assert_eq!(two_nodes().seconds_of(&[&sent([0, 5, 0, 0]), &nothing]), [0.25 + 0.5; 2]);
        assert_eq!(two_nodes().devices(), 4);
    }

    #[test]
    fn every_machine_of_the_program_is_legal_and_mistakes_are_told_with_their_place() {
        for name in Machine::presets() {
            let machine = Machine::named(name).unwrap();
            assert_eq!(machine.name, name);
            let text = toml::to_string(&machine).unwrap();
            assert_eq!(Machine::parse(&text).unwrap(), machine, "{name}");
        }
        let text = toml::to_string(&two_nodes()).unwrap();
        let refused = |from: &str, to: &str, want: &str| {
            assert!(text.contains(from), "{text}");
            let said = Machine::parse(&text.replace(from, to)).unwrap_err().to_string();
            assert!(said.contains(want), "{said}");
        };
        refused("devices = 2", "devices = 0", "node.devices is 0");
        refused("bytes_per_second = 5.0", "bytes_per_second = -1", "network.bytes_per_second is -1");
        refused("bytes_per_second = 5.0", "bytes_per_second = inf", "network.bytes_per_second is inf");
        refused("seconds_per_message = 0.5", "seconds_per_message = 2", "network.seconds_per_message is 2");
        refused("nodes = 2", "nods = 2", "unknown field `nods`");
        refused("nodes = 2", "nodes = \"two\"", "expected usize");
        let e = Machine::parse("name = \"x\"\nabout = 3\n").unwrap_err().to_string();
        assert!(e.contains("2:9"), "{e}");
    }
}
