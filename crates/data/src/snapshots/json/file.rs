//! What a JSON file of snapshots holds. Errors of the parser know line and column.
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use std::{collections::BTreeMap, fmt, marker::PhantomData};

/// Maximum number of unknown keys that are kept.
const UNKNOWN: usize = 6;

/// Edges as pairs of vertices.
pub(super) type Pairs = Vec<(u32, u32)>;

/// An object whose keys are not all known beforehand. Written by hand because errors in fields under serde's
/// `flatten` lose their line and column.
trait Object<'de>: Default {
    /// What errors say if there is no object.
    const EXPECTED: &'static str;
    /// Takes the value of `key` from `map`.
    fn entry<A: MapAccess<'de>>(&mut self, key: String, map: &mut A) -> Result<(), A::Error>;
}

/// Parses an object.
fn object<'de, D: Deserializer<'de>, T: Object<'de>>(from: D) -> Result<T, D::Error> {
    struct Entries<T>(PhantomData<T>);
    impl<'de, T: Object<'de>> Visitor<'de> for Entries<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
            let mut object = T::default();
            while let Some(key) = map.next_key()? {
                object.entry(key, &mut map)?;
            }
            Ok(object)
        }
    }
    from.deserialize_map(Entries(PhantomData))
}

macro_rules! deserialize {
    ($([$($of:ident)?] $type:ty),*) => {$(
        impl<'de $(, $of: Deserialize<'de>)?> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                object(from)
            }
        }
    )*};
}
deserialize!([] File, [] Step, [T] BySteps<T>, [T] Frames<T>);

/// Contents of a file.
#[derive(Default)]
pub(super) struct File {
    /// Edges of a graph that does not change.
    pub edges: Option<Pairs>,
    pub weights: Option<Vec<f32>>,
    /// One row of values per step, and the key that has them.
    pub signal: Option<(String, Vec<Vec<f32>>)>,
    /// Objects under numbers: steps, or the joints of a hand.
    pub steps: BTreeMap<usize, Step>,
    /// Number of steps that the file declares.
    pub periods: Option<usize>,
    pub mapping: Option<Mapping>,
    /// Vertices by name.
    pub names: BTreeMap<String, u32>,
    pub nodes: Option<Vec<Node>>,
    pub links: Vec<Link>,
    /// Classes of frames.
    pub labels: Option<Vec<u32>>,
    /// The first unknown keys.
    pub unknown: Vec<String>,
}

impl<'de> Object<'de> for File {
    const EXPECTED: &'static str =
        "an object with the `edges` of a graph, or with one step under each of `0`, `1`, ..";

    fn entry<A: MapAccess<'de>>(&mut self, key: String, map: &mut A) -> Result<(), A::Error> {
        match key.as_str() {
            "edges" => self.edges = Some(map.next_value()?),
            "weights" => self.weights = Some(map.next_value()?),
            "FX" | "X" | "block" | "y" => {
                if let Some((other, _)) = self.signal.as_ref().filter(|(other, _)| *other != key) {
                    return Err(A::Error::custom(format!("there are two signals, {other} and {key}")));
                }
                self.signal = Some((key, map.next_value()?));
            }
            "time_periods" => self.periods = Some(map.next_value()?),
            "edge_mapping" => self.mapping = Some(map.next_value()?),
            "node_ids" => self.names = map.next_value()?,
            "nodes" => self.nodes = Some(map.next_value()?),
            "links" => self.links = map.next_value()?,
            "LABEL" => self.labels = Some(map.next_value::<Frames<u32>>()?.0),
            key => match key.parse() {
                Ok(step) => insert(&mut self.steps, step, map)?,
                Err(_) => {
                    map.next_value::<IgnoredAny>()?;
                    if self.unknown.len() < UNKNOWN {
                        self.unknown.push(key.to_owned());
                    }
                }
            },
        }
        Ok(())
    }
}

/// Inserts the next value of `map` as that of a step, which must be the only one.
fn insert<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    steps: &mut BTreeMap<usize, T>,
    step: usize,
    map: &mut A,
) -> Result<(), A::Error> {
    match steps.insert(step, map.next_value()?) {
        None => Ok(()),
        Some(_) => Err(A::Error::custom(format!("step {step} occurs twice"))),
    }
}

