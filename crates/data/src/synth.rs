//! Synthetic streams of any size with a planted signal, which [`synth`](fn@synth) describes.
use super::{
    Classes, Events, Features, TimeFormat,
    draw::{Draws, PowerLaw, Scatter},
    features::{hash, noise},
    native::{FolderWriter, Info, Shape},
    planted::{self, Planted, TYPES},
    synth_options::SynthOptions,
};
use rayon::prelude::*;
use std::path::Path;
use tgnn::error::{Error, Result};
use tgnn::runtime::check_room;

/// Number of new partners that a source remembers.
const PARTNERS: usize = 4;
/// Standard deviation of the noise on a feature, whose code is ±1.
const NOISE: f32 = 0.5;
/// Probability of drawing the group to head for anew after a new partner.
const MOVE: f64 = 0.5;
/// Seeds of random sequences that are independent of the sequence that makes the choices.
const CODE_STREAM: u64 = 0xc0de;
const NOISE_STREAM: u64 = 0x0f1e;
/// Events generated between two writes of [`synth_to`].
const CHUNK: usize = 1 << 14;

impl SynthOptions {
    /// Returns the maximum number of classes of an event.
    fn labels_per_event(&self) -> usize {
        if self.classes == 0 { 0 } else { self.labels }
    }
    /// Generates the node features, unless their width is 0.
    fn node_features(&self, nodes: usize) -> Result<Option<Features>> {
        let width = self.node_features;
        (width > 0).then(|| planted::node_features(self.seed, nodes, width)).transpose()
    }
}

/// Generates a stream in memory, with a signal that a temporal model can learn and a static one cannot.
///
/// **Sources.** The source of every event is drawn from a power law over the sources: rank `r` has weight
/// `r^-exponent`. Ranks are scattered over the ids, so that an id does not reveal the popularity of a node.
///
/// **Destinations.** Destinations are divided into hidden groups. Each source remembers its last four new
/// partners.
/// - With probability `repeat` the source meets one of these partners again: with probability `signal` the
///   next one in cyclic order (so that this partner follows from the order of the previous ones), else any of
///   the four.
/// - Otherwise the source meets a new partner: with probability `signal` a member of the group that the
///   source is *heading for*, else any destination; in both cases by a power law of popularity. The source
///   then keeps heading for the same group or, with probability 1/2, draws the group anew.
///
/// **Features and labels.** The features of an event contain the code of the group that its source heads for
/// *after* the event: one random sign per column and group, plus noise of half the size. With probability
/// `1 - signal` the code is that of a random group. The features of a source's last event therefore reveal
/// the group of its next new partner, and the features that precede a destination's events reveal the
/// destination's group. Without features, the cyclic order of the four partners remains to be learned. The
/// label is 1 if the partner is new and from another group than the source's previous new partner.
///
/// **Classes.** Every node has one of eight hidden types, drawn uniformly. If there are classes, the types of
/// an event's two nodes determine `labels` consecutive classes: the source's type selects an eighth of the
/// classes, and the destination's type the first class within this eighth. Each label follows this rule with
/// probability `signal`, else it is any class. With `labels` guesses per event, a model that knows both types
/// therefore predicts a fraction `signal + (1 - signal) * labels / classes` of the labels; a model that knows
/// neither predicts `labels / classes`, or more because active nodes make some classes frequent. Node
/// features are the code of the node's type plus noise, as above; without them a model must learn the type of
/// every node separately.
///
/// **Times.** Gaps between events are exponentially distributed; a tick is a second.
///
/// The same options give the same stream, and a longer stream begins with the events of a shorter one. The
/// power law and the gaps use the platform's `exp`, `ln` and `pow`, whose last bit may differ between
/// platforms.
///
/// # Errors
/// Usage if an option is out of range; out of memory if the events do not fit.
pub fn synth(options: &SynthOptions) -> Result<Events> {
    let mut generator = Generator::new(options)?;
    let n = options.events;
    let width = options.edge_features;
    let mut block = Block::default();
    check_room(
        "the events",
        n * (4 * (width + options.labels_per_event()) + 24),
        "write them to a folder, or generate fewer",
    )?;
    let mut values = vec![0f32; n * width];
    for first in (0..n).step_by(CHUNK) {
        let last = (first + CHUNK).min(n);
        generator.fill(last - first, &mut block, &mut values[first * width..last * width]);
    }
    let edge_features = if width > 0 { Some(Features::from_vec(n, width, values)?) } else { None };
    let Info { name, nodes, first_destination, ticks_per_second, origin, notes, .. } = generator.info();
    let Block { src, dst, time, label, sets } = block;
    let label = Some(label);
    let classes = match options.labels_per_event() {
        0 => None,
        most => Some(Classes::new(options.classes, most, sets)?),
    };
    let (ids, node_features) = (None, options.node_features(nodes)?);
    let events = Events {
        name,
        src: src.into(),
        dst: dst.into(),
        time: time.into(),
        label,
        label_names: None,
        classes,
        node_labels: None,
        nodes,
        first_destination,
        ticks_per_second,
        origin,
        time_format: TimeFormat::Seconds,
        ids,
        edge_features,
        encoding: None,
        tables: crate::Encodings::default(),
        node_features,
        lines: None,
        notes,
    };
    events.validate("synth")?;
    Ok(events)
}

