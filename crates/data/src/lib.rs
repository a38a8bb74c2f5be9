#![doc = include_str!("../README.md")]
//!
//! [`load`] reads the layouts listed in [`format`](mod@format) and returns [`Events`]: in time order, with
//! nodes numbered densely from 0 and time in exact integer ticks. [`Events::notes`] lists what the reader had
//! to change. [`GivenNegatives`] are the negatives that come with some data sets. [`synth`](fn@synth) makes
//! streams of any size with a signal that can be learned; [`Stats`] computes the statistics of a stream.
mod adjacency;
mod choices;
mod class_table;
mod classes;
mod doubts;
mod draw;
mod event_columns;
mod events;
mod feature_columns;
mod features;
pub mod format;
mod ids;
mod label_columns;
mod line_counts;
mod matrix;
mod name_table;
mod native;
mod negative_names;
mod negatives;
mod node_labels;
mod node_names;
mod node_rows;
#[doc(hidden)]
pub mod npy;
mod pickle;
mod planted;
mod raw;
mod read_negatives;
mod scalar;
mod snapshots;
mod split;
mod stats;
mod synth;
mod synth_options;
mod tcsr;
#[doc(hidden)]
pub mod text;
mod tgb_negatives;
mod threads;
mod time_format;
mod torch;

pub use adjacency::{Adjacency, Neighbors};
pub use class_table::{ClassTable, ClassValue};
pub use classes::Classes;
pub use event_columns::EventColumns;
pub use events::Events;
pub use feature_columns::{EncodedColumn, Encoding, Encodings, FeatureEncoding};
pub use features::Features;
#[doc(hidden)]
pub use format::rows_read;
pub use format::{ColumnName, Columns, Delimiter, Estimate, FeatureColumns, Format, Missing, ReadOptions};
pub use ids::{Ids, NodeId};
pub use label_columns::LabelColumns;
pub use line_counts::LineCounts;
pub use native::{save, save_with_negatives};
pub use negatives::{GivenNegatives, Part};
pub use node_labels::{NodeLabel, NodeLabels};
pub use node_names::NodeNames;
pub use snapshots::{
    EdgeWeights, Every, Normalise, Presence, SnapshotOptions, SnapshotStats, Snapshots, StepStats,
    SynthSnapshots, Trend, VertexFeatures,
};
pub use split::Split;
pub use stats::{Bucket, ClassStats, LabelStats, NodeLabelStats, Stats};
pub use synth::{synth, synth_to};
pub use synth_options::SynthOptions;
pub use tcsr::Tcsr;
pub use threads::start_threads;
pub use time_format::{TimeFormat, TimeScale};

use std::{io, path::Path};
use tgnn::error::{Error, Result};

/// The names of the bundled data sets, which [`load`] accepts in place of a path.
pub const BUNDLED: [&str; 1] = ["wikipedia"];

/// Reads an event file in any known layout, a folder of `.npy` files, or a bundled data set by name (see
/// [`BUNDLED`]). A pipe is read like a file; `-` is standard input.
///
/// An existing file or folder takes precedence over a bundled data set of the same name.
///
/// # Errors
/// Io if the file does not exist or cannot be read; data, with line and column, if its content is not
/// understood; usage if the options contradict the input.
pub fn load(path_or_name: &str, options: &ReadOptions) -> Result<Events> {
    start_threads(0)?;
    let mut events = load_events(path_or_name, options)?;
    if let Some(file) = &options.labels {
        format::node_labels::attach(file, &mut events)?;
    }
    Ok(events)
}

fn load_events(path_or_name: &str, options: &ReadOptions) -> Result<Events> {
    let path = Path::new(path_or_name);
    if format::is_stream(path) {
        return format::read_file(path, options);
    }
    match path.metadata() {
        Ok(meta) if meta.is_dir() => format::read_folder(path, options),
        Ok(_) => format::read_file(path, options),
        Err(e) if e.kind() == io::ErrorKind::NotFound && BUNDLED.contains(&path_or_name) => {
            wikipedia(options)
        }
        Err(e) => {
            let not_there = e.kind() == io::ErrorKind::NotFound;
            let error = Error::io(path, "cannot open", e);
            if let Some(name) = format::tgb::name_of(path).filter(|_| not_there) {
                return format::tgb::remedy(error, &name);
            }
            Err(match text::similar(BUNDLED, path_or_name) {
                Some(name) => error.remedy(format!("did you mean the bundled `{name}`?")),
                None => error.remedy("give an event file, a folder of .npy, or the bundled `wikipedia`"),
            })
        }
    }
}

/// Whether TGB has a data set called `name`.
#[doc(hidden)]
pub fn is_of_tgb(name: &str) -> bool {
    format::tgb::SETS_OF_TGB.contains(&name)
}

/// Whether a folder was written by [`save`], so that nothing needs to be said about how to read it.
pub fn is_imported(dir: &Path) -> bool {
    native::is_native(dir) && native::is_imported(dir)
}

/// Estimates how many events a file has and how much memory reading it takes; `None` if the file is small, no
/// table of events, or cannot be read.
pub fn estimate(path: impl AsRef<Path>, options: &ReadOptions) -> Option<Estimate> {
    Estimate::for_file(path.as_ref(), options)
}

/// Returns the bundled data set: one month of edits of Wikipedia pages by users (Kumar et al., KDD 2019).
///
/// It has 157,474 events between 8,227 users (sources) and 1,000 pages (destinations); a tick is a second.
/// Label 1 marks the 217 edits after which the user was banned. The 172 text features of the original are not
/// included.
///
/// # Errors
/// Usage in a build without the cargo feature `formats`, which reads gzip. The file is part of the binary.
pub fn bundled() -> Result<Events> {
    wikipedia(&ReadOptions::default())
}

fn wikipedia(options: &ReadOptions) -> Result<Events> {
    format::read_bytes("wikipedia", include_bytes!("../bundled/wikipedia.csv.gz"), options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::error::ErrorKind;

    #[test]
    fn the_bundled_set_has_the_published_counts() {
        let e = bundled().unwrap();
        assert_eq!((e.len(), e.nodes, e.first_destination), (157_474, 9_227, Some(8_227)));
        assert_eq!(
            (e.time.last(), e.ticks_per_second, e.name.as_str()),
            (Some(&2_678_373), 1.0, "wikipedia")
        );
        assert_eq!(e.label.as_ref().unwrap().iter().filter(|&&l| l == 1.0).count(), 217);
        assert!(e.ids.is_none() && e.notes.is_empty(), "{:?}", e.notes);
        assert_eq!(load("wikipedia", &ReadOptions::default()).unwrap(), e);
    }

    #[test]
    fn a_missing_file_is_an_io_error_with_a_hint() {
        let e = load("Wikipdia", &ReadOptions::default()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Io);
        let text = e.to_string();
        assert!(
            text.starts_with("Wikipdia: cannot open")
                && text.ends_with("did you mean the bundled `wikipedia`?")
        );
        let text = load("tgbl-wiki", &ReadOptions::default()).unwrap_err().to_string();
        assert!(text.starts_with("tgbl-wiki: cannot open") && text.contains("LinkPropPredDataset"), "{text}");
        assert!(text.ends_with("and give the folder that it prints"), "{text}");
        let text = load("/no/such/events.csv", &ReadOptions::default()).unwrap_err().to_string();
        assert!(text.contains("/no/such/events.csv") && !text.contains("did you mean"), "{text}");
    }
}
