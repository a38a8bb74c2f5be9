//! Python's pickles, protocols 2 to 5, read as plain data.
//!
//! A pickle is a program for a machine with a stack. This one knows the opcodes that build data; what would *call*
//! something is kept as a [`Call`] with its arguments, for the reader to make sense of, or not. Nothing is executed, and
//! nothing is allocated by a length that the file claims: bytes and texts stay in the file, all else is made of opcodes
//! that are there.
mod code;
mod numpy;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use code::*;
use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

/// A value; what is larger than a few words lies in the [`Pickle`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than eight bytes, little-endian.
    Long(&'a [u8]),
    Float(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// Something by name, such as `numpy.dtype`.
    Global(u32),
    Tuple(u32, u32),
    List(u32),
    Dict(u32),
    Call(u32),
    /// What stands for data outside the pickle; PyTorch's are tuples.
    Outside(u32, u32),
}

/// A call that the pickle asks for and that nobody makes.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// Module and name.
    pub function: (&'a str, &'a str),
    arguments: (u32, u32),
    /// What the object is given after it is made.
    state: Option<Value<'a>>,
    at: usize,
}

/// A pickle that has been read.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    pub root: Value<'a>,
    /// The first byte after the pickle.
    pub end: usize,
    file: &'a Path,
    /// The members of tuples.
    members: Vec<Value<'a>>,
    lists: Vec<Vec<Value<'a>>>,
    dicts: Vec<Vec<(Value<'a>, Value<'a>)>>,
    calls: Vec<Call<'a>>,
    globals: Vec<(&'a str, &'a str)>,
}

impl<'a> Pickle<'a> {
    /// Reads the pickle that starts at byte `at`; `file` is what errors call it.
    ///
    /// # Errors
    /// Data, naming the byte, if the pickle is cut short, damaged, or holds something else than plain data.
    pub(super) fn read(file: &'a Path, bytes: &'a [u8], at: usize) -> Result<Self> {
        let code = Code { file, bytes, at };
        let mut remembered = HashSet::new();
        let mut scan = code.clone();
        // Writers remember every value and recall few of them; the others are not kept.
        loop {
            match scan.next()? {
                (BINGET | LONG_BINGET, slot) => {
                    remembered.insert(unsigned(slot));
                }
                (STOP, _) => break,
                _ => {}
            }
        }
        let pickle = Pickle {
            root: Value::None,
            end: scan.at,
            file,
            members: Vec::new(),
            lists: Vec::new(),
            dicts: Vec::new(),
            calls: Vec::new(),
            globals: Vec::new(),
        };
        let machine = Machine {
            code,
            pickle,
            remembered,
            memo: HashMap::new(),
            written: 0,
            held: 0,
            stack: Vec::new(),
            marks: Vec::new(),
        };
        machine.run()
    }