/// Generates the stream of [`synth`] directly into the folder `dir`; the memory depends on the number of
/// nodes, not of events.
///
/// # Errors
/// Usage if an option is out of range, or if `dir` exists and is not empty (with `force`: and is not a data
/// set; see [`save`](super::save)); io if writing fails.
pub fn synth_to(options: &SynthOptions, dir: impl AsRef<Path>, force: bool) -> Result<()> {
    let mut generator = Generator::new(options)?;
    let shape = Shape {
        events: options.events,
        labelled: true,
        labels: options.labels_per_event(),
        edge_width: options.edge_features,
    };
    let mut folder = FolderWriter::create(dir.as_ref(), force, &shape)?;
    let mut values = vec![0f32; CHUNK.min(options.events) * options.edge_features];
    let mut block = Block::default();
    for first in (0..options.events).step_by(CHUNK) {
        let n = CHUNK.min(options.events - first);
        let values = &mut values[..n * options.edge_features];
        block.clear();
        generator.fill(n, &mut block, values);
        folder.src.extend(&block.src)?;
        folder.dst.extend(&block.dst)?;
        folder.time.extend(&block.time)?;
        if let Some(file) = &mut folder.label {
            file.extend(&block.label)?;
        }
        if let Some(file) = &mut folder.classes {
            file.extend(&block.sets)?;
        }
        if let Some(file) = &mut folder.edge_features {
            file.extend(values)?;
        }
    }
    let info = generator.info();
    if let Some(features) = options.node_features(info.nodes)? {
        folder.features("node_features.npy", &features)?;
    }
    folder.finish(info)
}

/// Checks the ranges of all options.
fn check_options(o: &SynthOptions) -> Result<()> {
    let min_sources = if o.destinations == 0 { 2 } else { 1 };
    let is_probability = |v: f64| (0.0..=1.0).contains(&v);
    let limit = u32::MAX as usize;
    let fault = match () {
        _ if o.events == 0 || o.events > limit => Some("events must be from 1 to 2^32 - 1".to_owned()),
        _ if o.sources < min_sources => Some(format!("sources must be at least {min_sources}")),
        _ if o.sources.saturating_add(o.destinations) > limit => {
            Some("there can be at most 2^32 - 1 nodes".into())
        }
        _ if o.groups == 0 || o.groups > 1 << 16 => Some("groups must be from 1 to 65536".into()),
        _ if o.edge_features > 1 << 16 => Some("edge features can have at most 65536 columns".into()),
        _ if !is_probability(o.repeat) => {
            Some(format!("repeat must be a probability from 0 to 1, not {}", o.repeat))
        }
        _ if !is_probability(o.signal) => {
            Some(format!("signal must be a probability from 0 to 1, not {}", o.signal))
        }
        _ if o.node_features > 1 << 16 => Some("node features can have at most 65536 columns".into()),
        _ if o.classes == 1 || o.classes > 1 << 16 => {
            Some("classes must be from 2 to 65536, or 0 for none".into())
        }
        _ if o.classes > 0 && !(1..=o.classes).contains(&o.labels) => {
            Some(format!("labels per event must be from 1 to the {} classes", o.classes))
        }
        _ if !(0.0..=10.0).contains(&o.exponent) => Some("exponent must be from 0 to 10".into()),
        _ if !(0.0..=1e9).contains(&o.mean_gap) => Some("the mean gap must be from 0 to 1e9 seconds".into()),
        _ => None,
    };
    match fault {
        Some(fault) => Err(Error::usage(format!("synth: {fault}"))),
        None => Ok(()),
    }
}

