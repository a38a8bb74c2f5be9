//! Decoding of a pickle into opcodes with their arguments.
use std::path::Path;
use tgnn::error::{Error, Result};

/// The opcodes of plain data, NumPy arrays and PyTorch tensors, with their names in Python's `pickle`.
#[rustfmt::skip]
mod opcodes {
    pub const MARK: u8 = b'(';             pub const STOP: u8 = b'.';
    pub const POP: u8 = b'0';              pub const POP_MARK: u8 = b'1';
    pub const NONE: u8 = b'N';             pub const NEWTRUE: u8 = 0x88;
    pub const NEWFALSE: u8 = 0x89;         pub const BININT: u8 = b'J';
    pub const BININT1: u8 = b'K';          pub const BININT2: u8 = b'M';
    pub const LONG1: u8 = 0x8a;            pub const LONG4: u8 = 0x8b;
    pub const BINFLOAT: u8 = b'G';         pub const BINSTRING: u8 = b'T';
    pub const SHORT_BINSTRING: u8 = b'U';  pub const BINBYTES: u8 = b'B';
    pub const SHORT_BINBYTES: u8 = b'C';   pub const BINBYTES8: u8 = 0x8e;
    pub const BYTEARRAY8: u8 = 0x96;       pub const BINUNICODE: u8 = b'X';
    pub const SHORT_BINUNICODE: u8 = 0x8c; pub const BINUNICODE8: u8 = 0x8d;
    pub const EMPTY_LIST: u8 = b']';       pub const LIST: u8 = b'l';
    pub const APPEND: u8 = b'a';           pub const APPENDS: u8 = b'e';
    pub const EMPTY_TUPLE: u8 = b')';      pub const TUPLE: u8 = b't';
    pub const TUPLE1: u8 = 0x85;           pub const TUPLE2: u8 = 0x86;
    pub const TUPLE3: u8 = 0x87;           pub const EMPTY_DICT: u8 = b'}';
    pub const DICT: u8 = b'd';             pub const SETITEM: u8 = b's';
    pub const SETITEMS: u8 = b'u';         pub const GLOBAL: u8 = b'c';
    pub const STACK_GLOBAL: u8 = 0x93;     pub const REDUCE: u8 = b'R';
    pub const BUILD: u8 = b'b';            pub const BINPERSID: u8 = b'Q';
    pub const PROTO: u8 = 0x80;            pub const FRAME: u8 = 0x95;
    pub const BINPUT: u8 = b'q';           pub const LONG_BINPUT: u8 = b'r';
    pub const MEMOIZE: u8 = 0x94;          pub const BINGET: u8 = b'h';
    pub const LONG_BINGET: u8 = b'j';
}
pub(super) use opcodes::*;

/// A position in the bytes of a pickle.
#[derive(Clone)]
pub(super) struct Code<'a> {
    /// The name of the file in errors.
    pub file: &'a Path,
    pub bytes: &'a [u8],
    /// Index of the next byte to read.
    pub at: usize,
}

impl<'a> Code<'a> {
    /// Returns an error at byte `at`.
    #[cold]
    pub(super) fn error(&self, at: usize, what: &str) -> Error {
        Error::data(self.file, format!("byte {at}: {what}")).remedy("fetch or write the file again")
    }

    /// Returns the next `n` bytes and moves past them.
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(n).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| self.error(self.bytes.len(), "the pickle is cut short"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Reads a length of `width` bytes, and returns the bytes of this length that follow.
    fn take_counted(&mut self, width: usize) -> Result<&'a [u8]> {
        let n = unsigned(self.take(width)?);
        self.take(usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// Returns the next two lines, without the newline of the second.
    fn take_two_lines(&mut self) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let ends = rest.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i);
        let end = ends.take(2).nth(1).unwrap_or(rest.len());
        let lines = self.take(end)?;
        self.take(1)?;
        Ok(lines)
    }

    /// Returns the next opcode and the bytes of its argument, and moves past both.
    pub(super) fn next(&mut self) -> Result<(u8, &'a [u8])> {
        let at = self.at;
        let code = self.take(1)?[0];
        let argument = match code {
            PROTO | BININT1 | BINPUT | BINGET => self.take(1)?,
            BININT2 => self.take(2)?,
            BININT | LONG_BINPUT | LONG_BINGET => self.take(4)?,
            BINFLOAT | FRAME => self.take(8)?,
            SHORT_BINBYTES | SHORT_BINUNICODE | SHORT_BINSTRING | LONG1 => self.take_counted(1)?,
            BINBYTES | BINUNICODE | BINSTRING | LONG4 => self.take_counted(4)?,
            BINBYTES8 | BINUNICODE8 | BYTEARRAY8 => self.take_counted(8)?,
            GLOBAL => self.take_two_lines()?,
            MARK | STOP | POP | POP_MARK | NONE | NEWTRUE | NEWFALSE | EMPTY_LIST | LIST | APPEND
            | APPENDS | EMPTY_TUPLE | TUPLE | TUPLE1 | TUPLE2 | TUPLE3 | EMPTY_DICT | DICT | SETITEM
            | SETITEMS | STACK_GLOBAL | REDUCE | BUILD | BINPERSID | MEMOIZE => &[],
            _ => return Err(self.error(at, &format!("opcode 0x{code:02x} is not supported"))),
        };
        Ok((code, argument))
    }
}

/// Decodes at most eight bytes as a little-endian number.
pub(super) fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}
