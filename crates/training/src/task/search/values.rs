//! Lists of values, as flags give them.
use crate::task::config::table::value_of;
use tgnn::error::{Error, Result};
use toml::Value;

/// Returns the values that commas separate in `text`; a comma within brackets, braces or quotes belongs to
/// its value.
///
/// # Errors
/// `Usage` if a value is empty.
pub fn values(text: &str) -> Result<Vec<Value>> {
    let (mut parts, mut depth, mut quote) = (vec![String::new()], 0, None);
    for c in text.chars() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 || quote.is_some() => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    let value = |part: &String| match part.trim() {
        "" => Err(Error::usage(format!("`{text}` has an empty value")).remedy("separate values by commas")),
        part => Ok(value_of(part)),
    };
    parts.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_values_outside_of_brackets_and_quotes() {
        let text = |v: &str| Value::String(v.into());
        assert_eq!(values("1,0.5, tgn").unwrap(), [Value::Integer(1), Value::Float(0.5), text("tgn")]);
        assert_eq!(values("'a,b',mspipe:k=2").unwrap(), [text("a,b"), text("mspipe:k=2")]);
        assert_eq!(values("[1,2],true").unwrap()[1], Value::Boolean(true));
        assert_eq!(values("[1,2],true").unwrap().len(), 2);
        for wrong in ["", "1,", ",1", "1,,2"] {
            let e = values(wrong).unwrap_err();
            assert!(e.to_string().contains("has an empty value"), "{e}");
        }
    }
}
