//! How ranks that MPI does not connect find one another.
use super::LaunchedProcess;
use crate::error::{Error, ErrorKind, Result};
use std::{
    fmt,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// Where rank 0 listens for the others.
///
/// # Examples
/// ```
/// use tgnn::runtime::comm::Rendezvous;
/// let at = Rendezvous { host: "node0".into(), port: 29500 };
/// assert_eq!(at.to_string(), "node0:29500");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// Name or address of the computer of rank 0.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl fmt::Display for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// What a rank says first, followed by its number.
const HELLO: [u8; 4] = *b"tgnn";
/// Time between two attempts.
const RETRY: Duration = Duration::from_millis(20);
/// Time that rank 0 has for one that connects.
const PATIENCE: Duration = Duration::from_secs(1);

impl Rendezvous {
    /// Reads the environment variables of `torchrun`: `MASTER_ADDR` and `MASTER_PORT`; the next port if
    /// `torchrun` uses that one itself (`TORCHELASTIC_USE_AGENT_STORE`).
    ///
    /// # Errors
    /// `Usage`, naming the variable that is missing or is not valid.
    pub fn from_environment() -> Result<Self> {
        let variable = |name: &str| {
            std::env::var(name).map_err(|_| {
                Error::usage(format!("the environment variable {name} is not set"))
                    .remedy("start all ranks with torchrun, mpirun or srun")
            })
        };
        let (host, text) = (variable("MASTER_ADDR")?, variable("MASTER_PORT")?);
        let port: u16 = text.parse().map_err(|_| {
            Error::usage(format!("the environment variable MASTER_PORT is `{text}`; want a port"))
        })?;
        let is_taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_ok_and(|value| value == "True");
        Ok(Rendezvous { host, port: port.saturating_add(u16::from(is_taken)) })
    }
    /// Brings the `bytes` of rank 0 to all ranks. Collective.
    ///
    /// # Errors
    /// `Comm` if a rank has not come after `deadline`, or if rank 0 cannot listen.
    pub fn share(&self, launched: LaunchedProcess, bytes: &mut [u8], deadline: Duration) -> Result<()> {
        let until = Instant::now() + deadline;
        match launched.rank {
            0 => self.serve(launched.size, bytes, until),
            _ => self.ask(launched, bytes, until),
        }
    }
    fn failed(&self, what: impl fmt::Display, why: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Comm, format!("{what} {self}: {why}"))
            .remedy("see what the other ranks say; the variable MASTER_PORT chooses another port")
    }
    fn serve(&self, ranks: usize, bytes: &[u8], until: Instant) -> Result<()> {
        let failed = |why: io::Error| self.failed("rank 0 cannot listen on", why);
        let on = |address: &str| TcpListener::bind((address, self.port));
        let listener = on("::").or_else(|_| on("0.0.0.0")).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let mut missing: Vec<usize> = (1..ranks).collect();
        while !missing.is_empty() {
            match listener.accept() {
                Ok((stream, _)) => {
                    // Whoever does not speak like a rank is none.
                    if let Ok(rank) = answer(stream, bytes) {
                        missing.retain(|&other| other != rank);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() > until {
                        let what = format!("ranks {missing:?} have not come to");
                        return Err(self.failed(what, "the deadline is over"));
                    }
                    thread::sleep(RETRY);
                }
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(())
    }
    fn ask(&self, launched: LaunchedProcess, bytes: &mut [u8], until: Instant) -> Result<()> {
        loop {
            match self.try_ask(launched, bytes, until) {
                Ok(()) => return Ok(()),
                Err(e) if Instant::now() > until => {
                    return Err(self.failed(format_args!("rank {} cannot reach rank 0 at", launched.rank), e));
                }
                Err(_) => thread::sleep(RETRY),
            }
        }
    }
    fn try_ask(&self, launched: LaunchedProcess, bytes: &mut [u8], until: Instant) -> io::Result<()> {
        let mut stream = TcpStream::connect((self.host.as_str(), self.port))?;
        let left = until.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(RETRY)))?;
        stream.write_all(&HELLO)?;
        stream.write_all(&(launched.rank as u64).to_le_bytes())?;
        stream.read_exact(bytes)
    }
}

/// Answers a rank, and returns its number.
fn answer(mut stream: TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let (mut hello, mut rank) = ([0; HELLO.len()], [0; size_of::<u64>()]);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read_exact(&mut hello)?;
    stream.read_exact(&mut rank)?;
    if hello != HELLO {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(bytes)?;
    Ok(u64::from_le_bytes(rank) as usize)
}

#[cfg(test)]
mod tests {
    use super::{super::Launcher, *};

    fn rank(rank: usize, size: usize) -> LaunchedProcess {
        LaunchedProcess { launcher: Launcher::Torchrun, rank, size, local_rank: None, local_size: None }
    }
    /// Returns a rendezvous on a port that is free.
    fn here() -> Rendezvous {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Rendezvous { host: "127.0.0.1".into(), port }
    }

    #[test]
    fn all_ranks_get_the_bytes_of_the_first_and_strangers_are_ignored() {
        let at = here();
        let share = |r: usize| {
            let mut bytes = if r == 0 { [7, 8, 9] } else { [0; 3] };
            if r == 1 {
                // A stranger comes first.
                for _ in 0..100 {
                    if let Ok(mut stranger) = TcpStream::connect((at.host.as_str(), at.port)) {
                        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
                        break;
                    }
                    thread::sleep(RETRY);
                }
            }
            at.share(rank(r, 3), &mut bytes, Duration::from_secs(20)).unwrap();
            bytes
        };
        thread::scope(|scope| {
            let ranks: Vec<_> = (0..3).rev().map(|r| scope.spawn(move || share(r))).collect();
            ranks.into_iter().for_each(|rank| assert_eq!(rank.join().unwrap(), [7, 8, 9]));
        });
    }

    #[test]
    fn a_rank_that_does_not_come_is_told_after_the_deadline() {
        let (at, short) = (here(), Duration::from_millis(100));
        let first = at.share(rank(0, 2), &mut [1], short).unwrap_err().to_string();
        assert!(first.contains("ranks [1] have not come to 127.0.0.1:"), "{first}");
        let second = at.share(rank(1, 2), &mut [0], short).unwrap_err().to_string();
        assert!(second.contains("rank 1 cannot reach rank 0 at 127.0.0.1:"), "{second}");
    }
}
