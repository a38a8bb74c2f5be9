//! A safe reader of Python's pickles, protocols 2 to 5.
//!
//! A pickle is a program for a stack machine. The machine here supports the opcodes that build plain data. A
//! call is not made, but stored as a [`Call`] with its arguments, for the caller to interpret. So no code of
//! the file is executed. Lengths in the file never determine an allocation: bytes and strings are borrowed
//! from the file, and every other value results from an opcode that the file contains.
mod code;
mod numpy;
#[cfg(test)]
mod tests;

use code::*;
use std::{
    collections::{HashMap, HashSet},
    path::Path,
};
use tgnn::error::{Error, Result};

/// A value. Larger ones refer to vectors of the [`Pickle`] by index.
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
    /// A Python object by module and name, such as `numpy.dtype`.
    Global(u32),
    /// The first member and the end of the members.
    Tuple(u32, u32),
    List(u32),
    Dict(u32),
    Call(u32),
    /// A persistent id, which refers to data outside the pickle. PyTorch's are tuples; the fields are those
    /// of [`Tuple`](Self::Tuple).
    Outside(u32, u32),
}

/// A call in a pickle; it is never made.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// Module and name of the function.
    pub function: (&'a str, &'a str),
    /// Range of the arguments in the members of tuples.
    arguments: (u32, u32),
    /// The state that the resulting object gets, by the opcode `BUILD`.
    state: Option<Value<'a>>,
    /// Byte of the call in the pickle.
    at: usize,
}

/// The data of a pickle.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    /// The value of the whole pickle.
    pub root: Value<'a>,
    /// The first byte after the pickle.
    pub end: usize,
    file: &'a Path,
    /// The members of all tuples.
    members: Vec<Value<'a>>,
    lists: Vec<Vec<Value<'a>>>,
    dicts: Vec<Vec<(Value<'a>, Value<'a>)>>,
    calls: Vec<Call<'a>>,
    /// Modules and names.
    globals: Vec<(&'a str, &'a str)>,
}

