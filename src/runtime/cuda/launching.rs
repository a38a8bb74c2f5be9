//! How kernels are launched: by what a device can do, and by the setting `TGNN_LAUNCH`.
use crate::error::{Error, ErrorKind, Result};
use std::{fmt, sync::Arc};

/// The first compute capability with early launches and thread block clusters.
const LEAST_CAPABILITY: (i32, i32) = (9, 0);

/// What a device uses to launch kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launching {
    /// Whether kernels may be launched before the previous one has ended.
    pub early: bool,
    /// Whether blocks are launched in clusters, where a grid has some.
    pub clusters: bool,
    /// Why kernels are not launched early although the device should be able to.
    pub trouble: Option<Arc<str>>,
}

impl Launching {
    /// Returns what a device of a compute capability uses. `setting` turns some of it off, to measure what it
    /// gains: `late`, `unclustered`, or both with a comma between them.
    pub fn choose(capability: (i32, i32), setting: Option<&str>) -> Result<Self> {
        let can = capability >= LEAST_CAPABILITY;
        let mut all = Launching { early: can, clusters: can, trouble: None };
        for word in setting.unwrap_or_default().split(',').filter(|word| !word.is_empty()) {
            match word {
                "late" => all.early = false,
                "unclustered" => all.clusters = false,
                _ => {
                    let what = format!("TGNN_LAUNCH has `{word}`, not late or unclustered");
                    return Err(Error::new(ErrorKind::Device, what));
                }
            }
        }
        Ok(all)
    }
    /// Returns the same without early launches, which have failed with an error.
    pub fn late(&self, e: &Error) -> Self {
        Launching { early: false, trouble: Some(e.to_string().into()), ..self.clone() }
    }
}

impl fmt::Display for Launching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.early { "early" } else { "late" })?;
        f.write_str(if self.clusters { ", in clusters" } else { ", without clusters" })?;
        self.trouble
            .as_ref()
            .map_or(Ok(()), |why| write!(f, "; early launches failed when they were tried: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_devices_and_the_setting_turn_early_launches_and_clusters_off() {
        let of = |capability, setting| Launching::choose(capability, setting).map(|l| (l.early, l.clusters));
        assert_eq!(of((9, 0), None).unwrap(), (true, true));
        assert_eq!(of((12, 0), Some("")).unwrap(), (true, true));
        assert_eq!(of((8, 9), None).unwrap(), (false, false));
        assert_eq!(of((9, 0), Some("late")).unwrap(), (false, true));
        assert_eq!(of((10, 0), Some("unclustered")).unwrap(), (true, false));
        assert_eq!(of((9, 0), Some("unclustered,late")).unwrap(), (false, false));
        let e = of((9, 0), Some("late,apart")).unwrap_err().to_string();
        assert!(e.contains("TGNN_LAUNCH has `apart`, not late or unclustered") && !e.contains('\n'), "{e}");
    }
}
