//! A directory that is held open, and what is in it.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::target::wrong_target::WrongTarget;

/// Permissions of a new file, before the umask.
const NEW_FILE: Mode = Mode::from_raw_mode(0o666);

/// An open directory. Everything in it is reached through the descriptor, so that it makes no difference what happens to
/// its name.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    file: File,
}

impl Directory {
    pub(crate) fn new(path: &Path, file: File) -> Directory {
        Directory {
            path: path.into(),
            file,
        }
    }

    /// The path by which it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to this very directory as long as this value lives: for libraries that open by path.
    pub fn held_path(&self) -> PathBuf {
        held_path(&self.file)
    }

    /// Opens a file below it, none of whose steps may be a symbolic link. A file that is written to has one name only.
    ///
    /// # Errors
    /// The kernel's, or a [`WrongTarget`] in an [`io::Error`].
    pub fn open(&self, below: &Path, flags: OFlags) -> io::Result<File> {
        let path = self.path.join(below);
        let mut steps: Vec<_> = below.components().collect();
        let Some(Component::Normal(name)) = steps.pop() else {
            return Err(io::Error::from(Errno::INVAL));
        };
        let mut directory = None;
        for step in steps {
            let Component::Normal(step) = step else {
                return Err(io::Error::from(Errno::INVAL));
            };
            let from = directory.as_ref().unwrap_or(&self.file);
            directory = Some(open_at(
                from,
                Path::new(step),
                &path,
                OFlags::RDONLY | OFlags::DIRECTORY,
            )?);
        }
        let from = directory.as_ref().unwrap_or(&self.file);
        let file = open_at(from, Path::new(name), &path, flags)?;
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            check_names(&path, &file.metadata()?)?;
        }
        Ok(file)
    }

    /// Opens a directory in it.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub fn open_directory(&self, name: &str) -> io::Result<Directory> {
        let file = self.open(Path::new(name), OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Directory::new(&self.path.join(name), file))
    }

    /// Creates a directory in it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create_directory(&self, name: &str) -> io::Result<()> {
        Ok(mkdirat(&self.file, name, Mode::from_raw_mode(0o777))?)
    }

    /// Removes a directory in it and everything below, without following links.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_directory(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_dir_all(self.held_path().join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Writes a file so that it is either the old or the new one at any instant.
    ///
    /// # Errors
    /// The kernel's.
    pub fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let temporary = format!("{name}.tmp");
        match unlinkat(&self.file, &temporary, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => return Err(error.into()),
            _ => {}
        }
        let mut file = self.open(Path::new(&temporary), OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        file.write_all(content)?;
        file.sync_all()?;
        Ok(renameat(&self.file, &temporary, &self.file, name)?)
    }

    /// Refuses symbolic links, special files, and files with several names anywhere below: a library that opens files by
    /// path would write through them.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub fn check_contents(&self) -> io::Result<()> {
        check_below(&self.held_path(), &self.path, None)
    }

    /// The same, but a file may have a second name: the one at the same place below `copy`, a copy by hard links.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub fn check_contents_beside(&self, copy: &Path) -> io::Result<()> {
        check_below(&self.held_path(), &self.path, Some(copy))
    }
}

/// A path that leads to an open file or device, however its name changes: `/proc/self/fd/N`.
pub fn held_path(file: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

fn check_below(directory: &Path, shown: &Path, copy: Option<&Path>) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (path, shown) = (entry.path(), shown.join(entry.file_name()));
        let metadata = match std::fs::symlink_metadata(&path) {
            // Libraries remove files while they run.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let copy = copy.map(|copy| copy.join(entry.file_name()));
        let kind = metadata.file_type();
        if kind.is_symlink() {
            return Err(WrongTarget::SymbolicLink { path: shown }.into());
        } else if kind.is_dir() {
            check_below(&path, &shown, copy.as_deref())?;
        } else if kind.is_file() {
            if !copy.is_some_and(|copy| is_second_name(&copy, &metadata)) {
                check_names(&shown, &metadata)?;
            }
        } else {
            return Err(WrongTarget::SpecialFile { path: shown }.into());
        }
    }
    Ok(())
}

/// Returns true if a file has exactly two names, of which this path is one.
fn is_second_name(path: &Path, metadata: &Metadata) -> bool {
    let same = |found: Metadata| (found.dev(), found.ino()) == (metadata.dev(), metadata.ino());
    metadata.nlink() == 2 && std::fs::symlink_metadata(path).is_ok_and(same)
}

/// `openat(2)` without following a link in the last step; `shown` is the whole path, for messages.
pub(crate) fn open_at(from: impl AsFd, path: &Path, shown: &Path, flags: OFlags) -> io::Result<File> {
    let opened = openat(
        &from,
        path,
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY,
        NEW_FILE,
    );
    match opened {
        Ok(file) => Ok(file.into()),
        // The kernel decides which of the two a link in place of a directory gives.
        Err(error @ (Errno::LOOP | Errno::NOTDIR)) if error == Errno::LOOP || is_link(&from, path) => {
            Err(WrongTarget::SymbolicLink { path: shown.into() }.into())
        }
        Err(error) => Err(error.into()),
    }
}

fn is_link(from: impl AsFd, path: &Path) -> bool {
    let found = rustix::fs::statat(from, path, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_symlink())
}

/// Refuses a regular file that has more names than the one it was opened by.
pub(crate) fn check_names(path: &Path, metadata: &Metadata) -> io::Result<()> {
    match metadata.nlink() {
        1 => Ok(()),
        _ if !metadata.is_file() => Ok(()),
        links => Err(WrongTarget::HardLinked {
            path: path.into(),
            links,
        }
        .into()),
    }
}
