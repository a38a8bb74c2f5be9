//! How many events a file has, and how much memory they need, before it is read.
use super::{input::is_stream, layout::Layout, options::ReadOptions, sample::Sample, source::Source};
use crate::ids::NodeId;
use std::path::Path;
use tgnn::{error::Result, runtime::check_room};

/// Files below this size, in bytes, are read without an estimate.
const SMALL: u64 = 64 << 20;
/// Bytes of an event while it is read: two ids of 8 bytes, its time, its number in the order of times, and
/// the two numbers of its nodes.
const EVENT: u64 = 36;
/// Bytes of a name beside its letters, of which there are two copies: in the table of names, its end and its
/// hash of 8 bytes each, and 33 of its place, of which 7 of 16 are in use just after the table has grown; and
/// 32 of the string by which a node is called, with its allocation.
const NAME: u64 = 16 + 33 * 16 / 7 + 32;

/// Estimate of what it takes to read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Number of events, from the size of the first rows.
    pub events: u64,
    /// Bytes of memory, without names.
    pub bytes: u64,
    /// Further bytes if ids are text and all of them differ; 0 if ids are numbers.
    pub most_name_bytes: u64,
}

impl Estimate {
    /// Estimates a file or a folder of files; `None` if it is small, or cannot be read: the reader knows
    /// better what to say, as the path may be the name of a data set, or lead to snapshots.
    pub(crate) fn for_file(path: &Path, options: &ReadOptions) -> Option<Self> {
        let is_small = |size: u64| size < SMALL;
        let file = path.metadata().ok()?;
        if is_stream(path) || file.is_file() && is_small(file.len()) {
            return None;
        }
        let source = Source::open(path).ok()?;
        let size = match &source {
            Source::Set(files) => files.bytes(),
            _ => file.len(),
        };
        if is_small(size) {
            return None;
        }
        let sample = source.sample(options).ok()?;
        let layout = super::layout::recognise(path, &sample, options).ok()?;
        source.events(&sample, size).map(|events| Self::for_events(events, &sample, &layout))
    }

    fn for_events(events: u64, sample: &Sample, layout: &Layout) -> Self {
        // Features are kept once while the rows are read, and once more where columns are joined.
        let width = sample.width().saturating_sub(3) as u64;
        let features = if layout.features.is_empty() { 0 } else { 8 * width };
        let ids = sample.rows.iter().flat_map(|row| [row.get(layout.src), row.get(layout.dst)]).flatten();
        let texts: Vec<u64> = ids
            .filter(|id| matches!(NodeId::parse(&String::from_utf8_lossy(id)), NodeId::Text(_)))
            .map(|id| id.len() as u64)
            .collect();
        let mean = texts.iter().sum::<u64>() / (texts.len() as u64).max(1);
        let most_name_bytes = if texts.is_empty() { 0 } else { 2 * events * (NAME + 2 * mean) };
        Estimate { events, bytes: events * (EVENT + features), most_name_bytes }
    }

    /// Checks that the memory is there.
    pub(super) fn check(&self) -> Result<()> {
        check_room(
            "the events",
            self.bytes as usize,
            "read a part of the file, or leave out columns of features",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    #[cfg(feature = "formats")]
    use std::io::Write;

    #[test]
    fn a_large_file_is_estimated_from_its_first_rows_and_a_small_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.csv");
        let row = "user-1234567,page-123,1700000000,0.5\n";
        let rows = SMALL as usize / row.len() + 1;
        fs::write(&path, "src,dst,time,f0\n".to_owned() + &row.repeat(rows)).unwrap();
        let estimate = Estimate::for_file(&path, &ReadOptions::default()).unwrap();
        assert!(estimate.events.abs_diff(rows as u64) < rows as u64 / 100, "{estimate:?}, {rows} rows");
        assert_eq!(estimate.bytes, estimate.events * (EVENT + 8));
        assert_eq!(estimate.most_name_bytes, 2 * estimate.events * (NAME + 2 * 10));
        fs::write(&path, row).unwrap();
        assert_eq!(Estimate::for_file(&path, &ReadOptions::default()), None);
    }

    #[test]
    #[cfg(feature = "formats")]
    fn a_compressed_file_is_estimated_by_how_well_its_beginning_is_compressed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.csv.gz");
        // Numbers that repeat little: the file is as large as half of its text.
        let rows = 6 << 20;
        let number = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let mut gz =
            flate2::write::GzEncoder::new(fs::File::create(&path).unwrap(), flate2::Compression::fast());
        let mut text = String::from("src,dst,time\n");
        for i in 0..rows {
            text += &format!("{},{},{}\n", number(i), number(i + (1 << 30)), 1_700_000_000 + i);
            if text.len() > 1 << 20 {
                gz.write_all(text.as_bytes()).unwrap();
                text.clear();
            }
        }
        gz.write_all(text.as_bytes()).unwrap();
        gz.finish().unwrap();
        let estimate = Estimate::for_file(&path, &ReadOptions::default()).unwrap();
        assert!(estimate.events.abs_diff(rows) < rows / 10, "{estimate:?}, {rows} rows");
    }
}
