//! Temporal knowledge graphs: a folder of `train.txt`, `valid.txt` and `test.txt` with rows of
//! `subject relation object time`.
//!
//! Subjects and objects share one id space; a fifth column is not read. Rows that differ only in their
//! relation form one event, which is labelled with the set of relations. Times are hours if all of them are
//! multiples of 24 (ICEWS), minutes if all are multiples of 15 (GDELT), and days otherwise. Source: RE-Net
//! (Jin et al., EMNLP 2020) and data sets published in its layout.
use super::{
    delimiter::Delimiter,
    feature_files::attach,
    input::Input,
    names::others,
    number::{Fault, is_number, parse_id},
    options::ReadOptions,
    records::{Shape, records},
    table::{fault, take},
};
use crate::{
    Classes, Events,
    raw::Raw,
    text::{counted, grouped},
};
use std::{
    collections::{HashMap, hash_map::Entry},
    path::Path,
};
use tgnn::{error::Result, runtime::NONE};

const FILES: [&str; 3] = ["train.txt", "valid.txt", "test.txt"];
const IDS: &str = "write rows of `subject relation object time`, all integers from 0";

/// Whether a folder contains the three files.
pub(super) fn is_here(dir: &Path) -> bool {
    FILES.iter().all(|f| dir.join(f).is_file())
}

/// Reads a folder for which [`is_here`] returns true. The stream is bipartite only if the options say so.
pub(super) fn read(dir: &Path, name: String, options: &ReadOptions) -> Result<Events> {
    options.refuse_writing("the files of a temporal knowledge graph")?;
    let mut facts = Facts::new(dir);
    facts.raw.name = name;
    let events: Vec<u64> =
        FILES.iter().map(|f| facts.read(&dir.join(f), options.strict)).collect::<Result<_>>()?;
    let sizes = FILES.iter().zip(events).map(|(f, n)| format!("{f} has {}", counted(n, "event")));
    facts.raw.notes.push(sizes.collect::<Vec<_>>().join(", "));
    let mut raw = facts.labelled()?;
    raw.notes.extend(others(dir, |name| FILES.contains(&name)));
    attach(&mut raw, options, (None, None))?;
    raw.build(Some(options.bipartite.unwrap_or(false)))
}

/// Returns the first line, from 1, that is as wide as a fact and has its time, although it may start like a
/// comment.
fn first_fact(head: &[u8]) -> Option<u64> {
    let is_fact = |line: &[u8]| {
        let fields: Vec<&[u8]> =
            line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect();
        matches!(fields.len(), 4 | 5) && is_number(fields[3])
    };
    let mut lines = head.split(|b| *b == b'\n');
    Some(lines.position(is_fact)? as u64 + 1)
}

/// Events in order of first occurrence, and their relations.
struct Facts {
    raw: Raw,
    /// Index of each (subject, object, time) among the events.
    event: HashMap<(u64, u64, u64), u32>,
    /// Event index and relation of every row.
    relations: Vec<(u32, u32)>,
    /// Latest time so far.
    latest: u64,
}

impl Facts {
    fn new(dir: &Path) -> Self {
        Facts { raw: Raw::new(dir), event: HashMap::new(), relations: Vec::new(), latest: 0 }
    }

