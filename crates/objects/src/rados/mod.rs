//! Ceph: objects of a pool, through the asynchronous C interface of librados.
//!
//! librados calls back from threads of its own. A callback reads the clock, appends the completion to the queue of the thread
//! that started the operation, and wakes it: the latency is that of the operation, without the wake-up of our thread.

mod library;

use std::ffi::{CStr, CString, c_char, c_void};
use std::io::Write;
use std::ptr::null_mut;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{Code, RunError};

use crate::rados::library::{Handle, Librados};
use crate::store::{Done, Session, Store};

/// Longest name of an object with its final null byte: `iosonde-` and 20 digits.
const NAME: usize = 32;

/// Timeout of operations in flight when a session is closed.
const CLOSING: Duration = Duration::from_secs(5);

/// Connection settings.
pub(crate) struct Endpoint<'a> {
    pub library: Option<&'a str>,
    pub config_path: &'a str,
    pub user: &'a str,
    pub pool: &'a str,
    pub timeout_ns: u64,
}

/// A connection to a cluster, with one pool.
pub(crate) struct Rados {
    librados: Librados,
    cluster: Handle,
    pool: Handle,
    clock: Clock,
}

// SAFETY: the handles may be used by several threads at the same time (`rados/librados.h`).
unsafe impl Sync for Rados {}

impl Rados {
    /// Connects to a cluster and opens a pool.
    pub(crate) fn connect(endpoint: &Endpoint<'_>, clock: Clock) -> Result<Rados, RunError> {
        let librados = Librados::load(endpoint.library)?;
        let mut rados = Rados {
            librados,
            cluster: null_mut(),
            pool: null_mut(),
            clock,
        };
        let (user, config, pool) = (text(endpoint.user)?, text(endpoint.config_path)?, text(endpoint.pool)?);
        let seconds = endpoint.timeout_ns.div_ceil(1_000_000_000).to_string();
        // SAFETY: the strings live until the calls return; handles are used in the order that librados documents.
        unsafe {
            let created = (rados.librados.create)(&mut rados.cluster, user.as_ptr());
            rados.check(created, "create a client of the Ceph cluster", "`store.user`")?;
            let read = (rados.librados.conf_read_file)(rados.cluster, config.as_ptr());
            rados.check(read, &format!("read `{}`", endpoint.config_path), "`store.config_path`")?;
            for name in [
                c"rados_osd_op_timeout",
                c"rados_mon_op_timeout",
                c"client_mount_timeout",
            ] {
                let value = text(&seconds)?;
                let set = (rados.librados.conf_set)(rados.cluster, name.as_ptr(), value.as_ptr());
                rados.check(set, "set a timeout of librados", "`timeout_ns`")?;
            }
            let connected = (rados.librados.connect)(rados.cluster);
            rados.check(connected, "connect to the Ceph cluster", "`store.config_path`")?;
            let opened = (rados.librados.ioctx_create)(rados.cluster, pool.as_ptr(), &mut rados.pool);
            rados.check(opened, &format!("open the pool `{}`", endpoint.pool), "`store.pool`")?;
        }
        Ok(rados)
    }

    fn check(&self, result: i32, action: &str, context: &str) -> Result<(), RunError> {
        if result >= 0 {
            return Ok(());
        }
        let reason = self.explain(result);
        Err(RunError {
            message: format!("cannot {action}: {}", reason.message),
            ..reason
        }
        .at(context))
    }
}

impl Drop for Rados {
    fn drop(&mut self) {
        // SAFETY: sessions borrow this value, so none has an operation in flight; handles that were not created are null.
        unsafe {
            if !self.pool.is_null() {
                (self.librados.ioctx_destroy)(self.pool);
            }
            if !self.cluster.is_null() {
                (self.librados.shutdown)(self.cluster);
            }
        }
    }
}

impl Store for Rados {
    fn client(&self) -> (String, String) {
        (self.librados.describe(), self.librados.file.display().to_string())
    }

    fn session(&self, slots: u32, object_bytes: usize) -> Result<Box<dyn Session + '_>, RunError> {
        let queue = Box::new(Queue {
            clock: self.clock,
            librados_value: self.librados.completion_value,
            done: Mutex::new(Vec::with_capacity(slots as usize)),
            changed: Condvar::new(),
        });
        let slots = (0..slots).map(|number| Slot {
            buffer: vec![0; object_bytes],
            call: Box::new(Call {
                queue: &raw const *queue,
                slot: number,
            }),
            completion: null_mut(),
        });
        Ok(Box::new(RadosSession {
            store: self,
            slots: slots.collect(),
            queue,
            in_flight: 0,
        }))
    }

    fn explain(&self, result: i32) -> RunError {
        let reason = std::io::Error::from_raw_os_error(-result).to_string();
        let (code, hint) = match -result {
            libc::ETIMEDOUT => {
                return RunError::new(
                    Code::Timeout,
                    "the cluster did not answer in time",
                    "see `ceph -s`: object daemons may be down or full, or placement groups inactive",
                );
            }
            libc::ENOSPC | libc::EDQUOT => (Code::NoSpace, "use fewer or smaller objects, or a larger target"),
            libc::ENOENT => (Code::Vanished, "see whether it exists, and the name of the pool"),
            libc::EACCES | libc::EPERM => (Code::Authentication, "see the client's keyring and capabilities"),
            libc::EIO => (
                Code::IoError,
                "see the messages of the object daemons and the kernel log",
            ),
            _ => (Code::StoreError, "see the messages of the cluster's daemons"),
        };
        RunError::new(code, reason, hint)
    }
}

/// Completions for one thread.
struct Queue {
    clock: Clock,
    librados_value: unsafe extern "C" fn(Handle) -> i32,
    done: Mutex<Vec<Done>>,
    changed: Condvar,
}

