//! Writes the metrics of a run as an event file of TensorBoard: a TFRecord file with one `Event` message per
//! value.
//!
//! | tag | step |
//! | --- | --- |
//! | `train/loss`, `train/events_per_second` | epoch |
//! | `val/ap` and the other metrics of validation | epoch |
//! | `test/transductive/ap`, `test/inductive/ap` and the other metrics of the test | best epoch |
//!
//! Every value has the wall time at which its epoch ended; the test's values have that of the last epoch. The
//! file depends on the records of the run only, so a resumed run writes the same file as an uninterrupted
//! one.
//!
//! Source: TensorFlow's `event.proto`, `summary.proto` and `record_writer.cc`.
use super::{EpochRecord, folder::write_whole};
use crate::task::evaluation::{Scores, TestScores};
use serde_json::Value;
use std::{fs, io::Write, path::Path};
use tgnn::error::{Error, Result};

/// Name of the file in the run folder.
pub const FILE: &str = "events.out.tfevents.tgnn-bench";

/// Updates the event file in the folder `out`. If the existing file is a prefix of the new contents, the
/// missing bytes are appended, so that a reader with the file open sees it grow; else the file is replaced
/// atomically. `test` holds the best epoch and its test scores.
///
/// # Errors
/// `Io`.
pub fn write(out: &Path, records: &[EpochRecord], test: Option<(usize, TestScores)>) -> Result<()> {
    let (path, bytes) = (out.join(FILE), events(records, test));
    let existing = fs::read(&path).unwrap_or_default();
    match bytes.strip_prefix(&existing[..]) {
        Some([]) => Ok(()),
        Some(missing) if !existing.is_empty() => fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(missing))
            .map_err(|e| Error::io(&path, "cannot write", e)),
        _ => write_whole(&path, &bytes),
    }
}

/// Returns the contents of the file.
fn events(records: &[EpochRecord], test: Option<(usize, TestScores)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let started = records.first().map_or(0.0, |r| r.wall_time);
    record(&mut bytes, &event(started, 0, FILE_VERSION, b"brain.Event:2"));
    let mut put = |time: f64, step: usize, tag: &str, value: f64| {
        let mut scalar = Vec::new();
        field(&mut scalar, TAG, tag.as_bytes());
        key(&mut scalar, SIMPLE_VALUE, FIXED32);
        scalar.extend((value as f32).to_le_bytes());
        let mut summary = Vec::new();
        field(&mut summary, VALUE, &scalar);
        record(&mut bytes, &event(time, step, SUMMARY, &summary));
    };
    for r in records {
        put(r.wall_time, r.epoch, "train/loss", r.train_loss);
        put(r.wall_time, r.epoch, "train/events_per_second", r.events_per_second);
        let val = r.val.as_ref().map_or_else(Vec::new, metrics);
        val.iter().for_each(|(name, value)| put(r.wall_time, r.epoch, &format!("val/{name}"), *value));
    }
    if let Some((best, test)) = test {
        let ended = records.last().map_or(0.0, |r| r.wall_time);
        for (part, scores) in [("transductive", test.transductive), ("inductive", test.inductive)] {
            for (name, value) in metrics(&scores) {
                put(ended, best, &format!("test/{part}/{name}"), value);
            }
        }
    }
    bytes
}

/// Returns the metrics that are defined, with their names in `summary.json`.
fn metrics(scores: &Scores) -> Vec<(String, f64)> {
    let Ok(Value::Object(metrics)) = serde_json::to_value(scores) else { return Vec::new() };
    metrics.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect()
}

// Field numbers of `Event`.
const WALL_TIME: u8 = 1;
const STEP: u8 = 2;
const FILE_VERSION: u8 = 3;
const SUMMARY: u8 = 5;
// Field number of `Summary`.
const VALUE: u8 = 1;
// Field numbers of `Summary.Value`.
const TAG: u8 = 1;
const SIMPLE_VALUE: u8 = 2;

// Wire types of Protocol Buffers.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// Encodes an `Event` with `content` in the field `number`.
fn event(wall_time: f64, step: usize, number: u8, content: &[u8]) -> Vec<u8> {
    let mut e = Vec::new();
    key(&mut e, WALL_TIME, FIXED64);
    e.extend(wall_time.to_le_bytes());
    if step > 0 {
        key(&mut e, STEP, VARINT);
        varint(&mut e, step as u64);
    }
    field(&mut e, number, content);
    e
}

/// Appends the key of a field.
fn key(to: &mut Vec<u8>, number: u8, wire_type: u8) {
    to.push(number << 3 | wire_type);
}

/// Appends a variable-length integer.
fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends a field of bytes.
fn field(to: &mut Vec<u8>, number: u8, content: &[u8]) {
    key(to, number, BYTES);
    varint(to, content.len() as u64);
    to.extend_from_slice(content);
}

/// Appends a TFRecord: its length, the checksum of the length, the content, the checksum of the content.
fn record(to: &mut Vec<u8>, content: &[u8]) {
    let length = (content.len() as u64).to_le_bytes();
    to.extend(length);
    to.extend(checksum(&length).to_le_bytes());
    to.extend_from_slice(content);
    to.extend(checksum(content).to_le_bytes());
}

