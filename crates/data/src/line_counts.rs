//! What became of the lines of a text.
use super::text::{counted, grouped};
use serde::{Deserialize, Serialize};
use std::{fmt, ops::AddAssign, path::Path};

/// Numbers of the lines of the text that events come from. Every line is counted once, so the numbers add up
/// to the lines of the file, or of all files of a folder.
///
/// ```
/// let events = tgnn_data::bundled()?;
/// let lines = events.lines.as_ref().unwrap();
/// assert_eq!((lines.header, lines.events, lines.all()), (1, 157_474, 157_475));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LineCounts {
    /// Lines of headers.
    pub header: u64,
    /// Comments before the first row: lines that start with `#` or `%`, and Excel's `sep=;`.
    pub comments: u64,
    /// Lines without anything but blanks.
    pub blank: u64,
    /// Lines of rows that are events. A quoted field may reach over several lines.
    pub events: u64,
    /// Lines of rows that lack a value and are left out ([`Missing::Drop`](super::Missing::Drop)).
    pub incomplete: u64,
}

impl LineCounts {
    /// Returns the number of all lines.
    pub fn all(&self) -> u64 {
        self.header + self.comments + self.blank + self.events + self.incomplete
    }
}

impl AddAssign for LineCounts {
    fn add_assign(&mut self, other: Self) {
        self.header += other.header;
        self.comments += other.comments;
        self.blank += other.blank;
        self.events += other.events;
        self.incomplete += other.incomplete;
    }
}

impl LineCounts {
    /// Counts so many rows as headers, which nothing but their reader could tell.
    pub(crate) fn with_headers(self, headers: u64) -> Self {
        let headers = headers.min(self.events);
        LineCounts { header: self.header + headers, events: self.events - headers, ..self }
    }

    /// Lists the numbers. `rows` is what the rows are, such as `events`.
    fn listed(&self, rows: &str) -> String {
        let parts = [
            (self.header, counted(self.header, "header")),
            (self.comments, counted(self.comments, "comment")),
            (self.blank, format!("{} blank", grouped(self.blank))),
            (self.events, format!("{} of {rows}", grouped(self.events))),
            (self.incomplete, format!("{} left out for a missing value", grouped(self.incomplete))),
        ];
        let parts: Vec<String> = parts.into_iter().filter(|part| part.0 > 0).map(|part| part.1).collect();
        parts.join(", ")
    }

    /// Says what the lines of a table of labels or features are, if some belong to no row.
    pub(crate) fn note(&self, file: &Path) -> Option<String> {
        let lines = counted(self.all(), "line");
        let others = self.comments + self.blank + self.incomplete;
        (others > 0).then(|| format!("{lines} of {}: {}", file.display(), self.listed("rows")))
    }
}

impl fmt::Display for LineCounts {
    /// Writes `302: 1 header, 1 comment, 300 of events`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", grouped(self.all()), self.listed("events"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_by_what_they_are() {
        let mut counts = LineCounts { header: 1, comments: 2, blank: 0, events: 1_300, incomplete: 1 };
        assert_eq!(
            counts.to_string(),
            "1,304: 1 header, 2 comments, 1,300 of events, 1 left out for a missing value"
        );
        let note = counts.note(Path::new("labels.csv")).unwrap();
        assert!(note.starts_with("1,304 lines of labels.csv: 1 header, 2 comments, 1,300 of rows"), "{note}");
        counts += counts;
        assert_eq!(counts.all(), 2_608);
        assert_eq!(LineCounts { header: 1, events: 9, ..LineCounts::default() }.note(Path::new("x")), None);
    }
}