impl Queue {
    fn done(&self) -> MutexGuard<'_, Vec<Done>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Argument of a callback.
struct Call {
    queue: *const Queue,
    slot: u32,
}

struct Slot {
    buffer: Vec<u8>,
    call: Box<Call>,
    /// Of the operation in flight, or null.
    completion: Handle,
}

/// Called by librados when an operation has completed.
unsafe extern "C" fn completed(completion: Handle, call: *mut c_void) {
    // SAFETY: the session keeps calls and queue until every operation has completed, or leaks them.
    let (call, queue) = unsafe {
        let call = &*call.cast::<Call>();
        (call, &*call.queue)
    };
    let at_ns = queue.clock.now();
    // SAFETY: the completion is valid until the session releases it, after it was taken from the queue.
    let result = unsafe { (queue.librados_value)(completion) };
    let mut done = queue.done();
    done.push(Done {
        slot: call.slot,
        result,
        at_ns,
    });
    // Under the lock: once it is released, the session may be dropped.
    queue.changed.notify_one();
}

struct RadosSession<'a> {
    store: &'a Rados,
    slots: Vec<Slot>,
    queue: Box<Queue>,
    in_flight: u64,
}

impl RadosSession<'_> {
    fn start(
        &mut self,
        slot: u32,
        object: u64,
        operation: impl FnOnce(&Librados, Handle, *const c_char, Handle, &mut [u8]) -> i32,
    ) -> Result<(), i32> {
        let (librados, pool) = (&self.store.librados, self.store.pool);
        let mut name = [0; NAME];
        let slot = &mut self.slots[slot as usize];
        let call = (&raw mut *slot.call).cast();
        // SAFETY: the call lives as long as the operation; the completion is released when it has been reaped.
        let created = unsafe { (librados.completion_create)(call, Some(completed), &mut slot.completion) };
        if created < 0 {
            return Err(created);
        }
        let started = operation(
            librados,
            pool,
            object_name(object, &mut name).as_ptr(),
            slot.completion,
            &mut slot.buffer,
        );
        if started < 0 {
            self.release(slot_number(call));
            return Err(started);
        }
        self.in_flight += 1;
        Ok(())
    }

    fn release(&mut self, slot: u32) {
        let completion = std::mem::replace(&mut self.slots[slot as usize].completion, null_mut());
        // SAFETY: it was created for this slot and is released once.
        unsafe { (self.store.librados.completion_release)(completion) };
    }
}

/// The slot of a call.
fn slot_number(call: *mut c_void) -> u32 {
    // SAFETY: it is the pointer to a call that the session owns.
    unsafe { (*call.cast::<Call>()).slot }
}

impl Session for RadosSession<'_> {
    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.slots[slot as usize].buffer
    }

    fn write(&mut self, slot: u32, object: u64) -> Result<(), i32> {
        self.start(slot, object, |librados, pool, name, completion, buffer| {
            // SAFETY: the name is copied; the buffer is not touched until the operation has completed.
            unsafe { (librados.write_full)(pool, name, completion, buffer.as_ptr().cast(), buffer.len()) }
        })
    }

    fn read(&mut self, slot: u32, object: u64) -> Result<(), i32> {
        self.start(slot, object, |librados, pool, name, completion, buffer| {
            // SAFETY: as for a write.
            unsafe { (librados.read)(pool, name, completion, buffer.as_mut_ptr().cast(), buffer.len(), 0) }
        })
    }

    fn delete(&mut self, slot: u32, object: u64) -> Result<(), i32> {
        self.start(slot, object, |librados, pool, name, completion, _| {
            // SAFETY: the name is copied.
            unsafe { (librados.remove)(pool, name, completion) }
        })
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        let known = done.len();
        done.append(&mut self.queue.done());
        for each in &done[known..] {
            self.release(each.slot);
            self.in_flight -= 1;
        }
    }

    fn wait(&mut self, timeout_ns: u64) {
        let done = self.queue.done();
        if done.is_empty() {
            let waited = self.queue.changed.wait_timeout(done, Duration::from_nanos(timeout_ns));
            drop(waited);
        }
    }
}

impl Drop for RadosSession<'_> {
    fn drop(&mut self) {
        let mut done = Vec::with_capacity(self.slots.len());
        let started = std::time::Instant::now();
        while self.in_flight > 0 && started.elapsed() < CLOSING {
            self.wait(100_000_000);
            done.clear();
            self.reap(&mut done);
        }
        if self.in_flight > 0 {
            // librados still writes to these when the operations complete or time out.
            std::mem::forget(std::mem::take(&mut self.slots));
            let queue = Box::new(Queue {
                clock: self.queue.clock,
                librados_value: self.queue.librados_value,
                done: Mutex::default(),
                changed: Condvar::new(),
            });
            std::mem::forget(std::mem::replace(&mut self.queue, queue));
        }
    }
}

/// `iosonde-000000000042`, without an allocation.
fn object_name(object: u64, name: &mut [u8; NAME]) -> &CStr {
    write!(&mut name[..NAME - 1], "iosonde-{object:012}").expect("the longest number has 20 digits");
    CStr::from_bytes_until_nul(name).expect("the last byte is null")
}

fn text(value: &str) -> Result<CString, RunError> {
    CString::new(value).map_err(|_| RunError::invalid("a text contains a null byte", "`store`", "leave it out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_in_the_order_of_their_numbers() {
        let mut name = [0; NAME];
        assert_eq!(object_name(42, &mut name), c"iosonde-000000000042");
        let mut name = [0; NAME];
        assert_eq!(object_name(u64::MAX, &mut name), c"iosonde-18446744073709551615");
    }
}