/// Events without their features.
#[derive(Default)]
struct Block {
    src: Vec<u32>,
    dst: Vec<u32>,
    time: Vec<i64>,
    label: Vec<f32>,
    /// Sets of classes, `[events, labels]`.
    sets: Vec<u32>,
}

impl Block {
    fn clear(&mut self) {
        self.src.clear();
        self.dst.clear();
        self.time.clear();
        self.label.clear();
        self.sets.clear();
    }
}

/// The state of a source.
#[derive(Clone, Copy, Default)]
struct Source {
    /// The last new partners, as a ring.
    partners: [u32; PARTNERS],
    /// Number of new partners so far.
    met: u32,
    /// Index of the next partner in cyclic order.
    turn: u8,
    /// Group of the last new partner.
    group: u16,
    /// Group that the source heads for.
    heading: u16,
}

/// The generator of a stream, with its state between two events.
struct Generator<'a> {
    options: &'a SynthOptions,
    draws: Draws,
    /// Distribution of the sources.
    activity: PowerLaw,
    /// Distribution of the destinations.
    popularity: PowerLaw,
    /// Distributions of the members of a smaller and of a larger group.
    within: [PowerLaw; 2],
    /// The sizes of groups differ by at most one: the first `larger` groups have one more member.
    larger: usize,
    groups: usize,
    source_ids: Scatter,
    destination_ids: Scatter,
    sources: Vec<Source>,
    /// `[groups, edge_features]`: the code of each group, of ±1.
    codes: Vec<f32>,
    clock: f64,
    event: u64,
}

impl<'a> Generator<'a> {
    fn new(options: &'a SynthOptions) -> Result<Self> {
        let o = options;
        check_options(o)?;
        let targets = if o.destinations == 0 { o.sources } else { o.destinations };
        let groups = o.groups.min(targets);
        let law = |n| PowerLaw::new(n, o.exponent);
        let sign = |i: usize| if hash(o.seed ^ CODE_STREAM, i as u64) & 1 == 0 { -1.0 } else { 1.0 };
        let mut draws = Draws::new(o.seed);
        let heading = |_| Source { heading: draws.below(groups) as u16, ..Source::default() };
        Ok(Generator {
            sources: (0..o.sources).map(heading).collect(),
            options,
            draws,
            activity: law(o.sources),
            popularity: law(targets),
            within: [law(targets / groups), law(targets / groups + 1)],
            larger: targets % groups,
            groups,
            source_ids: Scatter::new(o.sources),
            destination_ids: Scatter::new(targets),
            codes: (0..groups * o.edge_features).map(sign).collect(),
            clock: 0.0,
            event: 0,
        })
    }

    /// Appends `n` events to `block` and writes their features to `rows`.
    fn fill(&mut self, n: usize, block: &mut Block, rows: &mut [f32]) {
        let width = self.options.edge_features;
        let first = self.event;
        let o = self.options;
        let planted =
            Planted { seed: o.seed, classes: o.classes, labels: o.labels_per_event(), signal: o.signal };
        let mut announced_groups = Vec::with_capacity(n);
        for _ in 0..n {
            let src = self.source_ids.id(self.activity.rank(self.draws.unit()));
            let (target, label) = self.meet(src);
            if self.event > 0 {
                self.clock -= (1.0 - self.draws.unit()).ln() * self.options.mean_gap;
            }
            let bipartite = self.options.destinations > 0;
            let dst = if bipartite { o.sources as u32 + target } else { target };
            block.src.push(src as u32);
            block.dst.push(dst);
            planted.push(&mut block.sets, self.event, src as u32, dst);
            block.time.push(self.clock as i64);
            block.label.push(f32::from(u8::from(label)));
            announced_groups.push(self.announce(src));
            self.event += 1;
        }
        // The noise dominates the time and depends only on the value's index, so rows are filled in parallel.
        let (seed, codes) = (self.options.seed ^ NOISE_STREAM, &self.codes);
        rows.par_chunks_mut(width.max(1)).zip(&announced_groups).enumerate().for_each(
            |(i, (row, &group))| {
                let code = &codes[group * width..][..width];
                for ((value, code), index) in
                    row.iter_mut().zip(code).zip((first + i as u64) * width as u64..)
                {
                    *value = code + NOISE * noise(hash(seed, index));
                }
            },
        );
    }

