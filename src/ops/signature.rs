//! Signatures: what an op reads and writes, in one line
//!
//! `table [v, d] stored, node [n] ids, picks [m, s] ids, similar [m s, d] -> out [n, d]`
//!
//! An operand is its name, its rows and columns (one column if none are given), and words:
//!
//! | word | meaning |
//! | --- | --- |
//! | none | f32 |
//! | `ids`, `times` | u32, i64 |
//! | `stored` | f32, bf16 or f16, all operands of this kind alike |
//! | `any` | any type |
//! | `state` | the op changes the input in place |
//! | `by count` | the output `count` holds how many rows are live |
//!
//! A size is a sum of products, such as `3`, `n`, `m s`, `2 (d + t)` or `v + 1`. A letter has the same value
//! wherever it occurs: an input has it, or [`Op::sizes`] says what it is. Rows may be live, but those of a
//! capital letter, of one that also counts columns, and of a sum with a number are fixed. An operand without
//! brackets may be anything: its op checks it.
//!
//! `bias? [1, m]` may be absent: [`Op::has`] says whether it is there, or else the number of inputs does.
//! Inputs in braces, the last ones, are repeated any number of times; their own letters differ each time.
use super::*;

/// Maximum number of operands; a constant cannot be a vector.
const MOST: usize = 24;

/// The sizes that letters stand for.
pub type Sizes = Vec<(&'static str, Rows)>;

/// The type of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Is(DType),
    Stored,
    Any,
}

/// An operand, as a signature states it.
#[derive(Clone, Copy, Debug)]
struct Operand {
    name: &'static str,
    /// Rows and columns; empty if the operand may be anything.
    shape: [&'static str; 2],
    kind: Kind,
    optional: bool,
    repeated: bool,
    state: bool,
    /// Name of the output that counts the rows, or nothing.
    counted_by: &'static str,
}

/// A signature in parts.
#[derive(Debug)]
pub(super) struct Signature {
    operands: [Operand; MOST],
    inputs: usize,
    len: usize,
}

/// What remains to be read of a signature. It is read while the crate is compiled, so that one with a mistake
/// does not compile.
struct Reader {
    rest: &'static str,
}

impl Reader {
    const fn take(&mut self, n: usize) -> &'static str {
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest;
        taken
    }
    /// Skips spaces and returns the next byte; 0 at the end.
    const fn next(&mut self) -> u8 {
        while let [b' ', ..] = self.rest.as_bytes() {
            self.take(1);
        }
        if let [next, ..] = self.rest.as_bytes() { *next } else { 0 }
    }
    /// Skips `mark` if it comes next.
    const fn skip(&mut self, mark: u8) -> bool {
        let found = self.next() == mark;
        if found {
            self.take(1);
        }
        found
    }
    /// Takes a word; it is empty if something else comes next.
    const fn word(&mut self) -> &'static str {
        self.next();
        let mut n = 0;
        while n < self.rest.len()
            && (self.rest.as_bytes()[n].is_ascii_alphanumeric() || self.rest.as_bytes()[n] == b'_')
        {
            n += 1;
        }
        self.take(n)
    }
    /// Takes a size, which ends before a comma or a bracket.
    const fn size(&mut self) -> &'static str {
        self.next();
        let mut n = 0;
        while n < self.rest.len() && !matches!(self.rest.as_bytes()[n], b',' | b']') {
            let byte = self.rest.as_bytes()[n];
            assert!(
                byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'+' | b'(' | b')'),
                "a size is a sum"
            );
            n += 1;
        }
        assert!(n > 0 && n < self.rest.len(), "a shape has no size, or no end");
        self.take(n)
    }
    const fn operand(&mut self, repeated: bool) -> Operand {
        let name = self.word();
        assert!(!name.is_empty(), "an operand has no name");
        let optional = self.skip(b'?');
        let mut shape = [""; 2];
        if self.skip(b'[') {
            let rows = self.size();
            shape = [rows, if self.skip(b',') { self.size() } else { "1" }];
            assert!(self.skip(b']'), "a shape has rows and columns");
        }
        let (mut kind, mut state, mut counted_by) = (Kind::Is(DType::F32), false, "");
        loop {
            match self.word().as_bytes() {
                b"ids" => kind = Kind::Is(DType::U32),
                b"times" => kind = Kind::Is(DType::I64),
                b"stored" => kind = Kind::Stored,
                b"any" => kind = Kind::Any,
                b"state" => state = true,
                b"by" => counted_by = self.word(),
                b"" => break,
                _ => panic!(
                    "no such word; want ids, times, stored, any, state or by; an operand of f32 needs none"
                ),
            }
        }
        Operand { name, shape, kind, optional, repeated, state, counted_by }
    }
}

