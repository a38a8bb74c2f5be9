//! Arrow files and streams, message by message.
//!
//! A length in a file may be wrong, and the library allocates what a length asks for, which ends the process
//! if it is absurd. So every length is compared with the bytes that are there before the library sees it.
use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::{
    Block, BodyCompression, CompressionType, MessageHeader, RecordBatch as Batch,
    convert::try_fb_to_schema,
    reader::{FileDecoder, StreamReader, read_footer_length},
    root_as_footer, root_as_message,
};
use arrow_schema::{ArrowError, SchemaRef};
use std::{
    fs::File,
    io::{self, BufReader, Cursor, Read, Seek, SeekFrom},
    sync::Arc,
    vec::IntoIter,
};

/// Marks that a message follows.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Size of the end of a file: the length of the footer, and the name of the format.
const END: u64 = 10;
/// Maximum ratio of sizes before and after compression: LZ4 writes a byte for at most 255, and zstd 4 bytes
/// for a block of 128 KiB.
const LZ4: u64 = 255;
const ZSTD: u64 = 1 << 15;
/// Size by which a short buffer may exceed that ratio.
const BLOCK: u64 = 1 << 17;

fn wrong(what: impl Into<String>) -> ArrowError {
    ArrowError::ParseError(what.into())
}

/// A file whose length is known.
struct Bytes {
    file: BufReader<File>,
    len: u64,
}

impl Bytes {
    fn new(file: File) -> Result<Self, ArrowError> {
        let len = file.metadata()?.len();
        Ok(Bytes { file: BufReader::new(file), len })
    }

    /// Reads `len` bytes from `start` on.
    fn read(&mut self, start: u64, len: u64) -> Result<Buffer, ArrowError> {
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(wrong(format!("{len} bytes from byte {start} on, in a file of {} bytes", self.len)));
        }
        let mut bytes = MutableBuffer::from_len_zeroed(len as usize);
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// Converts a length or a place, which must not be negative.
fn size(n: i64) -> Result<u64, ArrowError> {
    u64::try_from(n).map_err(|_| wrong(format!("a length of {n}")))
}

/// Checks the lengths in a message: its own, and those of its buffers.
fn check(metadata: &[u8], body: &[u8]) -> Result<(), ArrowError> {
    let start = if metadata.starts_with(&CONTINUATION) { 8 } else { 4 };
    let metadata = metadata.get(start..).unwrap_or_default();
    let message = root_as_message(metadata).map_err(|e| wrong(e.to_string()))?;
    let batch = match message.header_type() {
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|d| d.data()),
        _ => message.header_as_record_batch(),
    };
    batch.map_or(Ok(()), |batch| check_buffers(&batch, body))
}

/// Checks that the buffers of a batch are in its body, and that compressed ones can be as long as they claim.
fn check_buffers(batch: &Batch<'_>, body: &[u8]) -> Result<(), ArrowError> {
    for buffer in batch.buffers().into_iter().flatten() {
        let (start, len) = (size(buffer.offset())?, size(buffer.length())?);
        let end = start.checked_add(len).filter(|end| *end <= body.len() as u64);
        let end =
            end.ok_or_else(|| wrong(format!("a buffer ends beyond its message of {} bytes", body.len())))?;
        if let Some(compression) = batch.compression() {
            check_compressed(compression, &body[start as usize..end as usize])?;
        }
    }
    Ok(())
}

/// Checks the length that a compressed buffer claims to have, in 8 bytes at its start; -1 means that it is
/// not compressed.
fn check_compressed(compression: BodyCompression<'_>, buffer: &[u8]) -> Result<(), ArrowError> {
    let Some((claim, compressed)) = buffer.split_first_chunk() else { return Ok(()) };
    let claim = match i64::from_le_bytes(*claim) {
        -1 => return Ok(()),
        claim => size(claim)?,
    };
    let ratio = if compression.codec() == CompressionType::LZ4_FRAME { LZ4 } else { ZSTD };
    if claim > ratio * compressed.len() as u64 + BLOCK {
        return Err(wrong(format!("{} compressed bytes cannot be {claim}", compressed.len())));
    }
    tgnn::runtime::check_room("the columns", claim as usize, "write the file in smaller batches")
        .map_err(|e| ArrowError::MemoryError(e.to_string()))
}

