//! Events read one line of text at a time: `src,dst,time` and the edge features.
use super::{
    number::{Fault, is_number, parse_f32},
    records::{Delimiter, Span, is_skipped, split},
};
use crate::{
    data::{NodeId, TimeScale, text::counted},
    error::{Error, Result},
};
use std::path::{Path, PathBuf};

/// Event parsed from a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventLine {
    /// Original ids of source and destination.
    pub ends: [NodeId; 2],
    /// Ticks since the first event of the data set.
    pub time: i64,
    /// Edge features, as many as the data set's edge feature width.
    pub features: Vec<f32>,
    /// `src,dst,time` as written in the line, joined by commas.
    pub text: String,
}

/// Parser of lines that continue the event stream of a data set, in its time units; the first line may be a
/// header.
pub(crate) struct EventLines {
    file: PathBuf,
    width: usize,
    scale: TimeScale,
    delimiter: Option<Delimiter>,
    fields: Vec<Span>,
    /// Number of the line parsed last, from 1.
    number: u64,
}

impl EventLines {
    /// Creates a parser for the lines of `file`, which continue a data set with so many edge features and these
    /// times.
    pub(crate) fn new(file: &Path, width: usize, scale: TimeScale) -> Self {
        EventLines { file: file.to_owned(), width, scale, delimiter: None, fields: Vec::new(), number: 0 }
    }

    /// Parses the next line, given without its line end. Returns `None` if it is blank, a comment or the
    /// header.
    ///
    /// # Errors
    /// Data, with line and column, if the line is not an event of the data set.
    pub(crate) fn parse(&mut self, line: &[u8]) -> Result<Option<EventLine>> {
        self.number += 1;
        let line = if self.number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if is_skipped(line) {
            return Ok(None);
        }
        let first = self.delimiter.is_none();
        let contained = |b: &u8| line.contains(b);
        let byte = [b',', b';', b'\t'].into_iter().find(contained).map(Delimiter::Byte);
        let delimiter = *self.delimiter.get_or_insert(byte.unwrap_or(Delimiter::Blanks));
        split(line, delimiter, &mut self.fields);
        let field = |i: usize| self.fields.get(i).map_or(&[][..], |&(start, end)| &line[start..end]);
        if first && self.scale.parse(field(2)).is_err() && !is_number(field(2)) && !is_number(field(0)) {
            return Ok(None);
        }
        if self.fields.len() != 3 + self.width {
            let found = counted(self.fields.len() as u64, "field");
            let expected = if self.width == 0 {
                "src,dst,time".to_owned()
            } else {
                format!("src,dst,time and {}", counted(self.width as u64, "edge feature"))
            };
            return Err(self.error(None, found).remedy(format!("give {expected}")));
        }
        let this = &*self;
        let wrong = |i: usize, what: &'static str| {
            move |fault: Fault| this.error(Some(i), fault.describe(field(i), what))
        };
        let id = |i| {
            let text = std::str::from_utf8(field(i)).map_err(|_| Fault::Encoding);
            let text = text.and_then(|text| if text.is_empty() { Err(Fault::Empty) } else { Ok(text) });
            text.map(NodeId::of).map_err(wrong(i, "a node"))
        };
        let feature = |i| parse_f32(field(i)).map_err(wrong(i, "an edge feature"));
        let ends = [id(0)?, id(1)?];
        let time = self.scale.parse(field(2));
        let time = time.map_err(|what| self.error(Some(2), what).remedy(self.scale.remedy()))?;
        let features = (3..3 + self.width).map(feature).collect::<Result<_>>()?;
        let text = [0, 1, 2].map(|i| String::from_utf8_lossy(field(i))).join(",");
        Ok(Some(EventLine { ends, time, features, text }))
    }

    /// Returns a data error at the line parsed last, and at the column of field `i` if given.
    #[cold]
    pub(crate) fn error(&self, i: Option<usize>, what: impl Into<String>) -> Error {
        let column = i.and_then(|i| self.fields.get(i)).map_or(0, |f| f.0 as u64 + 1);
        Error::data(&self.file, what).at(self.number, column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::TimeFormat;

    fn lines(width: usize, ticks_per_second: f64, origin: i64) -> EventLines {
        let scale = TimeScale { ticks_per_second, origin, format: TimeFormat::Seconds };
        EventLines::new(Path::new("events.csv"), width, scale)
    }

    #[test]
    fn headers_comments_and_blank_lines_are_skipped_and_any_delimiter_is_taken() {
        for text in ["u,i,t\n# x\n\n3,4,10", "3;4;10", "3\t4\t10", " 3  4 10 "] {
            let mut lines = lines(0, 1.0, 4);
            let found: Vec<EventLine> =
                text.split('\n').filter_map(|l| lines.parse(l.as_bytes()).unwrap()).collect();
            let want = EventLine {
                ends: [3, 4].map(NodeId::Number),
                time: 6,
                features: vec![],
                text: "3,4,10".into(),
            };
            assert_eq!(found, [want], "{text}");
        }
    }

    #[test]
    fn times_are_exact_ticks_and_features_are_read() {
        let mut lines = lines(2, 1000.0, -500);
        let event = lines.parse(b"1,2,12.345,0.5,-1e1").unwrap().unwrap();
        assert_eq!((event.time, event.features), (12_845, vec![0.5, -10.0]));
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, place, said) in [
            ("1,2,3\n1,2", (2, 0), "2 fields; give src,dst,time"),
            ("1,2,3,4", (1, 0), "4 fields"),
            ("1,2,3\n\n1,,4", (3, 3), "an empty field is not a node"),
            ("1,2,3\n1,2,soon", (2, 5), "`soon` is not a time"),
            ("1,2,0.5", (1, 5), "`0.5` is not a valid time of the data set (ticks per second: 1)"),
            ("1,2,9223372036854775807", (1, 5), "is not a valid time"),
        ] {
            let mut lines = lines(0, 1.0, 0);
            let e = text.split('\n').find_map(|l| lines.parse(l.as_bytes()).err()).unwrap();
            assert_eq!(e.position(), Some(place), "{e}");
            assert!(e.to_string().starts_with("events.csv:") && e.to_string().contains(said), "{e}");
        }
        let e = lines(1, 1.0, 0).parse(b"1,2,3,nan").unwrap_err();
        assert!(e.to_string().starts_with("events.csv:1:7: `nan` is not a finite number"), "{e}");
    }
}
