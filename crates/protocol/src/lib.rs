//! The protocol between iosonde and an engine.
//!
//! An engine reads one [`Spec`] as JSON on standard input, carries it out, and writes [`Event`]s as JSON Lines on
//! standard output. After the spec, standard input carries [`Command`]s. There is no other interface: any program with
//! this protocol is an engine. The JSON schema is generated from these types (`iosonde-engine --schema`), and
//! `docs/protocol.md` explains it in prose.
//!
//! Conventions: bytes and nanoseconds are integers, units are last in a name, every `*_ns` instant counts from the
//! engine's start on the monotonic clock (the `hello` event ties that to the wall clock).

mod ai;
mod counters;
mod drive;
mod event;
mod graph;
mod kv;
mod objects;
mod oltp;
mod paging;
mod spec;

pub use ai::*;
pub use drive::*;
pub use event::*;
pub use graph::*;
pub use kv::*;
pub use objects::*;
pub use oltp::*;
pub use paging::*;
pub use spec::*;

/// The version of the protocol that this crate describes. An engine refuses any other.
pub const PROTOCOL_VERSION: u32 = 2;

/// Commands that may follow the spec on standard input: one JSON value a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// End the run now, cleanly: I/Os in flight are awaited, and the result has the outcome `stopped`.
    Stop,
    /// Start the load at an instant of `CLOCK_REALTIME`: of a spec whose `start` is `command`, and once.
    Start {
        /// Unix time, in nanoseconds.
        unix_ns: u64,
    },
}
