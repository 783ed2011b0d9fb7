//! Interface of an object store: asynchronous operations on whole objects, from several threads.

use iosonde_harness::RunError;

/// An operation that has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    /// The slot that it was started with.
    pub slot: u32,
    /// Bytes read, 0 after a write or delete, or a negative error number.
    pub result: i32,
    /// Instant of its completion, in nanoseconds on the run's clock.
    pub at_ns: u64,
}

/// A store that is connected.
pub(crate) trait Store: Sync {
    /// Product and version of the client library, and its file.
    fn client(&self) -> (String, String);

    /// Opens the session of a thread: `slots` operations in flight at most, with a buffer for each.
    fn session(&self, slots: u32, object_bytes: usize) -> Result<Box<dyn Session + '_>, RunError>;

    /// Meaning of an error number of an operation.
    fn explain(&self, result: i32) -> RunError;
}

/// The operations of one thread. Between the start and the completion of an operation its slot's buffer belongs to the store.
pub(crate) trait Session {
    /// The buffer of a slot that has no operation in flight.
    fn buffer(&mut self, slot: u32) -> &mut [u8];

    /// Starts writing the slot's buffer as the whole of an object; a negative error number if that fails.
    fn write(&mut self, slot: u32, object: u64) -> Result<(), i32>;

    /// Starts reading the whole of an object into the slot's buffer.
    fn read(&mut self, slot: u32, object: u64) -> Result<(), i32>;

    /// Starts deleting an object.
    fn delete(&mut self, slot: u32, object: u64) -> Result<(), i32>;

    /// Appends what has completed since the last call.
    fn reap(&mut self, done: &mut Vec<Done>);

    /// Waits until an operation completes, or for this many nanoseconds.
    fn wait(&mut self, timeout_ns: u64);
}
