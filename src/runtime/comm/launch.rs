//! How this process was started: alone, or as one of several ranks by a launcher.
use crate::error::{Error, Result};
use std::fmt;

/// What starts the processes of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpirun` of MPICH and its relatives, or another launcher that speaks their protocol PMI.
    Mpich,
    /// Slurm's `srun`.
    Slurm,
    /// PyTorch's `torchrun`.
    Torchrun,
}

impl Launcher {
    /// All launchers. One that may run below another one comes first: under Slurm, `mpirun` starts its
    /// helpers by `srun`, and what the ranks then see of Slurm is about the helpers.
    pub const ALL: [Launcher; 4] = [Launcher::OpenMpi, Launcher::Mpich, Launcher::Slurm, Launcher::Torchrun];
    /// Returns the environment variables that hold the number of ranks, the rank, the rank among those on the
    /// same computer, and the number of these.
    fn variables(self) -> [&'static str; 4] {
        match self {
            Launcher::OpenMpi => [
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE",
            ],
            Launcher::Mpich => ["PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
            // Not `SLURM_NTASKS`, which a batch script has, too, though it is one process.
            Launcher::Slurm => ["SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", ""],
            Launcher::Torchrun => ["WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"],
        }
    }
    /// Returns what to do if the library of MPI does not see the ranks of this launcher.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Launcher::OpenMpi => {
                "put the path of Open MPI's libmpi.so.40 into TGNN_MPI_LIB, or use the library's mpirun"
            }
            Launcher::Mpich => {
                "put the path of MPICH's libmpi.so.12 into TGNN_MPI_LIB, or use the library's mpirun"
            }
            Launcher::Slurm => {
                "give srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH), or use the library's mpirun"
            }
            Launcher::Torchrun => "use the library's mpirun; torchrun does not start MPI",
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::OpenMpi => "Open MPI's mpirun",
            Launcher::Mpich => "MPICH's mpirun",
            Launcher::Slurm => "srun",
            Launcher::Torchrun => "torchrun",
        })
    }
}

/// What a launcher tells one of the processes that it has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchedProcess {
    /// The launcher.
    pub launcher: Launcher,
    /// The number of this process, from 0.
    pub rank: usize,
    /// The number of processes.
    pub size: usize,
    /// The number of this process among those on the same computer, if the launcher tells.
    pub local_rank: Option<usize>,
    /// The number of processes on the same computer, if the launcher tells.
    pub local_size: Option<usize>,
}

/// Returns what the launcher of this process tells; `None` if no known launcher has started it.
///
/// # Errors
/// `Usage`, naming the environment variable that is missing or is not a number in its range.
pub fn launched() -> Result<Option<LaunchedProcess>> {
    read(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
}

/// As [`launched`], with the environment `variable`.
fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<LaunchedProcess>> {
    // `WORLD_SIZE` alone may mean anything.
    let is_set =
        |name| variable(name).is_some() && (name != "WORLD_SIZE" || variable("MASTER_ADDR").is_some());
    let Some(launcher) = Launcher::ALL.into_iter().find(|launcher| is_set(launcher.variables()[0])) else {
        return Ok(None);
    };
    let number = |name: &str| -> Result<Option<usize>> {
        let Some(value) = variable(name) else { return Ok(None) };
        let number = value.parse().map_err(|_| refuse(name, &value, "want a number from 0"))?;
        Ok(Some(number))
    };
    let [size, rank, local, locals] = launcher.variables();
    let Some(count) = number(size)?.filter(|count| *count > 0) else {
        return Err(refuse(size, "0", "want the number of ranks"));
    };
    let Some(own) = number(rank)? else {
        return Err(Error::usage(format!("{size} is set, but {rank} is not"))
            .remedy(format!("start all ranks with {launcher}, or unset {size}")));
    };
    if own >= count {
        return Err(refuse(rank, &own.to_string(), &format!("want less than {size}, which is {count}")));
    }
    // Slurm may start ranks by MPICH's protocol.
    let local_rank = number(local)?.or(match launcher {
        Launcher::Mpich => number("SLURM_LOCALID")?,
        _ => None,
    });
    let local_size = number(locals)?.filter(|locals| (1..=count).contains(locals));
    Ok(Some(LaunchedProcess { launcher, rank: own, size: count, local_rank, local_size }))
}

/// Returns the error of a variable whose value is not valid.
fn refuse(name: &str, value: &str, want: &str) -> Error {
    Error::usage(format!("the environment variable {name} is `{value}`; {want}"))
}

/// Ends this process at once, with an exit code: nothing is cleaned up. The driver's own clean-up at the end
/// of a process may wait for ever for a thread that is in a call of the driver.
pub fn end_process(code: u8) -> ! {
    // SAFETY: the call has no conditions, and does not return.
    unsafe { libc::_exit(code.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(environment: &str) -> Result<Option<LaunchedProcess>, String> {
        let variables: Vec<_> = environment.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        let value = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.to_owned());
        read(value).map_err(|e| e.to_string())
    }

    #[test]
    fn every_launcher_is_recognised() {
        let all = |environment: &str| read_from(environment).unwrap();
        assert_eq!(all("PATH=/bin RANK=3 SLURM_NTASKS=4 SLURM_PROCID=0 WORLD_SIZE=2"), None);
        let want = |launcher, local_rank| {
            Some(LaunchedProcess { launcher, rank: 2, size: 4, local_rank, local_size: None })
        };
        let open_mpi = "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_LOCAL_RANK=1";
        assert_eq!(all(open_mpi), want(Launcher::OpenMpi, Some(1)));
        assert_eq!(all("PMI_SIZE=4 PMI_RANK=2 MPI_LOCALRANKID=0"), want(Launcher::Mpich, Some(0)));
        assert_eq!(all("PMI_SIZE=4 PMI_RANK=2"), want(Launcher::Mpich, None));
        let slurm = "SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=2 SLURM_LOCALID=1";
        assert_eq!(all(slurm), want(Launcher::Slurm, Some(1)));
        assert_eq!(all(&format!("{slurm} PMI_SIZE=4 PMI_RANK=2")), want(Launcher::Mpich, Some(1)));
        // Below `srun`, which starts one helper per computer.
        let helpers = "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_LOCALID=0";
        assert_eq!(all(&format!("{helpers} {open_mpi}")), want(Launcher::OpenMpi, Some(1)));
        let torchrun = "WORLD_SIZE=4 RANK=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=1";
        assert_eq!(all(torchrun), want(Launcher::Torchrun, Some(0)));
    }

    #[test]
    fn what_is_no_number_or_out_of_range_is_refused() {
        for (environment, want) in [
            ("PMI_SIZE=x PMI_RANK=0", "the environment variable PMI_SIZE is `x`; want a number from 0"),
            ("PMI_SIZE=2 PMI_RANK=-1", "the environment variable PMI_RANK is `-1`; want a number from 0"),
            ("PMI_SIZE=0 PMI_RANK=0", "the environment variable PMI_SIZE is `0`; want the number of ranks"),
            (
                "PMI_SIZE=2 PMI_RANK=2",
                "the environment variable PMI_RANK is `2`; want less than PMI_SIZE, which is 2",
            ),
            (
                "PMI_SIZE=2",
                "PMI_SIZE is set, but PMI_RANK is not; start all ranks with MPICH's mpirun, or unset PMI_SIZE",
            ),
            (
                "PMI_SIZE=2 PMI_RANK=1 MPI_LOCALRANKID=",
                "the environment variable MPI_LOCALRANKID is ``; want a number from 0",
            ),
        ] {
            assert_eq!(read_from(environment).unwrap_err(), want);
        }
    }
}