    /// Draws the partner of `src` for this event. Also returns the label: whether the partner is new and from
    /// another group than the previous new one.
    fn meet(&mut self, src: usize) -> (u32, bool) {
        let follows_rule = self.draws.chance(self.options.signal);
        let known = self.sources[src].met as usize;
        if known > 0 && self.draws.chance(self.options.repeat) {
            let filled = known.min(PARTNERS);
            let source = &mut self.sources[src];
            let turn =
                if follows_rule { usize::from(source.turn) % filled } else { self.draws.below(filled) };
            source.turn = ((turn + 1) % filled) as u8;
            return (source.partners[turn], false);
        }
        let (heading, before) =
            (usize::from(self.sources[src].heading), usize::from(self.sources[src].group));
        let unit = self.draws.unit();
        // A group has every `groups`-th destination by popularity, so that each group has popular members.
        let rank = if follows_rule {
            self.within[usize::from(heading < self.larger)].rank(unit) * self.groups + heading
        } else {
            self.popularity.rank(unit)
        };
        let mut target = self.destination_ids.id(rank);
        if self.options.destinations == 0 && target == src {
            target = (target + 1) % self.options.sources;
        }
        let next = if self.draws.chance(MOVE) { self.draws.below(self.groups) } else { heading };
        let source = &mut self.sources[src];
        source.partners[known % PARTNERS] = target as u32;
        source.met = source.met.saturating_add(1);
        source.group = heading as u16;
        source.heading = next as u16;
        (target as u32, known > 0 && heading != before)
    }

    /// Draws the group whose code the event's features contain: the one that `src` heads for, or any group.
    fn announce(&mut self, src: usize) -> usize {
        let honest = self.draws.chance(self.options.signal);
        if honest { usize::from(self.sources[src].heading) } else { self.draws.below(self.groups) }
    }

    /// Returns the metadata of the stream.
    fn info(&self) -> Info {
        let o = self.options;
        let nodes = o.sources + o.destinations;
        let classes = (o.labels_per_event() > 0).then_some(o.classes);
        let mut notes = vec![format!(
            "synthetic: seed {}, repeat {}, exponent {}, signal {}, {} groups",
            o.seed, o.repeat, o.exponent, o.signal, self.groups
        )];
        notes.extend(
            classes.map(|c| format!("{c} classes by {TYPES} types of nodes, {} labels per event", o.labels)),
        );
        Info {
            name: o.name.clone(),
            events: o.events,
            nodes,
            first_destination: (o.destinations > 0).then_some(o.sources as u32),
            ticks_per_second: 1.0,
            origin: 0,
            classes,
            notes,
            ..Info::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReadOptions, Stats, load};
    use proptest::prelude::*;
    use std::collections::HashMap;
    use tempfile::tempdir;

    fn small() -> SynthOptions {
        SynthOptions {
            events: 40_000,
            sources: 300,
            destinations: 100,
            edge_features: 16,
            ..SynthOptions::default()
        }
    }

    #[test]
    fn the_same_options_give_the_same_stream_in_memory_and_on_disk() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("synth");
        let events = synth(&small()).unwrap();
        synth_to(&small(), &path, false).unwrap();
        assert_eq!(load(path.to_str().unwrap(), &ReadOptions::default()).unwrap(), events);
        assert_eq!(synth(&small()).unwrap(), events);
        assert_ne!(synth(&SynthOptions { seed: 1, ..small() }).unwrap().src, events.src);
        let prefix = synth(&SynthOptions { events: 1000, ..small() }).unwrap();
        assert_eq!((&prefix.dst[..], &prefix.time[..]), (&events.dst[..1000], &events.time[..1000]));
    }

    #[test]
    fn classes_and_node_features_change_nothing_else_and_are_the_same_in_memory_and_on_disk() {
        let options = SynthOptions { classes: 20, labels: 4, node_features: 6, ..small() };
        let dir = tempdir().unwrap();
        let path = dir.path().join("synth");
        let events = synth(&options).unwrap();
        synth_to(&options, &path, false).unwrap();
        assert_eq!(load(path.to_str().unwrap(), &ReadOptions::default()).unwrap(), events);
        assert_eq!((events.node_width(), events.notes.len()), (6, 2));
        let prefix = synth(&SynthOptions { events: 1000, ..options.clone() }).unwrap();
        let (sets, first) = (events.classes.as_ref().unwrap(), prefix.classes.as_ref().unwrap());
        assert!((0..1000).all(|i| sets.get(i) == first.get(i)));
        let Events { src, dst, time, label, edge_features, .. } = synth(&small()).unwrap();
        assert_eq!((events.src, events.dst, events.time), (src, dst, time));
        assert_eq!((events.label, events.edge_features), (label, edge_features));
    }

