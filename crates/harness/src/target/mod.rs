//! Opens the files, directories and devices that a run uses, and refuses any that is not the one that was checked.
//!
//! A path is a name, and names change: a symbolic link, a device node or a directory can be replaced between the moment
//! when iosonde asked for consent and the moment when the engine opens it. So the parent process passes the
//! identity of each path ([`Identity`]: device number, or device and inode), and every open goes through [`Targets`],
//! which compares the opened descriptor with it. A path without an identity keeps the identity of its first open for the
//! rest of the run.
//!
//! Limits: it does not decide what may be written, and it does not look at what is on a device.

mod directory;
mod identity;
mod targets;
mod wrong_target;

pub use directory::{Directory, held_path};
pub use identity::{Identity, InvalidIdentity, NamedIdentity};
pub use rustix::fs::OFlags;
pub use targets::Targets;
pub use wrong_target::WrongTarget;