impl Signature {
    /// Reads a signature.
    ///
    /// # Panics
    /// If it has a mistake. It is to be read in a constant, so that it then does not compile.
    const fn parse(text: &'static str) -> Self {
        let none = Operand {
            name: "",
            shape: [""; 2],
            kind: Kind::Any,
            optional: false,
            repeated: false,
            state: false,
            counted_by: "",
        };
        let mut signature = Signature { operands: [none; MOST], inputs: MOST, len: 0 };
        let (mut reader, mut repeated) = (Reader { rest: text }, false);
        while reader.next() != 0 {
            if reader.skip(b'-') {
                assert!(reader.skip(b'>') && signature.inputs == MOST, "one arrow, ->");
                signature.inputs = signature.len;
            } else {
                repeated = reader.skip(b'{') || repeated;
                signature.operands[signature.len] = reader.operand(repeated);
                signature.len += 1;
                repeated = repeated && !reader.skip(b'}');
                reader.skip(b',');
            }
        }
        let mut i = 0;
        while i < signature.len {
            let (count, mut k) = (signature.operands[i].counted_by, signature.inputs);
            while k < signature.len && !same(signature.operands[k].name, count) {
                k += 1;
            }
            assert!(count.is_empty() || k < signature.len, "no output has the name of a count");
            i += 1;
        }
        assert!(signature.len == 0 || signature.inputs <= signature.len, "a signature has an arrow, ->");
        signature
    }
    /// Returns the position of the input `name` if all inputs before it are there.
    ///
    /// # Panics
    /// If there is no such input. It is to be called in a constant, so that it then does not compile.
    pub(super) const fn position(&self, name: &str) -> usize {
        let mut i = 0;
        while i < self.inputs {
            if same(self.operands[i].name, name) {
                return i;
            }
            i += 1;
        }
        panic!("no input has this name")
    }
    fn inputs(&self) -> &[Operand] {
        &self.operands[..self.inputs.min(self.len)]
    }
    /// Returns the outputs that are there.
    fn outputs(&self, has: Has<'_>) -> impl Iterator<Item = &Operand> {
        let stated = self.operands.get(self.inputs..self.len).unwrap_or_default();
        stated.iter().filter(move |output| !output.optional || has(output.name) == Some(true))
    }
    /// Returns the operands of `n` inputs.
    fn layout(&self, has: Has<'_>, n: usize) -> Layout<'_> {
        let there = |operand: &Operand| if operand.optional { has(operand.name) } else { Some(true) };
        let known = |operand: &&Operand| !operand.repeated && there(operand) == Some(true);
        // Where the op does not say which optional inputs it has, the first ones are there.
        let mut more = n.saturating_sub(self.inputs().iter().filter(known).count());
        let mut layout = Layout { once: Vec::with_capacity(n), group: Vec::new() };
        for operand in self.inputs() {
            let present = there(operand).unwrap_or_else(|| {
                let left = more > 0;
                more = more.saturating_sub(1);
                left
            });
            if present {
                if operand.repeated { &mut layout.group } else { &mut layout.once }.push(operand);
            }
        }
        layout
    }
    /// Returns the name of input `i`; `None` if there is no such input.
    pub(super) fn input_name(&self, has: Has<'_>, i: usize) -> Option<String> {
        let layout = self.layout(has, i + 1);
        let (operand, times) = layout.at(i)?;
        Some(numbered(operand.name, times))
    }
    /// Returns the name of output `k`; `None` if there is no such output.
    pub(super) fn output_name(&self, has: Has<'_>, k: usize) -> Option<&'static str> {
        self.outputs(has).nth(k).map(|output| output.name)
    }
    /// Returns which of `n` inputs are state.
    pub(super) fn writes(&self, has: Has<'_>, n: usize) -> Vec<usize> {
        let layout = self.layout(has, n);
        (0..n).filter(|&i| layout.at(i).is_some_and(|(operand, _)| operand.state)).collect()
    }
    /// Checks the inputs of `op`, for which letters stand for `sizes`, and returns its outputs.
    fn infer(&self, op: &'static str, has: Has<'_>, sizes: Sizes, ins: &[Spec]) -> Result<Vec<Out>> {
        let Layout { once, group } = self.layout(has, ins.len());
        let repeated = ins.len().checked_sub(once.len());
        if repeated.is_none_or(|n| n.checked_rem(group.len()).unwrap_or(n) != 0) {
            let names =
                |operands: &[&Operand]| operands.iter().map(|o| o.name).collect::<Vec<_>>().join(", ");
            let each = if group.is_empty() { String::new() } else { format!(", and any {}", names(&group)) };
            let (n, want) = (ins.len(), once.len());
            return Err(Error::shape(op, format_args!("{n} inputs, want {want}: {}{each}", names(&once))));
        }
        let mut known = Known { signature: self, op, given: sizes.len(), sizes, stored: None };
        let (first, rest) = ins.split_at(once.len());
        known.agree(&once, first, 0)?;
        let outer = known.sizes.len();
        for (times, ins) in rest.chunks(group.len().max(1)).enumerate() {
            known.agree(&group, ins, times)?;
            known.sizes.truncate(outer);
        }
        let outputs: Vec<&Operand> = self.outputs(has).collect();
        let stated = outputs.iter().filter(|output| !output.shape[0].is_empty());
        let out = |output: &&Operand| {
            let spec = known.wanted(output, None)?;
            let count = outputs.iter().position(|count| count.name == output.counted_by);
            Ok(match count {
                Some(count) => Out::counted_by(Spec { rows: Rows::fixed(spec.rows.capacity), ..spec }, count),
                None => spec.into(),
            })
        };
        stated.map(out).collect()
    }
}

/// Checks the inputs of an op as its signature states them, and returns the outputs whose shapes it states.
///
/// # Errors
/// `Shape`, with the shape found and the shape expected.
pub fn infer<T: Op>(op: &T, ins: &[Spec]) -> Result<Vec<Out>> {
    of_op::<T>().infer(T::NAME, &|operand| op.has(operand), op.sizes(), ins)
}

/// Returns the signature of an op.
pub(super) const fn of_op<T: Op>() -> &'static Signature {
    const { &Signature::parse(T::SIGNATURE) }
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut n = 0;
    while n < a.len() && n < b.len() && a[n] == b[n] {
        n += 1;
    }
    n == a.len() && n == b.len()
}

/// Tells whether an optional operand is there; `None` if the number of inputs does.
type Has<'a> = &'a dyn Fn(&str) -> Option<bool>;

/// The operands of some inputs: those that come once, and those that are repeated after them.
struct Layout<'a> {
    once: Vec<&'a Operand>,
    group: Vec<&'a Operand>,
}

