//! Where a database lies, whose it is, and what state it is in.
//!
//! The rule: nothing is written where something lies that no engine put there. In a directory a file of ours, the mark, says
//! what the database beside it is; on a device its last 4096 bytes do. The mark also tells a complete database from one
//! that a killed run left half-written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use iosonde_protocol::{KvWorkload, PageCache, StoreTarget};
use iosonde_target::{Directory, OFlags, Targets, WrongTarget, held_path};
use serde::{Deserialize, Serialize};

use crate::error::{Code, KvError};
use crate::records::CONTENTS_VERSION;
use crate::store::{Opener, Place};

/// The mark's name in a directory.
const MARK: &str = "iosonde-database.json";
/// The database beside it.
const DATABASE: &str = "database";
/// The log in a directory of its own.
const LOG: &str = "log";
/// What a fresh file system may hold besides.
const HARMLESS: &str = "lost+found";
/// The mark's room at the end of a device, and what it begins with there.
const MARK_BYTES: u64 = 4096;
const MARK_MAGIC: &[u8] = b"iosonde database\n";
/// How much of a device's beginning is looked at, and zeroed to forget a database.
const HEAD_BYTES: usize = 128 << 10;

/// A file system with less than this is full for a store, which writes in larger pieces.
const FULL_BYTES: u64 = 1 << 20;

/// What the database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Being written, or left by a run that did not finish.
    Incomplete,
    /// Every record is there.
    Complete,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Mark {
    state: State,
    /// Of which workload: see [`made_of`].
    made_of: serde_json::Value,
}

/// A target that may be used for a database, held open.
pub(crate) struct Location {
    held: Held,
    made_of: serde_json::Value,
    found: Option<Mark>,
    /// Something is there that a new database must not be mixed with.
    occupied: bool,
}

/// Descriptors of a target, from its check to the end of the run.
enum Held {
    Virtual,
    Directories(Vec<HeldDirectory>),
    Device { file: File, path: PathBuf, bytes: u64 },
}

/// A directory that the spec names, and in it the one that belongs to the database.
struct HeldDirectory {
    parent: Directory,
    /// [`DATABASE`] or [`LOG`].
    name: &'static str,
    /// Absent until it is created or needed.
    inside: Option<Directory>,
}

impl HeldDirectory {
    /// Opens a directory of the target; what its mark says, if it has one.
    fn open(targets: &Targets, path: &str, name: &'static str) -> Result<(HeldDirectory, Option<Mark>), KvError> {
        let parent = targets
            .open_directory(Path::new(path))
            .map_err(|error| KvError::io("open", Path::new(path), &error))?;
        let mark = survey_directory(&parent)?;
        let held = HeldDirectory {
            parent,
            name,
            inside: None,
        };
        Ok((held, mark))
    }

    fn path(&self) -> PathBuf {
        self.parent.path().join(self.name)
    }

    /// The database's own directory, if it was opened.
    fn held_path(&self) -> Option<PathBuf> {
        self.inside.as_ref().map(Directory::held_path)
    }

    /// Opens the database's own directory, and refuses what a store should not write through.
    fn enter(&mut self) -> Result<PathBuf, KvError> {
        let directory = self
            .parent
            .open_directory(self.name)
            .and_then(|directory| directory.check_contents().map(|()| directory))
            .map_err(|error| KvError::io("open", &self.path(), &error))?;
        Ok(self.inside.insert(directory).held_path())
    }

    /// Creates the database's own directory anew.
    fn create(&mut self) -> Result<(), KvError> {
        self.parent
            .create_directory(self.name)
            .map_err(|error| KvError::io("create", &self.path(), &error))
    }

    fn remove(&mut self) -> Result<(), KvError> {
        self.inside = None;
        self.parent
            .remove_directory(self.name)
            .map_err(|error| KvError::io("remove", &self.path(), &error))
    }
}

