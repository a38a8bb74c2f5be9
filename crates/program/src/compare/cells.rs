//! The cells of a table, and how they fit the width of a terminal.
use serde::Serialize;

/// Shortest text to which a cell is cut.
const SHORTEST: usize = 12;

/// The cells of a table.
#[derive(Serialize)]
pub(super) struct Cells {
    pub titles: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    /// How many columns, from the first on, are text.
    pub texts: usize,
    /// Importance of the columns; those of the highest are never left out.
    #[serde(skip)]
    pub importance: Vec<u8>,
}

impl Cells {
    /// Returns the width of every column in characters.
    pub(super) fn widths(&self) -> Vec<usize> {
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| &row[at].text).chain([&self.titles[at]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.titles.len()).map(width).collect()
    }
}

/// What a cell shows, and the number by which its column is sorted.
#[derive(Serialize)]
pub(super) struct Cell {
    pub text: String,
    pub value: Option<f64>,
}

/// Returns the width of a table, with the mark before each row.
fn width(cells: &Cells) -> usize {
    let widths = cells.widths();
    2 + widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

/// Leaves out columns, the least important first, until the table fits `most` characters; then cuts long
/// texts. Returns the titles of what is left out.
pub(super) fn fit(cells: &mut Cells, most: usize) -> Vec<String> {
    let all = cells.titles.clone();
    while width(cells) > most {
        // Of two equally important columns, the last one goes.
        let least = (0..cells.titles.len())
            .rev()
            .filter(|&at| cells.importance[at] < u8::MAX)
            .min_by_key(|&at| cells.importance[at]);
        let Some(at) = least else { break };
        cells.titles.remove(at);
        cells.importance.remove(at);
        cells.rows.iter_mut().for_each(|row| drop(row.remove(at)));
    }
    for at in (0..cells.texts).rev() {
        let over = width(cells).saturating_sub(most);
        let longest = cells.widths()[at];
        let kept = longest.saturating_sub(over).max(SHORTEST);
        if kept < longest {
            cells.rows.iter_mut().for_each(|row| row[at].text = cut(&row[at].text, kept));
        }
    }
    all.into_iter().filter(|title| !cells.titles.contains(title)).collect()
}

/// Cuts the middle out of a text of more than `most` characters: both ends may tell texts apart.
fn cut(text: &str, most: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= most {
        return text.to_owned();
    }
    let (first, last) = (most / 2, most - most / 2 - 1);
    let ends = [&characters[..first], &['…'], &characters[characters.len() - last..]];
    ends.concat().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> Cells {
        let cell = |text: &str| Cell { text: text.into(), value: None };
        Cells {
            titles: ["model", "seeds", "AP", "AUC", "val AP", "MiB"].map(Into::into).into(),
            rows: vec![[name, "3", "0.5", "0.6", "0.7", "1234"].map(cell).into()],
            texts: 1,
            importance: vec![u8::MAX, u8::MAX, u8::MAX, 4, u8::MAX, 1],
        }
    }

    #[test]
    fn the_least_important_columns_go_first_and_are_named() {
        let fitted = |most| {
            let mut cells = table("tgn");
            let left_out = fit(&mut cells, most);
            (cells.titles.join(" "), left_out.join(" "))
        };
        let whole = width(&table("tgn"));
        assert_eq!(whole, 2 + 5 + 5 + 3 + 3 + 6 + 4 + 2 * 5);
        assert_eq!(fitted(whole), ("model seeds AP AUC val AP MiB".into(), String::new()));
        assert_eq!(fitted(whole - 1), ("model seeds AP AUC val AP".into(), "MiB".into()));
        assert_eq!(fitted(1), ("model seeds AP val AP".into(), "AUC MiB".into()));
    }

    #[test]
    fn a_long_text_is_cut_in_its_middle_when_nothing_else_can_go() {
        let mut cells = table("a-name-that-is-much-too-long-for-the-terminal");
        assert_eq!(fit(&mut cells, 50), ["AUC", "MiB"]);
        assert_eq!(width(&cells), 50);
        assert_eq!(cells.rows[0][0].text, "a-name-that-is…-the-terminal");
        fit(&mut cells, 0);
        assert_eq!(cells.rows[0][0].text.chars().count(), SHORTEST);
        assert_eq!((cut("short", 5), cut("longer", 5)), ("short".into(), "lo…er".into()));
    }
}
