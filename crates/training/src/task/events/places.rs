//! Where the tables of a run are kept: on the device or on the host, on every rank or divided among them.
use crate::{
    model::EventTables,
    task::{
        config::{Config, StoredOn},
        training::{MemoryPlan, StoredTables},
    },
};
use tgnn::{
    autograd::Program,
    error::Result,
    runtime::{comm::Ranks, *},
};

/// Where a run may keep its tables.
pub(super) struct Places<'a> {
    device: &'a Device,
    features_on: StoredOn,
    memory_on: StoredOn,
    /// Whether ranks may keep a share of the features each, because the plan leaves it open.
    may_partition: bool,
    /// The buffers of node memory and mails.
    state: Vec<BufferId>,
}

impl<'a> Places<'a> {
    /// The places that a configuration allows for features and for the buffers `state` of node memory.
    pub fn new(config: &Config, device: &'a Device, may_partition: bool, state: Vec<BufferId>) -> Self {
        Places { device, features_on: config.features_on, memory_on: config.memory_on, may_partition, state }
    }
    /// Records programs by `record`, of which `all` returns all. `features_on` decides where the features are
    /// kept, `memory_on` where node memory is; `Auto` keeps them on the device if they fit there. If not both
    /// fit, the features go to the host first. If the features of one rank do not fit, ranks keep a share of
    /// them each, provided that the plan leaves it open and shares fit. Collective.
    ///
    /// # Errors
    /// `OutOfMemory` if the device has too little memory; the errors of recording.
    pub fn record<P>(
        &self,
        store: &mut Store,
        tables: &mut EventTables,
        record: &mut dyn FnMut(&Store, &EventTables) -> Result<P>,
        all: fn(&P) -> Vec<&Program>,
    ) -> Result<(P, MemoryPlan)> {
        let free = self.device.gpu().map(|gpu| gpu.memory().map(|(free, _)| free)).transpose()?;
        if self.features_on == StoredOn::Host && free.is_some() {
            tables.features.keep_on_host(store)?;
        }
        if self.memory_on == StoredOn::Host && free.is_some() {
            tables.keep_memory_on_host(store, &self.state)?;
        }
        let ranks = self.device.ranks().map_or(1, Ranks::size);
        loop {
            let programs = record(store, tables)?;
            let memory = self.memory(store, tables, &all(&programs), free);
            let fit = self.all_fit(memory.fits())?;
            // All ranks decide alike; a table that is empty on one is empty on all.
            let features_help = !tables.features.on_host() && memory.features > 0;
            let memory_helps =
                self.memory_on == StoredOn::Auto && !tables.memory.on_host && memory.memory > 0;
            if !fit
                && features_help
                && self.may_partition
                && !tables.features.partitioned()
                && self.all_fit(memory.partitioned(ranks).fits())?
            {
                tables.partition_features(store)?;
            } else if !fit && features_help && self.features_on == StoredOn::Auto {
                tables.features.keep_on_host(store)?;
            } else if !fit && memory_helps {
                tables.keep_memory_on_host(store, &self.state)?;
            } else {
                memory.check()?;
                return Ok((programs, memory));
            }
        }
    }
    /// Whether the programs of all ranks fit: where features are is the same on all of them. Collective.
    fn all_fit(&self, fits: bool) -> Result<bool> {
        let Some(ranks) = self.device.ranks() else { return Ok(fits) };
        let mut too_large = [f32::from(u8::from(!fits))];
        ranks.sum(&mut too_large)?;
        Ok(too_large[0] == 0.0)
    }
    /// Returns the memory that the programs need; `free` bytes are free on the device.
    fn memory(
        &self,
        store: &Store,
        tables: &EventTables,
        programs: &[&Program],
        free: Option<usize>,
    ) -> MemoryPlan {
        let features: Vec<BufferId> = tables.features.tables().collect();
        let features = StoredTables {
            buffers: &features,
            on_host: tables.features.on_host(),
            partitioned: tables.features.partitioned(),
        };
        let memory =
            StoredTables { buffers: &self.state, on_host: tables.memory.on_host, partitioned: false };
        MemoryPlan::new(store, features, memory, programs, free)
    }
}
