//! The CSV of Nsight Compute: fields in double quotes, of which a doubled one is a quote.

/// Returns the fields of a line.
pub(super) fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                push(&mut fields, '"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => push(&mut fields, c),
        }
    }
    fields
}

/// Appends a character to the last field.
fn push(fields: &mut [String], c: char) {
    if let Some(last) = fields.last_mut() {
        last.push(c);
    }
}

/// Returns a number that may have commas between its thousands.
pub(super) fn number(text: &str) -> Option<f64> {
    text.replace(',', "").trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_commas_and_quotes_and_numbers_have_thousands() {
        let line = r#""0","k(int, int)","1  ""<default domain>:add:none"" ","1,234.5","""#;
        assert_eq!(fields(line), ["0", "k(int, int)", r#"1  "<default domain>:add:none" "#, "1,234.5", ""]);
        assert_eq!((number("1,234.5"), number("n/a"), number("")), (Some(1234.5), None, None));
    }
}
