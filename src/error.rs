//! The one error of the crate.
//!
//! An [`Error`] has a [`kind`](Error::kind) (what the user can do about it), says what was found and what was
//! wanted, where (file, line, column), and how to mend it. It prints as **one line**:
//!
//! ```text
//! data/events.csv:17:9: `12x` is not a time; write seconds, as an integer or a decimal number
//! ```
//!
//! There is one type, not one a module, because a caller acts on the kind, never on the module. The library never
//! prints and never exits; the binary prints the line and exits with [`ErrorKind::exit_code`].
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the user can do about an error: one kind an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A flag, a configuration key or a call's argument is wrong.
    Usage,
    /// Input data is malformed or contradicts itself.
    Data,
    /// A plan breaks one of its rules.
    Plan,
    /// A device is missing or refuses to work.
    Device,
    /// The work does not fit in memory.
    OutOfMemory,
    /// Training left the finite numbers.
    Diverged,
    /// A rank is lost or the ranks disagree.
    Comm,
    /// A checkpoint is damaged, or belongs to another model.
    Checkpoint,
    /// The operating system refused to read or write.
    Io,
    /// Values given to an op do not fit together: a mistake in the calling program.
    Shape,
}

impl ErrorKind {
    /// The exit code of `tgnn-bench` for this kind.
    pub const fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Usage => 2,
            ErrorKind::Data => 3,
            ErrorKind::Plan => 4,
            ErrorKind::Device => 5,
            ErrorKind::OutOfMemory => 6,
            ErrorKind::Diverged => 7,
            ErrorKind::Comm => 8,
            ErrorKind::Checkpoint => 9,
            ErrorKind::Io => 10,
            ErrorKind::Shape => 11,
        }
    }
}

/// Where in an input an error lies. Lines and columns count from 1; 0 means "not known".
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    file: PathBuf,
    line: u64,
    column: u64,
}

/// Why something failed; see the [module](self).
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    what: String,
    place: Option<Place>,
    remedy: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`: `what` was found and what was wanted, in a few words, no full stop.
    #[cold]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Error(Box::new(Inner { kind, what: what.into(), place: None, remedy: None, source: None }))
    }
    /// [`ErrorKind::Usage`].
    #[cold]
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, what)
    }
    /// [`ErrorKind::Usage`]: what a TOML `text` has wrong, with line and column.
    #[cold]
    pub fn of_toml(e: &toml::de::Error, text: &str) -> Self {
        let before = &text[..e.span().map_or(0, |s| s.start)];
        let line = before.matches('\n').count() as u64 + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) as u64 + 1;
        Self::usage(e.message().trim().replace('\n', " ")).at(line, column)
    }
    /// [`ErrorKind::Data`] in `file`.
    #[cold]
    pub fn data(file: impl AsRef<Path>, what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, what).in_file(file)
    }
    /// [`ErrorKind::Shape`]; `op` names who refuses.
    #[cold]
    pub fn shape(op: &str, what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Shape, format!("{op}: {what}"))
    }
    /// [`ErrorKind::Io`] on `file`, caused by `source`.
    #[cold]
    pub fn io(file: impl AsRef<Path>, what: impl Into<String>, source: std::io::Error) -> Self {
        Self::new(ErrorKind::Io, what).in_file(file).caused_by(source)
    }
    /// Adds the file.
    #[must_use]
    pub fn in_file(mut self, file: impl AsRef<Path>) -> Self {
        let (line, column) = self.0.place.as_ref().map_or((0, 0), |p| (p.line, p.column));
        self.0.place = Some(Place { file: file.as_ref().to_owned(), line, column });
        self
    }
    /// Adds line and column, both from 1; 0 where unknown.
    #[must_use]
    pub fn at(mut self, line: u64, column: u64) -> Self {
        let file = self.0.place.take().map(|p| p.file).unwrap_or_default();
        self.0.place = Some(Place { file, line, column });
        self
    }
    /// Adds what to do about it: a clause after a semicolon, no full stop.
    #[must_use]
    pub fn remedy(mut self, what_to_do: impl Into<String>) -> Self {
        self.0.remedy = Some(what_to_do.into());
        self
    }
    /// Adds the cause, which is printed in brackets.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }
    /// What the user can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    /// Line and column of the fault, where known; both count from 1, 0 is unknown.
    pub fn position(&self) -> Option<(u64, u64)> {
        self.0.place.as_ref().map(|p| (p.line, p.column))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(p) = &self.0.place {
            write!(f, "{}", p.file.display())?;
            if p.line > 0 {
                write!(f, ":{}", p.line)?;
                if p.column > 0 {
                    write!(f, ":{}", p.column)?;
                }
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.0.what)?;
        if let Some(s) = &self.0.source {
            // A cause of several lines (a parser's drawing) would break the promise of one line.
            let s = s.to_string();
            write!(
                f,
                " ({})",
                s.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" ")
            )?;
        }
        if let Some(r) = &self.0.remedy {
            write!(f, "; {r}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

/// Returns a [`ErrorKind::Shape`] error from the enclosing function unless the condition holds.
macro_rules! ensure {
    ($op:expr, $ok:expr, $($msg:tt)*) => {
        if !$ok { return Err($crate::error::Error::shape($op, format_args!($($msg)*)))? }
    };
}
pub(crate) use ensure;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_with_place_what_cause_and_remedy() {
        let e = Error::data("a.csv", "`12x` is not a time").at(17, 9).remedy("write seconds");
        assert_eq!(e.to_string(), "a.csv:17:9: `12x` is not a time; write seconds");
        let io = std::io::Error::other("two\n  lines");
        assert_eq!(Error::io("b", "cannot read", io).to_string(), "b: cannot read (two lines)");
    }
}
