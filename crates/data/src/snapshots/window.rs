//! Cutting an event stream into snapshots.
use super::{
    Cut, EdgeWeights, SnapshotOptions, Snapshots,
    build::{Edges, weighs},
};
use crate::{ClassValue, Events};
use rayon::prelude::*;
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::{NONE, check_room},
};

impl Snapshots {
    /// Cuts a stream into steps; the edges of a step are the pairs that have an event in it.
    ///
    /// Node features of the stream become vertex features; `seed` determines random ones. With
    /// [`classes`](SnapshotOptions::classes), a vertex has the class of its last event with a label as a
    /// source in each step in which it is the source of one.
    ///
    /// # Errors
    /// Usage if an option contradicts the stream; data, naming the event, if a weight is not above 0 or an
    /// event has several classes.
    pub fn of_events(events: &Events, options: &SnapshotOptions, seed: u64) -> Result<Self> {
        options.validate()?;
        let cut = options.every.cut(events)?;
        let weight = weights(events, options.weights)?;
        let edges = |step: &std::ops::Range<usize>| -> Edges {
            step.clone().map(|i| (events.src[i], events.dst[i], weight(i))).collect()
        };
        let steps = cut.events.par_iter().map(edges).collect();
        let weighted = weighs(options.weights, false);
        let (classes, names) = options.classes.then(|| classes(events, &cut)).transpose()?.unzip();
        let mut s = Self::of_edges(events.name.clone(), events.nodes, steps, cut.labels, weighted)?;
        let merged = std::mem::take(&mut s.notes);
        s.notes = events.notes.iter().cloned().chain(cut.note).chain(merged).collect();
        (s.features, s.ids, s.classes) = (events.node_features.clone(), events.ids.clone(), classes);
        (s.class_values, s.encoding) = (names.flatten(), events.tables.node.clone());
        if options.classes {
            s.notes.extend(events.note_of_no_label(None));
        }
        s.mark_present(options.presence)?;
        s.choose_features(options, seed)?;
        Ok(s)
    }
}

/// Returns the weights of events as a function of the event. All weights are checked first.
fn weights(events: &Events, weights: EdgeWeights) -> Result<impl Fn(usize) -> f32 + Sync> {
    let column = match weights {
        EdgeWeights::Feature(k) => {
            let features = events.edge_features.as_ref().filter(|f| k <= f.cols()).ok_or_else(|| {
                let what = format!(
                    "snapshots.weights is feature:{k}, but the number of edge features of {} is {}",
                    events.name,
                    events.edge_width()
                );
                Error::new(ErrorKind::Usage, what)
                    .remedy("count columns of edge features from 1, or give count")
            })?;
            let (values, cols) = (features.values(), features.cols());
            let bad = (0..events.len()).into_par_iter().find_first(|i| values[i * cols + k - 1] <= 0.0);
            if let Some(i) = bad {
                let what = format!(
                    "feature {k} of event {i} is {}, which is not a weight",
                    values[i * cols + k - 1]
                );
                return Err(Error::data(&events.name, what)
                    .remedy("weights must be above 0: give another column, or count"));
            }
            Some((values, cols, k - 1))
        }
        _ => None,
    };
    Ok(move |i: usize| column.map_or(1.0, |(values, cols, k)| values[i * cols + k]))
}

/// Classes of vertices, and what they are called unless they are numbers of their own.
type NamedClasses = (Vec<u32>, Option<Vec<ClassValue>>);

/// Returns the class of each vertex in each step, at `step * nodes + vertex`; [`NONE`] if unknown.
fn classes(events: &Events, cut: &Cut) -> Result<NamedClasses> {
    let v = events.nodes;
    check_room("classes of vertices in each step", 4 * v * cut.events.len(), "take longer steps")?;
    let mut classes = vec![NONE; cut.events.len() * v];
    let (of_event, names) = classes_of_events(events)?;
    for (s, step) in cut.events.iter().enumerate() {
        for i in step.clone().filter(|&i| of_event[i] != NONE) {
            classes[s * v + events.src[i] as usize] = of_event[i];
        }
    }
    Ok((classes, names))
}