/// Object of a step, or of a joint, which has frames only.
#[derive(Default)]
pub(super) struct Step {
    pub edges: Option<Pairs>,
    pub weights: Option<Vec<f32>>,
    pub features: Option<Vec<Vec<f32>>>,
    pub y: Option<Vec<f32>>,
    /// Year, month and day.
    pub date: [Option<u32>; 3],
    pub frames: Vec<Point>,
}

impl<'de> Object<'de> for Step {
    const EXPECTED: &'static str = "an object of a step, or of a joint";

    fn entry<A: MapAccess<'de>>(&mut self, key: String, map: &mut A) -> Result<(), A::Error> {
        match key.as_str() {
            "edges" => self.edges = Some(map.next_value()?),
            "weights" => self.weights = Some(map.next_value()?),
            "X" => self.features = Some(map.next_value()?),
            "y" => self.y = Some(map.next_value()?),
            "year" => self.date[0] = Some(map.next_value()?),
            "month" => self.date[1] = Some(map.next_value()?),
            "day" => self.date[2] = Some(map.next_value()?),
            key if key.parse::<usize>().is_ok() => self.frames.push(map.next_value()?),
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// Edges and weights by step.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Mapping {
    pub edge_index: BySteps<Pairs>,
    pub edge_weight: Option<BySteps<Vec<f32>>>,
}

/// Values by step.
pub(super) struct BySteps<T>(pub BTreeMap<usize, T>);

impl<T> Default for BySteps<T> {
    fn default() -> Self {
        BySteps(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Object<'de> for BySteps<T> {
    const EXPECTED: &'static str = "an object with one list under each of `0`, `1`, ..";

    fn entry<A: MapAccess<'de>>(&mut self, key: String, map: &mut A) -> Result<(), A::Error> {
        let step =
            key.parse().map_err(|_| A::Error::custom(format!("`{key}` is not the number of a step")))?;
        insert(&mut self.0, step, map)
    }
}

/// Values of frames under any keys, in the order of the file.
pub(super) struct Frames<T>(pub Vec<T>);

impl<T> Default for Frames<T> {
    fn default() -> Self {
        Frames(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Object<'de> for Frames<T> {
    const EXPECTED: &'static str = "an object with one class for each frame";

    fn entry<A: MapAccess<'de>>(&mut self, _: String, map: &mut A) -> Result<(), A::Error> {
        self.0.push(map.next_value()?);
        Ok(())
    }
}

/// Node of a node-link graph, with the series of a vertex.
#[derive(Deserialize)]
pub(super) struct Node {
    bus_stop: Option<Id>,
    id: Option<Id>,
    pub y: Vec<f32>,
    /// Features by name; their values are not read.
    #[serde(default, rename = "X")]
    pub features: BTreeMap<String, IgnoredAny>,
}

impl Node {
    /// Returns the id by which links name the node.
    pub(super) fn id(&self) -> Option<&str> {
        self.bus_stop.as_ref().or(self.id.as_ref()).map(|id| id.0.as_str())
    }
}

/// Link of a node-link graph.
#[derive(Deserialize)]
pub(super) struct Link {
    pub source: Id,
    pub target: Id,
    pub weight: Option<f32>,
}

/// Id of a node, a number or text.
pub(super) struct Id(pub String);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id, which is a whole number or text")
            }
            fn visit_u64<E>(self, id: u64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }
            fn visit_str<E>(self, id: &str) -> Result<Id, E> {
                Ok(Id(id.to_owned()))
            }
        }
        from.deserialize_any(NumberOrText)
    }
}

/// Position of a joint in a frame, as text: `(0.1, 0.2, 0.3)`. Unknown positions are NaN.
#[derive(Clone, Copy)]
pub(super) struct Point(pub [f32; 3]);

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let numbers = text.trim_matches(['(', ')']).split(',').map(|x| x.trim().parse().ok());
        let numbers: Option<Vec<f32>> = numbers.collect();
        let point = numbers.and_then(|xyz| xyz.try_into().ok()).map(Point);
        point.ok_or_else(|| D::Error::custom(format!("`{text}` is not a position, such as (0.1, 0.2, 0.3)")))
    }
}
