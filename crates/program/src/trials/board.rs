//! The progress of a sweep: live bars on a terminal, plain lines elsewhere.
use crate::output::{bar_characters, say, tell};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::{collections::BTreeMap, fmt::Display, io::IsTerminal};

/// The display of a sweep. With `quiet` everything goes to standard error.
pub(super) struct Board {
    quiet: bool,
    bars: Option<(MultiProgress, ProgressBar)>,
    /// The bars of the trials that run.
    trials: BTreeMap<usize, ProgressBar>,
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars(bar_characters())
}

impl Board {
    /// Creates the display of `trials` trials, of which `finished` are finished.
    pub fn new(quiet: bool, trials: usize, finished: usize) -> Self {
        let bars = std::io::stderr().is_terminal().then(|| {
            let all = MultiProgress::new();
            let total = all.add(ProgressBar::new(trials as u64).with_position(finished as u64));
            total.set_style(style("trials {bar:32.cyan/blue} {pos} of {len}  {wide_msg}"));
            total.tick();
            (all, total)
        });
        Board { quiet, bars, trials: BTreeMap::new() }
    }
    /// Prints a line above the bars.
    pub fn line(&self, text: impl Display) {
        let print = || if self.quiet { tell(text) } else { say(text) };
        match &self.bars {
            Some((all, _)) => all.suspend(print),
            None => print(),
        }
    }
    /// Shows that a trial has started.
    pub fn start(&mut self, at: usize, name: &str, epochs: usize) {
        let Some((all, _)) = &self.bars else { return };
        let bar = all.add(ProgressBar::new(epochs as u64).with_prefix(name.to_owned()));
        bar.set_style(style("  {bar:16.cyan/blue} {pos:>3}/{len}  {prefix}  {wide_msg:.dim}"));
        bar.tick();
        self.trials.insert(at, bar);
    }
    /// Shows a line that a trial has printed, if it is about an epoch.
    pub fn epoch(&self, at: usize, line: &str) {
        let (Some(bar), Some(rest)) = (self.trials.get(&at), line.strip_prefix("epoch ")) else { return };
        let (number, scores) = rest.trim_start().split_once(' ').unwrap_or((rest, ""));
        if let Ok(epoch) = number.parse() {
            bar.set_position(epoch);
            bar.set_message(scores.trim_start().to_owned());
        }
    }
    /// Removes a trial that has ended; `best` says which one is the best so far.
    pub fn end(&mut self, at: usize, best: Option<String>) {
        if let Some(bar) = self.trials.remove(&at) {
            bar.finish_and_clear();
        }
        if let Some((_, total)) = &self.bars {
            total.inc(1);
            total.set_message(best.map_or_else(String::new, |best| format!("best so far: {best}")));
        }
    }
    /// Removes the bars.
    pub fn clear(&mut self) {
        self.trials.clear();
        if let Some((all, _)) = self.bars.take() {
            let _ = all.clear();
        }
    }
}
