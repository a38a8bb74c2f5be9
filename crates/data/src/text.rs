//! Formatting of numbers, spans and input fields in notes, errors and reports; errors of several readers.
use tgnn::error::Error;
#[doc(hidden)]
pub use tgnn::error::similar;

/// Formats a number with thousands separators: `1,234,567`.
#[doc(hidden)]
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Formats a number with its noun: `1 event`, `1,200 events`, `3 entries`.
#[doc(hidden)]
pub fn counted(n: u64, noun: &str) -> String {
    match (n, noun.strip_suffix("try")) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{} {stem}tries", grouped(n)),
        _ => format!("{} {noun}s", grouped(n)),
    }
}

/// Lists the first names, at most `most` of them.
pub(crate) fn some_of(names: &[String], most: usize) -> String {
    let more = if names.len() > most { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(most)].join(", "))
}

/// Formats a span of time in the largest unit of which it has at least two: `31.0 days`.
#[doc(hidden)]
pub fn span(seconds: f64) -> String {
    const UNITS: [(f64, &str); 5] = [
        (365.25 * 86_400.0, "years"),
        (86_400.0, "days"),
        (3_600.0, "hours"),
        (60.0, "minutes"),
        (1.0, "seconds"),
    ];
    let (size, name) = UNITS.into_iter().find(|u| seconds >= 2.0 * u.0).unwrap_or((1.0, "seconds"));
    format!("{:.1} {name}", seconds / size)
}

/// Formats a field of an input for an error: in back quotes, with control characters replaced, at most 40
/// characters.
#[doc(hidden)]
pub fn shown(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(&field[..field.len().min(160)]);
    let mut out: String = text.chars().take(40).map(|c| if c.is_control() { '·' } else { c }).collect();
    if text.chars().count() > 40 || field.len() > 160 {
        out.push('…');
    }
    format!("`{out}`")
}

/// Returns the error of kind `Usage` for a mistake in the TOML `text`, with line and column.
#[cold]
#[doc(hidden)]
pub fn toml_error(e: &toml::de::Error, text: &str) -> Error {
    let before = &text[..e.span().map_or(0, |s| s.start)];
    let line = before.matches('\n').count() as u64 + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) as u64 + 1;
    toml_message(e).at(line, column)
}

/// Returns the error for values that do not fit, without their place. If a key is unknown, the error names
/// the known key that is most similar, or else all known keys.
#[doc(hidden)]
pub fn toml_message(e: &toml::de::Error) -> Error {
    let message = e.message().trim().replace('\n', " ");
    if message.ends_with("value was too large") {
        return Error::usage("the number is too large").remedy(format!("give at most {}", i64::MAX));
    }
    let unknown = message.starts_with("unknown ").then(|| message.split_once(", expected ")).flatten();
    let Some((what, known)) = unknown.filter(|(_, known)| known.contains('`')) else {
        return Error::usage(message);
    };
    let wanted = what.split('`').nth(1).unwrap_or_default();
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    Error::usage(what).remedy(match (similar(known.iter().copied(), wanted), &known[..]) {
        (Some(name), _) => format!("did you mean `{name}`?"),
        (None, [one, other]) => format!("give {one} or {other}"),
        (None, _) => format!("give one of {}", known.join(", ")),
    })
}

/// Returns the error for an input that this build cannot read, because it lacks the cargo feature `formats`.
#[cfg(not(feature = "formats"))]
#[cold]
#[doc(hidden)]
pub fn needs_formats(what: &str) -> Error {
    Error::usage(format!("this build cannot read {what}")).remedy("build with the cargo feature `formats`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped).join(" "), "0 999 1,000 1,234,567");
        assert_eq!(counted(1, "event"), "1 event");
    }

    #[test]
    fn a_long_list_of_names_has_its_first_ones() {
        let names: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!([1, 3].map(|most| some_of(&names, most)), ["a, …", "a, b, c"]);
    }

    #[test]
    fn spans_are_shown_in_the_largest_unit_that_fits_twice() {
        assert_eq!(
            [0.0, 90.0, 7200.0, 2_678_373.0, 1e8].map(span).join(", "),
            "0.0 seconds, 90.0 seconds, 2.0 hours, 31.0 days, 3.2 years"
        );
    }

    #[test]
    fn a_long_or_binary_field_is_shown_short_and_printable() {
        assert_eq!(shown(b"a\tb"), "`a·b`");
        assert_eq!(shown(&[b'x'; 5000]).chars().count(), 43);
    }
}
