//! Chooses how the kernels of a rank come to read the windows of the others.
use super::{
    Gpu, WindowSize,
    nccl::{GatheredWindows, Nccl},
    peers::{OrderedPeers, Peers},
    transport::Transport,
};
use crate::{
    error::{Error, Result},
    runtime::comm::{Comm, Local},
};

/// How the ranks of a process wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// Their streams wait for words in memory.
    Words,
    /// Their streams wait for events, which the host has seen recorded.
    Events,
}

/// The environment variable that says how the ranks of a process wait for one another.
const SETTING: &str = "TGNN_EXCHANGE";

impl Waiting {
    /// Returns how ranks wait, by the `setting` if there is one; `shared`: whether ranks share a device. Its
    /// streams must not wait for words that another rank writes; see [`OrderedPeers`].
    fn choose(shared: bool, setting: Option<&str>) -> Result<Self> {
        match setting.unwrap_or_default() {
            "" if shared => Ok(Waiting::Events),
            "" | "words" => Ok(Waiting::Words),
            "events" => Ok(Waiting::Events),
            other => Err(Error::usage(format!("{SETTING} is `{other}`, not words or events"))),
        }
    }
}

/// Opens the window of a channel for this rank. Collective.
///
/// # Errors
/// `OutOfMemory`; `Device` if the devices need NCCL and it is missing or refuses; `Comm` if a rank is
/// missing.
pub(super) fn open(gpu: &Gpu, size: &WindowSize<'_>) -> Result<Box<dyn Transport>> {
    let WindowSize { ranks, channel, bytes } = *size;
    let comm = ranks.channel(channel);
    if let Some(local) = comm.local() {
        let devices = devices(gpu, local)?;
        if can_reach(gpu, local, &devices)? {
            // Also a rank of another group holds up what shares its device.
            let shared = has_twice(&devices) || has_twice(&local.devices()?);
            let setting = std::env::var_os(SETTING).map(|v| v.to_string_lossy().into_owned());
            return Ok(match Waiting::choose(shared, setting.as_deref())? {
                Waiting::Words => Box::new(Peers::open(gpu, local, bytes)?),
                Waiting::Events => Box::new(OrderedPeers::open(gpu, comm, local, bytes)?),
            });
        }
    }
    let nccl = ranks.attached(channel, || Nccl::new(gpu, &**comm))?;
    Ok(Box::new(GatheredWindows::open(gpu, nccl, &**comm, bytes)?))
}

/// Whether a list has an element more than once.
fn has_twice<T: PartialEq>(list: &[T]) -> bool {
    list.iter().enumerate().any(|(at, x)| list[..at].contains(x))
}

/// Returns the number of the device of each rank of a connection. Collective.
fn devices(gpu: &Gpu, local: &Local) -> Result<Vec<u64>> {
    let mut devices = vec![0u64; local.size()];
    let own = gpu.ordinal() as u64;
    let each = vec![size_of::<u64>(); local.size()];
    local.all_gather(&own.to_ne_bytes(), bytemuck::cast_slice_mut(&mut devices), &each)?;
    Ok(devices)
}

/// Lets the kernels of this rank's device read the memory of the others. Returns whether all ranks can do so.
/// Collective.
fn can_reach(gpu: &Gpu, local: &Local, devices: &[u64]) -> Result<bool> {
    let mut can = true;
    for &device in devices {
        can &= gpu.reach(device as usize)?;
    }
    let mut all = vec![0u8; local.size()];
    local.all_gather(&[u8::from(can)], &mut all, &vec![1; local.size()])?;
    Ok(all.into_iter().all(|can| can == 1))
}

#[cfg(test)]
mod tests {
    use super::{Waiting::*, *};

    #[test]
    fn streams_of_a_device_that_ranks_share_wait_for_events() {
        assert!(has_twice(&[0, 1, 0]) && !has_twice(&[2, 0, 1]) && !has_twice::<u64>(&[]));
        let of = |shared, setting| Waiting::choose(shared, setting).unwrap();
        assert_eq!(of(false, None), Words);
        assert_eq!(of(true, None), Events);
        assert_eq!(of(true, Some("")), Events);
        assert_eq!(of(true, Some("words")), Words);
        assert_eq!(of(false, Some("events")), Events);
        let e = Waiting::choose(false, Some("eagerly")).unwrap_err().to_string();
        assert!(e.contains("TGNN_EXCHANGE is `eagerly`, not words or events"), "{e}");
    }
}