impl Location {
    /// Examines a target, claims a device, and refuses what is not ours. Writes nothing.
    pub(crate) fn survey(targets: &Targets, workload: &KvWorkload, opener: &dyn Opener) -> Result<Location, KvError> {
        let (held, found, occupied) = match &workload.target {
            StoreTarget::Virtual => (Held::Virtual, None, false),
            StoreTarget::Directory { path, log_path } => {
                let (database, found) = HeldDirectory::open(targets, path, DATABASE)?;
                let mut directories = vec![database];
                let mut occupied = found.is_some();
                if let Some(log_path) = log_path {
                    let (log, found) = HeldDirectory::open(targets, log_path, LOG)?;
                    directories.push(log);
                    occupied |= found.is_some();
                }
                (Held::Directories(directories), found, occupied)
            }
            StoreTarget::Device {
                path,
                size_bytes,
                is_claimed,
            } => {
                let path = PathBuf::from(path);
                let file = claim(targets, &path, *is_claimed)?;
                let (found, occupied) = survey_device(&file, &path, *size_bytes, opener)?;
                let bytes = *size_bytes;
                (Held::Device { file, path, bytes }, found, occupied)
            }
        };
        Ok(Location {
            held,
            made_of: made_of(workload),
            found,
            occupied,
        })
    }

