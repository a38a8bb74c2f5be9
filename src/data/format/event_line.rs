//! Events read one line of text at a time: `src,dst,time` and the edge features.
use super::{
    cell::Cell,
    columns::{ColumnName, Columns},
    header::{Named, position},
    number::{Fault, is_number},
    records::{Delimiter, Span, is_skipped, split},
    sample::Sample,
};
use crate::{
    data::{
        Encoding, FeatureEncoding, NodeId, TimeScale, feature_columns::hash_words, ids::IdField,
        text::counted,
    },
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

/// How the events of a data set are written.
#[derive(Clone, Debug)]
pub(crate) struct EventFormat {
    /// The data set's times.
    pub scale: TimeScale,
    /// How columns become edge features.
    pub encoding: FeatureEncoding,
    /// The columns that the user named for the data set.
    pub columns: Columns,
}

/// Parser of lines that continue the event stream of a data set; the first line may be a header.
pub(crate) struct EventLines {
    file: PathBuf,
    format: EventFormat,
    delimiter: Option<Delimiter>,
    fields: Vec<Span>,
    places: Places,
    /// Number of the line parsed last, from 1.
    number: u64,
}

/// Places of an event's parts in a line.
struct Places {
    ends: [usize; 2],
    time: Vec<usize>,
    features: Vec<usize>,
    /// Number of fields of a line.
    width: usize,
}

impl Places {
    /// Returns the places in lines without a header: source, destination, time and features.
    fn in_order(features: usize) -> Self {
        Places { ends: [0, 1], time: vec![2], features: (3..3 + features).collect(), width: 3 + features }
    }

    /// Returns the places that a header names; `None` if it does not name all of them.
    fn named(names: &[String], format: &EventFormat) -> Option<Self> {
        let place = |column: &ColumnName| match column {
            ColumnName::Number(n) => Some(n - 1).filter(|i| *i < names.len()),
            ColumnName::Name(name) => position(names, name),
        };
        let named = Named::of(names, &Sample::of_header(names)).ok()?;
        let one = |given: &Option<ColumnName>, named| given.as_ref().map_or(named, place);
        let columns = &format.columns;
        let time = match &columns.time[..] {
            [] => vec![named.time?],
            given => given.iter().map(place).collect::<Option<_>>()?,
        };
        let features = format.encoding.0.iter().map(|column| position(names, &column.name));
        Some(Places {
            ends: [one(&columns.src, named.src)?, one(&columns.dst, named.dst)?],
            time,
            features: features.collect::<Option<_>>()?,
            width: names.len(),
        })
    }
}

impl EventLines {
    /// Creates a parser for the lines of `file`.
    pub(crate) fn new(file: &Path, format: EventFormat) -> Self {
        let places = Places::in_order(format.encoding.0.len());
        EventLines { file: file.to_owned(), format, delimiter: None, fields: Vec::new(), places, number: 0 }
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
        let is_value = |i| is_number(field(i)) || self.format.scale.parse(field(i)).is_ok();
        if first && !(0..self.fields.len()).any(is_value) {
            let names: Vec<String> =
                (0..self.fields.len()).map(|i| String::from_utf8_lossy(field(i)).into_owned()).collect();
            if let Some(places) = Places::named(&names, &self.format) {
                self.places = places;
            }
            return Ok(None);
        }
        if self.fields.len() != self.places.width {
            let found = counted(self.fields.len() as u64, "field");
            let columns = self.format.encoding.0.iter().map(|column| format!(",{}", column.name));
            let remedy = match self.places.ends == [0, 1] && self.places.time == [2] {
                true => format!("give src,dst,time{}", columns.collect::<String>()),
                false => format!("give the {} fields of the header", self.places.width),
            };
            return Err(self.error(None, found).remedy(remedy));
        }
        let wrong = |i: usize, fault: Fault, what: &str| self.error(Some(i), fault.describe(field(i), what));
        let id = |i| match IdField::parse(field(i)) {
            Ok(IdField::Number(n)) => Ok(NodeId::Number(n)),
            Ok(IdField::Text(text)) => Ok(NodeId::Text(text.replace("\"\"", "\"").into())),
            Err(fault) => Err(wrong(i, fault, "a node")),
        };
        let [src, dst] = self.places.ends;
        let ends = [id(src)?, id(dst)?];
        let written = self.places.time.iter().map(|&i| field(i)).collect::<Vec<_>>().join(&b' ');
        let at = self.places.time.first().copied();
        let time = self.format.scale.parse(&written);
        let time = time.map_err(|what| self.error(at, what).remedy(self.format.scale.remedy()))?;
        let mut features = Vec::with_capacity(self.format.encoding.width());
        for (&i, column) in self.places.features.iter().zip(&self.format.encoding.0) {
            encode(field(i), &column.values, &mut features).map_err(|f| wrong(i, f, "an edge feature"))?;
        }
        let text = [field(src), field(dst), &written].map(|field| {
            let text = String::from_utf8_lossy(field);
            if text.contains(',') { format!("\"{text}\"") } else { text.into_owned() }
        });
        Ok(Some(EventLine { ends, time, features, text: text.join(",") }))
    }

    /// Returns the field of the source (0) or destination (1) in a line.
    pub(crate) fn end(&self, side: usize) -> usize {
        self.places.ends[side]
    }

    /// Returns the field of the time in a line; the first of several.
    pub(crate) fn time(&self) -> Option<usize> {
        self.places.time.first().copied()
    }

    /// Returns a data error at the line parsed last, and at the column of field `i` if given.
    #[cold]
    pub(crate) fn error(&self, i: Option<usize>, what: impl Into<String>) -> Error {
        let column = i.and_then(|i| self.fields.get(i)).map_or(0, |f| f.0 as u64 + 1);
        Error::data(&self.file, what).at(self.number, column)
    }
}

/// Appends the features in a field. A number that is missing is 0, and an unknown category is all zeros.
fn encode(field: &[u8], values: &Encoding, to: &mut Vec<f32>) -> Result<(), Fault> {
    let cell = Cell::Text(field);
    match values {
        Encoding::Numbers(1) => to.push(cell.value()?.unwrap_or(0.0)),
        // A list is no field.
        Encoding::Numbers(_) => return Err(Fault::Text),
        Encoding::OneHot(categories) => {
            let category = cell.text()?;
            to.extend(categories.iter().map(|name| if **name == *category { 1.0 } else { 0.0 }));
        }
        Encoding::Hashed(buckets) => hash_words(&cell.text()?, *buckets, to),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{EncodedColumn, TimeFormat};

    fn lines(width: usize, ticks_per_second: f64, origin: i64) -> EventLines {
        let scale = TimeScale { ticks_per_second, origin, format: TimeFormat::Seconds };
        let encoding = FeatureEncoding::numbers(width);
        EventLines::new(Path::new("events.csv"), EventFormat { scale, encoding, columns: Columns::default() })
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
        let e = lines(1, 1.0, 0).parse(b"1,2,3,inf").unwrap_err();
        assert!(e.to_string().starts_with("events.csv:1:7: `inf` is not a finite number"), "{e}");
    }

    #[test]
    fn a_header_places_the_columns_of_the_data_set() {
        let column = |name: &str, values| EncodedColumn { name: name.into(), values };
        let format = EventFormat {
            scale: TimeScale { ticks_per_second: 1.0, origin: 0, format: TimeFormat::Iso },
            encoding: FeatureEncoding(vec![
                column("km", Encoding::Numbers(1)),
                column("carrier", Encoding::OneHot(["AA".into(), "UA".into()].to_vec())),
            ]),
            columns: "time=day+clock".parse().unwrap(),
        };
        let mut lines = EventLines::new(Path::new("x.csv"), format.clone());
        assert_eq!(lines.parse(b"day,clock,carrier,dest,origin,km,note").unwrap(), None);
        let event = lines.parse(b"1970-01-02,00:00:05,UA,\"LAX, CA\",EWR,,x").unwrap().unwrap();
        assert_eq!((event.ends, event.time), (["EWR", "LAX, CA"].map(NodeId::of), 86_405));
        assert_eq!(
            (event.features, event.text.as_str()),
            (vec![0.0, 0.0, 1.0], "EWR,\"LAX, CA\",1970-01-02 00:00:05")
        );
        let e = lines.parse(b"1,2").unwrap_err().to_string();
        assert_eq!(e, "x.csv:3: 2 fields; give the 7 fields of the header");
        let mut plain =
            EventLines::new(Path::new("x.csv"), EventFormat { columns: Columns::default(), ..format });
        assert_eq!(plain.parse(b"a,b,1970-01-01,7,AA").unwrap().unwrap().features, [7.0, 1.0, 0.0]);
        let e = plain.parse(b"a,b,1970-01-01").unwrap_err().to_string();
        assert_eq!(e, "x.csv:2: 3 fields; give src,dst,time,km,carrier");
    }
}
