//! The memory that this process may still take: as far as the system, its control groups and its own limits
//! tell.
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the bytes that this process may still take, by the files of the system below `root`, which is `/`
/// but in tests. `None` if nothing tells.
pub(super) fn available(root: &Path) -> Option<u64> {
    let system = sized_after(&root.join("proc/meminfo"), "MemAvailable:");
    let groups = groups(root).into_iter().filter_map(|group| group.free());
    system.into_iter().chain(groups).chain(own(root)).min()
}

/// Returns the number in a file.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the number after `key`, without its unit.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the bytes after `key` in a file that counts in KiB.
pub(super) fn sized_after(file: &Path, key: &str) -> Option<u64> {
    number_after(&fs::read_to_string(file).ok()?, key)?.checked_mul(1024)
}

/// A control group, whose processes share a limit.
struct Group {
    folder: PathBuf,
    names: &'static Names,
}

/// The names of a control group's files, and in `memory.stat` those of the pages of files. The kernel gives
/// such pages back when memory is short, so they are no use of memory.
struct Names {
    most: &'static str,
    now: &'static str,
    of_files: [&'static str; 2],
}

/// Of both versions.
const NAMES: [Names; 2] = [
    Names {
        most: "memory.limit_in_bytes",
        now: "memory.usage_in_bytes",
        of_files: ["total_inactive_file ", "total_active_file "],
    },
    Names { most: "memory.max", now: "memory.current", of_files: ["inactive_file ", "active_file "] },
];

impl Group {
    /// Returns the bytes below the limit; `None` if there is no limit.
    fn free(&self) -> Option<u64> {
        let Names { most, now, of_files } = self.names;
        let [most, now] = [most, now].map(|name| number(&self.folder.join(name)));
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let of_files: u64 = of_files.iter().filter_map(|name| number_after(&stat, name)).sum();
        Some(most?.saturating_sub(now?.saturating_sub(of_files)))
    }
}

/// Returns the control groups of this process and those that contain them, of both versions. Where a
/// container hides the names of its groups, the root that it sees is its own group.
fn groups(root: &Path) -> Vec<Group> {
    let [first, second] = &NAMES;
    let of_process = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in of_process.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (mounts, names): (&[&str], _) = match controllers {
            "" => (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], second),
            _ if controllers.split(',').any(|name| name == "memory") => (&["sys/fs/cgroup/memory"], first),
            _ => continue,
        };
        for mount in mounts {
            let inner = Path::new(path.trim_start_matches('/'));
            let folders = inner.ancestors().map(|folder| root.join(mount).join(folder));
            found.extend(folders.map(|folder| Group { folder, names }));
        }
    }
    found
}

/// Returns the bytes below the limits of the process itself, as `ulimit -v` and `-d` set them.
fn own(root: &Path) -> Option<u64> {
    let limits = fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let limit = |(name, used)| {
        let most = number_after(&limits, name)?;
        let now = sized_after(&root.join("proc/self/status"), used)?;
        Some(most.saturating_sub(now))
    };
    [("Max address space", "VmSize:"), ("Max data size", "VmData:")].into_iter().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is free on a system with these files.
    fn free(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available(root.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:     1000 kB\n");

    #[test]
    fn the_least_of_all_limits_counts_and_pages_of_files_are_free() {
        assert_eq!(free(&[]), None);
        assert_eq!(free(&[MEMINFO]), Some(1000 << 10));
        // The second version: the group itself has no limit, one that contains it has.
        let group = [
            MEMINFO,
            ("proc/self/cgroup", "0::/system.slice/job.scope/step\n"),
            ("sys/fs/cgroup/system.slice/job.scope/step/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/job.scope/step/memory.current", "5000\n"),
            ("sys/fs/cgroup/system.slice/job.scope/memory.max", "100000\n"),
            ("sys/fs/cgroup/system.slice/job.scope/memory.current", "98000\n"),
        ];
        assert_eq!(free(&group), Some(2_000));
        let stat = "anon 2000\nfile 96000\ninactive_file 90000\nactive_file 6000\n";
        let stat = ("sys/fs/cgroup/system.slice/job.scope/memory.stat", stat);
        assert_eq!(free(&[&group[..], &[stat]].concat()), Some(98_000));
        // In a container: its own group is the root.
        let container = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "3000"),
            ("sys/fs/cgroup/memory.current", "1000"),
        ];
        assert_eq!(free(&container), Some(2_000));
        // The first version, whose container does not see the name of its group.
        let first = [
            ("proc/self/cgroup", "4:memory:/docker/a1\n1:cpu:/docker/a1\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "6500"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 400\n"),
        ];
        assert_eq!(free(&first), Some(900));
        let first =
            [("proc/self/cgroup", "4:memory:/a/b"), ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "70")];
        assert_eq!(free(&first), None, "the use is not known");
    }

    #[test]
    fn the_limits_of_the_process_count() {
        let status = ("proc/self/status", "VmSize:\t    300 kB\nVmData:\t  200 kB\n");
        let unlimited =
            ("proc/self/limits", "Max data size             unlimited            unlimited    bytes\n");
        assert_eq!(free(&[MEMINFO, status, unlimited]), Some(1000 << 10));
        let limits = "Max data size             unlimited            unlimited            bytes\n\
                      Max address space         512000               unlimited            bytes\n";
        assert_eq!(free(&[MEMINFO, status, ("proc/self/limits", limits)]), Some(200 << 10));
        let limits = "Max data size             102400               unlimited            bytes\n";
        assert_eq!(free(&[MEMINFO, status, ("proc/self/limits", limits)]), Some(0));
    }
}
