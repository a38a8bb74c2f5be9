//! What the test files share.
use tgnn::error::{ErrorKind, Result};

pub mod devices;
pub mod launcher;
pub mod paths;

/// Checks that operands are refused with a message that contains `text`.
pub fn refused<T>(got: Result<T>, text: &str) {
    let e = got.err().unwrap_or_else(|| panic!("not refused: {text}"));
    assert!(matches!(e.kind(), ErrorKind::Shape | ErrorKind::Data), "{e}");
    assert!(e.to_string().contains(text), "{e}");
}
