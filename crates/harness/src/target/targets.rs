//! Every open of a path that a spec names.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::target::directory::{Directory, check_names, open_at};
use crate::target::identity::{Identity, NamedIdentity};
use crate::target::wrong_target::WrongTarget;

/// The paths of a run, and what each must lead to.
#[derive(Debug, Default)]
pub struct Targets {
    /// Checked by the parent process.
    checked: BTreeMap<PathBuf, Identity>,
    /// Of paths without an identity: what they led to when they were first opened.
    first: Mutex<BTreeMap<PathBuf, Identity>>,
}

impl Targets {
    /// With the identities that the caller of the engine checked.
    pub fn new(identities: impl IntoIterator<Item = NamedIdentity>) -> Targets {
        Targets {
            checked: identities
                .into_iter()
                .map(|named| (named.path, named.identity))
                .collect(),
            first: Mutex::default(),
        }
    }

    /// A path with an identity that is neither one of `used` nor a directory above one of them.
    pub fn unused(&self, used: &[PathBuf]) -> Option<&Path> {
        let is_unused = |path: &&PathBuf| !used.iter().any(|used| used.starts_with(path));
        self.checked.keys().find(is_unused).map(PathBuf::as_path)
    }

    /// Opens a file or device. Neither the path itself nor anything below a directory with an identity may be a symbolic
    /// link; only a device may be named by one (`/dev/disk/by-id/...`): its number is compared after it was opened. A file
    /// with an identity exists, so it is never created. A file that is written to has one name only.
    ///
    /// # Errors
    /// The kernel's, or a [`WrongTarget`] in an [`io::Error`].
    pub fn open(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let checked = self.checked.get(path).copied();
        let flags = match checked {
            Some(_) => flags.difference(OFlags::CREATE),
            None => flags,
        };
        let file = match self.open_without_links(path, flags) {
            Err(error) if self.may_be_device_link(path, &error) => self.open_linked_device(path, flags)?,
            other => other?,
        };
        let metadata = file.metadata()?;
        self.check(path, &metadata)?;
        let is_written = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if is_written || checked.is_some() {
            check_names(path, &metadata)?;
        }
        Ok(file)
    }

