//! The files of a load: what they contain, and their pages in the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use iosonde_block::payload::Filler;
use iosonde_harness::residency::{self, Residency};
use iosonde_harness::target::{Directory, OFlags};
use iosonde_harness::{Run, RunError, prepare_page_cache};
use iosonde_protocol::{LayoutResult, PageCache, Payload, Phase};

const CHUNK_BYTES: usize = 1 << 20;
/// Alignment of files that follow one another on a simulated device.
const ALIGNMENT: u64 = 1 << 20;
/// Bytes of a unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// A file that a load needs.
pub(crate) struct FileNeed {
    /// Absolute, or in the directory of the load.
    pub path: PathBuf,
    pub bytes: u64,
    pub content: Content,
    /// True if it is read with direct I/O.
    pub is_direct: bool,
}

/// Where the content of a file comes from.
pub(crate) enum Content {
    /// It exists, and is not written.
    Existing,
    /// It is written with random data after these bytes, unless it has them.
    Generated(Vec<u8>),
    /// It is written with random data, unless it has its size; threads of the load open it.
    PerThread,
    /// Threads of the load create, open and remove it.
    OfLoad,
}

/// Purpose for which a thread opens a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// The file is created, or becomes empty.
    Create,
    /// It exists, and is read and written.
    Update,
    /// A new file is created under a temporary name, until [`FileSet::rename`].
    Temporary,
}

/// The files of a load.
pub(crate) struct FileSet {
    /// None on a simulated device.
    directory: Option<Directory>,
    entries: Vec<Entry>,
}

struct Entry {
    need: FileNeed,
    path: PathBuf,
    /// First byte on a simulated device.
    base: u64,
    /// None on a simulated device, and where threads open it.
    file: Option<File>,
}

impl Entry {
    /// True if it exists before the load, but is open in threads only.
    fn is_per_thread(&self) -> bool {
        matches!(self.need.content, Content::PerThread)
    }
}

impl FileSet {
    /// Files on a simulated device, one after the other.
    pub(crate) fn on_device(needs: Vec<FileNeed>) -> FileSet {
        let mut base = 0;
        let entries = needs.into_iter().map(|need| {
            let start = base;
            base += need.bytes.next_multiple_of(ALIGNMENT);
            Entry {
                path: need.path.clone(),
                base: start,
                file: None,
                need,
            }
        });
        FileSet {
            directory: None,
            entries: entries.collect(),
        }
    }

    /// Files of a directory, of which the missing ones are written; phase `layout`.
    pub(crate) fn open(
        directory: &Path,
        needs: Vec<FileNeed>,
        run: &mut Run<'_>,
    ) -> Result<(FileSet, LayoutResult), RunError> {
        let opened = run.inputs.targets.open_directory(directory);
        let held = opened.map_err(|error| RunError::io("open", directory, &error))?;
        let mut layout = LayoutResult::default();
        let mut entries = Vec::with_capacity(needs.len());
        let mut filler = Filler::new(Payload::Random, false, run.inputs.seed, &[0xa1]);
        run.begin(Phase::Layout);
        for need in needs {
            let path = directory.join(&need.path);
            let file = match &need.content {
                Content::OfLoad => None,
                Content::Existing => Some(existing(&path, &need, run)?),
                Content::Generated(head) => Some(generated(&held, &path, &need, head, &mut filler, &mut layout, run)?),
                Content::PerThread => {
                    create_parents(&held, &need.path).map_err(|error| RunError::io("create", &path, &error))?;
                    generated(&held, &path, &need, &[], &mut filler, &mut layout, run)?;
                    None
                }
            };
            entries.push(Entry {
                need,
                path,
                base: 0,
                file,
            });
        }
        if layout.written_bytes > 0 {
            let synced = File::open(held.held_path()).and_then(|file| Ok(rustix::fs::syncfs(file)?));
            synced.map_err(|error| RunError::io("sync", directory, &error))?;
        }
        run.end(Phase::Layout, layout.written_bytes);
        let directory = Some(held);
        Ok((FileSet { directory, entries }, layout))
    }

