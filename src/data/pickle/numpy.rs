//! NumPy's numbers and arrays in a pickle.
//!
//! | what | protocol | how it is written |
//! | --- | --- | --- |
//! | a type | all | `numpy.dtype('i8', False, True)` with the state `(3, '<', …)` |
//! | a number | all | `numpy.core.multiarray.scalar(type, bytes)` |
//! | an array | 2 to 4 | `numpy.core.multiarray._reconstruct(…)` with the state `(1, shape, type, fortran, bytes)` |
//! | an array | 5 | `numpy.core.numeric._frombuffer(bytes, type, shape, order)` |
//! | bytes | 2 | `_codecs.encode(text, 'latin1')`, none as `bytes()` |
//!
//! `numpy.core` is `numpy._core` since NumPy 2.
use super::{Pickle, Value};
use crate::{
    data::scalar::{Scalar, ScalarKind, ScalarType},
    error::Result,
};
use std::borrow::Cow;

/// The numbers of an array of one axis.
#[derive(Debug)]
pub(in crate::data) struct Numbers<'a> {
    values: ScalarType,
    bytes: Cow<'a, [u8]>,
}

impl Numbers<'_> {
    /// All of them, in order.
    pub(in crate::data) fn iter(&self) -> impl ExactSizeIterator<Item = Scalar> {
        self.bytes.chunks_exact(self.values.size).map(|bytes| self.values.read(bytes))
    }
}

impl<'a> Pickle<'a> {
    /// The number that `function`, called with `arguments`, would make; `None` where it makes something else.
    pub(super) fn scalar(&self, function: (&str, &str), arguments: Value<'a>) -> Option<Value<'a>> {
        if !is(function, "multiarray", "scalar") {
            return None;
        }
        let &[values, bytes] = self.members(arguments)? else { return None };
        let (values, bytes) = (self.scalar_type(values)?, self.bytes(bytes)?);
        if bytes.len() != values.size {
            return None;
        }
        Some(match values.read(&bytes) {
            Scalar::Int(v) => Value::Int(v),
            Scalar::Uint(v) => i64::try_from(v).map_or(Value::Float(v as f64), Value::Int),
            Scalar::Float(v) => Value::Float(v),
        })
    }

    /// The numbers of an array of one axis, or of a list.
    ///
    /// # Errors
    /// Data if `value` is something else, or its bytes are not those of its shape.
    pub(in crate::data) fn numbers(&self, value: Value<'a>) -> Result<Numbers<'a>> {
        if let Some(members) = self.members(value) {
            let bytes = members.iter().map(|&v| Some(self.whole(v)?.to_le_bytes()));
            let bytes = bytes.collect::<Option<Vec<_>>>();
            let bytes =
                bytes.ok_or_else(|| self.error(value, "a list holds something else than integers"))?;
            let values = ScalarType::new(ScalarKind::Int, 8);
            return Ok(Numbers { values, bytes: Cow::Owned(bytes.concat()) });
        }
        let (shape, numbers) =
            self.array(value).ok_or_else(|| self.error(value, "this is no array of numbers"))?;
        let Some(&[Value::Int(n)]) = self.members(shape) else {
            return Err(self.error(value, "an array has not one axis"));
        };
        let size = numbers.values.size;
        if usize::try_from(n).ok().and_then(|n| n.checked_mul(size)) != Some(numbers.bytes.len()) {
            let what = format!("an array of {n} values has {} bytes", numbers.bytes.len());
            return Err(self.error(value, &what));
        }
        Ok(numbers)
    }

    /// The integer that `value` is, if it is one.
    pub(in crate::data) fn whole(&self, value: Value<'a>) -> Option<i64> {
        match value {
            Value::Int(v) => Some(v),
            Value::Float(v) => Scalar::Float(v).whole()?.try_into().ok(),
            _ => None,
        }
    }

    /// The shape of an array, a tuple, and its numbers.
    fn array(&self, value: Value<'a>) -> Option<(Value<'a>, Numbers<'a>)> {
        let (call, arguments) = self.call(value)?;
        let (shape, values, bytes) = if is(call.function, "numeric", "_frombuffer") {
            let &[bytes, values, shape, ..] = arguments else { return None };
            (shape, values, bytes)
        } else if is(call.function, "multiarray", "_reconstruct") {
            let &[_, shape, values, _, bytes] = self.members(call.state?)? else { return None };
            (shape, values, bytes)
        } else {
            return None;
        };
        Some((shape, Numbers { values: self.scalar_type(values)?, bytes: self.bytes(bytes)? }))
    }

    fn scalar_type(&self, value: Value<'a>) -> Option<ScalarType> {
        let (call, arguments) = self.call(value)?;
        let (("numpy", "dtype"), Some(&Value::Text(name))) = (call.function, arguments.first()) else {
            return None;
        };
        let order = match self.members(call.state?)?.get(1)? {
            Value::Text(order) => order,
            _ => return None,
        };
        ScalarType::parse(&format!("{order}{name}"))
    }

    fn bytes(&self, value: Value<'a>) -> Option<Cow<'a, [u8]>> {
        if let Value::Bytes(bytes) = value {
            return Some(Cow::Borrowed(bytes));
        }
        let (call, arguments) = self.call(value)?;
        match (call.function, arguments) {
            (("_codecs", "encode"), &[Value::Text(text), ..]) => {
                text.chars().map(|c| u8::try_from(c).ok()).collect::<Option<Vec<u8>>>().map(Cow::Owned)
            }
            (("__builtin__" | "builtins", "bytes"), []) => Some(Cow::Borrowed(&[])),
            _ => None,
        }
    }
}

/// Whether this is NumPy's `function` of `module`, under its old name or its new one.
fn is((module, name): (&str, &str), wanted: &str, function: &str) -> bool {
    let inner = module.strip_prefix("numpy.core.").or_else(|| module.strip_prefix("numpy._core."));
    inner == Some(wanted) && name == function
}
