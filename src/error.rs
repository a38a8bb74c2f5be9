//! The error type of the crate.
//!
//! An [`Error`] has a [`kind`](Error::kind), and says what was found and what was expected, where (file,
//! line, column), and how to fix it. It prints as **one line**:
//!
//! ```text
//! data/events.csv:17:9: `12x` is not a time; write seconds, as an integer or a decimal number
//! ```
//!
//! There is one type for all modules, because a caller acts on the kind of an error, not on the module it
//! comes from. The library never prints and never exits; the binary prints the line and exits with
//! [`ErrorKind::exit_code`].
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The result type of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an error, by what the user can do about it. Each kind has an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A flag, a configuration key or an argument of a call is wrong.
    Usage,
    /// Input data is malformed or contradicts itself.
    Data,
    /// A plan breaks one of its rules.
    Plan,
    /// A device is missing or refuses to work.
    Device,
    /// The work does not fit in memory.
    OutOfMemory,
    /// Training produced infinite numbers or NaN.
    Diverged,
    /// A rank is lost, or the ranks disagree.
    Comm,
    /// A checkpoint is damaged, or belongs to another model.
    Checkpoint,
    /// The operating system refused to read or write.
    Io,
    /// The operands of an op do not fit together: a mistake in the calling program.
    Shape,
    /// The caller has stopped the work.
    Interrupted,
}

impl ErrorKind {
    /// Returns the exit code of `tgnn-bench` for this kind.
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
            ErrorKind::Interrupted => 130,
        }
    }
    /// Returns the kind with an exit code; `None` if no kind has it.
    pub fn of_exit_code(code: u8) -> Option<Self> {
        use ErrorKind::{
            Checkpoint, Comm, Data, Device, Diverged, Interrupted, Io, OutOfMemory, Plan, Shape, Usage,
        };
        let all =
            [Usage, Data, Plan, Device, OutOfMemory, Diverged, Comm, Checkpoint, Io, Shape, Interrupted];
        all.into_iter().find(|kind| kind.exit_code() == code)
    }
}

/// Position of an error in an input. Lines and columns count from 1; 0 means unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    file: PathBuf,
    line: u64,
    column: u64,
}