    /// Applies a function to each file that exists before the load.
    fn for_each_file(&self, mut apply: impl FnMut(&Entry, &File) -> Result<(), RunError>) -> Result<(), RunError> {
        let mut entries = self.entries.iter().enumerate();
        entries.try_for_each(|(number, entry)| match &entry.file {
            Some(file) => apply(entry, file),
            None if entry.is_per_thread() => apply(entry, &self.open_for(number, Access::Read, false)?),
            None => Ok(()),
        })
    }

    /// Brings the pages of files in the page cache into a state.
    pub(crate) fn prepare_page_cache(&self, wanted: PageCache) -> Result<(), RunError> {
        self.for_each_file(|entry, file| {
            // Files of threads were synced together.
            let prepared = match wanted {
                PageCache::Drop if entry.is_per_thread() => {
                    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).map_err(io::Error::from)
                }
                _ => prepare_page_cache(file, wanted, entry.need.bytes),
            };
            prepared.map_err(|error| RunError::io("prepare the page cache of", &entry.path, &error))
        })
    }

    /// Pages of files in the page cache; None where the kernel does not report them, and if threads create all files.
    pub(crate) fn residency(&self) -> Option<Residency> {
        self.entries
            .iter()
            .find(|entry| entry.file.is_some() || entry.is_per_thread())?;
        let mut sum = Residency {
            cached_bytes: 0,
            dirty_bytes: Some(0),
        };
        let added = self.for_each_file(|entry, file| {
            let found = residency::query(file, &(0..entry.need.bytes))
                .map_err(|error| RunError::io("examine the page cache of", &entry.path, &error))?;
            sum.cached_bytes += found.cached_bytes;
            sum.dirty_bytes = sum.dirty_bytes.zip(found.dirty_bytes).map(|(sum, dirty)| sum + dirty);
            Ok(())
        });
        added.ok().map(|()| sum)
    }

    /// Opens a file for a thread. One that is created gets the directories that its name has.
    pub(crate) fn open_for(&self, number: usize, access: Access, is_direct: bool) -> Result<File, RunError> {
        let entry = &self.entries[number];
        let final_name = &entry.need.path;
        let (name, flags) = match access {
            Access::Read => (final_name, OFlags::RDONLY),
            Access::Create => (final_name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC),
            Access::Update => (final_name, OFlags::RDWR),
            Access::Temporary => (&temporary(final_name), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL),
        };
        let held = self
            .directory
            .as_ref()
            .expect("files of a directory are opened below it");
        let open = || held.open(name, flags | direct(is_direct));
        let opened = match open() {
            Err(error) if flags.contains(OFlags::CREATE) && error.kind() == io::ErrorKind::NotFound => {
                create_parents(held, name).and_then(|()| open())
            }
            opened => opened,
        };
        opened.map_err(|error| refused(&entry.path, is_direct, &error))
    }

    /// Looks up a file, whether or not it exists.
    pub(crate) fn look_up(&self, number: usize) -> Result<(), RunError> {
        self.apply(number, "look up", |path| std::fs::exists(path).map(drop))
    }

    /// Gives a file its name, which was created under a temporary one.
    pub(crate) fn rename(&self, number: usize) -> Result<(), RunError> {
        self.apply(number, "rename", |path| std::fs::rename(temporary(path), path))
    }

    /// Removes a file, if it exists.
    pub(crate) fn remove(&self, number: usize) -> Result<(), RunError> {
        self.apply(number, "remove", |path| match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        })
    }

    /// Applies a function to the path of a file below the directory that is held; nothing on a simulated device.
    fn apply(
        &self,
        number: usize,
        action: &'static str,
        function: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), RunError> {
        let (entry, Some(held)) = (&self.entries[number], &self.directory) else {
            return Ok(());
        };
        function(&held.held_path().join(&entry.need.path)).map_err(|error| RunError::io(action, &entry.path, &error))
    }

    /// The file with this number, which all threads have open.
    pub(crate) fn file(&self, number: usize) -> &File {
        self.entries[number]
            .file
            .as_ref()
            .expect("threads open files of their own first")
    }

    /// Path of the file with this number.
    pub(crate) fn path(&self, number: usize) -> &Path {
        &self.entries[number].path
    }

    /// Size of the file with this number.
    pub(crate) fn bytes(&self, number: usize) -> u64 {
        self.entries[number].need.bytes
    }

    /// First byte of the file with this number on a simulated device.
    pub(crate) fn base(&self, number: usize) -> u64 {
        self.entries[number].base
    }

    /// Bytes that all files take on a simulated device.
    pub(crate) fn extent(&self) -> u64 {
        self.entries.last().map_or(0, |last| last.base + last.need.bytes)
    }

    /// Bytes of all files.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.need.bytes).sum()
    }
}