    /// Whether every record that the workload describes is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.found
            .as_ref()
            .is_some_and(|mark| mark.state == State::Complete && mark.made_of == self.made_of)
    }

    /// Whether any database is there.
    pub(crate) fn is_occupied(&self) -> bool {
        self.occupied
    }

    /// Where the store is to open its files: by paths that lead to the open descriptors, whatever happens to the names.
    pub(crate) fn held_place(&mut self) -> Result<Place, KvError> {
        match &mut self.held {
            Held::Virtual => Ok(Place::Virtual),
            Held::Directories(directories) => {
                let mut paths = directories.iter_mut().map(HeldDirectory::enter);
                let path = paths.next().expect("the database has a directory")?;
                let log = paths.next().transpose()?;
                Ok(Place::Directory { path, log })
            }
            Held::Device { file, bytes, .. } => Ok(Place::Device {
                path: held_path(file),
                bytes: usable_bytes(*bytes),
            }),
        }
    }

    /// To be called once the store has opened its files: while it did, one of them may have been replaced by a link.
    pub(crate) fn check_contents(&self) -> Result<(), KvError> {
        for directory in self.directories() {
            let Some(inside) = &directory.inside else { continue };
            inside
                .check_contents()
                .map_err(|error| KvError::io("open", &directory.path(), &error))?;
        }
        Ok(())
    }

    fn directories(&self) -> &[HeldDirectory] {
        match &self.held {
            Held::Directories(directories) => directories,
            Held::Virtual | Held::Device { .. } => &[],
        }
    }

    /// Removes what an engine left, and makes room for a new database, marked as incomplete.
    pub(crate) fn clear(&mut self) -> Result<(), KvError> {
        match &mut self.held {
            Held::Virtual => {}
            // The mark goes last, so that a removal that is cut short is still ours to finish.
            Held::Directories(directories) => directories.iter_mut().try_for_each(HeldDirectory::remove)?,
            Held::Device { file, path, bytes } => {
                write_zeros(file, 0, HEAD_BYTES.min(*bytes as usize))
                    .and_then(|()| file.sync_all())
                    .map_err(|error| KvError::io("write to", path, &error))?;
            }
        }
        self.mark(State::Incomplete)?;
        match &mut self.held {
            Held::Directories(directories) => directories.iter_mut().try_for_each(HeldDirectory::create),
            Held::Virtual | Held::Device { .. } => Ok(()),
        }
    }

    /// Notes what the database is from now on.
    pub(crate) fn mark(&mut self, state: State) -> Result<(), KvError> {
        let mark = Mark {
            state,
            made_of: self.made_of.clone(),
        };
        let text = serde_json::to_vec(&mark).expect("a mark is made of plain values");
        match &self.held {
            Held::Virtual => {}
            Held::Directories(directories) => {
                for HeldDirectory { parent, .. } in directories {
                    parent
                        .replace(MARK, &text)
                        .map_err(|error| KvError::io("write", &parent.path().join(MARK), &error))?;
                }
            }
            Held::Device { file, path, bytes } => {
                let mut block = [MARK_MAGIC, &text].concat();
                block.resize(MARK_BYTES as usize, 0);
                file.write_all_at(&block, bytes - MARK_BYTES)
                    .and_then(|()| file.sync_all())
                    .map_err(|error| KvError::io("write to", path, &error))?;
            }
        }
        self.found = Some(mark);
        self.occupied = true;
        Ok(())
    }

    /// Notes that records come or go from now on.
    pub(crate) fn mark_incomplete(&mut self) -> Result<(), KvError> {
        match &self.found {
            Some(mark) if mark.state == State::Complete => self.mark(State::Incomplete),
            _ => Ok(()),
        }
    }

    /// Bytes allocated to the database, which is closed.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.files()
            .iter()
            .filter_map(|file| fs::symlink_metadata(file).ok())
            .filter(|metadata| metadata.is_file())
            .map(|metadata| metadata.blocks() * 512)
            .sum()
    }

    /// Stores have many words for a full disk (LMDB says `Input/output error` of a write that came back short), so after an
    /// error of theirs the file system is asked. Paths of descriptors become those that people know.
    pub(crate) fn explain(&self, mut error: KvError) -> KvError {
        for text in [&mut error.message, &mut error.context, &mut error.hint] {
            *text = self.with_names(text);
        }
        for directory in self.directories() {
            let path = directory.path();
            match free_bytes(directory.parent.path()) {
                Some(free) if error.code == Code::Store && free < FULL_BYTES => {
                    error.code = Code::NoSpace;
                    error.message += &format!("; the file system of `{}` has {free} bytes left", path.display());
                    error.hint = "free some space, or use fewer or smaller records".into();
                }
                _ => {}
            }
        }
        error
    }

    /// A text of the store, with the names of the target's paths instead of those of descriptors.
    pub(crate) fn with_names(&self, text: &str) -> String {
        let mut names: Vec<(String, String)> = self
            .directories()
            .iter()
            .filter_map(|directory| Some((directory.held_path()?, directory.path())))
            .map(|(held, path)| (held.display().to_string(), path.display().to_string()))
            .collect();
        if let Held::Device { file, path, .. } = &self.held {
            names.push((held_path(file).display().to_string(), path.display().to_string()));
        }
        // `/proc/self/fd/12` begins with `/proc/self/fd/1`.
        names.sort_by_key(|(held, _)| std::cmp::Reverse(held.len()));
        names
            .iter()
            .fold(text.to_owned(), |text, (held, name)| text.replace(held, name))
    }

    /// Bytes of the database in the page cache; `None` where the kernel does not report them.
    pub(crate) fn cached_bytes(&self) -> Option<u64> {
        if let Held::Device { file, .. } = &self.held {
            return cached_bytes(file);
        }
        self.files()
            .iter()
            .map(|file| match open_file(file) {
                Ok(file) => cached_bytes(&file),
                // Stores remove files at any time.
                Err(_) => Some(0),
            })
            .sum()
    }

    /// Brings the pages of the database, which is closed, into the state asked for.
    pub(crate) fn prepare_page_cache(&self, wanted: PageCache) -> Result<(), KvError> {
        let prepare = |file: &File| match wanted {
            PageCache::Keep => Ok(()),
            PageCache::Drop => drop_page_cache(file),
            PageCache::Warm => warm_page_cache(file),
        };
        let failed = |path: &Path, error: &io::Error| KvError::io("prepare the page cache of", path, error);
        if let Held::Device { file, path, .. } = &self.held {
            return prepare(file).map_err(|error| failed(path, &error));
        }
        self.files().iter().try_for_each(|path| {
            open_file(path)
                .and_then(|file| prepare(&file))
                .map_err(|error| failed(path, &error))
        })
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for path in self.directories().iter().filter_map(HeldDirectory::held_path) {
            collect_files(&path, &mut files);
        }
        files
    }
}