    /// Reads one of the files and returns the number of new events in it.
    fn read(&mut self, path: &Path, strict: bool) -> Result<u64> {
        let before = self.raw.ids.src.len();
        let input = Input::open(path)?;
        let first = first_fact(input.head());
        let mut records = records(input, Shape { first, ..Shape::of(Delimiter::Blanks) });
        while let Some(row) = records.next()? {
            if !(4..=5).contains(&row.len()) {
                let what = format!("this row has {} columns, not 4 or 5", row.len());
                return Err(row.error(None, what).remedy(IDS));
            }
            let entity = |i| take(&row, i, parse_id, "a node id", IDS);
            let (src, dst) = (entity(0)?, entity(2)?);
            let relation = take(&row, 1, parse_id, "a relation", IDS)?;
            let relation =
                u32::try_from(relation).map_err(|_| fault(&row, 1, Fault::TooLarge, "a relation", IDS))?;
            let time = take(&row, 3, parse_id, "a time", IDS)?;
            if strict && time < self.latest {
                return Err(row
                    .error(Some(3), "this event is earlier than one before it")
                    .remedy("sort the files by time, or leave out --strict"));
            }
            self.latest = self.latest.max(time);
            let event = match self.event.entry((src, dst, time)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    // Below 2^46, times in any unit fit an i64 in seconds: a day has fewer than 2^17 seconds.
                    let ticks = i64::try_from(time).ok().filter(|t| *t < 1 << 46);
                    let ticks = ticks.ok_or_else(|| fault(&row, 3, Fault::TooLarge, "a time", IDS))?;
                    self.raw.ids.src.push(src);
                    self.raw.ids.dst.push(dst);
                    self.raw.time.push(ticks);
                    *new.insert(self.raw.ids.src.len() as u32 - 1)
                }
            };
            self.relations.push((event, relation));
        }
        *self.raw.lines.get_or_insert_default() += records.counts();
        Ok((self.raw.ids.src.len() - before) as u64)
    }

    /// Returns the events with their sets of relations, and with times converted to seconds.
    fn labelled(mut self) -> Result<Raw> {
        let (rows, events) = (self.relations.len(), self.raw.ids.src.len());
        if rows > 0 {
            self.relations.sort_unstable();
            self.relations.dedup();
            let sets = || self.relations.chunk_by(|a, b| a.0 == b.0);
            let most = sets().map(<[_]>::len).max().unwrap_or(1);
            let mut table = vec![NONE; events * most];
            for set in sets() {
                let row = &mut table[set[0].0 as usize * most..][..most];
                row.iter_mut().zip(set).for_each(|(class, &(_, relation))| *class = relation);
            }
            let count = self.relations.iter().map(|r| r.1 as usize + 1).max().unwrap_or(1);
            let classes = Classes::new(count, most, table).map_err(|e| e.in_file(&self.raw.file))?;
            self.raw.classes = Some(classes);
        }
        let mut raw = self.raw;
        raw.notes.push(format!(
            "{} rows are {}: rows that differ only in their relation are one event with a set of relations",
            grouped(rows as u64),
            counted(events as u64, "event"),
        ));
        let all_multiples_of = |step| raw.time.iter().all(|t| t % step == 0);
        let (seconds, unit) = match () {
            _ if all_multiples_of(24) => (3_600, "hours: all are multiples of 24"),
            _ if all_multiples_of(15) => (60, "minutes: all are multiples of 15"),
            _ => (86_400, "days"),
        };
        raw.notes.push(format!("times are read as {unit}"));
        raw.time.iter_mut().for_each(|t| *t *= seconds);
        Ok(raw)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Events, Format, Missing, ReadOptions, load};
    use std::fs;
    use tempfile::tempdir;
    use tgnn::error::{ErrorKind, Result};

    fn read_with(files: [&str; 3], options: &ReadOptions) -> Result<Events> {
        let dir = tempdir().unwrap();
        for (name, text) in super::FILES.into_iter().zip(files) {
            fs::write(dir.path().join(name), text).unwrap();
        }
        load(dir.path().to_str().unwrap(), options)
    }

    fn read(files: [&str; 3]) -> Result<Events> {
        read_with(files, &ReadOptions::default())
    }

    #[test]
    fn rows_that_differ_only_in_their_relation_are_one_event_with_a_set() {
        let e = read([
            "7\t3\t9\t0\t-1\n9\t0\t7\t0\t-1\n7\t1\t9\t0\t-1\n",
            "7\t3\t9\t24\t-1\n",
            "9 1 9 72\n9 1 9 72\n",
        ])
        .unwrap();
        assert_eq!((&e.src[..], &e.dst[..]), (&[0, 1, 0, 1][..], &[1, 0, 1, 1][..]));
        assert_eq!((&e.time[..], e.ticks_per_second), (&[0, 0, 86_400, 259_200][..], 1.0));
        let sets = e.classes.unwrap();
        assert_eq!((sets.count(), sets.most()), (4, 2));
        assert_eq!([sets.get(0), sets.get(1), sets.get(2), sets.get(3)], [&[1, 3][..], &[0], &[3], &[1]]);
        assert_eq!((e.first_destination, e.ids.unwrap().numbers().unwrap()), (None, &[7, 9][..]));
        assert!(
            e.notes[0].contains("train.txt has 2 events, valid.txt has 1 event, test.txt has 1"),
            "{:?}",
            e.notes
        );
        assert!(
            e.notes[1].starts_with("6 rows are 4 events: ") && e.notes[2].contains("hours"),
            "{:?}",
            e.notes
        );
    }

    #[test]
    fn the_unit_of_time_follows_from_the_times() {
        let span = |last: &str| read(["0 0 1 0\n", &format!("0 0 1 {last}\n"), ""]).unwrap().time[1];
        assert_eq!([span("48"), span("45"), span("3")], [48 * 3_600, 45 * 60, 3 * 86_400]);
    }

    #[test]
    fn files_out_of_order_are_sorted_with_their_sets_or_refused() {
        let files = ["0 5 1 48\n", "1 2 0 24\n", "0 1 1 72\n"];
        let e = read(files).unwrap();
        let sets = e.classes.unwrap();
        assert_eq!((e.src.to_vec(), sets.get(0), sets.get(1)), (vec![1, 0, 0], &[2][..], &[5][..]));
        assert!(e.notes.iter().any(|n| n == "sorted 1 out-of-order event"), "{:?}", e.notes);
        let strict = ReadOptions { strict: true, ..ReadOptions::default() };
        let text = read_with(files, &strict).unwrap_err().to_string();
        assert!(text.contains("valid.txt:1:7: this event is earlier than one before it; "), "{text}");
    }

    #[test]
    fn errors_in_a_row_name_line_and_column() {
        let fault = |train: &str| {
            let e = read([train, "", ""]).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Data);
            e.to_string()
        };
        for (train, said) in [
            ("0 1 2\n", "train.txt:1: this row has 3 columns, not 4 or 5; "),
            ("0 1 2 3\n0 x 2 3\n", "train.txt:2:3: `x` is not a relation; "),
            ("0 4294967296 2 3\n", "train.txt:1:3: `4294967296` is too large for a relation; "),
            ("0 70000 2 3\n", "70001 classes; there can be 1 to 65536"),
            ("0 1 2 99999999999999999\n", "train.txt:1:7: `99999999999999999` is too large for a time; "),
            ("subject relation object time\n", "train.txt:1:1: `subject` is not a node id; "),
            ("", "there are no events; "),
        ] {
            let text = fault(train);
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn the_format_needs_a_folder_and_refuses_columns() {
        let files = ["0 1 2 3\n", "", ""];
        let named =
            |text: &str| ReadOptions { columns: Some(text.parse().unwrap()), ..ReadOptions::default() };
        let e = read_with(files, &named("src=1,dst=3,time=4")).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Usage, "{e}");
        let (time_format, missing) = ("ms".parse().ok(), Missing::Drop);
        let e = read_with(files, &ReadOptions { time_format, missing, ..ReadOptions::default() });
        let said = "how the files of a temporal knowledge graph are written is settled; leave out \
                    --time-format and --missing";
        assert_eq!(e.unwrap_err().to_string(), said);
        let tkg = ReadOptions { format: Some(Format::Tkg), ..ReadOptions::default() };
        assert_eq!(read_with(files, &tkg).unwrap().len(), 1);
        let dir = tempdir().unwrap();
        let file = dir.path().join("train.txt");
        fs::write(&file, "0 1 2 3\n").unwrap();
        let e = load(file.to_str().unwrap(), &tkg).unwrap_err();
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("the tkg format is a folder"), "{e}");
    }
}
