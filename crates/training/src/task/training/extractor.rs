//! Writing and reading the extract that belongs to a checkpoint.
use super::{
    Checkpoint, Manifest,
    extract::{Extract, ExtractRecord, VERSION},
    tensor_files::{bad, checked},
};
use crate::task::config::{Config, TaskName};
use tgnn::{
    error::{ErrorKind, Result},
    runtime::{Gaps, StoredAs},
};
use tgnn_data::{Events, Features};

impl Checkpoint {
    /// Reads the extract `of` the data that a manifest names.
    pub(in crate::task) fn extract(
        &self,
        manifest: &Manifest,
        of: Option<&ExtractRecord>,
    ) -> Result<(ExtractRecord, Extract)> {
        let (path, saved) = (self.manifest_file(), manifest.stream.is_some());
        let anew = if saved {
            "go on from the folder of the training run, or use a copy"
        } else {
            "write it anew by resuming the run with its data: `train DIR/config.toml --out DIR --resume`"
        };
        let record = match of {
            Some(record) if record.version == VERSION => record.clone(),
            Some(record) if record.version > VERSION => {
                let what = format!("the extract of the data has version {}", record.version);
                return Err(bad(&path, format!("{what}, this build reads {VERSION}"))
                    .remedy("use the build that wrote it"));
            }
            _ => {
                let made = if saved { "saved this state" } else { "made this run" };
                let what = format!("an earlier version {made}, without an extract of the data for `predict`");
                return Err(bad(&path, what).remedy(anew));
            }
        };
        let path = self.extract_file(record.checksum);
        let extract = checked(&path, record.checksum).and_then(|bytes| Extract::parsed(&path, &bytes));
        let extract = extract.map_err(|e| if e.kind() == ErrorKind::Io { e } else { e.remedy(anew) })?;
        if record.is_of(manifest.data.1) && extract.is_of(manifest.data) {
            return Ok((record, extract));
        }
        Err(bad(&path, "the file is not an extract of the data in the manifest").remedy(anew))
    }
}

/// Writes the extracts of a run.
pub(in crate::task) struct Extractor<'a> {
    events: &'a Events,
    /// Storage type of the features.
    kept: StoredAs,
    /// Ids of the most recent events of every node, ascending.
    recent: Vec<u32>,
    record: ExtractRecord,
    /// Ids of the events in the extract that was written last.
    written: Option<Vec<u32>>,
}

impl<'a> Extractor<'a> {
    /// Prepares the extracts of a run, which end before event `first`; `None` if a predictor cannot use the
    /// run.
    pub fn new(config: &Config, events: &'a Events, first: usize, gaps: Gaps) -> Option<Self> {
        let recent = config.event_model().and_then(|model| model.recent_events());
        let recent = recent.ok().filter(|_| config.task == TaskName::Link)?;
        let record = ExtractRecord {
            version: VERSION,
            checksum: 0,
            recent,
            latest: events.time[..first].last().copied(),
            ticks_per_second: events.ticks_per_second,
            origin: events.origin,
            time_format: events.time_format.clone(),
            encoding: events.encoding.clone(),
            longest_gap: gaps.longest,
            first_destination: events.first_destination,
        };
        let (kept, recent) = (config.features_as, most_recent(events, first, recent));
        Some(Extractor { events, kept, recent, record, written: None })
    }
    /// Writes the extract that belongs to a state, whose mails refer to the events `mails`, unless the
    /// checkpoint has it already. Returns its record, for the manifest.
    ///
    /// # Errors
    /// `Io`.
    pub fn write(&mut self, checkpoint: &Checkpoint, mails: &[u32]) -> Result<ExtractRecord> {
        let mut held = self.recent.clone();
        // A slot without a mail has an event that does not exist.
        held.extend(mails.iter().filter(|&&event| (event as usize) < self.events.len()));
        held.sort_unstable();
        held.dedup();
        if self.written.as_ref() != Some(&held) {
            self.record.checksum = checkpoint.write_extract(&self.extract(&held)?)?;
            self.written = Some(held);
        }
        Ok(self.record.clone())
    }
    /// Returns the extract with the given events.
    fn extract(&self, held: &[u32]) -> Result<Extract> {
        let (events, at) = (self.events, || held.iter().map(|&event| event as usize));
        let kept = |f: Features| f.stored_as(self.kept);
        Ok(Extract {
            event: held.to_vec(),
            src: at().map(|i| events.src[i]).collect(),
            dst: at().map(|i| events.dst[i]).collect(),
            time: at().map(|i| events.time[i]).collect(),
            edge_features: events.edge_features.as_ref().map(|f| kept(f.gather(at()))).transpose()?,
            node_features: events.node_features.clone().map(kept).transpose()?,
            ids: events.ids.clone(),
        })
    }
}

