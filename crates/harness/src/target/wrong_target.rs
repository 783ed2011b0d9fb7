//! The refusal to use a file or device that is not the one that was checked.

use std::io;
use std::path::PathBuf;

use iosonde_protocol::Failure;

use crate::target::identity::Identity;

/// Reason for a refused open. It travels inside an [`io::Error`], so that code between here and the edge of the engine
/// handles one type of error; [`WrongTarget::from_error`] finds it there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongTarget {
    /// Another file or device has the name now.
    #[error("`{}` is not the target that was checked: it is {found}, and {expected} was expected", path.display())]
    Replaced {
        /// The path that was opened.
        path: PathBuf,
        /// Identity that was checked.
        expected: Identity,
        /// Identity that was opened.
        found: Identity,
    },
    /// A symbolic link where there must be none.
    #[error("`{}` is a symbolic link", path.display())]
    SymbolicLink {
        /// The link.
        path: PathBuf,
    },
    /// The file has other names, and may be in use under those.
    #[error("`{}` has {links} names (hard links)", path.display())]
    HardLinked {
        /// The path that was opened.
        path: PathBuf,
        links: u64,
    },
    /// A device, pipe or socket in a place for files.
    #[error("`{}` is neither a regular file nor a directory", path.display())]
    SpecialFile { path: PathBuf },
}

impl WrongTarget {
    /// The protocol's name for it.
    pub const CODE: &'static str = "wrong_target";

    /// The refusal inside an error, if it is one.
    pub fn from_error(error: &io::Error) -> Option<&WrongTarget> {
        error.get_ref()?.downcast_ref()
    }

    /// The likely cause, and what to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            WrongTarget::Replaced { .. } => {
                "a link, device node, mount or file was replaced after the target was checked: find out by whom, and start \
                 the run again. Nothing was written to it"
            }
            WrongTarget::SymbolicLink { .. } => {
                "name the file that the link points to. If you did not create the link, find out who did: nothing was \
                 written through it"
            }
            WrongTarget::HardLinked { .. } => {
                "remove the other names, or choose another file: writing to this one changes what the other names show"
            }
            WrongTarget::SpecialFile { .. } => "remove it, or choose another directory",
        }
    }

    /// The event that reports it.
    pub fn to_failure(&self) -> Failure {
        Failure {
            code: WrongTarget::CODE.into(),
            message: self.to_string(),
            context: "opening the target".into(),
            hint: self.hint().into(),
        }
    }
}

impl From<WrongTarget> for io::Error {
    fn from(wrong: WrongTarget) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, wrong)
    }
}
