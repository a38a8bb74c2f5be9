//! Averaged weights, for using a model on node memory other than that which its training left behind.
//!
//! Weights at the end of an epoch suit the node memory of that moment: they follow it as it drifts along the
//! event stream. Their mean over whole epochs suits all of the event stream, so that a replay can process it
//! with fixed weights (Polyak averaging; stochastic weight averaging).
use crate::{error::Result, ops::Tape, runtime::*};

/// The mean of parameters over the steps of an epoch, and the average of these means over the last epochs.
///
/// The average is exact for the first `max_epochs` epochs; after that it is an exponential moving average
/// with rate `1 / max_epochs`.
#[derive(Debug)]
pub struct Average {
    parameters: Vec<AveragedWeights>,
    /// Number of epochs so far, `[1, 1]` u32.
    epochs: BufferId,
    /// Number of last epochs that the average covers.
    max_epochs: u32,
}

/// The buffers of one parameter.
#[derive(Debug)]
struct AveragedWeights {
    /// Current value of the parameter.
    value: BufferId,
    /// Sum of the values over the steps of the current epoch.
    sum: BufferId,
    /// Average over epochs.
    average: BufferId,
}

impl Average {
    /// Allocates sums and averages for parameters, given by name and value; averages cover the last
    /// `max_epochs` epochs.
    pub(super) fn new<'a>(
        parameters: impl Iterator<Item = (&'a str, BufferId)>,
        store: &mut Store,
        max_epochs: usize,
    ) -> Result<Self> {
        let parameters = parameters.map(|(name, value)| {
            let spec = store.spec(value);
            let mut add = |what: &str| store.zeros(format!("{what}.{name}"), spec);
            Ok(AveragedWeights { value, sum: add("sum")?, average: add("average")? })
        });
        let parameters = parameters.collect::<Result<_>>()?;
        let epochs = store.zeros("average epochs", Spec::count())?;
        Ok(Average { parameters, epochs, max_epochs: max_epochs as u32 })
    }
    /// Returns the buffers that a checkpoint must hold.
    pub fn buffers(&self) -> impl Iterator<Item = BufferId> {
        self.parameters.iter().map(|p| p.average).chain([self.epochs])
    }
    /// Returns the sum of a parameter's values over the steps of the epoch.
    pub(super) fn sum(&self, value: BufferId) -> Option<BufferId> {
        self.parameters.iter().find(|p| p.value == value).map(|p| p.sum)
    }
    /// Appends an op that adds the current weights to the sums of the epoch, but for the parameters `added`,
    /// whose update does so.
    ///
    /// # Errors
    /// The errors of [`Tape::accumulate`].
    pub(super) fn record(&self, t: &mut Tape, added: &[BufferId]) -> Result<()> {
        let left = self.parameters.iter().filter(|p| !added.contains(&p.value));
        let pairs: Vec<_> =
            left.map(|p| Ok((t.stored(p.sum)?, t.stored(p.value)?))).collect::<Result<_>>()?;
        if pairs.is_empty() { Ok(()) } else { t.accumulate(&pairs) }
    }
    /// Clears the sums at the start of an epoch.
    ///
    /// # Errors
    /// `Shape` if the parameters belong to another store.
    pub fn begin(&self, store: &mut Store) -> Result<()> {
        self.parameters.iter().try_for_each(|p| store.clear(p.sum))
    }
    /// Updates the averages at the end of an epoch of `steps` steps.
    ///
    /// # Errors
    /// `Device` if a copy fails.
    pub fn end(&self, store: &mut Store, steps: usize) -> Result<()> {
        let sums: Vec<BufferId> = self.parameters.iter().map(|p| p.sum).collect();
        store.fetch(&sums)?;
        let epochs = store.read::<u32>(self.epochs)?[0] + 1;
        store.write(self.epochs, &[epochs])?;
        let rate = 1.0 / epochs.min(self.max_epochs) as f32;
        for parameter in &self.parameters {
            let sums = store.read::<f32>(parameter.sum)?.to_vec();
            let averages = store.get_mut::<f32>(parameter.average)?.iter_mut();
            for (average, sum) in averages.zip(sums) {
                *average += rate * (sum / steps as f32 - *average);
            }
        }
        Ok(())
    }
    /// Sets the parameters to their averages.
    ///
    /// # Errors
    /// `Shape` if the parameters belong to another store.
    pub fn adopt(&self, store: &mut Store) -> Result<()> {
        for parameter in &self.parameters {
            let average = store.raw(parameter.average)?.to_vec();
            store.raw_mut(parameter.value)?.copy_from_slice(&average);
        }
        Ok(())
    }
}