/// What a database must have been made of to serve this workload.
fn made_of(workload: &KvWorkload) -> serde_json::Value {
    serde_json::json!({
        "store": workload.store,
        "records": workload.records,
        "contents": CONTENTS_VERSION,
        "separate_log": matches!(&workload.target, StoreTarget::Directory { log_path: Some(_), .. }),
    })
}

/// Where the store puts its files in a target.
pub(crate) fn place(target: &StoreTarget) -> Place {
    match target {
        StoreTarget::Virtual => Place::Virtual,
        StoreTarget::Directory { path, log_path } => Place::Directory {
            path: Path::new(path).join(DATABASE),
            log: log_path.as_deref().map(|log| Path::new(log).join(LOG)),
        },
        StoreTarget::Device { path, size_bytes, .. } => Place::Device {
            path: path.into(),
            bytes: *size_bytes,
        },
    }
}

/// Bytes of a device that a database may use: the mark needs the rest.
pub(crate) fn usable_bytes(size_bytes: u64) -> u64 {
    size_bytes.saturating_sub(MARK_BYTES)
}

fn survey_directory(directory: &Directory) -> Result<Option<Mark>, KvError> {
    let path = directory.path();
    let entries = fs::read_dir(directory.held_path()).map_err(|error| KvError::io("list", path, &error))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| name != HARMLESS)
        .collect();
    names.sort();
    if names.is_empty() {
        return Ok(None);
    }
    let mut text = Vec::new();
    match directory.open(Path::new(MARK), OFlags::RDONLY) {
        Err(error) if WrongTarget::of(&error).is_some() => return Err(KvError::io("open", path, &error)),
        // A mark that cannot be read is none.
        opened => drop(opened.and_then(|mut mark| mark.read_to_end(&mut text))),
    }
    if let Ok(mark) = serde_json::from_slice(&text) {
        return Ok(Some(mark));
    }
    let shown = names.iter().take(3).map(|name| format!("`{name}`")).collect::<Vec<_>>();
    Err(KvError::new(
        Code::ForeignData,
        format!(
            "`{}` holds {} that no engine put there: {}",
            path.display(),
            if names.len() == 1 { "something" } else { "things" },
            shown.join(", ")
        ),
        "name an empty directory, or one with a database that iosonde made",
    )
    .at("`target`"))
}

/// Claims a device as long as the file is open (open(2), O_EXCL on block devices), unless somebody holds it for us.
fn claim(targets: &Targets, path: &Path, is_claimed: bool) -> Result<File, KvError> {
    let exclusive = if is_claimed { OFlags::empty() } else { OFlags::EXCL };
    let claim = targets
        .open(path, OFlags::RDWR | exclusive)
        .map_err(|error| KvError::io("claim", path, &error).at("`target`"))?;
    let is_device = claim
        .metadata()
        .is_ok_and(|metadata| metadata.file_type().is_block_device());
    if is_device {
        Ok(claim)
    } else {
        Err(KvError::invalid(
            format!("`{}` is not a block device", path.display()),
            "`target`",
            "check the target's kind and path",
        ))
    }
}

