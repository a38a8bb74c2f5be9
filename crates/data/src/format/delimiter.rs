//! What separates the fields of a line.
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use tgnn::error::{Error, Result};

/// Maximum length of a delimiter in bytes.
const LONGEST: usize = 8;
/// Delimiters that are recognised; of two that fit equally well, the first.
pub(super) static KNOWN: [&str; 5] = [",", ";", "\t", "|", "::"];
/// Delimiters with a name on the command line.
const NAMES: [(&str, &str); 3] = [("tab", "\t"), ("\\t", "\t"), ("comma", ",")];

/// Separator of two fields of a text.
///
/// As text: the delimiter itself, such as `;`, `|` or `::`; or `tab`; or `blanks`, for any run of spaces and
/// tabs.
///
/// ```
/// # use tgnn_data::Delimiter;
/// assert_eq!("tab".parse::<Delimiter>()?, "\t".parse()?);
/// assert_eq!("::".parse::<Delimiter>()?.to_string(), "::");
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Delimiter {
    /// A single byte. Blanks around a field are trimmed, and a field in double quotes may contain the byte.
    Byte(u8),
    /// Two to eight bytes, followed by zeros; likewise.
    Bytes([u8; LONGEST]),
    /// Any run of spaces and tabs.
    Blanks,
}

impl Delimiter {
    /// Returns the delimiter of some bytes, which are one or more.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [] => None,
            [byte] => Some(Delimiter::Byte(*byte)),
            _ => {
                let mut all = [0; LONGEST];
                all.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Some(Delimiter::Bytes(all))
            }
        }
    }

    /// Returns the bytes; none if it is blanks.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Delimiter::Byte(byte) => std::slice::from_ref(byte),
            Delimiter::Bytes(bytes) => &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(LONGEST)],
            Delimiter::Blanks => &[],
        }
    }

    /// Returns its name for a report.
    pub(super) fn describe(self) -> String {
        match self {
            Delimiter::Blanks => "blanks".into(),
            Delimiter::Byte(b',') => "commas".into(),
            Delimiter::Byte(b';') => "semicolons".into(),
            Delimiter::Byte(b'\t') => "tabs".into(),
            other => format!("`{other}`"),
        }
    }
}

impl FromStr for Delimiter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if matches!(text, "blanks" | " ") {
            return Ok(Delimiter::Blanks);
        }
        let bytes = NAMES.iter().find(|(name, _)| *name == text).map_or(text, |(_, bytes)| bytes).as_bytes();
        let is_plain = !bytes.iter().any(|b| matches!(b, b'"' | b'\n' | b'\r' | 0));
        Delimiter::from_bytes(bytes).filter(|_| is_plain).ok_or_else(|| {
            Error::usage(format!("`{}` is not a delimiter", text.escape_debug()))
                .remedy("give one to eight characters such as ; | or ::, or tab, or blanks")
        })
    }
}

impl fmt::Display for Delimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Delimiter::Blanks => f.write_str("blanks"),
            Delimiter::Byte(b'\t') => f.write_str("tab"),
            other => f.write_str(&String::from_utf8_lossy(other.bytes())),
        }
    }
}

impl TryFrom<String> for Delimiter {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Delimiter> for String {
    fn from(delimiter: Delimiter) -> Self {
        delimiter.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delimiter_reads_back_as_it_is_written() {
        for text in [",", ";", "|", "::", "tab", "blanks", "~~~"] {
            assert_eq!(text.parse::<Delimiter>().unwrap().to_string(), text);
        }
        assert_eq!("\t".parse::<Delimiter>().unwrap(), "\\t".parse().unwrap());
        for text in ["", "\"", "123456789", "\n"] {
            let e = text.parse::<Delimiter>().unwrap_err().to_string();
            assert!(e.contains("is not a delimiter; give one to eight characters"), "{e}");
        }
    }
}
