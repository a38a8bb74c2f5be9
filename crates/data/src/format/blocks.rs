//! Large texts, read by several threads.
//!
//! One thread reads blocks of whole lines; others parse them into tables of their own, which are appended in
//! order. What a block means may depend on the blocks before it: whether it begins within a quoted field,
//! whether `\"` is a quote, whether labels are text. Then it is parsed again, into the table itself. So the
//! events, their numbers and every error are those of one thread.
use super::{
    fields::Writing,
    input::{Failure, Input},
    records::{Records, Shape, Splitter, never_closed},
    table::{Table, add_rows_read},
};
use crate::LineCounts;
use memchr::{memchr_iter, memmem, memrchr};
use std::{io::Read, path::Path};
use tgnn::error::{Error, Result};

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
    /// Why the bytes end before their end. The lines before it come first, as they may have a fault, too.
    fault: Option<Error>,
}

impl<R: Read> Blocks<R> {
    /// Returns the next block; `None` at the end, or where no more can be read.
    fn next(&mut self) -> Option<Block> {
        let mut bytes = std::mem::take(&mut self.rest);
        while !self.ended {
            let before = bytes.len();
            let read = self.reader.by_ref().take(BLOCK as u64).read_to_end(&mut bytes);
            self.ended = !read.as_ref().is_ok_and(|read| *read == BLOCK);
            if let Err(e) = read {
                self.fault = Some(self.failure.error(e));
                bytes.truncate(memrchr(b'\n', &bytes).map_or(0, |end| end + 1));
            } else if let (Some(end), false) = (memrchr(b'\n', &bytes[before..]), self.ended) {
                self.rest = bytes.split_off(before + end + 1);
                break;
            }
        }
        let first = self.next;
        self.next += memchr_iter(b'\n', &bytes).count() as u64;
        (!bytes.is_empty()).then_some(Block { bytes, first })
    }

    /// Returns up to `most` blocks.
    fn take(&mut self, most: usize) -> Vec<Block> {
        std::iter::from_fn(|| self.next()).take(most).collect()
    }
}

