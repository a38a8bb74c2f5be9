//! Parquet files whose lengths are compared with what is there before memory is allocated for them.
use bytes::Bytes;
use parquet::{
    errors::{ParquetError, Result},
    file::reader::{ChunkReader, Length},
};
use std::{
    fs::File,
    io::{self, Cursor, Read, Seek, SeekFrom},
};

/// Size of the part of a page's header that has its lengths.
const HEAD: usize = 64;
/// Maximum ratio of sizes before and after compression: zstd writes 4 bytes for a block of 128 KiB.
const RATIO: i64 = 1 << 15;
/// Size by which a short page may exceed that ratio.
const BLOCK: i64 = 1 << 17;

/// Size of the end of a file: the length of its metadata, and the name of the format.
const END: u64 = 8;

/// A Parquet file: pages, and metadata after them.
pub(super) struct ParquetFile {
    file: File,
    /// The end of the pages.
    metadata: u64,
}

impl ParquetFile {
    pub(super) fn new(mut file: File) -> io::Result<Self> {
        let end = file.len().saturating_sub(END);
        let mut length = [0; 4];
        file.seek(SeekFrom::Start(end))?;
        file.read_exact(&mut length)?;
        Ok(ParquetFile { file, metadata: end.saturating_sub(u32::from_le_bytes(length).into()) })
    }
}

impl Length for ParquetFile {
    fn len(&self) -> u64 {
        self.file.len()
    }
}

impl ChunkReader for ParquetFile {
    type T = Box<dyn Read>;

    /// Opens the metadata, or the header of a page. The library also calls this where it reads no header, so
    /// a wrong one is an error only when it is read.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut reader = self.file.get_read(start)?;
        if start >= self.metadata {
            return Ok(Box::new(reader));
        }
        let mut head = Vec::with_capacity(HEAD);
        reader.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
        Ok(match PageSizes::parse(&head) {
            Some(sizes) if sizes.are_possible() => Box::new(Cursor::new(head).chain(reader)),
            _ => Box::new(Impossible),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!("{length} bytes from byte {start} on are not all there")));
        }
        self.file.get_bytes(start, length)
    }
}

/// The header of a page that cannot have its length.
struct Impossible;

impl Read for Impossible {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("a page cannot have the length in its header"))
    }
}

/// Lengths in the header of a page.
#[derive(Debug, Default, PartialEq)]
struct PageSizes {
    uncompressed: i64,
    compressed: i64,
    /// Number of values of a dictionary; 0 for other pages.
    dictionary: i64,
}

impl PageSizes {
    /// Reads the lengths in Thrift's compact protocol: each field has a byte with its number, counted from
    /// the field before, and its type. `None` if that is not a header.
    fn parse(mut head: &[u8]) -> Option<Self> {
        const INTEGER: u8 = 5;
        const STRUCT: u8 = 12;
        let mut sizes = PageSizes::default();
        let mut field = 0u8;
        loop {
            let (&first, rest) = head.split_first()?;
            head = rest;
            field = field.saturating_add(first >> 4);
            match (field, first & 15) {
                (2, INTEGER) => sizes.uncompressed = integer(&mut head)?,
                (3, INTEGER) => sizes.compressed = integer(&mut head)?,
                (_, INTEGER) => drop(integer(&mut head)?),
                // A dictionary's first field is its number of values.
                (7, STRUCT) => {
                    head = head.strip_prefix(&[0x10 | INTEGER])?;
                    sizes.dictionary = integer(&mut head)?;
                    return Some(sizes);
                }
                (5.., STRUCT) => return Some(sizes),
                _ => return None,
            }
        }
    }

    /// Whether a page of that size can have these values. A value of a dictionary has four bytes or more.
    fn are_possible(&self) -> bool {
        (0..=RATIO * self.compressed + BLOCK).contains(&self.uncompressed)
            && (0..=self.uncompressed).contains(&self.dictionary)
    }
}

/// Takes an integer: seven bits a byte, the lowest first, and the sign in the lowest bit.
fn integer(head: &mut &[u8]) -> Option<i64> {
    let mut bits = 0u64;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = head.split_first()?;
        *head = rest;
        bits |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some((bits >> 1) as i64 ^ -((bits & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lengths_of_a_page_are_found_in_its_header() {
        // A dictionary of 300 values: 1,200 bytes before and 100 after compression.
        let head = [0x15, 4, 0x15, 0xe0, 0x12, 0x15, 0xc8, 1, 0x4c, 0x15, 0xd8, 4, 0x15, 0, 0, 0];
        let sizes = PageSizes { uncompressed: 1_200, compressed: 100, dictionary: 300 };
        assert_eq!(PageSizes::parse(&head), Some(sizes));
        assert_eq!((PageSizes::parse(&head[..5]), PageSizes::parse(&[])), (None, None));
    }

    #[test]
    fn a_page_that_cannot_have_its_length_is_refused() {
        let sizes = |uncompressed, compressed, dictionary| PageSizes { uncompressed, compressed, dictionary };
        assert!(sizes(1_200, 100, 300).are_possible() && sizes(0, 0, 0).are_possible());
        for wrong in [sizes(1 << 31, 100, 0), sizes(-1, 100, 0), sizes(1_200, 100, 1_201), sizes(9, -9, 0)] {
            assert!(!wrong.are_possible(), "{wrong:?}");
        }
    }
}
