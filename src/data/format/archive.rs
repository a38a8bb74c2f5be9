//! Archives (tar) of text files of one layout, such as a file per day.
//!
//! If the files have no column of times, the time of a file's events is the date in its name, such as
//! `as20000102.txt` or `2023-11-14.csv`; without a date, it is the position of the file in the order of
//! names, in days.
use super::{
    cell::{Cell, Row},
    header::Named,
    input::Input,
    number::Decimal,
    records::records,
    sample::Sample,
};
use crate::error::{Error, Result};
use chrono::NaiveDate;
use std::path::PathBuf;

/// Name of the column of times that the files' names give.
pub(super) const TIME: &str = "time";

/// Place and content of the mark of a tar archive.
const MARK: (usize, &[u8]) = (257, b"ustar");

/// Whether the input is a tar archive.
pub(super) fn recognises(input: &Input) -> bool {
    input.head().get(MARK.0..MARK.0 + MARK.1.len()) == Some(MARK.1)
}

/// Text files of an archive, in the order of their names.
pub(super) struct Archive {
    path: PathBuf,
    files: Vec<(String, Vec<u8>)>,
}

impl Archive {
    /// Reads the files of an archive, decompressed.
    ///
    /// # Errors
    /// Data if the archive is damaged or has no file.
    #[cfg(feature = "formats")]
    pub(super) fn open(input: Input) -> Result<Self> {
        use std::io::Read;
        let path = input.path.clone();
        let (reader, failure) = input.into_reader();
        let mut archive = tar::Archive::new(reader);
        let mut files = Vec::new();
        for entry in archive.entries().map_err(|e| failure.error(e))? {
            let mut entry = entry.map_err(|e| failure.error(e))?;
            let name = entry.path().map_err(|e| failure.error(e))?.to_string_lossy().into_owned();
            let hidden = name.rsplit('/').next().is_some_and(|file| file.starts_with('.'));
            if !entry.header().entry_type().is_file() || hidden {
                continue;
            }
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(|e| failure.error(e))?;
            files.push((name, content));
        }
        files.sort();
        if files.is_empty() {
            return Err(Error::data(&path, "the archive has no file").remedy("pack the files of events"));
        }
        Ok(Archive { path, files })
    }

    #[cfg(not(feature = "formats"))]
    pub(super) fn open(input: Input) -> Result<Self> {
        Err(crate::data::text::needs_formats("tar").in_file(&input.path))
    }

    /// Returns the input of a file.
    fn input(&self, (name, content): &(String, Vec<u8>)) -> Result<Input> {
        Input::of_bytes(&self.path.join(name), content.clone())
    }

    /// Returns the sample of the first file, with the times of the names if its rows have none.
    pub(super) fn sample(&self) -> Result<Sample> {
        let mut sample = Sample::of(&self.input(&self.files[0])?)?;
        if self.is_timed_by_name(&sample) {
            let names = sample.header.get_or_insert_with(|| {
                let places = ["src", "dst", "weight"].map(str::to_owned);
                places.into_iter().take(sample.rows.first().map_or(0, Vec::len)).collect()
            });
            names.push(TIME.to_owned());
            for row in &mut sample.rows {
                row.push(b"0".to_vec());
            }
        }
        Ok(sample)
    }

    /// Whether the rows of `sample`, before the times of names are added, have no time: there are two or
    /// three columns, and none is named like a time.
    fn is_timed_by_name(&self, sample: &Sample) -> bool {
        match &sample.header {
            Some(names) if names.last().is_some_and(|name| name == TIME) => false,
            Some(names) => Named::of(names, sample).is_ok_and(|named| named.time.is_none()),
            None => sample.width() == 2,
        }
    }

    /// Calls `take` for every row of every file.
    pub(super) fn for_each(
        &self,
        sample: &Sample,
        take: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let first = Sample::of(&self.input(&self.files[0])?)?;
        let by_name = self.is_timed_by_name(&first);
        for (index, file) in self.files.iter().enumerate() {
            let time = Decimal::new(day(&file.0).unwrap_or(index as i64) * 86_400, 0);
            let mut records = records(self.input(file)?, sample.delimiter);
            if first.header.is_some() {
                records.next()?;
            }
            while let Some(row) = records.next()? {
                if by_name {
                    take(&Timed { row: &row, time })?;
                } else {
                    take(&row)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the days from 1970-01-01 to the date in a file's name: eight digits, or three groups separated by
/// one character each.
fn day(name: &str) -> Option<i64> {
    let file = name.rsplit('/').next()?;
    let bytes = file.as_bytes();
    let digits = |range: std::ops::Range<usize>| -> Option<u32> {
        let part = bytes.get(range)?;
        part.iter().all(u8::is_ascii_digit).then(|| part.iter().fold(0, |v, b| 10 * v + u32::from(b - b'0')))
    };
    (0..bytes.len()).find_map(|at| {
        let compact = || Some((digits(at..at + 4)?, digits(at + 4..at + 6)?, digits(at + 6..at + 8)?));
        let apart = || Some((digits(at..at + 4)?, digits(at + 5..at + 7)?, digits(at + 8..at + 10)?));
        let (year, month, day) = apart().or_else(compact)?;
        let date =
            NaiveDate::from_ymd_opt(year as i32, month, day).filter(|_| (1800..2200).contains(&year))?;
        Some(date.signed_duration_since(NaiveDate::default()).num_days())
    })
}

/// A row with the time of its file as the last cell.
struct Timed<'a> {
    row: &'a dyn Row,
    time: Decimal,
}

impl Row for Timed<'_> {
    fn len(&self) -> usize {
        self.row.len() + 1
    }

    fn cell(&self, i: usize) -> Cell<'_> {
        if i == self.row.len() { Cell::Time(self.time) } else { self.row.cell(i) }
    }

    fn error(&self, i: Option<usize>, what: String) -> Error {
        self.row.error(i, what)
    }
}

#[cfg(test)]
mod tests {
    use super::day;

    #[test]
    fn the_date_in_a_name_is_found() {
        for (name, want) in [
            ("as-733/as20000102.txt", Some(10_958)),
            ("2000-01-02.csv", Some(10_958)),
            ("events_2000_01_02_v2.csv", Some(10_958)),
            ("2000.01.02/part", None),
            ("day7.csv", None),
            ("20001399.csv", None),
        ] {
            assert_eq!(day(name), want, "{name}");
        }
    }
}