fn direct(is_direct: bool) -> OFlags {
    if is_direct { OFlags::DIRECT } else { OFlags::empty() }
}

fn temporary(name: &Path) -> PathBuf {
    name.with_extension("tmp")
}

/// Creates the directories in which a file is to be.
fn create_parents(held: &Directory, name: &Path) -> io::Result<()> {
    let parent = name.parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(held.held_path().join(parent))
}

/// Opens a file of the user's, which must be what was planned.
fn existing(path: &Path, need: &FileNeed, run: &Run<'_>) -> Result<File, RunError> {
    let opened = run.inputs.targets.open(path, OFlags::RDONLY | direct(need.is_direct));
    let file = opened.map_err(|error| refused(path, need.is_direct, &error))?;
    let found = file.metadata().map_err(|error| RunError::io("examine", path, &error))?;
    if found.is_file() && found.len() == need.bytes {
        return Ok(file);
    }
    let shown = path.display();
    Err(RunError::invalid(
        format!("`{shown}` is not the file of {} bytes that was planned", need.bytes),
        "`files`",
        "plan the study again: the file has changed",
    ))
}

/// Opens a file of the load's own, and writes it unless it has its size and no holes.
fn generated(
    held: &Directory,
    path: &Path,
    need: &FileNeed,
    head: &[u8],
    filler: &mut Filler,
    layout: &mut LayoutResult,
    run: &mut Run<'_>,
) -> Result<File, RunError> {
    let failed = |action: &'static str| move |error: io::Error| RunError::io(action, path, &error);
    let written = held
        .open(&need.path, OFlags::RDWR | OFlags::CREATE)
        .map_err(failed("open"))?;
    let found = written.metadata().map_err(failed("examine"))?;
    let is_complete = found.len() == need.bytes && found.blocks() * BLOCK_BYTES >= need.bytes / 2;
    if is_complete && has_head(&written, head) {
        layout.kept_bytes += need.bytes;
    } else {
        write(&written, need.bytes, head, filler, &mut |bytes| {
            run.progress(Phase::Layout, layout.written_bytes + bytes)
        })
        .map_err(failed("write"))?;
        layout.written_bytes += need.bytes;
    }
    held.open(&need.path, OFlags::RDONLY | direct(need.is_direct))
        .map_err(|error| refused(path, need.is_direct, &error))
}

fn refused(path: &Path, is_direct: bool, error: &io::Error) -> RunError {
    if is_direct && error.raw_os_error() == Some(libc::EINVAL) {
        return RunError::unsupported(
            format!("the file system of `{}` does not support direct I/O", path.display()),
            "choose a load without direct I/O, or a target on another file system",
        );
    }
    RunError::io("open", path, error)
}

fn has_head(file: &File, head: &[u8]) -> bool {
    let mut found = vec![0; head.len()];
    file.read_exact_at(&mut found, 0).is_ok() && found == head
}

/// Writes the head, and random data after it. A file that a kill leaves behind is too short.
fn write(
    file: &File,
    bytes: u64,
    head: &[u8],
    filler: &mut Filler,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<()> {
    file.set_len(0)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let length = (bytes - offset).min(CHUNK_BYTES as u64) as usize;
        filler.fill(&mut chunk[..length]);
        if offset < head.len() as u64 {
            let part = &head[offset as usize..head.len().min(offset as usize + length)];
            chunk[..part.len()].copy_from_slice(part);
        }
        file.write_all_at(&chunk[..length], offset)?;
        offset += length as u64;
        if !progress(offset) {
            break;
        }
    }
    Ok(())
}
