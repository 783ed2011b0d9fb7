//! A copy of a closed database next to it, from which later runs restore it: cheaper than loading it again.
//!
//! Files are cloned where the file system shares extents between files (`FICLONE`: btrfs, XFS). Elsewhere files that the
//! store never modifies (tables of log-structured stores) become hard links, and all others are copied. So on ext4 a
//! checkpoint costs the space and time of logs and manifests only, until compactions replace the tables.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::ioctl_ficlone;

/// Bytes of a copied database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Copied byte by byte.
    pub copied_bytes: u64,
    /// Cloned or linked, without copying.
    pub linked_bytes: u64,
}

impl std::ops::AddAssign for Copied {
    fn add_assign(&mut self, other: Copied) {
        self.copied_bytes += other.copied_bytes;
        self.linked_bytes += other.linked_bytes;
    }
}

/// Copies a directory of files into an empty one and syncs it. `is_immutable` gets paths relative to the directory.
///
/// # Errors
/// The kernel's; a symbolic link or special file is `InvalidInput`.
pub(crate) fn copy_directory(from: &Path, to: &Path, is_immutable: &dyn Fn(&Path) -> bool) -> io::Result<Copied> {
    copy_below(from, to, Path::new(""), is_immutable)
}

fn copy_below(from: &Path, to: &Path, below: &Path, is_immutable: &dyn Fn(&Path) -> bool) -> io::Result<Copied> {
    let mut copied = Copied::default();
    for entry in fs::read_dir(from.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(to.join(&path))?;
            copied += copy_below(from, to, &path, is_immutable)?;
        } else if kind.is_file() {
            copied += copy_file(&from.join(&path), &to.join(&path), is_immutable(&path))?;
        } else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
    }
    File::open(to.join(below))?.sync_all()?;
    Ok(copied)
}

fn copy_file(from: &Path, to: &Path, is_immutable: bool) -> io::Result<Copied> {
    let source = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(from)?;
    let bytes = source.metadata()?.len();
    let linked = Copied {
        linked_bytes: bytes,
        ..Copied::default()
    };
    let target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(source.metadata()?.permissions().mode())
        .open(to)?;
    if ioctl_ficlone(&target, &source).is_ok() {
        target.sync_all()?;
        return Ok(linked);
    }
    if is_immutable {
        fs::remove_file(to)?;
        if fs::hard_link(from, to).is_ok() {
            return Ok(linked);
        }
        return copy_bytes(&source, &File::create_new(to)?, bytes);
    }
    copy_bytes(&source, &target, bytes)
}

fn copy_bytes(mut source: &File, mut target: &File, bytes: u64) -> io::Result<Copied> {
    io::copy(&mut source, &mut target)?;
    target.sync_all()?;
    Ok(Copied {
        copied_bytes: bytes,
        ..Copied::default()
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn is_table(path: &Path) -> bool {
        path.extension().is_some_and(|end| end == "sst")
    }

    #[test]
    fn tables_share_their_blocks_logs_are_copied_and_symbolic_links_refused() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("level")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("level/1.sst"), [1; 5000]).unwrap();
        fs::write(from.join("1.log"), [2; 300]).unwrap();
        let copied = copy_directory(&from, &to, &is_table).unwrap();
        assert_eq!(copied.copied_bytes + copied.linked_bytes, 5300);
        assert!(copied.linked_bytes >= 5000);
        assert_eq!(fs::read(to.join("level/1.sst")).unwrap(), [1; 5000]);
        // Writing to the log of the one must not change the other.
        fs::write(from.join("1.log"), [3; 300]).unwrap();
        assert_eq!(fs::read(to.join("1.log")).unwrap(), [2; 300]);
        assert_eq!(fs::metadata(to.join("1.log")).unwrap().nlink(), 1);
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.join("data")).unwrap();
        let refused = copy_directory(&from, &to, &is_table).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