impl<'a> Pickle<'a> {
    /// Reads the pickle that starts at byte `at` of `bytes`; `file` is its name in errors.
    pub(super) fn read(file: &'a Path, bytes: &'a [u8], at: usize) -> Result<Self> {
        let code = Code { file, bytes, at };
        // Python's writers memoize every value and read few of them back. A first scan finds the memo keys
        // that are read, so that the others need not be stored.
        let mut recalled_keys = HashSet::new();
        let mut scan = code.clone();
        loop {
            match scan.next()? {
                (BINGET | LONG_BINGET, key) => {
                    recalled_keys.insert(unsigned(key));
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
            recalled_keys,
            memo: HashMap::new(),
            memoized: 0,
            held: 0,
            stack: Vec::new(),
            marks: Vec::new(),
        };
        machine.run()
    }

    /// Returns the members of a tuple, a persistent id or a list.
    pub(super) fn members(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        match value {
            Value::Tuple(start, end) | Value::Outside(start, end) => self.slice((start, end)),
            Value::List(i) => self.lists.get(i as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    /// Returns the entries of a dictionary, in the order of the file.
    pub(super) fn entries(&self, value: Value<'a>) -> Option<&[(Value<'a>, Value<'a>)]> {
        if let Value::Dict(i) = value { self.dicts.get(i as usize).map(Vec::as_slice) } else { None }
    }

    /// Returns a call and its arguments.
    pub(super) fn call(&self, value: Value<'a>) -> Option<(&Call<'a>, &[Value<'a>])> {
        let Value::Call(i) = value else { return None };
        let call = self.calls.get(i as usize)?;
        Some((call, self.slice(call.arguments)?))
    }

    fn slice(&self, (start, end): (u32, u32)) -> Option<&[Value<'a>]> {
        self.members.get(start as usize..end as usize)
    }

    /// Returns the module and name of a global.
    pub(super) fn global(&self, value: Value<'a>) -> Option<(&'a str, &'a str)> {
        if let Value::Global(i) = value { self.globals.get(i as usize).copied() } else { None }
    }

    /// Returns an error about `value`, with the byte of the call if `value` is one.
    #[cold]
    pub(super) fn error(&self, value: Value<'a>, what: &str) -> Error {
        let position = self.call(value).map_or(String::new(), |(call, _)| format!("byte {}: ", call.at));
        Error::data(self.file, format!("{position}{what}")).remedy("fetch or write the file again")
    }
}

/// The stack machine that executes a pickle.
struct Machine<'a> {
    code: Code<'a>,
    pickle: Pickle<'a>,
    /// The memo keys that the pickle reads.
    recalled_keys: HashSet<u64>,
    memo: HashMap<u64, Value<'a>>,
    /// Number of values that `MEMOIZE` has stored: its next key.
    memoized: u64,
    /// Number of leading tuple members that must not be dropped, because values in the memo may refer to
    /// them.
    held: usize,
    stack: Vec<Value<'a>>,
    /// Stack heights at the open marks.
    marks: Vec<usize>,
}

impl<'a> Machine<'a> {
    /// Executes the pickle up to its `STOP`.
    fn run(mut self) -> Result<Pickle<'a>> {
        loop {
            let at = self.code.at;
            let (code, argument) = self.code.next()?;
            if code == STOP {
                self.pickle.root = self.pop(at)?;
                return Ok(self.pickle);
            }
            self.execute(at, code, argument)?;
        }
    }

    /// Executes the opcode `code` at byte `at`.
    #[inline]
    fn execute(&mut self, at: usize, code: u8, argument: &'a [u8]) -> Result<()> {
        match code {
            PROTO => self.check_protocol(at, argument[0])?,
            FRAME => {}
            MARK => self.marks.push(self.stack.len()),
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
            BINFLOAT => self.stack.push(float(argument)),
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
            APPEND | APPENDS => self.append(at, code)?,
            EMPTY_TUPLE => self.tuple(at, &[])?,
            TUPLE => {
                let members = self.pop_to_mark(at)?;
                self.tuple(at, &members)?;
            }
            TUPLE1 | TUPLE2 | TUPLE3 => self.short_tuple(at, usize::from(code - TUPLE1) + 1)?,
            EMPTY_DICT => self.dict(),
            DICT | SETITEM | SETITEMS => self.add_to_dict(at, code)?,
            GLOBAL => self.named_global(at, argument)?,
            STACK_GLOBAL => self.stack_global(at)?,
            REDUCE => self.reduce(at)?,
            BUILD => self.build(at)?,
            BINPERSID => self.persistent_id(at)?,
            BINPUT | LONG_BINPUT => self.memoize(at, unsigned(argument))?,
            MEMOIZE => {
                self.memoize(at, self.memoized)?;
                self.memoized += 1;
            }
            BINGET | LONG_BINGET => self.recall(at, unsigned(argument))?,
            _ => return Err(self.code.error(at, &format!("opcode 0x{code:02x} is not supported"))),
        }
        Ok(())
    }

    fn check_protocol(&self, at: usize, protocol: u8) -> Result<()> {
        if protocol > 5 {
            let what = format!("protocol {protocol} is not supported, only 2 to 5 are");
            return Err(self.code.error(at, &what));
        }
        Ok(())
    }

    /// Pops a value above the last mark.
    fn pop(&mut self, at: usize) -> Result<Value<'a>> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let value = if self.stack.len() > floor { self.stack.pop() } else { None };
        value.ok_or_else(|| self.code.error(at, "the stack has no value for this opcode"))
    }

    /// Pops the last mark and all values above it.
    fn pop_to_mark(&mut self, at: usize) -> Result<Vec<Value<'a>>> {
        let mark = self.marks.pop().ok_or_else(|| self.code.error(at, "there is no mark on the stack"))?;
        Ok(self.stack.split_off(mark))
    }

    fn text(&self, at: usize, bytes: &'a [u8]) -> Result<&'a str> {
        std::str::from_utf8(bytes).map_err(|_| self.code.error(at, "a string is not valid UTF-8"))
    }

    /// Pushes a tuple.
    fn tuple(&mut self, at: usize, members: &[Value<'a>]) -> Result<()> {
        let start = self.pickle.members.len();
        self.pickle.members.extend_from_slice(members);
        let end = u32::try_from(self.pickle.members.len());
        let end = end.map_err(|_| self.code.error(at, "the tuples have 2^32 members or more"))?;
        self.stack.push(Value::Tuple(start as u32, end));
        Ok(())
    }

    /// Pushes a list.
    fn list(&mut self, members: Vec<Value<'a>>) {
        self.stack.push(Value::List(self.pickle.lists.len() as u32));
        self.pickle.lists.push(members);
    }

    /// Executes `APPEND` (one member) or `APPENDS` (all members above the mark).
    fn append(&mut self, at: usize, code: u8) -> Result<()> {
        let members = if code == APPEND { vec![self.pop(at)?] } else { self.pop_to_mark(at)? };
        let Some(&Value::List(i)) = self.stack.last() else {
            return Err(self.code.error(at, "there is no list to append to"));
        };
        self.pickle.lists[i as usize].extend(members);
        Ok(())
    }

    /// Pops `n <= 3` values and pushes them as a tuple.
    fn short_tuple(&mut self, at: usize, n: usize) -> Result<()> {
        let mut members = [Value::None; 3];
        for member in members[..n].iter_mut().rev() {
            *member = self.pop(at)?;
        }
        self.tuple(at, &members[..n])
    }

    /// Pushes an empty dictionary.
    fn dict(&mut self) {
        self.stack.push(Value::Dict(self.pickle.dicts.len() as u32));
        self.pickle.dicts.push(Vec::new());
    }

    /// Executes `DICT` (a new dictionary of the entries above the mark), `SETITEM` (one entry) or `SETITEMS`
    /// (all entries above the mark).
    fn add_to_dict(&mut self, at: usize, code: u8) -> Result<()> {
        if code == SETITEM {
            let (value, key) = (self.pop(at)?, self.pop(at)?);
            return self.set_items(at, &[key, value]);
        }
        let entries = self.pop_to_mark(at)?;
        if code == DICT {
            self.dict();
        }
        self.set_items(at, &entries)
    }

    /// Adds alternating keys and values to the dictionary on top of the stack.
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

    /// Pushes a global.
    fn global(&mut self, module: &'a str, name: &'a str) {
        self.stack.push(Value::Global(self.pickle.globals.len() as u32));
        self.pickle.globals.push((module, name));
    }

    /// Executes `GLOBAL`, whose argument is the lines of module and name.
    fn named_global(&mut self, at: usize, argument: &'a [u8]) -> Result<()> {
        let text = self.text(at, argument)?;
        let (module, name) = text.split_once('\n').unwrap_or((text, ""));
        self.global(module, name);
        Ok(())
    }

    /// Executes `STACK_GLOBAL`, which takes module and name from the stack.
    fn stack_global(&mut self, at: usize) -> Result<()> {
        let (name, module) = (self.pop(at)?, self.pop(at)?);
        let (Value::Text(module), Value::Text(name)) = (module, name) else {
            return Err(self.code.error(at, "the module or name of a global is not a string"));
        };
        self.global(module, name);
        Ok(())
    }

    /// Executes `BUILD`: pops a state for the object below it. A dictionary, which stands for an
    /// `OrderedDict`, ignores it.
    fn build(&mut self, at: usize) -> Result<()> {
        let state = self.pop(at)?;
        match self.stack.last() {
            Some(&Value::Call(i)) => self.pickle.calls[i as usize].state = Some(state),
            Some(Value::Dict(_)) => {}
            _ => return Err(self.code.error(at, "there is no object to give a state")),
        }
        Ok(())
    }

    /// Executes `BINPERSID`: turns the tuple on top of the stack into a persistent id.
    fn persistent_id(&mut self, at: usize) -> Result<()> {
        let Value::Tuple(start, end) = self.pop(at)? else {
            return Err(self.code.error(at, "a persistent id is not a tuple"));
        };
        self.stack.push(Value::Outside(start, end));
        Ok(())
    }

    /// Executes `REDUCE`: pops a function and its arguments, and pushes their call, or its value if that is
    /// known.
    fn reduce(&mut self, at: usize) -> Result<()> {
        let (arguments, function) = (self.pop(at)?, self.pop(at)?);
        let (Value::Tuple(start, end), Some(function)) = (arguments, self.pickle.global(function)) else {
            return Err(self.code.error(at, "a call lacks its function or its arguments"));
        };
        // Converts NumPy's scalars at once and drops their arguments, to save memory: every key of TGB's
        // dictionaries has three of them.
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

    /// Stores the top of the stack in the memo, if the pickle reads `key` at all.
    fn memoize(&mut self, at: usize, key: u64) -> Result<()> {
        let &value = self.stack.last().ok_or_else(|| self.code.error(at, "there is no value to memoize"))?;
        if self.recalled_keys.contains(&key) {
            self.memo.insert(key, value);
            self.held = self.pickle.members.len();
        }
        Ok(())
    }
    /// Pushes the memo's value of `key`.
    fn recall(&mut self, at: usize, key: u64) -> Result<()> {
        let value = self.memo.get(&key).copied();
        let value = value.ok_or_else(|| self.code.error(at, "a memo key is read before it is written"))?;
        self.stack.push(value);
        Ok(())
    }
}

/// Decodes a big-endian f64.
fn float(bytes: &[u8]) -> Value<'_> {
    Value::Float(f64::from_bits(bytes.iter().fold(0, |n, &b| n << 8 | u64::from(b))))
}

/// Decodes a little-endian integer in two's complement.
fn long(bytes: &[u8]) -> Value<'_> {
    if bytes.len() > 8 {
        return Value::Long(bytes);
    }
    let unused = 64 - 8 * bytes.len() as u32;
    Value::Int(if bytes.is_empty() { 0 } else { (unsigned(bytes) << unused) as i64 >> unused })
}