    /// Opens a directory and holds it, so that it stays the same whatever happens to its name.
    ///
    /// # Errors
    /// As [`Targets::open`].
    pub fn open_directory(&self, path: &Path) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let file = if self.checked.contains_key(path) || self.above(path).is_some() {
            self.open_without_links(path, flags)?
        } else {
            File::from(openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())?)
        };
        self.check(path, &file.metadata()?)?;
        Ok(Directory::new(path, file))
    }

    /// The nearest directory above a path that has an identity.
    fn above<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let mut above = path.ancestors().skip(1);
        above.find(|directory| self.checked.contains_key(*directory))
    }

    /// A directory with an identity is opened and checked, and the rest of the path goes from there step by step.
    fn open_without_links(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        match self.above(path) {
            None => open_at(CWD, path, path, flags),
            Some(above) => {
                let rest = path.strip_prefix(above).expect("it is an ancestor");
                self.open_directory(above)?.open(rest, flags)
            }
        }
    }

    /// Returns true if the path was refused because it is a symbolic link, and it leads to a device.
    fn may_be_device_link(&self, path: &Path, error: &io::Error) -> bool {
        matches!(WrongTarget::from_error(error), Some(WrongTarget::SymbolicLink { .. }))
            && self.above(path).is_none()
            && path.metadata().is_ok_and(|found| found.file_type().is_block_device())
    }

    fn open_linked_device(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let flags = flags.difference(OFlags::CREATE) | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, path, flags, Mode::empty())?);
        // The link may have changed since it was examined.
        match file.metadata()?.file_type().is_block_device() {
            true => Ok(file),
            false => Err(WrongTarget::SymbolicLink { path: path.into() }.into()),
        }
    }

    /// Compares what was opened with the identity of its path.
    fn check(&self, path: &Path, metadata: &Metadata) -> io::Result<()> {
        let found = Identity::from_metadata(metadata);
        let expected = self.checked.get(path).copied().unwrap_or_else(|| {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            *first.entry(path.into()).or_insert(found)
        });
        if found == expected {
            return Ok(());
        }
        Err(WrongTarget::Replaced {
            path: path.into(),
            expected,
            found,
        }
        .into())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn named(path: &Path) -> NamedIdentity {
        NamedIdentity {
            path: path.into(),
            identity: Identity::from_metadata(&std::fs::symlink_metadata(path).unwrap()),
        }
    }

    fn refusal(opened: io::Result<File>) -> WrongTarget {
        let error = opened.unwrap_err();
        WrongTarget::from_error(&error).expect("it is the wrong target").clone()
    }

    #[track_caller]
    fn assert_replaced(opened: io::Result<File>) {
        let refused = refusal(opened);
        assert!(matches!(refused, WrongTarget::Replaced { .. }), "{refused}");
    }

    struct Files {
        _directory: tempfile::TempDir,
        data: PathBuf,
        victim: PathBuf,
    }

    fn create() -> Files {
        let directory = tempfile::tempdir().unwrap();
        let (data, victim) = (directory.path().join("own/data"), directory.path().join("victim"));
        std::fs::create_dir(directory.path().join("own")).unwrap();
        std::fs::write(&data, "data").unwrap();
        std::fs::write(&victim, "precious").unwrap();
        Files {
            _directory: directory,
            data,
            victim,
        }
    }

    #[test]
    fn the_file_that_was_checked_is_opened_and_a_replaced_one_refused() {
        let files = create();
        let targets = Targets::new([named(&files.data)]);
        let opened = targets.open(&files.data, OFlags::RDWR).unwrap();
        assert_eq!(opened.metadata().unwrap().ino(), files.data.metadata().unwrap().ino());
        let files = create();
        let targets = Targets::new([named(&files.data)]);
        std::fs::rename(&files.victim, &files.data).unwrap();
        assert_replaced(targets.open(&files.data, OFlags::RDWR));
    }

    #[test]
    fn a_link_in_place_of_the_file_is_refused_with_and_without_identity() {
        let files = create();
        for targets in [Targets::new([named(&files.data)]), Targets::default()] {
            std::fs::remove_file(&files.data).unwrap();
            symlink(&files.victim, &files.data).unwrap();
            for flags in [OFlags::RDWR, OFlags::RDONLY, OFlags::RDWR | OFlags::CREATE] {
                let path = files.data.clone();
                let refused = refusal(targets.open(&path, flags));
                assert_eq!(refused, WrongTarget::SymbolicLink { path });
            }
        }
        let files = create();
        std::fs::remove_file(&files.data).unwrap();
        std::fs::hard_link(&files.victim, &files.data).unwrap();
        let by_hand = Targets::default();
        let refused = refusal(by_hand.open(&files.data, OFlags::RDWR));
        let (path, links) = (files.data.clone(), 2);
        assert_eq!(refused, WrongTarget::HardLinked { path, links });
        assert!(by_hand.open(&files.data, OFlags::RDONLY).is_ok());
        let checked = Targets::new([named(&files.data)]);
        refusal(checked.open(&files.data, OFlags::RDONLY));
    }

    #[test]
    fn below_a_checked_directory_no_step_may_be_a_link_and_unused_identities_are_found() {
        let files = create();
        let own = files.data.parent().unwrap();
        let targets = Targets::new([named(own)]);
        assert!(targets.open(&own.join("new"), OFlags::RDWR | OFlags::CREATE).is_ok());
        symlink(own.parent().unwrap(), own.join("sub")).unwrap();
        let refused = refusal(targets.open(&own.join("sub/victim"), OFlags::RDWR));
        assert!(matches!(refused, WrongTarget::SymbolicLink { .. }), "{refused}");
        assert!(targets.open(&own.join("../victim"), OFlags::RDWR).is_err());
        let files = create();
        let targets = Targets::new([named(&files.data)]);
        assert_eq!(targets.unused(std::slice::from_ref(&files.data)), None);
        assert_eq!(targets.unused(&[files.victim]), Some(files.data.as_path()));
        let above = Targets::new([named(files.data.parent().unwrap())]);
        // It is checked on the way to the file.
        assert_eq!(above.unused(&[files.data]), None);
    }

    #[test]
    fn a_checked_directory_that_was_swapped_is_refused() {
        let files = create();
        let own = files.data.parent().unwrap();
        let targets = Targets::new([named(own)]);
        let aside = own.with_file_name("aside");
        std::fs::rename(own, &aside).unwrap();
        symlink(&aside, own).unwrap();
        let refused = refusal(targets.open(&files.data, OFlags::RDWR));
        assert!(matches!(refused, WrongTarget::SymbolicLink { .. }), "{refused}");
        std::fs::remove_file(own).unwrap();
        std::fs::create_dir(own).unwrap();
        std::fs::write(&files.data, "other").unwrap();
        assert_replaced(targets.open(&files.data, OFlags::RDWR));
    }

    #[test]
    fn a_held_or_opened_path_stays_what_it_was_after_its_name_has_changed() {
        let files = create();
        let own = files.data.parent().unwrap();
        let held = Targets::default().open_directory(own).unwrap();
        std::fs::rename(own, own.with_file_name("aside")).unwrap();
        std::fs::create_dir(own).unwrap();
        assert_eq!(std::fs::read(held.held_path().join("data")).unwrap(), b"data");
        assert!(held.check_contents().is_ok());
        symlink(&files.victim, held.held_path().join("link")).unwrap();
        let error = held.check_contents().unwrap_err();
        let link = WrongTarget::SymbolicLink { path: own.join("link") };
        assert_eq!(WrongTarget::from_error(&error), Some(&link));
        let files = create();
        let targets = Targets::default();
        let _held = targets.open(&files.data, OFlags::RDONLY).unwrap();
        std::fs::rename(&files.victim, &files.data).unwrap();
        assert_replaced(targets.open(&files.data, OFlags::RDWR));
    }
}
