//! The delimiter of lines of which nobody has said it.
use super::{
    delimiter::{Delimiter, KNOWN},
    fields::{Span, Writing, split},
};

impl Delimiter {
    /// Recognises the delimiter of some lines, of which the first may be a header.
    ///
    /// It is in every line, divides all lines but the first into equally many fields, and is the one that
    /// comes first in a line. If none divides them so, it is the one that comes first in the first line. A
    /// tab counts if the first line has letters: between numbers, any run of blanks is one delimiter.
    pub(super) fn of_lines(lines: &[&[u8]]) -> Self {
        let Some(first) = lines.first() else { return Delimiter::Blanks };
        let has_letters = first.iter().any(u8::is_ascii_alphabetic);
        let known = || {
            let counts = KNOWN.iter().filter(move |text| **text != "\t" || has_letters);
            counts.filter_map(|text| Delimiter::from_bytes(text.as_bytes()))
        };
        let last = lines.last().unwrap_or(first);
        // Two bytes are less likely than one: an address may contain `::`.
        let rank =
            |delimiter: &Delimiter, line: &[u8]| (delimiter.bytes().len(), first_end(line, *delimiter));
        let even = known().filter(|delimiter| divides_evenly(*delimiter, lines));
        let in_first = known().filter(|delimiter| width(first, *delimiter) > 1);
        even.min_by_key(|delimiter| rank(delimiter, last))
            .or_else(|| in_first.min_by_key(|delimiter| rank(delimiter, first)))
            .unwrap_or(Delimiter::Blanks)
    }
}

/// Returns the number of fields of a line.
fn width(line: &[u8], delimiter: Delimiter) -> usize {
    let mut fields = Vec::new();
    split(line, Writing::of(delimiter), &mut fields);
    fields.len()
}

/// Returns the end of the first field of a line.
fn first_end(line: &[u8], delimiter: Delimiter) -> usize {
    let mut fields = Vec::new();
    split(line, Writing::of(delimiter), &mut fields);
    fields.first().map_or(line.len(), |field: &Span| field.1)
}

/// Whether a delimiter is in every line and divides all but the first into equally many fields.
fn divides_evenly(delimiter: Delimiter, lines: &[&[u8]]) -> bool {
    let mut widths = lines.iter().map(|line| width(line, delimiter));
    let header = widths.next();
    let first = widths.next().or(header);
    header > Some(1) && first > Some(1) && widths.all(|n| Some(n) == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(text: &str) -> String {
        Delimiter::of_lines(&text.lines().map(str::as_bytes).collect::<Vec<_>>()).to_string()
    }

    #[test]
    fn a_delimiter_is_recognised_by_all_lines() {
        for (text, wanted) in [
            ("a,b,c\n1,2,3", ","),
            ("a;b;c\n1;2;3", ";"),
            ("user\titem\ttime\tnote, free\n1\t2\t3\ta,b\n", "tab"),
            ("user\titem\ttime\tnote, free\n1\t2\t3\tnone\n", "tab"),
            ("user;item;time;weight, kg\n1;2;3;4.5\n", ";"),
            ("35;16;56,91;1600000015\n26;11;66,43;1600000060\n", ";"),
            ("src,dst,time,tags\n1,2,3,x;y;z\n2,3,4,x;y;z\n", ","),
            ("1,2,3,0.1;0.2;0.3;0.4\n2,3,4,0.1;0.2;0.3;0.4\n", ","),
            ("a|b|c\n1|2|3", "|"),
            ("1::31::2.5::978\n1::32::3::979", "::"),
            ("user,movie,time,genres\n1,2,3,Action|Drama\n2,3,4,War|Drama", ","),
            ("fe80::1,fe80::2,5\nfe80::7,fe80::2,6", ","),
            ("1 2 3\n2 3 4", "blanks"),
            ("1\t2\t3\n2\t3\t4", "blanks"),
            ("a\tb\t1\nc d\te\t2", "tab"),
            ("\"Miller; J.\",b,1\n\"Smith; A.\",c,2", ","),
            ("a,b,c\n1,2\n3,4,5,6", ","),
            ("u,i,t,label,features\n1,2,3,0,1,2,3\n1,2,4,0,1,2,3", ","),
            ("a,b,c", ","),
            ("one", "blanks"),
            ("", "blanks"),
        ] {
            assert_eq!(guessed(text), wanted, "{text}");
        }
    }
}
