//! Large texts, read by several threads.
//!
//! One thread reads blocks of whole lines; others parse them into tables of their own, which are appended in
//! order. What a block means may depend on the blocks before it: whether it begins within a quoted field,
//! whether `\"` is a quote, whether labels are text. Then it is parsed again, into the table itself. So the
//! events, their numbers and every error are those of one thread.
use super::{
    input::{Failure, Input},
    records::{Records, Shape, Splitter, never_closed},
    table::{Table, add_rows_read},
};
use crate::LineCounts;
use memchr::{memchr_iter, memmem, memrchr};
use std::{io::Read, path::Path};
use tgnn::error::Result;

/// Bytes that are read at once. A block has a few more or fewer.
const BLOCK: usize = 1 << 20;

/// Whole lines of a text.
struct Block {
    bytes: Vec<u8>,
    /// Number of the first line, from 1.
    first: u64,
}

/// The blocks of a text, in order.
struct Blocks<R: Read> {
    reader: R,
    failure: Failure,
    /// The beginning of a line that the last block did not end.
    rest: Vec<u8>,
    /// Number of the next line.
    next: u64,
    ended: bool,
}

impl<R: Read> Blocks<R> {
    /// Returns the next block; `None` at the end.
    fn next(&mut self) -> Result<Option<Block>> {
        let mut bytes = std::mem::take(&mut self.rest);
        while !self.ended {
            let before = bytes.len();
            let read = self.reader.by_ref().take(BLOCK as u64).read_to_end(&mut bytes);
            self.ended = read.map_err(|e| self.failure.error(e))? < BLOCK;
            if let (Some(end), false) = (memrchr(b'\n', &bytes[before..]), self.ended) {
                self.rest = bytes.split_off(before + end + 1);
                break;
            }
        }
        let first = self.next;
        self.next += memchr_iter(b'\n', &bytes).count() as u64;
        Ok(if bytes.is_empty() { None } else { Some(Block { bytes, first }) })
    }

    /// Returns up to `most` blocks.
    fn take(&mut self, most: usize) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        while blocks.len() < most
            && let Some(block) = self.next()?
        {
            blocks.push(block);
        }
        Ok(blocks)
    }
}

/// What a thread made of a block.
struct Parsed<'a> {
    table: Table<'a>,
    counts: LineCounts,
    /// Whether all rows were read, and no quoted field is open at the end.
    whole: bool,
}

impl<'a> Parsed<'a> {
    fn of(block: &Block, shape: Shape, mut table: Table<'a>, path: &Path) -> Self {
        let mut records =
            Records::of_block(path, &block.bytes, (shape, block.first), Splitter::new(shape.writing));
        // An error is found again when the block is read in order.
        let read = loop {
            match records.next() {
                Ok(Some(row)) if table.push(&row).is_ok() => {}
                Ok(None) => break true,
                _ => break false,
            }
        };
        let counts = records.counts();
        Parsed { table, counts, whole: read && records.into_open().0.is_none() }
    }
}

/// Appends blocks to a table in their order.
struct InOrder<'t, 'a> {
    table: &'t mut Table<'a>,
    path: &'t Path,
    shape: Shape,
    splitter: Splitter,
    /// A record that the next block continues, and the number of its first line.
    open: Option<(Vec<u8>, u64)>,
    counts: LineCounts,
}

impl<'a> InOrder<'_, 'a> {
    /// Reads a block into the table.
    fn read(&mut self, block: &Block) -> Result<()> {
        let joined;
        let (bytes, first) = match self.open.take() {
            Some((mut open, first)) => {
                open.extend_from_slice(&block.bytes);
                joined = open;
                (&joined, first)
            }
            None => (&block.bytes, block.first),
        };
        let splitter = std::mem::replace(&mut self.splitter, Splitter::new(self.shape.writing));
        let mut records = Records::of_block(self.path, bytes, (self.shape, first), splitter);
        while let Some(row) = records.next()? {
            self.table.push(&row)?;
        }
        self.counts += records.counts();
        (self.open, self.splitter) = records.into_open();
        Ok(())
    }

    /// Appends a block that was parsed, or reads it again.
    fn append(&mut self, (block, parsed): (Block, Option<Parsed<'a>>)) -> Result<()> {
        let before = self.counts.events;
        self.append_rows(block, parsed)?;
        add_rows_read(self.counts.events - before);
        Ok(())
    }

    fn append_rows(&mut self, block: Block, parsed: Option<Parsed<'a>>) -> Result<()> {
        let escapes = self.splitter.writing.escapes != self.shape.writing.escapes
            || !self.splitter.writing.escapes && memmem::find(&block.bytes, b"\\\"").is_some();
        let fits = |parsed: &Parsed<'a>| parsed.whole && self.table.fits(&parsed.table);
        match parsed.filter(|parsed| self.open.is_none() && !escapes && fits(parsed)) {
            Some(parsed) => {
                self.counts += parsed.counts;
                self.table.append(parsed.table);
                Ok(())
            }
            None => self.read(&block),
        }
    }
}