    /// The members of a tuple or a list.
    pub(super) fn members(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        match value {
            Value::Tuple(start, end) | Value::Outside(start, end) => self.slice((start, end)),
            Value::List(i) => self.lists.get(i as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    /// The entries of a dictionary, in the order of the file.
    pub(super) fn entries(&self, value: Value<'a>) -> Option<&[(Value<'a>, Value<'a>)]> {
        if let Value::Dict(i) = value { self.dicts.get(i as usize).map(Vec::as_slice) } else { None }
    }

    /// A call and its arguments.
    pub(super) fn call(&self, value: Value<'a>) -> Option<(&Call<'a>, &[Value<'a>])> {
        let Value::Call(i) = value else { return None };
        let call = self.calls.get(i as usize)?;
        Some((call, self.slice(call.arguments)?))
    }

    fn slice(&self, (start, end): (u32, u32)) -> Option<&[Value<'a>]> {
        self.members.get(start as usize..end as usize)
    }

    /// Module and name.
    pub(super) fn global(&self, value: Value<'a>) -> Option<(&'a str, &'a str)> {
        if let Value::Global(i) = value { self.globals.get(i as usize).copied() } else { None }
    }

    /// An error about `value`, with the byte where it is made, if it is made by a call.
    #[cold]
    pub(super) fn error(&self, value: Value<'a>, what: &str) -> Error {
        let place = self.call(value).map_or(String::new(), |(call, _)| format!("byte {}: ", call.at));
        Error::data(self.file, format!("{place}{what}")).remedy("fetch or write the file again")
    }
}

/// The machine that a pickle is a program for.
struct Machine<'a> {
    code: Code<'a>,
    pickle: Pickle<'a>,
    /// The slots of the memo that are ever read.
    remembered: HashSet<u64>,
    memo: HashMap<u64, Value<'a>>,
    /// Values that `MEMOIZE` has numbered.
    written: u64,
    /// Members that are never dropped: some value in the memo needs them.
    held: usize,
    stack: Vec<Value<'a>>,
    /// Heights of the stack.
    marks: Vec<usize>,
}

impl<'a> Machine<'a> {
    fn run(mut self) -> Result<Pickle<'a>> {
        loop {
            let at = self.code.at;
            let (code, argument) = self.code.next()?;
            match code {
                PROTO if argument[0] > 5 => {
                    return Err(self
                        .code
                        .error(at, &format!("protocol {} is not read, 2 to 5 are", argument[0])));
                }
                PROTO | FRAME => {}
                MARK => self.marks.push(self.stack.len()),
                STOP => {
                    self.pickle.root = self.pop(at)?;
                    return Ok(self.pickle);
                }
                POP => {
                    self.pop(at)?;
                }
                POP_MARK => {
                    self.pop_to_mark(at)?;
                }
                NONE => self.stack.push(Value::None),
                NEWTRUE | NEWFALSE => self.stack.push(Value::Bool(code == NEWTRUE)),
                BININT1 | BININT2 => self.stack.push(Value::Int(unsigned(argument) as i64)),
                BININT => self.stack.push(Value::Int((unsigned(argument) as u32 as i32).into())),
                LONG1 | LONG4 => self.stack.push(long(argument)),
                BINFLOAT => {
                    let bits = argument.iter().fold(0, |n, &b| n << 8 | u64::from(b));
                    self.stack.push(Value::Float(f64::from_bits(bits)));
                }
                BINBYTES | SHORT_BINBYTES | BINBYTES8 | BYTEARRAY8 | BINSTRING | SHORT_BINSTRING => {
                    self.stack.push(Value::Bytes(argument));
                }
                BINUNICODE | SHORT_BINUNICODE | BINUNICODE8 => {
                    let text = self.text(at, argument)?;
                    self.stack.push(Value::Text(text));
                }
                EMPTY_LIST => self.list(Vec::new()),
                LIST => {
                    let members = self.pop_to_mark(at)?;
                    self.list(members);
                }
                APPEND | APPENDS => {
                    let members = if code == APPEND { vec![self.pop(at)?] } else { self.pop_to_mark(at)? };
                    let Some(&Value::List(i)) = self.stack.last() else {
                        return Err(self.code.error(at, "there is no list to append to"));
                    };
                    self.pickle.lists[i as usize].extend(members);
                }
                EMPTY_TUPLE => self.tuple(at, &[])?,
                TUPLE => {
                    let members = self.pop_to_mark(at)?;
                    self.tuple(at, &members)?;
                }
                TUPLE1 | TUPLE2 | TUPLE3 => {
                    let mut members = [Value::None; 3];
                    let n = usize::from(code - TUPLE1) + 1;
                    for slot in members[..n].iter_mut().rev() {
                        *slot = self.pop(at)?;
                    }
                    self.tuple(at, &members[..n])?;
                }
                EMPTY_DICT => self.dict(),
                DICT => {
                    let entries = self.pop_to_mark(at)?;
                    self.dict();
                    self.set_items(at, &entries)?;
                }
                SETITEM => {
                    let (value, key) = (self.pop(at)?, self.pop(at)?);
                    self.set_items(at, &[key, value])?;
                }
                SETITEMS => {
                    let entries = self.pop_to_mark(at)?;
                    self.set_items(at, &entries)?;
                }
                GLOBAL => {
                    let text = self.text(at, argument)?;
                    let (module, name) = text.split_once('\n').unwrap_or((text, ""));
                    self.global(module, name);
                }
                STACK_GLOBAL => {
                    let (name, module) = (self.pop(at)?, self.pop(at)?);
                    let (Value::Text(module), Value::Text(name)) = (module, name) else {
                        return Err(self.code.error(at, "a name is no text"));
                    };
                    self.global(module, name);
                }
                REDUCE => self.reduce(at)?,
                BUILD => {
                    let state = self.pop(at)?;
                    if let Some(&Value::Call(i)) = self.stack.last() {
                        self.pickle.calls[i as usize].state = Some(state);
                    } else if !matches!(self.stack.last(), Some(Value::Dict(_))) {
                        return Err(self.code.error(at, "there is no object to give a state"));
                    }
                }
                BINPERSID => match self.pop(at)? {
                    Value::Tuple(start, end) => self.stack.push(Value::Outside(start, end)),
                    _ => return Err(self.code.error(at, "what stands for data outside is no tuple")),
                },
                BINPUT | LONG_BINPUT => self.remember(at, unsigned(argument))?,
                MEMOIZE => {
                    self.remember(at, self.written)?;
                    self.written += 1;
                }
                BINGET | LONG_BINGET => {
                    let value = self.memo.get(&unsigned(argument)).copied();
                    self.stack.push(
                        value.ok_or_else(|| {
                            self.code.error(at, "a value is recalled before it is remembered")
                        })?,
                    );
                }
                _ => return Err(self.code.error(at, "no opcode of plain data")),
            }
        }
    }

    fn pop(&mut self, at: usize) -> Result<Value<'a>> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let value = if self.stack.len() > floor { self.stack.pop() } else { None };
        value.ok_or_else(|| self.code.error(at, "a value is taken where there is none"))
    }

    fn pop_to_mark(&mut self, at: usize) -> Result<Vec<Value<'a>>> {
        let mark = self.marks.pop().ok_or_else(|| self.code.error(at, "there is no mark to go back to"))?;
        Ok(self.stack.split_off(mark))
    }