    #[test]
    fn the_stream_has_the_requested_properties() {
        let s = Stats::new(&synth(&small()).unwrap());
        assert!(s.bipartite && (0.75..1.0).contains(&s.repeat_share), "{}", s.repeat_share);
        let mean = s.span_seconds / s.events as f64;
        assert!((mean - 17.0).abs() < 0.5, "{mean}");
        let one = Stats::new(&synth(&SynthOptions { destinations: 0, ..small() }).unwrap());
        assert_eq!((one.bipartite, one.nodes, one.self_loops), (false, 300, 0));
        let flat = Stats::new(&synth(&SynthOptions { exponent: 0.0, ..small() }).unwrap());
        let steep = Stats::new(&synth(&SynthOptions { exponent: 1.5, ..small() }).unwrap());
        assert!(flat.max_degree * 4 < steep.max_degree);
    }

    /// Predicts as the doc comment of `synth` describes: the group of new partners from the last features,
    /// known partners from their cyclic order. Returns the two fractions of correct predictions.
    fn predict(signal: f64) -> (f64, f64) {
        let options = SynthOptions { signal, ..small() };
        let generator = Generator::new(&options).unwrap();
        let e = synth(&options).unwrap();
        let features = e.edge_features.as_ref().unwrap();
        let group_of = |node: u32| {
            let target = (node - 300) as usize;
            (0..100).find(|&r| generator.destination_ids.id(r) == target).unwrap() % generator.groups
        };
        let mut last: HashMap<u32, (usize, Vec<u32>)> = HashMap::new();
        let (mut fresh, mut hits, mut again, mut turns) = (0, 0, 0, 0);
        for i in 0..e.len() {
            let (row, seen) = last.entry(e.src[i]).or_default();
            if seen[seen.len().saturating_sub(40)..].contains(&e.dst[i]) {
                again += 1;
                // In an uninterrupted cycle of four partners the next partner is the fourth last.
                turns += usize::from(seen.iter().nth_back(3) == Some(&e.dst[i]));
            } else if !seen.is_empty() {
                let score = |g: usize| {
                    let code = &generator.codes[g * 16..][..16];
                    code.iter().zip(features.row(*row)).map(|(a, b)| a * b).sum::<f32>()
                };
                let best = (0..generator.groups).max_by(|&a, &b| score(a).total_cmp(&score(b))).unwrap();
                fresh += 1;
                hits += usize::from(best == group_of(e.dst[i]));
            }
            *row = i;
            seen.push(e.dst[i]);
        }
        (hits as f64 / f64::from(fresh), turns as f64 / f64::from(again))
    }

    #[test]
    fn the_planted_signal_can_be_predicted_from_the_past_unless_it_is_0() {
        let (groups, turns) = predict(1.0);
        assert!(groups > 0.9 && turns > 0.4, "{groups} {turns}");
        let (groups, _) = predict(0.0);
        assert!(groups < 0.2, "{groups}");
    }

    #[test]
    fn options_out_of_range_are_usage_errors() {
        let wrong: [fn(&mut SynthOptions); 10] = [
            |o| o.classes = 1,
            |o| (o.classes, o.labels) = (4, 5),
            |o| (o.classes, o.labels) = (4, 0),
            |o| o.events = 0,
            |o| o.sources = 0,
            |o| (o.sources, o.destinations) = (1, 0),
            |o| o.repeat = 1.5,
            |o| o.signal = f64::NAN,
            |o| o.exponent = -1.0,
            |o| o.groups = 0,
        ];
        for change in wrong {
            let mut options = small();
            change(&mut options);
            assert_eq!(synth(&options).unwrap_err().kind(), tgnn::error::ErrorKind::Usage);
        }
    }

    proptest! {
        #[test]
        fn any_small_size_is_valid(
            events in 1usize..50, sources in 2usize..8, destinations in 0usize..8, width in 0usize..3,
            groups in 1usize..5, exponent in prop_oneof![Just(0.0), Just(1.0), 0.0..4.0], seed: u64,
        ) {
            let options = SynthOptions { events, sources, destinations, edge_features: width, groups, exponent, seed, ..small() };
            prop_assert_eq!(synth(&options).unwrap().len(), events);
        }
    }
}
