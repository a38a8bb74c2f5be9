//! Fields of a line.
//!
//! One splitter serves every text layout. Every byte of a line belongs to a field, to a delimiter, to blanks
//! around a field or to its quotes; the splitter says where that is not so. It treats runs of blanks as one
//! delimiter, and allocates no `String` per field.
use super::delimiter::Delimiter;
use memchr::{memchr, memchr_iter, memmem};

/// Start and end of a field in its line, in bytes, without the quotes around it.
pub(super) type Span = (usize, usize);

/// How the fields of a text are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writing {
    pub delimiter: Delimiter,
    /// Whether `\"` is a quote within a quoted field, as Spark and MySQL write it. A doubled quote always is.
    pub escapes: bool,
}

impl Writing {
    /// Returns the writing with this delimiter, without escapes.
    pub(super) fn of(delimiter: Delimiter) -> Self {
        Writing { delimiter, escapes: false }
    }
}

/// How a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// After its last field.
    Whole,
    /// Within a quoted field, which the next line continues.
    InQuotes,
    /// The byte here follows a closing quote, but is neither a blank nor a delimiter.
    Junk(usize),
}

/// Replaces the contents of `fields` by the spans of the fields of `line`, which has no line end. What
/// follows a closing quote up to the next delimiter is in no field.
pub(super) fn split(line: &[u8], writing: Writing, fields: &mut Vec<Span>) -> LineEnd {
    fields.clear();
    match writing.delimiter {
        Delimiter::Byte(delimiter) if memchr(b'"', line).is_none() => {
            let mut start = 0;
            for end in memchr_iter(delimiter, line).chain([line.len()]) {
                fields.push(trimmed(line, start, end));
                start = end + 1;
            }
            LineEnd::Whole
        }
        Delimiter::Blanks => split_at_blanks(line, writing, fields),
        _ => split_at_delimiters(line, writing, fields),
    }
}

fn split_at_delimiters(line: &[u8], writing: Writing, fields: &mut Vec<Span>) -> LineEnd {
    let delimiter = writing.delimiter.bytes();
    let is_space = |at: usize| is_blank(line[at]) && !line[at..].starts_with(delimiter);
    let after_blanks = |from: usize| (from..line.len()).find(|&at| !is_space(at)).unwrap_or(line.len());
    let found = |rest: &[u8]| match delimiter {
        [byte] => memchr(*byte, rest),
        _ => memmem::find(rest, delimiter),
    };
    let end_from = |from: usize| found(&line[from..]).map_or(line.len(), |p| from + p);
    let (mut start, mut junk) = (0, None);
    loop {
        let first = after_blanks(start);
        let end = if line.get(first) == Some(&b'"') {
            let close = closing_quote(line, first + 1, writing.escapes);
            fields.push((first + 1, close));
            if close == line.len() {
                return junk.map_or(LineEnd::InQuotes, LineEnd::Junk);
            }
            let (next, end) = (after_blanks(close + 1), end_from(close + 1));
            junk = junk.or((next < end).then_some(next));
            end
        } else {
            let end = end_from(first);
            fields.push(trimmed(line, first, end));
            end
        };
        if end == line.len() {
            return junk.map_or(LineEnd::Whole, LineEnd::Junk);
        }
        start = end + delimiter.len();
    }
}

fn split_at_blanks(line: &[u8], writing: Writing, fields: &mut Vec<Span>) -> LineEnd {
    let next =
        |from: usize, blank: bool| line[from..].iter().position(|b| is_blank(*b) == blank).map(|p| from + p);
    let (mut at, mut junk) = (0, None);
    while let Some(start) = next(at, false) {
        if line[start] == b'"' {
            let close = closing_quote(line, start + 1, writing.escapes);
            fields.push((start + 1, close));
            if close == line.len() {
                return junk.map_or(LineEnd::InQuotes, LineEnd::Junk);
            }
            at = next(close + 1, true).unwrap_or(line.len());
            junk = junk.or((at > close + 1).then_some(close + 1));
        } else {
            at = next(start, true).unwrap_or(line.len());
            fields.push((start, at));
        }
    }
    junk.map_or(LineEnd::Whole, LineEnd::Junk)
}

/// Returns the span without the blanks at its ends.
fn trimmed(line: &[u8], mut start: usize, mut end: usize) -> Span {
    while start < end && is_blank(line[start]) {
        start += 1;
    }
    while end > start && is_blank(line[end - 1]) {
        end -= 1;
    }
    (start, end)
}

/// Returns the position of the quote that closes a field whose content begins at `at`, or the line's length
/// if there is none.
fn closing_quote(line: &[u8], mut at: usize, escapes: bool) -> usize {
    while let Some(quote) = memchr(b'"', &line[at..]).map(|p| at + p) {
        if escapes && is_escaped(line, at, quote) {
            at = quote + 1;
        } else if line.get(quote + 1) == Some(&b'"') {
            at = quote + 2;
        } else {
            return quote;
        }
    }
    line.len()
}

/// Whether an odd number of backslashes stands before byte `at` of a line, from byte `start` on.
pub(super) fn is_escaped(line: &[u8], start: usize, at: usize) -> bool {
    line[start..at].iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1
}

/// Whether a span is between quotes.
pub(super) fn is_quoted(line: &[u8], (start, _): Span) -> bool {
    start > 0 && line[start - 1] == b'"'
}