/// Returns the masked CRC-32C of TFRecord. The mask is needed because a CRC of data that contains CRCs is
/// weak.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a file and checks every checksum. Returns for each event its wall time, its step and either
    /// the version or a tag and its value.
    fn read(mut bytes: &[u8]) -> Vec<(f64, u64, String, Option<f32>)> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = checked(bytes, 8);
            let (content, rest) = checked(rest, u64::from_le_bytes(length.try_into().unwrap()) as usize);
            bytes = rest;
            let (mut time, mut step, mut name, mut value) = (0.0, 0, String::new(), None);
            for (number, content) in fields(content) {
                match number {
                    WALL_TIME => time = f64::from_le_bytes(content.try_into().unwrap()),
                    STEP => step = number_in(&mut &content[..]),
                    FILE_VERSION => name = String::from_utf8(content).unwrap(),
                    SUMMARY => {
                        let summary = fields(&content);
                        assert_eq!((summary.len(), summary[0].0), (1, VALUE), "a summary of one value");
                        let scalar = fields(&summary[0].1);
                        assert_eq!(scalar.iter().map(|f| f.0).collect::<Vec<_>>(), [TAG, SIMPLE_VALUE]);
                        name = String::from_utf8(scalar[0].1.clone()).unwrap();
                        value = Some(f32::from_le_bytes(scalar[1].1[..].try_into().unwrap()));
                    }
                    other => panic!("a field {other}"),
                }
            }
            events.push((time, step, name, value));
        }
        events
    }
    fn checked(bytes: &[u8], n: usize) -> (&[u8], &[u8]) {
        let (content, rest) = bytes.split_at(n);
        let (sum, rest) = rest.split_at(4);
        // CRC-32C by its definition, bit by bit.
        let crc = !content.iter().fold(!0u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |c, _| c >> 1 ^ if c & 1 == 1 { 0x82f6_3b78 } else { 0 })
        });
        let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8);
        assert_eq!(u32::from_le_bytes(sum.try_into().unwrap()), masked);
        (content, rest)
    }
    fn number_in(bytes: &mut &[u8]) -> u64 {
        let n = bytes.iter().position(|b| b < &0x80).unwrap() + 1;
        let (varint, rest) = bytes.split_at(n);
        *bytes = rest;
        varint.iter().rev().fold(0, |value, b| value << 7 | u64::from(b & 0x7f))
    }
    fn fields(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut fields = Vec::new();
        while let Some((&key, rest)) = bytes.split_first() {
            bytes = rest;
            let length = match key & 7 {
                VARINT => bytes.iter().position(|b| b < &0x80).unwrap() + 1,
                FIXED64 => 8,
                FIXED32 => 4,
                BYTES => number_in(&mut bytes) as usize,
                other => panic!("a wire type {other}"),
            };
            let (content, rest) = bytes.split_at(length);
            fields.push((key >> 3, content.to_vec()));
            bytes = rest;
        }
        fields
    }

    fn epoch(epoch: usize) -> EpochRecord {
        let val = Scores { ap: Some(0.5 + epoch as f64), f1: Some(0.25), ..Scores::default() };
        EpochRecord {
            epoch,
            train_loss: 1.0 / epoch as f64,
            train_seconds: 2.0,
            events_per_second: 1000.0,
            val: Some(val),
            wall_time: 1e9 + epoch as f64,
            graphs_captured: None,
            val_seconds: None,
        }
    }
    fn tested() -> TestScores {
        let transductive = Scores { mrr: Some(0.125), ..Scores::default() };
        TestScores { transductive, inductive: Scores::default() }
    }

    #[test]
    fn every_value_is_read_back_with_its_tag_epoch_and_time_and_a_valid_checksum() {
        let got = read(&events(&[epoch(1), epoch(300)], Some((300, tested()))));
        let values_of = |e: &EpochRecord| {
            let values = [
                ("train/loss", e.train_loss),
                ("train/events_per_second", 1000.0),
                ("val/ap", 0.5 + e.epoch as f64),
                ("val/f1", 0.25),
            ];
            values.map(|(tag, value)| (e.wall_time, e.epoch as u64, tag.to_owned(), Some(value as f32)))
        };
        let version = (1e9 + 1.0, 0, "brain.Event:2".to_owned(), None);
        let mut want = vec![version];
        want.extend(values_of(&epoch(1)));
        want.extend(values_of(&epoch(300)));
        want.push((1e9 + 300.0, 300, "test/transductive/mrr".into(), Some(0.125)));
        assert_eq!(got, want);
    }

    #[test]
    fn the_bytes_equal_those_of_tensorboards_writer() {
        // Written by tensorboard.summary.writer.record_writer and tensorboard.compat.proto, version 2.21.
        let want = "1800000000000000a37f4b22090000800065cdcd411a0d627261696e2e4576656e743a328b1e5ddd200000000000\
             000029eda950090000800065cdcd4110012a130a110a0a747261696e2f6c6f7373150000803f67d9d5372d000000\
             000000003c418afb090000800065cdcd4110012a200a1e0a17747261696e2f6576656e74735f7065725f7365636f\
             6e641500007a4416090b93";
        let got = events(&[EpochRecord { val: None, ..epoch(1) }], None);
        assert_eq!(got.iter().map(|b| format!("{b:02x}")).collect::<String>(), want);
    }

    #[test]
    fn a_file_is_extended_if_it_is_a_prefix_and_replaced_if_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let epochs = [epoch(1), epoch(2), epoch(3)];
        write(dir.path(), &epochs[..1], None).unwrap();
        let mut open = fs::File::open(&path).unwrap();
        // A truncated record at the end is completed.
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 7]).unwrap();
        write(dir.path(), &epochs[..2], Some((1, tested()))).unwrap();
        let mut seen = Vec::new();
        std::io::Read::read_to_end(&mut open, &mut seen).unwrap();
        assert_eq!(seen, events(&epochs[..2], Some((1, tested()))), "an open file sees the new bytes");
        write(dir.path(), &epochs, None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), events(&epochs, None), "the test of fewer epochs is gone");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