    fn text(&self, at: usize, bytes: &'a [u8]) -> Result<&'a str> {
        std::str::from_utf8(bytes).map_err(|_| self.code.error(at, "a text is no UTF-8"))
    }

    fn tuple(&mut self, at: usize, members: &[Value<'a>]) -> Result<()> {
        let start = self.pickle.members.len();
        self.pickle.members.extend_from_slice(members);
        let end = u32::try_from(self.pickle.members.len());
        let end = end.map_err(|_| self.code.error(at, "the tuples have more than 2^32 members"))?;
        self.stack.push(Value::Tuple(start as u32, end));
        Ok(())
    }

    fn list(&mut self, members: Vec<Value<'a>>) {
        self.stack.push(Value::List(self.pickle.lists.len() as u32));
        self.pickle.lists.push(members);
    }

    fn dict(&mut self) {
        self.stack.push(Value::Dict(self.pickle.dicts.len() as u32));
        self.pickle.dicts.push(Vec::new());
    }

    fn set_items(&mut self, at: usize, entries: &[Value<'a>]) -> Result<()> {
        let Some(&Value::Dict(i)) = self.stack.last() else {
            return Err(self.code.error(at, "there is no dictionary to add to"));
        };
        let (pairs, rest) = entries.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.code.error(at, "a key has no value"));
        }
        self.pickle.dicts[i as usize].extend(pairs.iter().map(|&[key, value]| (key, value)));
        Ok(())
    }

    fn global(&mut self, module: &'a str, name: &'a str) {
        self.stack.push(Value::Global(self.pickle.globals.len() as u32));
        self.pickle.globals.push((module, name));
    }

    fn reduce(&mut self, at: usize) -> Result<()> {
        let (arguments, function) = (self.pop(at)?, self.pop(at)?);
        let (Value::Tuple(start, end), Some(function)) = (arguments, self.pickle.global(function)) else {
            return Err(self.code.error(at, "a call has no name or no arguments"));
        };
        // NumPy's scalars become numbers at once: there are three in every key of TGB's dictionaries.
        let value = match self.pickle.scalar(function, arguments) {
            Some(value) => {
                if end as usize == self.pickle.members.len() && start as usize >= self.held {
                    self.pickle.members.truncate(start as usize);
                }
                value
            }
            None if function == ("collections", "OrderedDict") && start == end => {
                self.dict();
                return Ok(());
            }
            None => {
                let call = Call { function, arguments: (start, end), state: None, at };
                self.pickle.calls.push(call);
                Value::Call(self.pickle.calls.len() as u32 - 1)
            }
        };
        self.stack.push(value);
        Ok(())
    }

    fn remember(&mut self, at: usize, slot: u64) -> Result<()> {
        let &value = self.stack.last().ok_or_else(|| self.code.error(at, "there is nothing to remember"))?;
        if self.remembered.contains(&slot) {
            self.memo.insert(slot, value);
            self.held = self.pickle.members.len();
        }
        Ok(())
    }
}

/// A little-endian integer in two's complement.
fn long(bytes: &[u8]) -> Value<'_> {
    if bytes.len() > 8 {
        return Value::Long(bytes);
    }
    let unused = 64 - 8 * bytes.len() as u32;
    Value::Int(if bytes.is_empty() { 0 } else { (unsigned(bytes) << unused) as i64 >> unused })
}
