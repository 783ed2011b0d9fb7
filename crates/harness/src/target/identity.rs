//! Identity of a file or a device, independent of its name.

use std::fmt::{Display, Formatter, Result as FormatResult};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::str::FromStr;

/// The identity of an open file, directory or block device.
///
/// ```
/// use iosonde_harness::target::Identity;
/// assert_eq!("259:0".parse(), Ok(Identity::Device { major: 259, minor: 0 }));
/// assert_eq!("8:1:42".parse(), Ok(Identity::File { major: 8, minor: 1, inode: 42 }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// A block device: its number (`st_rdev`).
    Device { major: u32, minor: u32 },
    /// A file or directory: the device it is on (`st_dev`), and its inode there.
    File {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        inode: u64,
    },
}

impl Identity {
    /// The identity of what was opened or examined.
    pub fn from_metadata(metadata: &Metadata) -> Identity {
        if metadata.file_type().is_block_device() {
            Identity::Device {
                major: rustix::fs::major(metadata.rdev()),
                minor: rustix::fs::minor(metadata.rdev()),
            }
        } else {
            Identity::File {
                major: rustix::fs::major(metadata.dev()),
                minor: rustix::fs::minor(metadata.dev()),
                inode: metadata.ino(),
            }
        }
    }
}

impl Display for Identity {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> FormatResult {
        match self {
            Identity::Device { major, minor } => write!(formatter, "block device {major}:{minor}"),
            Identity::File { major, minor, inode } => write!(formatter, "inode {inode} on device {major}:{minor}"),
        }
    }
}

/// Text that is no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `PATH=MAJOR:MINOR` (block device) or `PATH=MAJOR:MINOR:INODE` (file or directory)")]
pub struct InvalidIdentity(String);

impl FromStr for Identity {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Identity, InvalidIdentity> {
        let numbers: Option<Vec<u64>> = text.split(':').map(|number| number.parse().ok()).collect();
        let number = |value: u64| u32::try_from(value).ok();
        let identity = match numbers.as_deref() {
            Some(&[major, minor]) => number(major)
                .zip(number(minor))
                .map(|(major, minor)| Identity::Device { major, minor }),
            Some(&[major, minor, inode]) => {
                number(major)
                    .zip(number(minor))
                    .map(|(major, minor)| Identity::File { major, minor, inode })
            }
            _ => None,
        };
        identity.ok_or_else(|| InvalidIdentity(text.into()))
    }
}

/// A path with the identity that it must have: `PATH=MAJOR:MINOR` or `PATH=MAJOR:MINOR:INODE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedIdentity {
    /// The path, written as in the spec.
    pub path: PathBuf,
    /// Required identity of the file or device at the path.
    pub identity: Identity,
}

impl FromStr for NamedIdentity {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<NamedIdentity, InvalidIdentity> {
        let invalid = || InvalidIdentity(text.into());
        // A path may contain `=`, an identity does not.
        let (path, identity) = text.rsplit_once('=').ok_or_else(invalid)?;
        let identity = identity.parse().map_err(|_| invalid())?;
        match path {
            "" => Err(invalid()),
            path => Ok(NamedIdentity {
                path: path.into(),
                identity,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_contain_equals_signs_and_colons_and_other_forms_are_refused() {
        let named: NamedIdentity = "/data/a=b:c=8:1:42".parse().unwrap();
        assert_eq!(named.path, PathBuf::from("/data/a=b:c"));
        let (major, minor, inode) = (8, 1, 42);
        assert_eq!(named.identity, Identity::File { major, minor, inode });
        let wrong = "|/dev/sda|=8:1|/dev/sda=8|/dev/sda=8:x|/a=1:2:3:4|/a=-1:2|/a=4294967296:0";
        for text in wrong.split('|') {
            let error = text.parse::<NamedIdentity>().unwrap_err().to_string();
            assert!(error.contains("PATH=MAJOR:MINOR:INODE"), "{error}");
        }
    }
}