/// Reads the rows of a text into a table, by all threads of the pool.
pub(super) fn read(input: Input, shape: Shape, table: &mut Table<'_>) -> Result<LineCounts> {
    let path = input.path.clone();
    let (reader, failure) = input.into_reader();
    let mut blocks = Blocks { reader, failure, rest: Vec::new(), next: 1, ended: false };
    let (splitter, counts) = (Splitter::new(shape.writing), LineCounts::default());
    let mut rows = InOrder { table, path: &path, shape, splitter, open: None, counts };
    let most = 2 * rayon::current_num_threads();
    // The first block tells the format of times, for example.
    let (mut parsed, mut next) = (Vec::new(), blocks.take(1)?);
    while !next.is_empty() || !parsed.is_empty() {
        let current = std::mem::take(&mut next);
        let tables: Vec<_> = current.iter().map(|_| rows.table.like()).collect();
        let mut results: Vec<Option<Parsed<'_>>> = current.iter().map(|_| None).collect();
        let appended = rayon::in_place_scope(|scope| {
            for ((block, table), result) in current.iter().zip(tables).zip(&mut results) {
                let path = &path;
                scope.spawn(move |_| *result = table.map(|table| Parsed::of(block, shape, table, path)));
            }
            parsed.drain(..).try_for_each(|block| rows.append(block))?;
            blocks.take(most)
        });
        next = appended?;
        parsed = current.into_iter().zip(results).collect();
    }
    match rows.open {
        None => Ok(rows.counts),
        Some((record, line)) => Err(never_closed(&record, rows.splitter.writing, (&path, line))),
    }
}

#[cfg(all(test, feature = "formats"))]
mod tests {
    use super::super::tests::{fault, read_with};
    use super::*;
    use crate::{Events, ReadOptions};

    /// Reads a text of many rows twice: as it is, in blocks, and by options that need the order of the rows.
    fn both(text: &str) -> (Events, Events) {
        assert!(text.len() > 4 * BLOCK, "{} bytes", text.len());
        let strict = ReadOptions { strict: true, ..ReadOptions::default() };
        (read_with(text, &ReadOptions::default()).unwrap(), read_with(text, &strict).unwrap())
    }

    fn rows(row: impl Fn(usize) -> String) -> String {
        "src,dst,time,label,kind\n".to_owned() + &(0..250_000).map(row).collect::<String>()
    }

    #[test]
    fn blocks_give_the_events_of_one_thread() {
        let plain = rows(|i| format!("{},{},{},{},k\n", i * 7 % 1013, i * 11 % 997, 1000 + i, i % 3));
        let (e, strict) = both(&plain);
        assert!(e == strict && e.len() == 250_000 && e.notes == strict.notes);
        // Names, then also labels, begin in the midst; times become finer.
        let mixed = rows(|i| {
            let id = if i < 120_000 { (i * 7 % 1013).to_string() } else { format!("u{}", i * 7 % 1013) };
            let label = if i < 180_000 { (i % 3).to_string() } else { format!("c{}", i % 3) };
            let part = if i > 200_000 { ".25" } else { "" };
            format!("{id},\"v{},\n\"\"{}\",{}{part},{label},k{}\n", i % 17, i % 5, 1000 + i, i % 4)
        });
        let (e, strict) = both(&mixed);
        assert_eq!((e.lines, e.ticks_per_second), (strict.lines, 100.0));
        assert!(e == strict);
        assert!(e.notes.iter().any(|note| note.starts_with("labels are text")), "{:?}", e.notes);
        // Quotes within quotes are first met in a late block.
        let quoted = rows(|i| {
            let id =
                if i == 190_001 { "\"a \\\"b\\\", c\"".to_owned() } else { format!("\"a {}\"", i % 999) };
            format!("{id},b,{},1,k\n", 1000 + i)
        });
        let (e, strict) = both(&quoted);
        assert!(e == strict && e.len() == 250_000);
    }

    #[test]
    fn an_error_names_the_line_that_one_thread_would_name() {
        let text = rows(|i| match i {
            200_123 => "1,2,soon,0,k\n".to_owned(),
            240_000 => "1,2\n".to_owned(),
            _ => format!("{},{},{},0,k\n", i % 1013, i % 997, 1000 + i),
        });
        let said = fault(&text, &ReadOptions::default());
        assert!(said.starts_with("events.csv:200125:5: `soon` is not a time"), "{said}");
        let open =
            rows(|i| format!("{},{},{},0,{}k\n", i % 1013, i % 997, i, if i == 249_999 { "\"" } else { "" }));
        let said = fault(&open, &ReadOptions::default());
        assert!(said.starts_with("events.csv:250001:18: a quote is opened and never closed"), "{said}");
    }
}
