//! The line-ups of a pass: its runs in windows, and the last of them kept.
use super::{form::Form, lanes::LANES, line_up::LineUp};
use crate::{error::Result, runtime::cuda::CudaGraph};

/// Steps of a line-up, or hardly more: at its end lanes wait for one another, and what is known of it takes room.
const STEPS: usize = 1 << 12;
/// Line-ups that are kept.
const KEPT: usize = 8;

/// Cuts runs into those that are lined up together; behind a run that is on one lane alone, where there is any.
pub(super) fn windows<'a>(forms: &[Form], in_form: &'a [usize]) -> Vec<&'a [usize]> {
    let (mut windows, mut rest) = (Vec::new(), in_form);
    while !rest.is_empty() {
        let mut steps = 0;
        let mut fits = |&&form: &&usize| {
            steps += forms[form].nodes.len();
            steps <= STEPS
        };
        let fit = rest.iter().take_while(&mut fits).count().max(1);
        let end = rest[..fit].iter().rposition(|&form| forms[form].alone).map_or(fit, |at| at + 1);
        let (window, later) = rest.split_at(if fit == rest.len() { fit } else { end });
        windows.push(window);
        rest = later;
    }
    windows
}

/// A line-up that was made, of which runs.
pub(super) struct Known {
    in_form: Vec<usize>,
    pub line_up: LineUp,
    /// On a device, its launches, from its second time on.
    pub graph: Option<CudaGraph>,
    /// Times that it was asked for.
    pub times: usize,
}

/// The last line-ups that were made.
pub(super) struct LineUps {
    known: Vec<Known>,
    turns: [usize; LANES],
}

impl LineUps {
    /// None so far; `turns` are how many runs of a lane have values at a time.
    pub fn new(turns: [usize; LANES]) -> Self {
        LineUps { known: Vec::new(), turns }
    }
    /// The line-up of runs in these forms.
    ///
    /// # Errors
    /// As [`LineUp::of`].
    pub fn of(&mut self, forms: &[Form], in_form: &[usize]) -> Result<&mut Known> {
        let mut known = match self.known.iter().position(|known| known.in_form == in_form) {
            Some(at) => self.known.remove(at),
            None => {
                let line_up = LineUp::of(forms, in_form, self.turns)?;
                self.known.truncate(KEPT - 1);
                Known { in_form: in_form.to_vec(), line_up, graph: None, times: 0 }
            }
        };
        known.times += 1;
        self.known.insert(0, known);
        Ok(&mut self.known[0])
    }
}