/// What a thread made of a block.
struct Parsed<'a> {
    table: Table<'a>,
    /// How it took the fields to be written.
    writing: Writing,
    counts: LineCounts,
    /// Line of two backslashes in a row within quotes.
    pair: Option<u64>,
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
        let (open, splitter) = records.into_open();
        let whole = read && open.is_none();
        Parsed { table, writing: shape.writing, counts, pair: splitter.pair, whole }
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
    /// Number of blocks that were appended as they were parsed.
    as_parsed: usize,
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
        let writing = self.splitter.writing;
        let may_learn = !writing.escapes && memmem::find(&block.bytes, b"\\\"").is_some();
        let fits = |parsed: &Parsed<'a>| {
            self.open.is_none()
                && !may_learn
                && parsed.writing == writing
                && parsed.whole
                && self.table.fits(&parsed.table)
        };
        match parsed.filter(fits) {
            Some(parsed) => {
                self.as_parsed += 1;
                self.splitter.pair = self.splitter.pair.or(parsed.pair);
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
    read_blocks(input, shape, table).map(|(counts, _)| counts)
}

/// Does so, and returns how many blocks were appended as other threads had parsed them, too.
fn read_blocks(input: Input, shape: Shape, table: &mut Table<'_>) -> Result<(LineCounts, usize)> {
    let path = input.path.clone();
    let (reader, failure) = input.into_reader();
    let mut blocks = Blocks { reader, failure, rest: Vec::new(), next: 1, ended: false, fault: None };
    let (splitter, counts) = (Splitter::new(shape.writing), LineCounts::default());
    let mut rows = InOrder { table, path: &path, shape, splitter, open: None, counts, as_parsed: 0 };
    let most = 2 * rayon::current_num_threads();
    // The first block tells the format of times, for example.
    blocks.take(1).into_iter().try_for_each(|first| rows.append((first, None)))?;
    let (mut parsed, mut next) = (Vec::new(), blocks.take(most));
    while !next.is_empty() || !parsed.is_empty() {
        let current = std::mem::take(&mut next);
        let tables: Vec<_> = current.iter().map(|_| rows.table.like()).collect();
        let shape = Shape { writing: rows.splitter.writing, ..shape };
        let mut results: Vec<Option<Parsed<'_>>> = current.iter().map(|_| None).collect();
        rayon::in_place_scope(|scope| {
            for ((block, table), result) in current.iter().zip(tables).zip(&mut results) {
                let path = &path;
                scope.spawn(move |_| *result = table.map(|table| Parsed::of(block, shape, table, path)));
            }
            parsed.drain(..).try_for_each(|block| rows.append(block))?;
            next = blocks.take(most);
            Ok::<(), Error>(())
        })?;
        parsed = current.into_iter().zip(results).collect();
    }
    match (blocks.fault, rows.open) {
        (Some(fault), _) => Err(fault),
        (None, Some((record, line))) => Err(never_closed(&record, rows.splitter.writing, (&path, line))),
        (None, None) => Ok((rows.counts, rows.as_parsed)),
    }
}

#[cfg(all(test, feature = "formats"))]
mod tests {
    use super::super::{
        layout,
        sample::Sample,
        source::Source,
        tests::{columns, fault, gzip, read_with},
    };
    use super::*;
    use crate::{Events, Missing, ReadOptions};

    fn rows(row: impl Fn(usize) -> String) -> String {
        "src,dst,time,label,kind\n".to_owned() + &(0..250_000).map(row).collect::<String>()
    }

    /// Reads a text row by row.
    fn in_order(text: &str) -> Events {
        read_by(text, |source, table, sample| {
            source.for_each(sample, &mut |row| table.push(row)).unwrap().lines.unwrap()
        })
    }

    /// Reads a text in blocks. Also returns how many blocks there are, and how many other threads parsed.
    fn in_blocks(text: &str) -> (Events, usize, usize) {
        let mut as_parsed = 0;
        let events = read_by(text, |source, table, sample| {
            let Source::Text(input) = source else { panic!("text") };
            let (lines, blocks) = read_blocks(input, sample.shape, table).unwrap();
            as_parsed = blocks;
            lines
        });
        (events, text.len().div_ceil(BLOCK), as_parsed)
    }

    fn read_by(text: &str, read: impl FnOnce(Source, &mut Table<'_>, &Sample) -> LineCounts) -> Events {
        let (path, options) = (Path::new("events.csv"), ReadOptions::default());
        let source = Source::of_bytes(path, text.as_bytes().to_vec()).unwrap();
        let sample = source.sample(&options).unwrap();
        let layout = layout::recognise(path, &sample, &options).unwrap();
        let mut table = Table::new(path, &layout, &options);
        let lines = read(source, &mut table, &sample);
        let mut raw = table.finish().unwrap();
        raw.lines = Some(lines);
        raw.build(None).unwrap()
    }

    #[test]
    fn blocks_give_the_events_of_one_thread() {
        // Names, then also labels, begin in the midst; times become finer; quotes contain line ends.
        let mixed = rows(|i| {
            let id = if i < 120_000 { (i * 7 % 1013).to_string() } else { format!("u{}", i * 7 % 1013) };
            let label = if i < 180_000 { (i % 3).to_string() } else { format!("c{}", i % 3) };
            let part = if i > 200_000 { ".25" } else { "" };
            format!("{id},\"v{},\n\"\"{}\",{}{part},{label},k{}\n", i % 17, i % 5, 1000 + i, i % 4)
        });
        let (e, blocks, as_parsed) = in_blocks(&mixed);
        assert!(e == in_order(&mixed));
        // A block may begin or end within quotes.
        assert!(as_parsed < blocks - 1, "{as_parsed} of {blocks}");
        assert_eq!((e.len(), e.lines.unwrap().all(), e.ticks_per_second), (250_000, 500_001, 100.0));
        assert!(e.notes.iter().any(|note| note.starts_with("labels are text")), "{:?}", e.notes);
        // Quotes within quotes are first met in a late block.
        let quoted = rows(|i| {
            let id =
                if i == 190_001 { "\"a \\\"b\\\", c\"".to_owned() } else { format!("\"a {}\"", i % 999) };
            format!("{id},b,{},1,k\n", 1000 + i)
        });
        let (e, blocks, as_parsed) = in_blocks(&quoted);
        assert!(e == in_order(&quoted) && e.len() == 250_000);
        assert!(0 < as_parsed && as_parsed < blocks, "{as_parsed} of {blocks}");
    }

    #[test]
    fn all_blocks_but_the_first_are_appended_as_other_threads_parsed_them() {
        let first = 30_000;
        let labels: [(&str, &dyn Fn(usize) -> String); 4] = [
            ("few numbers", &|i| (i % 3).to_string()),
            ("many numbers", &|i| i.to_string()),
            ("text", &|i| format!("c{}", i % 3)),
            ("numbers, then text, with numbers that are written otherwise", &|i| match i {
                _ if i < first => format!("0{}", i % 3),
                _ if i % 2 == 0 => (i % 4).to_string(),
                _ => format!("c{}", i % 3),
            }),
        ];
        for (what, label) in labels {
            let text = rows(|i| format!("{},{},{},{},k\n", i * 7 % 1013, i * 11 % 997, 1000 + i, label(i)));
            let (e, blocks, as_parsed) = in_blocks(&text);
            assert!(e == in_order(&text), "{what}");
            assert_eq!((e.len(), as_parsed), (250_000, blocks - 1), "{what}");
        }
        let quoted = rows(|i| {
            let id = if i < first { "a".to_owned() } else { format!("\"a \\\"{}\\\", b\"", i % 7) };
            format!("{id},b,{},1,k\n", 1000 + i)
        });
        let (e, blocks, as_parsed) = in_blocks(&quoted);
        assert!(e == in_order(&quoted));
        assert_eq!((e.len(), as_parsed), (250_000, blocks - 1), "quotes within quotes");
    }

    #[test]
    fn features_are_read_where_all_rows_of_the_first_block_are_left_out() {
        let text = rows(|i| format!("1,2,{i},0,{}\n", if i < 100_000 { "" } else { "0.5" }));
        let drop = ReadOptions { missing: Missing::Drop, ..columns("features=kind") };
        let e = read_with(&text, &drop).unwrap();
        assert_eq!((e.len(), e.edge_width()), (150_000, 1));
        assert!(e.edge_features.unwrap().values().iter().all(|value| *value == 0.5));
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

    #[test]
    fn an_error_in_a_row_comes_before_that_of_a_stream_that_is_cut_short_after_it() {
        for at in [20_000, 60_000] {
            let text = rows(|i| match i {
                _ if i == at => "1,2,soon,0,k\n".to_owned(),
                _ => format!("{},{},{},0,k\n", i % 1013, i % 997, 1000 + i),
            });
            let whole = gzip(text.as_bytes());
            let said = fault(&whole[..whole.len() / 2], &ReadOptions::default());
            assert!(said.starts_with(&format!("events.csv:{}:5: `soon` is not a time", at + 2)), "{said}");
        }
        let text = rows(|i| format!("{},{},{},0,k\n", i % 1013, i % 997, 1000 + i));
        let whole = gzip(text.as_bytes());
        let said = fault(&whole[..whole.len() / 2], &ReadOptions::default());
        assert!(said.starts_with("events.csv: the gzip stream is damaged or cut short"), "{said}");
    }
}