/// The reason of a failure; see the [module](self).
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    what: String,
    place: Option<Place>,
    remedy: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Returns an error of `kind`. `what` says what was found and what was expected, in a few words, without
    /// a full stop.
    #[cold]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Error(Box::new(Inner { kind, what: what.into(), place: None, remedy: None, source: None }))
    }
    /// Returns an error of [`ErrorKind::Usage`].
    #[cold]
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, what)
    }
    /// Returns an error of [`ErrorKind::Data`] in `file`.
    #[cold]
    pub fn data(file: impl AsRef<Path>, what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, what).in_file(file)
    }
    /// Returns an error of [`ErrorKind::Shape`]; `op` is the name of the op that rejects its operands.
    #[cold]
    pub fn shape(op: &str, what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Shape, format!("{op}: {what}"))
    }
    /// Returns an error of [`ErrorKind::Io`] on `file`, caused by `source`; of [`ErrorKind::OutOfMemory`] if
    /// that is.
    #[cold]
    pub fn io(file: impl AsRef<Path>, what: impl Into<String>, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::OutOfMemory => ErrorKind::OutOfMemory,
            _ => ErrorKind::Io,
        };
        Self::new(kind, what).in_file(file).caused_by(source)
    }
    /// Returns the error for a name that is none of `names`: "there is no model `TGN`; did you mean `tgn`?".
    /// If no name is similar, the remedy lists all of them.
    #[cold]
    pub fn unknown(kind: ErrorKind, what: &str, given: &str, names: &[&str]) -> Self {
        let remedy = match (similar(names.iter().copied(), given), names) {
            (Some(name), _) => format!("did you mean `{name}`?"),
            (None, [first @ .., last]) if !first.is_empty() => format!("give {} or {last}", first.join(", ")),
            (None, names) => format!("give {}", names.join("")),
        };
        Self::new(kind, format!("there is no {what} `{given}`")).remedy(remedy)
    }
    /// Adds the file.
    #[must_use]
    pub fn in_file(mut self, file: impl AsRef<Path>) -> Self {
        let (line, column) = self.0.place.as_ref().map_or((0, 0), |p| (p.line, p.column));
        self.0.place = Some(Place { file: file.as_ref().to_owned(), line, column });
        self
    }
    /// Adds line and column. Both count from 1; 0 means unknown.
    #[must_use]
    pub fn at(mut self, line: u64, column: u64) -> Self {
        let file = self.0.place.take().map(|p| p.file).unwrap_or_default();
        self.0.place = Some(Place { file, line, column });
        self
    }
    /// Adds the remedy: a clause that is printed after a semicolon, without a full stop.
    #[must_use]
    pub fn remedy(mut self, what_to_do: impl Into<String>) -> Self {
        self.0.remedy = Some(what_to_do.into());
        self
    }
    /// Adds the cause, which is printed in parentheses.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }
    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    /// Returns line and column of the error, or `None` if it has no position. Both count from 1; 0 means
    /// unknown.
    pub fn position(&self) -> Option<(u64, u64)> {
        self.0.place.as_ref().map(|p| (p.line, p.column))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.0.place {
            write!(f, "{}", place.file.display())?;
            if place.line > 0 {
                write!(f, ":{}", place.line)?;
                if place.column > 0 {
                    write!(f, ":{}", place.column)?;
                }
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.0.what)?;
        if let Some(cause) = &self.0.source {
            // A cause of several lines, such as a parser's excerpt, would break the promise of one line.
            let cause = cause.to_string();
            let lines: Vec<&str> = cause.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            write!(f, " ({})", lines.join(" "))?;
        }
        if let Some(remedy) = &self.0.remedy {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

/// The kind and the line of `Display`, so that a `main` that returns the error prints something readable.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

/// Returns the name that is most like `wanted`, in any case of letters, if a few edits make it the same and
/// no other name is as near.
#[doc(hidden)]
pub fn similar<'a>(names: impl IntoIterator<Item = &'a str>, wanted: &str) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let (mut nearest, mut least) = (None, 2 + wanted.chars().count() / 4);
    for name in names {
        let edits = distance(&name.to_lowercase(), &wanted);
        if edits < least {
            (nearest, least) = (Some(name), edits);
        } else if edits == least && nearest.is_some_and(|other| other != name) {
            nearest = None;
        }
    }
    nearest
}

/// Returns the number of single-character edits between two words, to suggest a name for a mistyped one.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Returns an [`ErrorKind::Shape`](crate::error::ErrorKind::Shape) error from the enclosing function if the
/// condition is false: `ensure!(op, condition, "text", ..)`, where `op` is the name of what refuses.
#[macro_export]
macro_rules! ensure {
    ($op:expr, $ok:expr, $($msg:tt)*) => {
        if !$ok { return Err($crate::error::Error::shape($op, format_args!($($msg)*)))? }
    };
}
#[doc(hidden)]
pub use ensure;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_known_by_its_exit_code() {
        for kind in [ErrorKind::Usage, ErrorKind::Shape, ErrorKind::Interrupted] {
            assert_eq!(ErrorKind::of_exit_code(kind.exit_code()), Some(kind));
        }
        assert_eq!(ErrorKind::of_exit_code(1), None);
    }

    #[test]
    fn an_error_is_one_line_with_place_what_cause_and_remedy() {
        let e = Error::data("a.csv", "`12x` is not a time").at(17, 9).remedy("write seconds");
        assert_eq!(e.to_string(), "a.csv:17:9: `12x` is not a time; write seconds");
        let io = std::io::Error::other("two\n  lines");
        assert_eq!(Error::io("b", "cannot read", io).to_string(), "b: cannot read (two lines)");
    }

    #[test]
    fn a_name_in_other_letters_or_with_few_edits_is_suggested_and_else_all_are_listed() {
        let said = |given| Error::unknown(ErrorKind::Usage, "model", given, &["tgn", "jodie", "graph-mixer"]);
        for (given, name) in [("TGN", "tgn"), ("Jodi", "jodie"), ("GraphMixer", "graph-mixer")] {
            let want = format!("there is no model `{given}`; did you mean `{name}`?");
            assert_eq!(said(given).to_string(), want);
        }
        assert_eq!(similar(["tgl", "tgb"], "tgbl"), None);
        assert_eq!(similar(["tgl", "tgb", "tgbl"], "tgbl"), Some("tgbl"));
        let all = "there is no model `transformer`; give tgn, jodie or graph-mixer";
        assert_eq!(said("transformer").to_string(), all);
        assert_eq!(
            Error::unknown(ErrorKind::Device, "b", "x", &["long"]).to_string(),
            "there is no b `x`; give long"
        );
    }

    #[test]
    fn distance_counts_single_character_edits() {
        assert_eq!(
            (distance("wikipedia", "wikipdia"), distance("wiki", "wiki"), distance("", "ab")),
            (1, 0, 2)
        );
    }
}