/// Checks that the rows of a batch have bytes: a row has a bit or more in one of its columns.
pub(super) fn check_rows(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    match batch.num_rows() as u64 > 8 * batch.get_array_memory_size() as u64 {
        true => Err(wrong(format!("{} rows without values", batch.num_rows()))),
        false => Ok(batch),
    }
}

/// Batches of an Arrow file, which ends in a list of its messages.
pub(super) struct FileBatches {
    bytes: Bytes,
    decoder: FileDecoder,
    blocks: IntoIter<Block>,
}

impl FileBatches {
    /// Reads the schema and the dictionaries of a file.
    pub(super) fn open(file: File) -> Result<(SchemaRef, Self), ArrowError> {
        let mut bytes = Bytes::new(file)?;
        let start = bytes.len.checked_sub(END).ok_or_else(|| wrong("the file is cut short"))?;
        let end: [u8; END as usize] = bytes.read(start, END)?.as_slice().try_into().unwrap_or_default();
        let length = read_footer_length(end)? as u64;
        let footer = bytes.read(start.checked_sub(length).unwrap_or(u64::MAX), length)?;
        let footer = root_as_footer(&footer).map_err(|e| wrong(e.to_string()))?;
        let schema = footer.schema().ok_or_else(|| wrong("there is no schema"))?;
        if !schema.endianness().equals_to_target_endianness() {
            return Err(wrong("its numbers are in the byte order of other machines"));
        }
        let schema = Arc::new(try_fb_to_schema(schema)?);
        let mut decoder = FileDecoder::new(schema.clone(), footer.version());
        for block in footer.dictionaries().into_iter().flatten() {
            decoder.read_dictionary(block, &read_block(&mut bytes, block)?)?;
        }
        let blocks: Vec<Block> = footer.recordBatches().into_iter().flatten().copied().collect();
        Ok((schema, FileBatches { bytes, decoder, blocks: blocks.into_iter() }))
    }
}

/// Reads the message of a block.
fn read_block(bytes: &mut Bytes, block: &Block) -> Result<Buffer, ArrowError> {
    let (metadata, body) = (size(block.metaDataLength().into())?, size(block.bodyLength())?);
    let len = metadata.checked_add(body).ok_or_else(|| wrong("a block is too long"))?;
    let block = bytes.read(size(block.offset())?, len)?;
    let (metadata, body) = block.split_at(metadata as usize);
    check(metadata, body)?;
    Ok(block)
}

impl Iterator for FileBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let block = self.blocks.next()?;
        let read =
            |this: &mut Self| this.decoder.read_record_batch(&block, &read_block(&mut this.bytes, &block)?);
        read(self).transpose()
    }
}

/// An Arrow stream as bytes, of which every message has been checked.
pub(super) struct Stream {
    bytes: Bytes,
    /// Place of the next message.
    at: u64,
    /// The message that is being read.
    message: Cursor<Vec<u8>>,
}

impl Stream {
    /// Opens a stream.
    pub(super) fn open(file: File) -> Result<StreamReader<Self>, ArrowError> {
        StreamReader::try_new(Stream { bytes: Bytes::new(file)?, at: 0, message: Cursor::default() }, None)
    }

    /// Reads and checks the next message; it is empty at the end of the file.
    fn next_message(&mut self) -> Result<Vec<u8>, ArrowError> {
        if self.at == self.bytes.len {
            return Ok(Vec::new());
        }
        let head = self.bytes.read(self.at, 8)?;
        let (mark, length) = head.split_at(4);
        if *mark != CONTINUATION {
            return Err(wrong("a message does not begin with its mark"));
        }
        let length = size(i32::from_le_bytes(length.try_into().unwrap_or_default()).into())?;
        let mut whole = self.bytes.read(self.at, 8 + length)?.to_vec();
        if length > 0 {
            let message = root_as_message(&whole[8..]).map_err(|e| wrong(e.to_string()))?;
            let body = self.bytes.read(self.at + whole.len() as u64, size(message.bodyLength())?)?;
            check(&whole, &body)?;
            whole.extend_from_slice(&body);
        }
        self.at += whole.len() as u64;
        Ok(whole)
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.message.position() == self.message.get_ref().len() as u64 {
            self.message = Cursor::new(self.next_message().map_err(io::Error::other)?);
        }
        self.message.read(to)
    }
}
