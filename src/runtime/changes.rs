//! Changes of speed that no GPU has measured yet. Each can be switched back to what was before by the
//! environment variable `TGNN_BEFORE`, so that one build measures both sides in turn. Results have the same
//! bits either way. The losing side is deleted in the commit with the record.
use crate::error::{Error, ErrorKind, Result};

/// A change that waits for its measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Kernels of attention that leave out what nobody reads, compiled apart for small shapes.
    Attention,
    /// The order of each lane by the longest path to the end of a step, and sampling on a lane of its own.
    Order,
    /// What the next step can begin with during this one.
    Ahead,
    /// Kernels of products that are compiled apart by precision and alignment.
    Products,
    /// Small kernels: running averages, `spmm`, selection of rows, lists of sums.
    Small,
    /// Opening the device and loading kernels while data are read; short windows that prefetch across
    /// their ends.
    Start,
}

impl Change {
    const ALL: [Self; 6] =
        [Self::Attention, Self::Order, Self::Ahead, Self::Products, Self::Small, Self::Start];

    fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Order => "order",
            Self::Ahead => "ahead",
            Self::Products => "products",
            Self::Small => "small",
            Self::Start => "start",
        }
    }
}

/// The changes that are in use: all, without those that `TGNN_BEFORE` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    /// A bit for each change that is switched back.
    before: u8,
}

impl Changes {
    /// Reads the environment variable.
    ///
    /// # Errors
    /// `Device` for a word that names no change.
    pub fn of_environment() -> Result<Self> {
        let setting = std::env::var_os("TGNN_BEFORE").map(|v| v.to_string_lossy().into_owned());
        Self::parse(setting.as_deref().unwrap_or_default())
    }
    /// Reads a list of names with commas between them.
    ///
    /// # Errors
    /// `Device` for a word that names no change.
    pub fn parse(setting: &str) -> Result<Self> {
        let mut before = 0;
        for word in setting.split(',').filter(|word| !word.is_empty()) {
            let Some(change) = Change::ALL.into_iter().find(|c| c.name() == word) else {
                let names = Change::ALL.map(Change::name).join(", ");
                let what = format!("TGNN_BEFORE has `{word}`, which is none of {names}");
                return Err(Error::new(ErrorKind::Device, what));
            };
            before |= 1 << change as u8;
        }
        Ok(Changes { before })
    }
    /// Whether a change is in use.
    pub fn has(self, change: Change) -> bool {
        self.before & (1 << change as u8) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_switches_the_changes_back_that_it_names() {
        let changes = Changes::parse("order,small").unwrap();
        assert!(!changes.has(Change::Order) && !changes.has(Change::Small) && changes.has(Change::Attention));
        assert!(Change::ALL.into_iter().all(|change| Changes::parse("").unwrap().has(change)));
        let e = Changes::parse("order,lanes").unwrap_err().to_string();
        assert!(
            e.contains("TGNN_BEFORE has `lanes`, which is none of attention, order") && !e.contains('\n'),
            "{e}"
        );
    }
}
