//! Flags with which WiredTiger has opened its files: whether direct I/O is really in effect.
//!
//! `/proc/self/fdinfo` has the flags of each descriptor in octal (proc_pid_fdinfo(5)).

use std::path::{Path, PathBuf};

/// `O_DIRECT` of this architecture.
const DIRECT: i32 = libc::O_DIRECT;

/// Access mode of the open files of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Direct,
    Buffered,
    Mixed,
}

impl Access {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Access::Direct => "direct",
            Access::Buffered => "buffered",
            Access::Mixed => "mixed",
        }
    }
}

/// Access to the files that this process has open in a directory, whose names start with `prefix`; `None` without one.
pub(crate) fn access(directory: &Path, prefix: &str) -> Option<Access> {
    let directory = std::fs::canonicalize(directory).ok()?;
    let matches = |file: &PathBuf| {
        let name = file.file_name().map(|name| name.to_string_lossy());
        file.parent() == Some(&directory) && name.is_some_and(|name| name.starts_with(prefix))
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
    let files = descriptors.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|file| matches(&file)));
    let mut found = files.filter_map(|entry| flags(&entry.file_name().to_string_lossy()));
    let first = found.next()? & DIRECT != 0;
    let is_same = found.all(|flags| (flags & DIRECT != 0) == first);
    Some(match (is_same, first) {
        (false, _) => Access::Mixed,
        (true, true) => Access::Direct,
        (true, false) => Access::Buffered,
    })
}

fn flags(descriptor: &str) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    let octal = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    i32::from_str_radix(octal.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_directory_and_prefix() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(access(path, "records"), None);
        let open = std::fs::File::create(path.join("records.wt")).unwrap();
        assert_eq!(access(path, "records"), Some(Access::Buffered));
        assert_eq!(access(path, "WiredTigerLog"), None);
        drop(open);
    }
}
