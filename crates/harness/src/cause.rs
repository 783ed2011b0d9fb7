//! Codes and hints for errors of system calls that have the same cause in every workload, with the limit in effect.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::error::Code;

/// Advice to use less space.
const SMALLER: &str = "reduce the size of the workload";

/// Code and hint of an error; `None` if they depend on what was being done.
pub(crate) fn of(error: &io::Error) -> Option<(Code, String)> {
    let (code, hint) = match Errno::from_io_error(error)? {
        Errno::NOSPC => (Code::NoSpace, format!("free some space, or {SMALLER}")),
        Errno::DQUOT => (Code::NoSpace, format!("raise the disk quota, or {SMALLER}")),
        Errno::FBIG => (Code::ResourceLimit, file_size()),
        Errno::MFILE => (Code::ResourceLimit, open_files()),
        Errno::NFILE => (
            Code::ResourceLimit,
            "all open files of the system are in use: raise `fs.file-max` (sysctl), or use fewer jobs".into(),
        ),
        Errno::NOMEM => (Code::OutOfMemory, memory()),
        Errno::IO => (
            Code::IoError,
            "see the kernel log (`dmesg`) for errors of the device".into(),
        ),
        Errno::ROFS => (Code::NotWritable, "the file system is mounted read-only".into()),
        Errno::ACCESS | Errno::PERM => (
            Code::NotWritable,
            "choose a place you may write to, or run as a user who may".into(),
        ),
        Errno::BUSY => (
            Code::Busy,
            "something else holds the device exclusively: a mount, an array, another program".into(),
        ),
        _ => return None,
    };
    Some((code, hint))
}

/// Code and hint of the error of the system that a store's words name, as strerror(3) has it.
pub(crate) fn named_in(words: &str) -> Option<(Code, String)> {
    let errors = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EMFILE, libc::EIO];
    let is_named = |error: &io::Error| {
        let text = error.to_string();
        text.split(" (os error").next().is_some_and(|text| words.contains(text))
    };
    let mut errors = errors.into_iter().map(io::Error::from_raw_os_error);
    of(&errors.find(is_named)?)
}

fn file_size() -> String {
    match getrlimit(Resource::Fsize).current {
        Some(bytes) => format!(
            "the limit on file size (`ulimit -f`) is {} KiB: raise it, or {SMALLER}",
            bytes / 1024
        ),
        None => format!("the file system cannot store a file of this size: {SMALLER}"),
    }
}

fn open_files() -> String {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    format!("the limit on open files (`ulimit -n`) is {limit}: raise it, or use fewer jobs")
}

fn memory() -> String {
    match getrlimit(Resource::As).current {
        Some(bytes) => format!(
            "the limit on address space (`ulimit -v`) is {} KiB: raise it, or use fewer jobs, a smaller queue depth or smaller blocks",
            bytes / 1024
        ),
        None => "use fewer jobs, a smaller queue depth or smaller blocks".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_named_also_in_the_words_of_a_store() {
        for (words, code) in [
            ("No space left on device: While appending: 12.sst", Some(Code::NoSpace)),
            ("File too large: While appending: 12.sst", Some(Code::ResourceLimit)),
            ("Too many open files: While opening a file", Some(Code::ResourceLimit)),
            ("Corruption: block checksum mismatch", None),
        ] {
            assert_eq!(named_in(words).map(|(code, _)| code), code, "{words}");
        }
        let limit = getrlimit(Resource::Nofile)
            .current
            .expect("the kernel limits open files");
        let (code, hint) = of(&io::Error::from_raw_os_error(libc::EMFILE)).expect("it is known");
        assert_eq!(code, Code::ResourceLimit);
        assert!(hint.contains(&format!("(`ulimit -n`) is {limit}")), "{hint}");
        assert_eq!(of(&io::Error::from_raw_os_error(libc::EINVAL)), None);
        assert_eq!(of(&io::Error::other("a text")), None);
    }
}
