//! NumPy's numbers and arrays in a pickle.
//!
//! | value | protocol | representation |
//! | --- | --- | --- |
//! | a type | all | `numpy.dtype('i8', False, True)` with the state `(3, '<', …)` |
//! | a number | all | `numpy.core.multiarray.scalar(type, bytes)` |
//! | an array | 2 to 4 | `numpy.core.multiarray._reconstruct(…)` with the state `(1, shape, type, fortran, bytes)` |
//! | an array | 5 | `numpy.core.numeric._frombuffer(bytes, type, shape, order)` |
//! | bytes | 2 | `_codecs.encode(text, 'latin1')`, or `bytes()` if empty |
//!
//! NumPy 2 renamed `numpy.core` to `numpy._core`; both names are understood.
use super::{Pickle, Value};
use crate::scalar::{Scalar, ScalarKind, ScalarType};
use std::borrow::Cow;
use tgnn::error::Result;

/// The numbers of a one-dimensional array or a list.
#[derive(Debug)]
pub(crate) struct Numbers<'a> {
    values: ScalarType,
    bytes: Cow<'a, [u8]>,
}

impl Numbers<'_> {
    /// Iterates over all numbers in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Scalar> {
        self.bytes.chunks_exact(self.values.size).map(|bytes| self.values.read(bytes))
    }
}

impl<'a> Pickle<'a> {
    /// Returns the number that the call of `function` with `arguments` results in; `None` if it is not a
    /// NumPy scalar.
    pub(super) fn scalar(&self, function: (&str, &str), arguments: Value<'a>) -> Option<Value<'a>> {
        if !is_numpy(function, "multiarray", "scalar") {
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
            Scalar::Single(v) => Value::Float(v.into()),
        })
    }

    /// Returns the numbers of a one-dimensional array, or of a list of integers.
    pub(crate) fn numbers(&self, value: Value<'a>) -> Result<Numbers<'a>> {
        if let Some(members) = self.members(value) {
            let bytes = members.iter().map(|&v| Some(self.whole(v)?.to_le_bytes()));
            let bytes = bytes.collect::<Option<Vec<_>>>();
            let bytes = bytes.ok_or_else(|| self.error(value, "a list holds values other than integers"))?;
            let values = ScalarType::new(ScalarKind::Int, 8);
            return Ok(Numbers { values, bytes: Cow::Owned(bytes.concat()) });
        }
        let (shape, numbers) =
            self.array(value).ok_or_else(|| self.error(value, "this is not an array of numbers"))?;
        let Some(&[Value::Int(n)]) = self.members(shape) else {
            return Err(self.error(value, "the array does not have exactly one axis"));
        };
        let size = numbers.values.size;
        if usize::try_from(n).ok().and_then(|n| n.checked_mul(size)) != Some(numbers.bytes.len()) {
            let what = format!("an array of {n} values has {} bytes", numbers.bytes.len());
            return Err(self.error(value, &what));
        }
        Ok(numbers)
    }

    /// Returns `value` as an integer, if it is one.
    pub(crate) fn whole(&self, value: Value<'a>) -> Option<i64> {
        match value {
            Value::Int(v) => Some(v),
            Value::Float(v) => Scalar::Float(v).whole()?.try_into().ok(),
            _ => None,
        }
    }

    /// Returns the shape of an array, as a tuple, and its numbers.
    fn array(&self, value: Value<'a>) -> Option<(Value<'a>, Numbers<'a>)> {
        let (call, arguments) = self.call(value)?;
        let (shape, values, bytes) = if is_numpy(call.function, "numeric", "_frombuffer") {
            let &[bytes, values, shape, ..] = arguments else { return None };
            (shape, values, bytes)
        } else if is_numpy(call.function, "multiarray", "_reconstruct") {
            let &[_, shape, values, _, bytes] = self.members(call.state?)? else { return None };
            (shape, values, bytes)
        } else {
            return None;
        };
        Some((shape, Numbers { values: self.scalar_type(values)?, bytes: self.bytes(bytes)? }))
    }

    /// Returns the number type that a `numpy.dtype` describes.
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

    /// Returns bytes in the representation of any protocol.
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

/// Whether a global is `function` of NumPy's inner `module`, under its old or its new name.
fn is_numpy((full_module, name): (&str, &str), module: &str, function: &str) -> bool {
    let inner = full_module.strip_prefix("numpy.core.").or_else(|| full_module.strip_prefix("numpy._core."));
    inner == Some(module) && name == function
}