impl Layout<'_> {
    /// Returns the operand of input `i`, and how often it came before.
    fn at(&self, i: usize) -> Option<(&Operand, usize)> {
        match i.checked_sub(self.once.len()) {
            None => Some((self.once[i], 0)),
            Some(_) if self.group.is_empty() => None,
            Some(i) => Some((self.group[i % self.group.len()], i / self.group.len())),
        }
    }
}

fn numbered(name: &str, times: usize) -> String {
    if times == 0 { name.to_owned() } else { format!("{name} {times}") }
}

/// Returns the letters of a size.
fn letters(size: &'static str) -> impl Iterator<Item = &'static str> {
    let words = size.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// What is known of the operands of an op.
struct Known<'a> {
    signature: &'a Signature,
    op: &'static str,
    sizes: Sizes,
    /// Number of sizes that the op itself gave.
    given: usize,
    /// The type of the operands that are `stored`.
    stored: Option<DType>,
}

/// A size, or the letter that stands for nothing yet.
type Value = std::result::Result<Rows, &'static str>;

impl Known<'_> {
    fn value(&self, size: &'static str) -> Value {
        let known = self.letter(size);
        known.map_or_else(|| self.sum(&mut Reader { rest: size }), Ok)
    }
    fn letter(&self, letter: &str) -> Option<Rows> {
        self.sizes.iter().find(|known| known.0 == letter).map(|known| known.1)
    }
    fn sum(&self, text: &mut Reader) -> Value {
        let mut sum = self.product(text)?;
        while text.skip(b'+') {
            sum = Rows::fixed(sum.capacity.saturating_add(self.product(text)?.capacity));
        }
        Ok(sum)
    }
    fn product(&self, text: &mut Reader) -> Value {
        let mut product = self.factor(text)?;
        while text.next() == b'(' || text.next().is_ascii_alphanumeric() {
            let factor = self.factor(text)?;
            product = match product.live {
                Some(_) => product.times(factor.capacity),
                None => factor.times(product.capacity),
            };
        }
        Ok(product)
    }
    fn factor(&self, text: &mut Reader) -> Value {
        if text.skip(b'(') {
            let sum = self.sum(text)?;
            text.skip(b')');
            return Ok(sum);
        }
        let word = text.word();
        self.letter(word).or_else(|| word.parse().ok().map(Rows::fixed)).ok_or(word)
    }
    /// Finds what the one unknown letter of a size stands for if the size is that of `found`. Returns
    /// whether the size is known then.
    fn find(&mut self, size: &'static str, found: Rows) -> bool {
        let Err(letter) = self.value(size) else { return true };
        let mut with = |n| {
            self.sizes.push((letter, Rows::fixed(n)));
            let value = self.value(size);
            self.sizes.pop();
            value
        };
        // Sizes are linear in each letter.
        let (Ok(at_0), Ok(at_1)) = (with(0), with(1)) else { return false };
        let factor = at_1.capacity.saturating_sub(at_0.capacity);
        if factor == 0 {
            return false;
        }
        let live = found.live.filter(|_| !self.is_fixed(letter) && at_0.capacity == 0);
        let live = live.map(|live| Live { times: live.times / factor, ..live });
        let capacity = found.capacity.saturating_sub(at_0.capacity) / factor;
        self.sizes.push((letter, Rows { capacity, live }));
        true
    }
    fn is_fixed(&self, letter: &str) -> bool {
        let mut columns = self.signature.operands.iter().flat_map(|operand| letters(operand.shape[1]));
        letter.starts_with(|c: char| c.is_ascii_uppercase()) || columns.any(|word| word == letter)
    }
    /// Returns what an operand is to be; `found` is what the input is.
    fn wanted(&self, operand: &Operand, found: Option<&Spec>) -> Result<Spec> {
        let dtype = match (operand.kind, found) {
            (Kind::Is(dtype), _) => dtype,
            (Kind::Any, Some(found)) => found.dtype,
            (Kind::Stored, _) => self.stored.unwrap_or(DType::F32),
            (Kind::Any, None) => DType::F32,
        };
        let [rows, cols] = operand.shape;
        let unknown = |letter| {
            let found = found.map_or_else(String::new, |found| format!(" is {found}, and"));
            let text = format!("{}{found} has no {letter} for [{rows}, {cols}]", operand.name);
            Error::shape(self.op, text)
        };
        let [rows, cols] = [rows, cols].map(|size| self.value(size).map_err(unknown));
        Ok(Spec { dtype, rows: rows?, cols: cols?.capacity })
    }
    /// Checks that inputs are what their operands state, after finding what the letters stand for. The
    /// operands came `nth` times before.
    fn agree(&mut self, operands: &[&Operand], ins: &[Spec], nth: usize) -> Result<()> {
        let stated = operands.iter().zip(ins).filter(|(operand, _)| !operand.shape[0].is_empty());
        let stated: Vec<(&Operand, &Spec)> = stated.map(|(&operand, found)| (operand, found)).collect();
        let is_stored = |stated: &&(&Operand, &Spec)| {
            stated.0.kind == Kind::Stored && stated.1.dtype.widened() == DType::F32
        };
        self.stored = self.stored.or(stated.iter().find(is_stored).map(|stated| stated.1.dtype));
        // First the sizes that are a letter, then those with one unknown letter: they may make others known.
        for pass in 0..3 {
            let mut all = true;
            for (operand, found) in &stated {
                for (size, found) in operand.shape.into_iter().zip([found.rows, Rows::fixed(found.cols)]) {
                    let simple = pass > 0 || letters(size).eq([size]);
                    all &= if simple { self.find(size, found) } else { self.value(size).is_ok() };
                }
            }
            if all {
                break;
            }
        }
        for &(operand, found) in &stated {
            let want = self.wanted(operand, Some(found))?;
            if *found != want {
                return Err(self.refused((operand, found), want, &stated, nth));
            }
        }
        Ok(())
    }
    /// Returns the error of an input that is not what its operand states. It tells where the rows and columns
    /// that are wanted come from: from the op, or from other operands with the same letters.
    fn refused(
        &self,
        (operand, found): (&Operand, &Spec),
        want: Spec,
        stated: &[(&Operand, &Spec)],
        nth: usize,
    ) -> Error {
        let [rows, cols] = operand.shape;
        let wrong = [(rows, found.rows != want.rows), (cols, found.cols != want.cols)];
        let others = || stated.iter().filter(|other| !std::ptr::eq(other.0, operand));
        let mut sources = Vec::new();
        for letter in wrong.into_iter().filter(|size| size.1).flat_map(|size| letters(size.0)) {
            let is = |other: &&(&Operand, &Spec)| other.0.shape.contains(&letter);
            let has =
                |other: &&(&Operand, &Spec)| other.0.shape.into_iter().flat_map(letters).any(|l| l == letter);
            let given = self.sizes[..self.given].iter().find(|size| size.0 == letter);
            let source = match (given, others().find(is).or_else(|| others().find(has))) {
                (Some((_, rows)), _) => format!("{letter} is {}", rows.capacity),
                (None, Some((other, spec))) => format!("{} is {spec}", other.name),
                (None, None) => continue,
            };
            sources.extend((!sources.contains(&source)).then_some(source));
        }
        let mut want = match found.to_string() == want.to_string() {
            true => format!("the live rows of [{rows}, {cols}]"),
            false if sources.is_empty() => want.to_string(),
            false => format!("{want} for [{rows}, {cols}]"),
        };
        if operand.kind == Kind::Stored && self.stored.is_none() {
            want += ", in 32 or 16 bits";
        }
        if !sources.is_empty() {
            want += &format!(", where {}", sources.join(" and "));
        }
        let name = numbered(operand.name, nth);
        Error::shape(self.op, format_args!("{name} is {found}, want {want}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Signature = Signature::parse(
        "x [n k, d], w [d, m] stored, v [m s] stored state, o [n + 1] ids, b? [1, m], {p [R, q], s [q] state} \
        -> y [n, m], list [n] ids by count, count [1] ids, z? [k]",
    );

    fn inferred(ins: &[Spec]) -> Result<Vec<Out>> {
        let sizes = vec![("k", Rows::fixed(2)), ("s", Rows::fixed(3))];
        READ.infer("op", &|operand| (operand == "z").then_some(true), sizes, ins)
    }

    fn real(rows: usize, cols: usize) -> Spec {
        Spec::real(Rows::fixed(rows), cols)
    }

    /// The inputs without those that may be absent, for `n = 5`, `d = 4` and `m = 7`.
    fn required() -> Vec<Spec> {
        let half = |spec| Spec { dtype: DType::F16, ..spec };
        vec![real(10, 4), half(real(4, 7)), half(real(21, 1)), Spec::ids(Rows::fixed(6), 1)]
    }

    #[test]
    fn letters_get_their_values_from_inputs_and_from_the_op() {
        let outs = inferred(&required()).unwrap();
        let specs: Vec<String> = outs.iter().map(|out| out.spec.to_string()).collect();
        assert_eq!(specs, ["F32 [5, 7]", "U32 [5, 1]", "U32 [1, 1]", "F32 [2, 1]"]);
        assert_eq!(outs.iter().map(|out| out.counted_by).collect::<Vec<_>>(), [None, Some(2), None, None]);
    }

    #[test]
    fn live_rows_are_divided_and_a_sum_is_of_all_rows() {
        let mut ins = required();
        let rows = Rows::live(5, Var::new(0, 3));
        ins[0].rows = rows.times(2);
        assert_eq!(inferred(&ins).unwrap()[0].spec, Spec::real(rows, 7));
        ins[0].rows.live = rows.live;
        let e = inferred(&ins).unwrap_err().to_string();
        assert_eq!(
            e,
            "op: x is F32 [<=10, 4], want the live rows of [n k, d], where o is U32 [6, 1] and k is 2"
        );
    }

    #[test]
    fn inputs_may_be_absent_and_repeated() {
        let more = [real(1, 7), real(3, 2), real(2, 1), real(4, 1), real(1, 1)];
        for n in [1, 3, 5] {
            let ins = [&required()[..], &more[..n]].concat();
            assert!(inferred(&ins).is_ok(), "{n}");
        }
        let e = inferred(&[&required()[..], &more[..2]].concat()).unwrap_err().to_string();
        assert_eq!(e, "op: 6 inputs, want 5: x, w, v, o, b, and any p, s");
        let has = |_: &str| None;
        assert_eq!(READ.writes(&has, 9), [2, 6, 8]);
        let names: Vec<Option<String>> = [4, 5, 6, 7, 8].map(|i| READ.input_name(&has, i)).to_vec();
        assert_eq!(names.iter().flatten().collect::<Vec<_>>(), ["b", "p", "s", "p 1", "s 1"]);
    }

    #[test]
    fn an_error_tells_where_a_wanted_size_comes_from() {
        let refused = |at: usize, spec| {
            let mut ins = [&required()[..], &[real(1, 7), real(3, 2), real(2, 1)]].concat();
            ins[at] = spec;
            inferred(&ins).unwrap_err().to_string()
        };
        assert_eq!(
            refused(4, real(1, 6)),
            "op: b is F32 [1, 6], want F32 [1, 7] for [1, m], where w is F16 [4, 7]"
        );
        assert_eq!(refused(2, real(21, 1)), "op: v is F32 [21, 1], want F16 [21, 1]");
        assert_eq!(refused(1, Spec::ids(Rows::fixed(4), 7)), "op: w is U32 [4, 7], want F16 [4, 7]");
        assert_eq!(refused(3, Spec::ids(Rows::fixed(6), 2)), "op: o is U32 [6, 2], want U32 [6, 1]");
    }
}