/// Replaces doubled and escaped quotes in the quoted fields of a line by single ones. What a field loses
/// becomes quotes behind it, so that all other bytes keep their places.
pub(super) fn unescape(line: &mut [u8], writing: Writing, fields: &mut [Span]) {
    for field in fields {
        if !is_quoted(line, *field) {
            continue;
        }
        let content = &mut line[field.0..field.1];
        let (mut from, mut to) = (0, 0);
        while from < content.len() {
            let skips = match content[from] {
                b'"' => true,
                b'\\' => writing.escapes && matches!(content.get(from + 1), Some(b'"' | b'\\')),
                _ => false,
            };
            from += usize::from(skips && from + 1 < content.len());
            content[to] = content[from];
            (from, to) = (from + 1, to + 1);
        }
        content[to..].fill(b'"');
        field.1 = field.0 + to;
    }
}

/// Whether a byte is a blank within a line.
pub(super) fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t' || b == b'\r'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn comma(escapes: bool) -> Writing {
        Writing { delimiter: Delimiter::Byte(b','), escapes }
    }

    /// The fields of a line, with quotes replaced, and how it ends.
    fn fields_of(line: &str, writing: Writing) -> (Vec<String>, LineEnd) {
        let (mut line, mut spans) = (line.as_bytes().to_vec(), Vec::new());
        let end = split(&line, writing, &mut spans);
        unescape(&mut line, writing, &mut spans);
        (spans.iter().map(|&(a, b)| String::from_utf8(line[a..b].to_vec()).unwrap()).collect(), end)
    }

    fn fields(line: &str, delimiter: &str) -> Vec<String> {
        let (fields, end) = fields_of(line, Writing::of(delimiter.parse().unwrap()));
        assert_eq!(end, LineEnd::Whole, "{line}");
        fields
    }

    #[test]
    fn blanks_around_delimited_fields_are_trimmed() {
        assert_eq!(fields("1, 2 ,3\r", ","), ["1", "2", "3"]);
        assert_eq!(fields(",u,,", ","), ["", "u", "", ""]);
        assert_eq!(fields("\t1\t\t2", "tab"), ["", "1", "", "2"]);
        assert_eq!(fields(" 1:: \"a::b\" ::x:y::", "::"), ["1", "a::b", "x:y", ""]);
        assert_eq!(fields("", ","), [""]);
    }

    #[test]
    fn quotes_protect_a_delimiter_and_doubled_ones_are_one() {
        assert_eq!(fields(r#""1","a, ""b""" ,3"#, ","), ["1", r#"a, "b""#, "3"]);
        assert_eq!(fields(r#""","""""#, ","), ["", "\""]);
        assert_eq!(fields(r#"a"b,"",3"#, ","), [r#"a"b"#, "", "3"]);
        assert_eq!(
            fields_of(r#"1,"open, 2"#, comma(false)),
            (vec!["1".into(), "open, 2".into()], LineEnd::InQuotes)
        );
    }

    #[test]
    fn runs_of_blanks_are_one_delimiter_and_quotes_protect_blanks() {
        assert_eq!(fields("  1 \t 2  3\r", "blanks"), ["1", "2", "3"]);
        assert_eq!(fields("\"a b\" \"\"  3", "blanks"), ["a b", "", "3"]);
        assert!(fields("  ", "blanks").is_empty());
    }

    #[test]
    fn what_follows_a_closing_quote_is_found() {
        let blanks = Writing::of(Delimiter::Blanks);
        for (line, writing, at) in [
            (r#""user" 7,"i"-0,5"#, comma(false), 7),
            (r#"1,"i"-0,5"#, comma(false), 5),
            (r#""a \"19\" b",4"#, comma(false), 5),
            (r#""a"b 3"#, blanks, 3),
        ] {
            assert_eq!(fields_of(line, writing).1, LineEnd::Junk(at), "{line}");
        }
    }

    #[test]
    fn with_escapes_a_backslash_protects_a_quote_and_itself() {
        for (line, wanted) in [
            (r#""a \"19\" b",4"#, [r#"a "19" b"#, "4"]),
            (r#""a \", b",4"#, [r#"a ", b"#, "4"]),
            (r#""c:\\",4"#, ["c:\\", "4"]),
            (r#""c:\x ""y""",4"#, [r#"c:\x "y""#, "4"]),
            (r#"a\"b,4"#, [r#"a\"b"#, "4"]),
        ] {
            assert_eq!(
                fields_of(line, comma(true)),
                (wanted.map(str::to_owned).to_vec(), LineEnd::Whole),
                "{line}"
            );
        }
    }

    proptest! {
        #[test]
        fn fields_that_are_written_with_quotes_are_read_back(
            fields in proptest::collection::vec("[a\"\\\\,; \n]{0,6}", 1..5),
            escapes: bool, delimiter in prop_oneof![Just(","), Just(";;"), Just("blanks")],
        ) {
            let writing = Writing { delimiter: delimiter.parse().unwrap(), escapes };
            let quoted = |field: &String| match escapes {
                true => format!("\"{}\"", field.replace('\\', "\\\\").replace('"', "\\\"")),
                false => format!("\"{}\"", field.replace('"', "\"\"")),
            };
            let separator = if delimiter == "blanks" { " " } else { delimiter };
            let line = fields.iter().map(quoted).collect::<Vec<_>>().join(separator);
            prop_assert_eq!(fields_of(&line, writing), (fields, LineEnd::Whole));
        }
    }
}
