//! Request queue settings of a block device (`/sys/block/NAME/queue`).

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use iosonde_harness::metrics::device::sysfs_directory;
use libc::{major, minor};

/// The request queue that I/O on a file passes through.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The disk's directory in sysfs.
    directory: PathBuf,
}

impl Queue {
    /// The queue of a device, or of the device under a file; none where the file system does not name one, such as tmpfs or
    /// btrfs.
    pub(crate) fn read(file: &File) -> Option<Queue> {
        let metadata = file.metadata().ok()?;
        let is_device = metadata.file_type().is_block_device();
        let number = if is_device { metadata.rdev() } else { metadata.dev() };
        let link = sysfs_directory(&format!("{}:{}", major(number), minor(number)));
        let mut directory = link.canonicalize().ok()?;
        if directory.join("partition").exists() {
            directory.pop();
        }
        Some(Queue { directory })
    }

    /// Name of the disk.
    pub(crate) fn name(&self) -> String {
        let name = self.directory.file_name();
        name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Reason why completions of this queue cannot be polled; `None` if they can.
    pub(crate) fn no_polling(&self) -> Option<String> {
        match self.setting("io_poll").as_deref() {
            Some("1") => None,
            Some(_) => Some(format!(
                "`queue/io_poll` of {} is 0: the device has no poll queues",
                self.name()
            )),
            None => Some(format!("{} has no `queue/io_poll`", self.name())),
        }
    }

    /// A setting of the queue, by the name of its file.
    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.directory.join("queue").join(name)).ok()?;
        Some(text.trim().to_string())
    }
}

/// Reason why completions of I/O on a file cannot be polled; `None` if they can.
pub(crate) fn no_polling(file: &File) -> Option<String> {
    match Queue::read(file) {
        Some(queue) => queue.no_polling(),
        None => Some("the file system does not name the block device below it".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(directory: &std::path::Path, io_poll: Option<&str>) -> Queue {
        let disk = directory.join("disk0");
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        if let Some(text) = io_poll {
            std::fs::write(disk.join("queue/io_poll"), text).unwrap();
        }
        Queue { directory: disk }
    }

    #[test]
    fn polling_is_refused_with_the_setting_that_prevents_it_and_without_a_block_device() {
        let temporary = tempfile::tempdir().expect("there is a temporary directory");
        let refused = |io_poll| queue(temporary.path(), io_poll).no_polling();
        assert!(refused(None).is_some_and(|reason| reason.contains("no `queue/io_poll`")));
        assert!(refused(Some("0\n")).is_some_and(|reason| reason.contains("`queue/io_poll` of disk0 is 0")));
        assert_eq!(refused(Some("1\n")), None);
        let file = File::open("/proc/version").expect("procfs is mounted");
        assert!(Queue::read(&file).is_none());
        assert!(no_polling(&file).is_some());
    }
}