fn survey_device(
    device: &File,
    path: &Path,
    size_bytes: u64,
    opener: &dyn Opener,
) -> Result<(Option<Mark>, bool), KvError> {
    let reading = |error: io::Error| KvError::io("read", path, &error).at("`target`");
    if size_bytes < (HEAD_BYTES as u64) + MARK_BYTES {
        return Err(KvError::invalid(
            format!("{size_bytes} bytes of `{}` are too few for a database", path.display()),
            "`target.size_bytes`",
            "use a larger part of the device",
        ));
    }
    let (mut head, mut tail) = (vec![0; HEAD_BYTES], vec![0; MARK_BYTES as usize]);
    device.read_exact_at(&mut head, 0).map_err(reading)?;
    device
        .read_exact_at(&mut tail, size_bytes - MARK_BYTES)
        .map_err(reading)?;
    if let Some(mark) = tail.strip_prefix(MARK_MAGIC).and_then(mark_of) {
        return Ok((Some(mark), true));
    }
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    if opener.recognises(&head) {
        return Ok((None, true));
    }
    if is_zero(&head) && is_zero(&tail) {
        return Ok((None, false));
    }
    Err(KvError::new(
        Code::ForeignData,
        format!("`{}` holds {}", path.display(), what_is(&head)),
        "name another device, or erase this one first (`wipefs --all`, `blkdiscard`) if nothing on it is needed",
    )
    .at("`target`"))
}

fn mark_of(text: &[u8]) -> Option<Mark> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    serde_json::from_slice(&text[..end]).ok()
}

/// Signatures by which a device's first bytes are known, with their offsets (libblkid's tables hold the same).
const SIGNATURES: [(usize, &[u8], &str); 10] = [
    (0, b"XFSB", "an XFS file system"),
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (0x410, b"\x10\x20\xf5\xf2", "an f2fs file system"),
    (512, b"EFI PART", "a GPT partition table"),
    (4086, b"SWAPSPACE2", "swap space"),
    (512, b"LABELONE", "an LVM physical volume"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID array"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (510, b"\x55\xaa", "a boot sector or partition table"),
];

fn what_is(head: &[u8]) -> String {
    let known = SIGNATURES
        .iter()
        .find(|(offset, signature, _)| head[*offset..].starts_with(signature));
    match (known, head.iter().position(|byte| *byte != 0)) {
        (Some((_, _, name)), _) => (*name).into(),
        (None, Some(place)) => format!("data of an unknown kind, from byte {place} on"),
        (None, None) => "data of an unknown kind in its last 4096 bytes".into(),
    }
}

fn write_zeros(file: &File, offset: u64, bytes: usize) -> io::Result<()> {
    file.write_all_at(&vec![0; bytes], offset)
}

fn collect_files(directory: &Path, files: &mut Vec<PathBuf>) {
    // A directory that vanishes while it is looked at holds nothing.
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect_files(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

/// A file of the database, which is no link.
fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

fn drop_page_cache(file: &File) -> io::Result<()> {
    file.sync_all()?;
    // SAFETY: the descriptor is open; clean pages are dropped, no data changes.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn warm_page_cache(mut file: &File) -> io::Result<()> {
    io::copy(&mut file, &mut io::sink()).map(|_| ())
}

/// Bytes that a file system has left for this user.
pub fn free_bytes(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: `statvfs` is made of integers, for which zero is a valid value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string, and `found` a valid place for the result.
    let status = unsafe { libc::statvfs(path.as_ptr(), &mut found) };
    (status == 0).then(|| found.f_bavail * found.f_frsize)
}

/// cachestat(2), Linux 6.5.
fn cached_bytes(file: &File) -> Option<u64> {
    const SYS_CACHESTAT: libc::c_long = 451;
    /// From the kernel's `include/uapi/linux/mman.h`.
    #[repr(C)]
    struct Range {
        offset: u64,
        length: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Found {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    // A length of 0 means up to the end.
    let (range, mut found) = (Range { offset: 0, length: 0 }, Found::default());
    // SAFETY: both structures are those of the kernel's interface and live through the call; it writes only to `found`.
    let status = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut found, 0) };
    // SAFETY: the call takes a plain number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    (status == 0).then(|| found.cached * page_bytes)
}
