//! Averaged weights: what a model is used with that does not find the memory which its training left.
//!
//! Weights at the end of an epoch suit the memory of that moment: they follow it as it drifts along the stream. Their mean over whole
//! epochs suits all of the stream, so that it can be gone over again with weights at rest (Polyak averaging; stochastic weight averaging).
use crate::{error::Result, ops::Tape, runtime::*};

/// The mean of parameters over the steps of an epoch, and of these means over the last epochs.
pub struct Average {
    /// Of each parameter: its value, the sum over an epoch's steps, and the average.
    of: Vec<[BufferId; 3]>,
    /// `[1, 1]` u32: epochs so far.
    epochs: BufferId,
    /// Over how many of the last epochs the average goes.
    most: u32,
}

impl Average {
    /// Of the parameters of these names and values, over the last `most` epochs.
    ///
    /// # Errors
    /// As [`Store::zeros`].
    pub(super) fn new<'a>(
        parameters: impl Iterator<Item = (&'a str, BufferId)>,
        store: &mut Store,
        most: usize,
    ) -> Result<Self> {
        let of = parameters.map(|(name, value)| {
            let spec = store.spec(value);
            let mut add = |what: &str| store.zeros(format!("{what}.{name}"), spec);
            Ok([value, add("sum")?, add("average")?])
        });
        let of = of.collect::<Result<_>>()?;
        Ok(Average { of, epochs: store.zeros("average epochs", Spec::count())?, most: most as u32 })
    }
    /// Buffers that a checkpoint holds.
    pub fn buffers(&self) -> impl Iterator<Item = BufferId> {
        self.of.iter().map(|of| of[2]).chain([self.epochs])
    }
    /// Appends that the weights of this step count.
    ///
    /// # Errors
    /// `Shape`, as the op's.
    pub fn record(&self, t: &mut Tape, store: &Store) -> Result<()> {
        let pairs =
            self.of.iter().map(|&[value, sum, _]| Ok((t.stored(store, sum)?, t.stored(store, value)?)));
        let pairs: Vec<_> = pairs.collect::<Result<_>>()?;
        t.accumulate(&pairs)
    }
    /// An epoch begins.
    ///
    /// # Errors
    /// `Shape` where the store is another than the parameters'.
    pub fn begin(&self, store: &mut Store) -> Result<()> {
        self.of.iter().try_for_each(|of| store.clear(of[1]))
    }
    /// An epoch of so many steps has ended.
    ///
    /// # Errors
    /// Device, when a copy fails.
    pub fn end(&self, store: &mut Store, steps: usize) -> Result<()> {
        let sums: Vec<BufferId> = self.of.iter().map(|of| of[1]).collect();
        store.fetch(&sums)?;
        let epochs = store.read::<u32>(self.epochs)?[0] + 1;
        store.write(self.epochs, &[epochs])?;
        let rate = 1.0 / epochs.min(self.most) as f32;
        for &[_, sum, average] in &self.of {
            let sums = store.read::<f32>(sum)?.to_vec();
            let of_epochs = store.get_mut::<f32>(average)?.iter_mut().zip(sums);
            of_epochs.for_each(|(average, sum)| *average += rate * (sum / steps as f32 - *average));
        }
        Ok(())
    }
    /// Gives the parameters their averages.
    ///
    /// # Errors
    /// `Shape` where the store is another than the parameters'.
    pub fn adopt(&self, store: &mut Store) -> Result<()> {
        for &[value, _, average] in &self.of {
            let average = store.raw(average)?.to_vec();
            store.raw_mut(value)?.copy_from_slice(&average);
        }
        Ok(())
    }
}
