//! Streams of the CPU device: worker threads that run what is given to them in order.
use crate::error::{Error, ErrorKind, Result};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
};

type Job = Box<dyn FnOnce() -> Result<()> + Send>;

#[derive(Default)]
struct Flag {
    set: Mutex<bool>,
    changed: Condvar,
}

/// A mark in a stream: reached when everything given to the stream before it is done.
#[derive(Clone)]
pub struct Event(Arc<Flag>);

impl Event {
    /// Whether the mark was reached. Never blocks.
    pub fn is_reached(&self) -> bool {
        *lock(&self.0.set)
    }
    /// Blocks until the mark is reached.
    pub fn synchronize(&self) {
        let mut set = lock(&self.0.set);
        while !*set {
            set = self.0.changed.wait(set).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// An ordered queue of work with a worker thread of its own; the CPU's counterpart of a CUDA stream.
///
/// Work of one stream runs in order; works of two streams run side by side unless [`wait`](Stream::wait) orders them.
/// After the first failure the stream skips what follows (marks are still reached, so nobody hangs) and
/// [`synchronize`](Stream::synchronize) returns that failure. Dropping a stream finishes its queue.
pub struct Stream {
    queue: Option<mpsc::Sender<Job>>,
    worker: Option<JoinHandle<()>>,
    failure: Arc<Mutex<Option<Error>>>,
}

impl Stream {
    /// A stream; `name` names its thread.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when the system gives no thread.
    pub fn new(name: &str) -> Result<Self> {
        let (queue, jobs) = mpsc::channel::<Job>();
        let failure = Arc::new(Mutex::new(None));
        let failed = failure.clone();
        let worker = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                for job in jobs {
                    if let Err(e) =
                        catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|cause| Err(panicked(&*cause)))
                    {
                        lock(&failed).get_or_insert(e);
                    }
                }
            })
            .map_err(|e| Error::new(ErrorKind::Device, "cannot start a worker thread").caused_by(e))?;
        Ok(Stream { queue: Some(queue), worker: Some(worker), failure })
    }
    /// Appends work. Returns at once.
    pub fn submit(&self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        let failure = self.failure.clone();
        self.send(Box::new(move || if lock(&failure).is_some() { Ok(()) } else { work() }));
    }
    /// Marks this point of the queue.
    pub fn record(&self) -> Event {
        let event = Event(Arc::default());
        let flag = event.0.clone();
        self.send(Box::new(move || {
            *lock(&flag.set) = true;
            flag.changed.notify_all();
            Ok(())
        }));
        event
    }
    /// Makes what is submitted from now on wait for `event` of another stream.
    pub fn wait(&self, event: &Event) {
        let event = event.clone();
        self.send(Box::new(move || {
            event.synchronize();
            Ok(())
        }));
    }
    /// Blocks until the queue is empty.
    ///
    /// # Errors
    /// The first failure since the last call. A panic of the work is an error too.
    pub fn synchronize(&self) -> Result<()> {
        self.record().synchronize();
        lock(&self.failure).take().map_or(Ok(()), Err)
    }
    fn send(&self, job: Job) {
        if let Some(q) = &self.queue {
            // The worker ends only when the sender is dropped, so this cannot fail.
            let _ = q.send(job);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(w) = self.worker.take() {
            let _ = w.join();
        }
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn panicked(cause: &(dyn std::any::Any + Send)) -> Error {
    let text = cause.downcast_ref::<String>().map(String::as_str).or(cause.downcast_ref::<&str>().copied());
    Error::new(ErrorKind::Device, format!("work on a stream panicked: {}", text.unwrap_or("no message")))
        .remedy("this is a bug in tgnn: please report it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    #[test]
    fn an_event_orders_two_streams() -> Result<()> {
        let (a, b) = (Stream::new("a")?, Stream::new("b")?);
        let x = Arc::new(AtomicU32::new(0));
        let (xa, xb) = (x.clone(), x.clone());
        a.submit(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            xa.store(1, SeqCst);
            Ok(())
        });
        b.wait(&a.record());
        b.submit(move || if xb.load(SeqCst) == 1 { Ok(()) } else { Err(Error::usage("b overtook a")) });
        b.synchronize()
    }

    #[test]
    fn a_failure_is_kept_what_follows_is_skipped_and_nobody_hangs() -> Result<()> {
        let s = Stream::new("s")?;
        s.submit(|| panic!("planted"));
        s.submit(|| Err(Error::usage("must not run")));
        let e = s.synchronize().unwrap_err();
        assert!(e.to_string().contains("planted"), "{e}");
        s.submit(|| Ok(()));
        s.synchronize()
    }
}