/// Returns the class of each event: its label, or the only class of its set; [`NONE`] if it has none.
fn classes_of_events(events: &Events) -> Result<NamedClasses> {
    match (&events.label, &events.classes) {
        (Some(_), _) => events.single_classes(),
        (None, Some(sets)) => {
            let class = |i: usize| match sets.get(i) {
                [] => Ok(NONE),
                [class] => Ok(*class),
                many => {
                    let what =
                        format!("event {i} has {} classes, but a vertex can have only one", many.len());
                    Err(Error::data(&events.name, what).remedy("leave out snapshots.classes"))
                }
            };
            Ok(((0..events.len()).map(class).collect::<Result<_>>()?, None))
        }
        (None, None) => Err(Error::usage(format!(
            "snapshots.classes is set, but events of {} have no labels",
            events.name
        ))
        .remedy("leave it out, or name a column with --columns src=1,dst=2,time=3,label=4")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Classes, Features, Ids};

    fn events() -> Events {
        Events {
            name: "test".into(),
            src: vec![0, 1, 0, 2, 0].into(),
            dst: vec![1, 0, 1, 2, 1].into(),
            time: vec![0, 1, 2, 3, 20].into(),
            label: Some(vec![0., 3., 2., 1., 5.]),
            label_names: None,
            classes: None,
            node_labels: None,
            nodes: 4,
            first_destination: None,
            ticks_per_second: 1.0,
            encoding: None,
            tables: crate::Encodings::default(),
            time_format: crate::TimeFormat::Seconds,
            origin: 0,
            ids: Some(Ids::new(vec![5, 6, 7, 8])),
            edge_features: Features::from_vec(5, 2, vec![1., 1., -1., 2., 1., 3., 1., 4., 1., 5.]).ok(),
            node_features: None,
            lines: None,
            notes: vec!["sorted".into()],
        }
    }

    /// Cuts the events into steps of 10 seconds, after `change` modified them.
    fn cut(change: impl FnOnce(&mut Events), options: SnapshotOptions) -> Result<Snapshots> {
        let mut events = events();
        change(&mut events);
        let s = Snapshots::of_events(&events, &SnapshotOptions { every: "10s".parse()?, ..options }, 0)?;
        s.validate("test").map(|()| s)
    }

    #[test]
    fn pairs_with_events_in_a_window_become_single_edges_and_empty_windows_stay() {
        let s = cut(|_| (), SnapshotOptions::default()).unwrap();
        assert_eq!((s.len(), &s.offsets[..]), (3, &[0, 3, 3, 4][..]));
        assert_eq!((&s.src[..], &s.dst[..]), (&[0, 1, 2, 0][..], &[1, 0, 2, 1][..]));
        assert_eq!((s.weight.as_ref(), s.classes.as_ref()), (None, None));
        assert_eq!(s.ids, events().ids);
        assert_eq!(s.labels, ["+0s", "+10s", "+20s"]);
        assert!(!s.has(2, 3) && s.has(0, 2) && s.has(2, 2));
        let notes = [
            "sorted",
            "the last step is not full: it ends 10.0 seconds after the last event",
            "merged 1 repeated edge",
        ];
        assert_eq!(s.notes, notes);
    }

    #[test]
    fn weights_are_counts_or_sums_of_a_feature_that_must_be_above_0() {
        let weighed = |weights| cut(|_| (), SnapshotOptions { weights, ..SnapshotOptions::default() });
        assert_eq!(weighed(EdgeWeights::Count).unwrap().weight.unwrap(), [2., 1., 1., 1.]);
        assert_eq!(weighed(EdgeWeights::Feature(2)).unwrap().weight.unwrap(), [4., 2., 4., 5.]);
        let said = |weights| weighed(weights).unwrap_err().to_string();
        assert!(
            said(EdgeWeights::Feature(1))
                .starts_with("test: feature 1 of event 1 is -1, which is not a weight; ")
        );
        assert!(
            said(EdgeWeights::Feature(3)).starts_with(
                "snapshots.weights is feature:3, but the number of edge features of test is 2; "
            )
        );
    }

    #[test]
    fn a_vertex_has_the_class_of_its_last_event_as_a_source_in_the_step() {
        let options = || SnapshotOptions { classes: true, ..SnapshotOptions::default() };
        let s = cut(|_| (), options()).unwrap();
        assert_eq!(s.classes.unwrap(), [2, 3, 1, NONE, NONE, NONE, NONE, NONE, 5, NONE, NONE, NONE]);
        let set = |e: &mut Events| {
            (e.label, e.classes) =
                (None, Classes::new(9, 2, vec![8, NONE, NONE, NONE, 7, NONE, 6, NONE, 0, 1]).ok());
        };
        assert!(
            cut(set, options())
                .unwrap_err()
                .to_string()
                .starts_with("test: event 4 has 2 classes, but a vertex can have only one; ")
        );
        let of = |labels: Vec<f32>| {
            let s = cut(|e| e.label = Some(labels), options()).unwrap();
            let names =
                s.class_values.map(|values| values.iter().map(ToString::to_string).collect::<Vec<_>>());
            let classes = s.classes.unwrap();
            ([classes[0], classes[1], classes[2], classes[8]], names.map(|names| names.join(" ")))
        };
        assert_eq!(of(vec![0., 0.5, 0., 0., 1.]), ([0, 1, 0, 2], Some("0 0.5 1".into())));
        assert_eq!(of(vec![3., -1., f32::NAN, 9., -1.]), ([3, NONE, 9, NONE], None));
        assert_eq!(of(vec![1., -1., 1., 1., 1.]), ([1, 0, 1, 1], Some("-1 1".into())));
        assert!(cut(|e| e.label = None, options()).unwrap_err().to_string().contains("have no labels"));
    }

    #[test]
    fn the_bundled_events_by_week_have_the_pairs_of_each_week() {
        let events = crate::bundled().unwrap();
        let options = SnapshotOptions { every: "7d".parse().unwrap(), ..SnapshotOptions::default() };
        let s = Snapshots::of_events(&events, &options, 0).unwrap();
        s.validate("wikipedia").unwrap();
        let pairs = |s: usize| {
            let week = |t: i64| (t / 604_800) as usize == s;
            let in_week =
                events.src.iter().zip(events.dst.iter()).zip(events.time.iter()).filter(|(_, t)| week(**t));
            in_week.map(|(pair, _)| pair).collect::<std::collections::BTreeSet<_>>().len()
        };
        let wanted: Vec<usize> = (0..5).map(pairs).collect();
        assert_eq!((0..s.len()).map(|i| s.edges(i).len()).collect::<Vec<_>>(), wanted);
    }
}