/// Returns the ids of the events before `first` that a query may read at the time of the last of them or
/// later, if it reads the `recent` most recent events of a node before its time.
///
/// These are all events at that last time, and for every node the `recent` most recent ones before it.
fn most_recent(events: &Events, first: usize, recent: usize) -> Vec<u32> {
    let Some(&last) = events.time[..first].last().filter(|_| recent > 0) else { return Vec::new() };
    let (mut later, mut ids) = (vec![0; events.nodes], Vec::new());
    for i in (0..first).rev() {
        let [src, dst] = [events.src[i] as usize, events.dst[i] as usize];
        if events.time[i] == last || later[src] < recent || later[dst] < recent {
            ids.push(i as u32);
        }
        if events.time[i] < last {
            later[src] += 1;
            later[dst] += usize::from(src != dst);
        }
    }
    ids.reverse();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tgnn_data::Tcsr;

    /// Makes a stream of 6 nodes from the ends of its events and the gaps before them.
    fn stream(ends: &[(u32, u32, i64)]) -> Events {
        let time = ends.iter().scan(0, |now, e| {
            *now += e.2;
            Some(*now)
        });
        let (src, dst) = ends.iter().map(|e| (e.0, e.1)).unzip();
        let mut events = Events::new("test", src, dst, time.collect()).unwrap();
        events.nodes = 6;
        events
    }

    proptest! {
        #[test]
        fn a_query_after_training_reads_the_same_from_the_extract_as_from_all_events(
            ends in prop::collection::vec((0u32..6, 0u32..6, 0i64..3), 1..80), read in 0usize..5, more in 0usize..9,
        ) {
            let events = stream(&ends);
            let n = events.len();
            let kept = most_recent(&events, n, read);
            let [src, dst] = [&events.src, &events.dst].map(|ends| kept.iter().map(|&i| ends[i as usize]).collect());
            let ends: [Vec<u32>; 2] = [src, dst];
            let time: Vec<i64> = kept.iter().map(|&i| events.time[i as usize]).collect();
            // The events that a query at time `at` reads of each node, by their times and other ends.
            let reads = |ends: [&[u32]; 2], time: &[i64], slots: usize, at: i64| -> Vec<Vec<(i64, u32)>> {
                let lists = Tcsr::latest(ends, time, 6, slots);
                let read_of = |list: &[tgnn::ops::sample_neighbors::Entry]| {
                    let earlier = list.iter().filter(|e| e.event != tgnn::runtime::NONE && e.time < at);
                    let all: Vec<_> = earlier.map(|e| (e.time, e.node)).collect();
                    all[all.len().saturating_sub(read)..].to_vec()
                };
                lists.chunks_exact(slots).map(read_of).collect()
            };
            let last = events.time[n - 1];
            for (slots, at) in [(n, last), (n, last + 1), (read + more + 1, last + 1)] {
                let want = reads([&events.src, &events.dst], &events.time, slots, at);
                prop_assert_eq!(want, reads([&ends[0], &ends[1]], &time, slots, at));
            }
        }
    }
}
