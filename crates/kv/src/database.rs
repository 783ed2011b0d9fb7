//! Location, owner and state of a database.
//!
//! An engine never writes to a location with foreign data. In a directory the file `iosonde-database.json`, the marker,
//! describes the database next to it; on a device the last 4096 bytes do. The marker also distinguishes a complete database
//! from one that a killed run left incomplete.
//!
//! A complete database may have a checkpoint next to it, from which it is restored after runs that wrote to it. A persistent
//! read cache has a directory of its own with a marker. It is empty whenever the database is opened, and removed after the run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use iosonde_harness::target::{Directory, OFlags, Targets, WrongTarget, held_path};
use iosonde_harness::{Code, RunError, prepare_page_cache};
use iosonde_protocol::{KvWorkload, PageCache, ReadCache, StoreTarget};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Copied, copy_directory};
use crate::records::CONTENTS_VERSION;
use crate::residency::{self, Residency};
use crate::store::{CachePlace, Opener, Place, Server};

/// Name of the marker in a directory.
const MARK: &str = "iosonde-database.json";
/// Directory of the database next to it.
const DATABASE: &str = "database";
/// Directory of a separate log.
const LOG: &str = "log";
/// Directory of a persistent read cache.
const READ_CACHE: &str = "read-cache";
/// Suffix of the directory with the checkpoint of either.
const CHECKPOINT: &str = "-checkpoint";
/// A directory that new file systems contain.
const HARMLESS: &str = "lost+found";
/// Size of the marker at the end of a device, and its first bytes there.
const MARK_BYTES: u64 = 4096;
const MARK_MAGIC: &[u8] = b"iosonde database\n";
/// Bytes at the start of a device that are examined, and zeroed to remove a database.
const HEAD_BYTES: usize = 128 << 10;

/// Free bytes below which a file system counts as full: stores write in larger units.
pub const FULL_BYTES: u64 = 1 << 20;

/// State of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Being loaded, or loaded by a run that did not finish.
    Incomplete,
    /// It has every record.
    Complete,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Marker {
    state: State,
    /// Records and options of the workload: see [`made_of`].
    made_of: serde_json::Value,
    /// A complete copy is next to it.
    #[serde(default)]
    has_checkpoint: bool,
}

/// A target that may be used for a database, open during the run.
pub(crate) struct Location {
    held: Held,
    read_cache: Option<HeldReadCache>,
    made_of: serde_json::Value,
    found: Option<Marker>,
    /// There is data that a new database must not be mixed with.
    occupied: bool,
}

/// Descriptors of a target, from its check to the end of the run.
enum Held {
    Virtual,
    /// A server, which keeps its own data.
    Server(Place),
    Directories(Vec<HeldDirectory>),
    /// A database of the user's.
    ReadOnly(Directory),
    Device {
        file: File,
        path: PathBuf,
        bytes: u64,
    },
}

/// The directory of a persistent read cache.
struct HeldReadCache {
    directory: HeldDirectory,
    bytes: u64,
    direct_writes: bool,
}

impl HeldReadCache {
    fn open(targets: &Targets, cache: &ReadCache) -> Result<HeldReadCache, RunError> {
        let (directory, _) = HeldDirectory::open(targets, &cache.path, READ_CACHE)?;
        Ok(HeldReadCache {
            directory,
            bytes: cache.size_bytes,
            direct_writes: cache.direct_writes,
        })
    }

    /// Replaces the cache by an empty one.
    fn empty(&mut self, marker: &Marker) -> Result<CachePlace, RunError> {
        write_mark_in(&self.directory.parent, &marker_text(marker))?;
        self.directory.remove()?;
        self.directory.create()?;
        Ok(CachePlace {
            path: self.directory.enter()?,
            bytes: self.bytes,
            direct_writes: self.direct_writes,
        })
    }
}

/// A directory that the spec names, with the subdirectory that belongs to the database.
struct HeldDirectory {
    parent: Directory,
    /// [`DATABASE`], [`LOG`] or [`READ_CACHE`].
    name: &'static str,
    /// Absent until it is created or needed.
    inside: Option<Directory>,
}

impl HeldDirectory {
    /// Opens a directory of the target; returns its marker, if it has one.
    fn open(targets: &Targets, path: &str, name: &'static str) -> Result<(HeldDirectory, Option<Marker>), RunError> {
        let parent = targets
            .open_directory(Path::new(path))
            .map_err(|error| RunError::io("open", Path::new(path), &error))?;
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

    fn checkpoint_name(&self) -> String {
        format!("{}{CHECKPOINT}", self.name)
    }

    /// A path to the checkpoint that is valid as long as the directory is open.
    fn checkpoint_path(&self) -> PathBuf {
        self.parent.held_path().join(self.checkpoint_name())
    }

    /// Opens the database's own directory, and refuses files that a store must not write through.
    fn enter(&mut self) -> Result<PathBuf, RunError> {
        let directory = self
            .parent
            .open_directory(self.name)
            .and_then(|directory| {
                directory
                    .check_contents_beside(&self.checkpoint_path())
                    .map(|()| directory)
            })
            .map_err(|error| RunError::io("open", &self.path(), &error))?;
        Ok(self.inside.insert(directory).held_path())
    }

    /// Creates the database's own directory.
    fn create(&mut self) -> Result<(), RunError> {
        self.parent
            .create_directory(self.name)
            .map_err(|error| RunError::io("create", &self.path(), &error))
    }

    fn remove(&mut self) -> Result<(), RunError> {
        self.inside = None;
        self.parent
            .remove_directory(self.name)
            .map_err(|error| RunError::io("remove", &self.path(), &error))
    }

    fn remove_checkpoint(&self) -> Result<(), RunError> {
        self.parent
            .remove_directory(&self.checkpoint_name())
            .map_err(|error| RunError::io("remove", &self.parent.path().join(self.checkpoint_name()), &error))
    }

    /// Copies the database, which is closed, to its checkpoint.
    fn save(&mut self, opener: &dyn Opener) -> Result<Copied, RunError> {
        self.remove_checkpoint()?;
        let from = self.enter()?;
        self.parent
            .create_directory(&self.checkpoint_name())
            .and_then(|()| copy_directory(&from, &self.checkpoint_path(), &|path| opener.is_immutable(path)))
            .map_err(|error| RunError::io("create a checkpoint of", &self.path(), &error))
    }

    /// Replaces the database, which is closed, by its checkpoint.
    fn restore(&mut self, opener: &dyn Opener) -> Result<Copied, RunError> {
        self.remove()?;
        self.create()?;
        let to = self.parent.held_path().join(self.name);
        copy_directory(&self.checkpoint_path(), &to, &|path| opener.is_immutable(path))
            .map_err(|error| RunError::io("restore", &self.path(), &error))
    }
}

impl Location {
    /// Examines a target, claims a device, and refuses foreign data. Writes nothing.
    pub(crate) fn survey(targets: &Targets, workload: &KvWorkload, opener: &dyn Opener) -> Result<Location, RunError> {
        let mut read_cache = None;
        let (held, found, occupied) = match &workload.target {
            StoreTarget::Virtual => (Held::Virtual, None, false),
            StoreTarget::Socket { .. } => (Held::Server(place(&workload.target)), None, false),
            StoreTarget::Server { is_loaded, .. } => {
                let complete = Marker {
                    state: State::Complete,
                    made_of: made_of(workload),
                    has_checkpoint: false,
                };
                let held = Held::Server(place(&workload.target));
                (held, is_loaded.then_some(complete), *is_loaded)
            }
            StoreTarget::ReadOnly { path } => {
                let opened = targets.open_directory(Path::new(path));
                let directory = opened.map_err(|error| RunError::io("open", Path::new(path), &error))?;
                (Held::ReadOnly(directory), None, true)
            }
            StoreTarget::Directory {
                path,
                log_path,
                read_cache: cache,
            } => {
                read_cache = cache
                    .as_ref()
                    .map(|cache| HeldReadCache::open(targets, cache))
                    .transpose()?;
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
            read_cache,
            made_of: made_of(workload),
            found,
            occupied,
        })
    }

    /// Removes the contents of the read cache.
    pub(crate) fn remove_read_cache(&mut self) -> Result<(), RunError> {
        match &mut self.read_cache {
            Some(cache) => cache.directory.remove(),
            None => Ok(()),
        }
    }

    /// Returns true if it has every record of the workload.
    pub(crate) fn is_complete(&self) -> bool {
        self.found
            .as_ref()
            .is_some_and(|marker| marker.state == State::Complete && marker.made_of == self.made_of)
    }

    /// Returns true if the checkpoint next to it has every record of the workload.
    pub(crate) fn has_checkpoint(&self) -> bool {
        self.found
            .as_ref()
            .is_some_and(|marker| marker.has_checkpoint && marker.made_of == self.made_of)
    }

    /// Copies the complete and closed database, for later runs to restore.
    pub(crate) fn save_checkpoint(&mut self, opener: &dyn Opener) -> Result<Copied, RunError> {
        let mut copied = Copied::default();
        if let Held::Directories(directories) = &mut self.held {
            for directory in directories {
                copied += directory.save(opener)?;
            }
            self.write_mark(State::Complete, true)?;
        }
        Ok(copied)
    }

    /// Restores the database from its checkpoint; an interrupted restore leaves it incomplete.
    pub(crate) fn restore_checkpoint(&mut self, opener: &dyn Opener) -> Result<Copied, RunError> {
        self.write_mark(State::Incomplete, true)?;
        let mut copied = Copied::default();
        if let Held::Directories(directories) = &mut self.held {
            for directory in directories {
                copied += directory.restore(opener)?;
            }
        }
        self.write_mark(State::Complete, true)?;
        Ok(copied)
    }

    /// Returns true if there is any database.
    pub(crate) fn is_occupied(&self) -> bool {
        self.occupied
    }

    /// Paths for the store that lead to the open descriptors, whatever happens to the names. Empties the read cache.
    pub(crate) fn held_place(&mut self) -> Result<Place, RunError> {
        let marker = self.marker(State::Incomplete, false);
        let read_cache = self.read_cache.as_mut().map(|cache| cache.empty(&marker)).transpose()?;
        match &mut self.held {
            Held::Virtual => Ok(Place::Virtual),
            Held::Server(place) => Ok(place.clone()),
            Held::Directories(directories) => {
                let mut paths = directories.iter_mut().map(HeldDirectory::enter);
                let path = paths.next().expect("the database has a directory")?;
                let log = paths.next().transpose()?;
                Ok(Place::Directory { path, log, read_cache })
            }
            Held::ReadOnly(directory) => Ok(Place::ReadOnly {
                path: directory.held_path(),
            }),
            Held::Device { file, bytes, .. } => Ok(Place::Device {
                path: held_path(file),
                bytes: usable_bytes(*bytes),
            }),
        }
    }

    /// Checks the files again after the store has opened them: one may have been replaced by a link meanwhile.
    pub(crate) fn check_contents(&self) -> Result<(), RunError> {
        for directory in self.directories() {
            let Some(inside) = &directory.inside else { continue };
            inside
                .check_contents_beside(&directory.checkpoint_path())
                .map_err(|error| RunError::io("open", &directory.path(), &error))?;
        }
        Ok(())
    }

    fn directories(&self) -> &[HeldDirectory] {
        match &self.held {
            Held::Directories(directories) => directories,
            Held::Virtual | Held::Server(_) | Held::ReadOnly(_) | Held::Device { .. } => &[],
        }
    }

    /// Those of the database, and that of the read cache.
    fn every_directory(&self) -> impl Iterator<Item = &HeldDirectory> {
        let cache = self.read_cache.as_ref().map(|cache| &cache.directory);
        self.directories().iter().chain(cache)
    }

    /// Removes an engine's database with its checkpoint, and prepares for a new one, marked as incomplete.
    pub(crate) fn clear(&mut self) -> Result<(), RunError> {
        if self.has_checkpoint() {
            self.write_mark(State::Incomplete, false)?;
        }
        match &mut self.held {
            Held::Virtual | Held::Server(_) => {}
            Held::ReadOnly(directory) => {
                let path = directory.path().display();
                return Err(RunError::internal(format!(
                    "`{path}` was to be cleared, but is read-only"
                )));
            }
            // The marker is written last, so that an interrupted removal can be continued.
            Held::Directories(directories) => directories.iter_mut().try_for_each(|directory| {
                directory.remove()?;
                directory.remove_checkpoint()
            })?,
            Held::Device { file, path, bytes } => {
                write_zeros(file, 0, HEAD_BYTES.min(*bytes as usize))
                    .and_then(|()| file.sync_all())
                    .map_err(|error| RunError::io("write to", path, &error))?;
            }
        }
        self.write_mark(State::Incomplete, false)?;
        match &mut self.held {
            Held::Directories(directories) => directories.iter_mut().try_for_each(HeldDirectory::create),
            Held::Virtual | Held::Server(_) | Held::ReadOnly(_) | Held::Device { .. } => Ok(()),
        }
    }

    /// Records the state of the database.
    pub(crate) fn mark(&mut self, state: State) -> Result<(), RunError> {
        self.write_mark(state, self.has_checkpoint())
    }

    fn marker(&self, state: State, has_checkpoint: bool) -> Marker {
        Marker {
            state,
            made_of: self.made_of.clone(),
            has_checkpoint,
        }
    }

    fn write_mark(&mut self, state: State, has_checkpoint: bool) -> Result<(), RunError> {
        let mark = self.marker(state, has_checkpoint);
        let text = marker_text(&mark);
        match &self.held {
            Held::Virtual | Held::Server(_) | Held::ReadOnly(_) => {}
            Held::Directories(directories) => {
                for HeldDirectory { parent, .. } in directories {
                    write_mark_in(parent, &text)?;
                }
            }
            Held::Device { file, path, bytes } => {
                let mut block = [MARK_MAGIC, &text].concat();
                block.resize(MARK_BYTES as usize, 0);
                file.write_all_at(&block, bytes - MARK_BYTES)
                    .and_then(|()| file.sync_all())
                    .map_err(|error| RunError::io("write to", path, &error))?;
            }
        }
        self.found = Some(mark);
        self.occupied = true;
        Ok(())
    }

    /// Records that the set of records changes from now on.
    pub(crate) fn mark_incomplete(&mut self) -> Result<(), RunError> {
        match &self.found {
            Some(marker) if marker.state == State::Complete => self.mark(State::Incomplete),
            _ => Ok(()),
        }
    }

    /// Bytes allocated to the closed database.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.files()
            .iter()
            .filter_map(|file| fs::symlink_metadata(file).ok())
            .filter(|metadata| metadata.is_file())
            .map(|metadata| metadata.blocks() * 512)
            .sum()
    }

    /// Adds the free space to an error of a store on a full disk, which stores report in many ways (LMDB: `Input/output
    /// error`), and replaces paths of descriptors by those of the spec.
    pub(crate) fn explain(&self, mut error: RunError) -> RunError {
        for text in [&mut error.message, &mut error.context, &mut error.hint] {
            *text = self.with_names(text);
        }
        for directory in self.every_directory() {
            let path = directory.path();
            match free_bytes(directory.parent.path()) {
                Some(free) if matches!(error.code, Code::StoreError | Code::IoError) && free < FULL_BYTES => {
                    error.code = Code::NoSpace;
                    error.message += &format!("; the file system of `{}` has {free} bytes free", path.display());
                    error.hint = "free some space, or use fewer or smaller records".into();
                }
                _ => {}
            }
        }
        error
    }

    /// A text of the store, with the paths of the spec instead of those of descriptors.
    pub(crate) fn with_names(&self, text: &str) -> String {
        let mut names: Vec<(String, String)> = self
            .every_directory()
            .filter_map(|directory| Some((directory.held_path()?, directory.path())))
            .map(|(held, path)| (held.display().to_string(), path.display().to_string()))
            .collect();
        match &self.held {
            Held::Device { file, path, .. } => {
                names.push((held_path(file).display().to_string(), path.display().to_string()));
            }
            Held::ReadOnly(directory) => {
                names.push((
                    directory.held_path().display().to_string(),
                    directory.path().display().to_string(),
                ));
            }
            Held::Virtual | Held::Server(_) | Held::Directories(_) => {}
        }
        // `/proc/self/fd/12` starts with `/proc/self/fd/1`.
        names.sort_by_key(|(held, _)| std::cmp::Reverse(held.len()));
        names
            .iter()
            .fold(text.to_owned(), |text, (held, name)| text.replace(held, name))
    }

    /// Data of the database and how much of it is in the page cache; `used_bytes` is what the store reports of a device.
    pub(crate) fn residency(&self, used_bytes: Option<u64>) -> Residency {
        match &self.held {
            Held::Device { file, .. } => return residency::of(file, used_bytes.unwrap_or(u64::MAX)),
            Held::Server(_) => return Residency::unseen(used_bytes.unwrap_or(0)),
            Held::Virtual | Held::Directories(_) | Held::ReadOnly(_) => {}
        }
        // Stores remove files while they run.
        let files = self.files().into_iter().filter_map(|path| open_file(&path).ok());
        files.fold(Residency::EMPTY, |sum, file| sum.and(residency::of(&file, u64::MAX)))
    }

    /// Drops or reads the pages of the closed database.
    pub(crate) fn prepare_page_cache(&self, wanted: PageCache) -> Result<(), RunError> {
        let prepare = |file: &File| prepare_page_cache(file, wanted, u64::MAX);
        let failed = |path: &Path, error: &io::Error| RunError::io("prepare the page cache of", path, error);
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
        if let Held::ReadOnly(directory) = &self.held {
            collect_files(&directory.held_path(), &mut files);
        }
        for path in self.directories().iter().filter_map(HeldDirectory::held_path) {
            collect_files(&path, &mut files);
        }
        files
    }
}

/// The properties that a database must share with the workload to be kept.
fn made_of(workload: &KvWorkload) -> serde_json::Value {
    serde_json::json!({
        "store": workload.store,
        "records": workload.records,
        "contents": CONTENTS_VERSION,
        "separate_log": matches!(&workload.target, StoreTarget::Directory { log_path: Some(_), .. }),
    })
}

/// The location of a store's files in a target.
pub(crate) fn place(target: &StoreTarget) -> Place {
    match target {
        StoreTarget::Virtual => Place::Virtual,
        StoreTarget::Socket { path } => Place::Socket { path: path.into() },
        StoreTarget::Server {
            host,
            port,
            database,
            user,
            ..
        } => Place::Server(Server {
            host: host.clone(),
            port: *port,
            database: database.clone(),
            user: user.clone(),
        }),
        StoreTarget::ReadOnly { path } => Place::ReadOnly { path: path.into() },
        StoreTarget::Directory {
            path,
            log_path,
            read_cache,
        } => Place::Directory {
            path: Path::new(path).join(DATABASE),
            log: log_path.as_deref().map(|log| Path::new(log).join(LOG)),
            read_cache: read_cache.as_ref().map(|cache| CachePlace {
                path: Path::new(&cache.path).join(READ_CACHE),
                bytes: cache.size_bytes,
                direct_writes: cache.direct_writes,
            }),
        },
        StoreTarget::Device { path, size_bytes, .. } => Place::Device {
            path: path.into(),
            bytes: *size_bytes,
        },
    }
}

fn marker_text(marker: &Marker) -> Vec<u8> {
    serde_json::to_vec(marker).expect("a marker consists of plain values")
}

fn write_mark_in(directory: &Directory, text: &[u8]) -> Result<(), RunError> {
    directory
        .replace(MARK, text)
        .map_err(|error| RunError::io("write", &directory.path().join(MARK), &error))
}

/// Bytes of a device that a database may use: the marker occupies the others.
pub(crate) fn usable_bytes(size_bytes: u64) -> u64 {
    size_bytes.saturating_sub(MARK_BYTES)
}

fn survey_directory(directory: &Directory) -> Result<Option<Marker>, RunError> {
    let path = directory.path();
    let entries = fs::read_dir(directory.held_path()).map_err(|error| RunError::io("list", path, &error))?;
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
        Err(error) if WrongTarget::from_error(&error).is_some() => return Err(RunError::io("open", path, &error)),
        // An unreadable marker counts as none.
        opened => drop(opened.and_then(|mut mark| mark.read_to_end(&mut text))),
    }
    if let Ok(mark) = serde_json::from_slice(&text) {
        return Ok(Some(mark));
    }
    let shown = names.iter().take(3).map(|name| format!("`{name}`")).collect::<Vec<_>>();
    Err(RunError::new(
        Code::ForeignData,
        format!(
            "`{}` contains {} not created by iosonde: {}",
            path.display(),
            if names.len() == 1 { "a file" } else { "files" },
            shown.join(", ")
        ),
        "name an empty directory, or one with a database that iosonde created",
    )
    .at("`target`"))
}

/// Claims a device as long as the file is open (open(2), O_EXCL on block devices), unless the parent process does.
fn claim(targets: &Targets, path: &Path, is_claimed: bool) -> Result<File, RunError> {
    let exclusive = if is_claimed { OFlags::empty() } else { OFlags::EXCL };
    let claim = targets
        .open(path, OFlags::RDWR | exclusive)
        .map_err(|error| RunError::io("claim", path, &error).at("`target`"))?;
    let is_device = claim
        .metadata()
        .is_ok_and(|metadata| metadata.file_type().is_block_device());
    if is_device {
        Ok(claim)
    } else {
        Err(RunError::invalid(
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
) -> Result<(Option<Marker>, bool), RunError> {
    let reading = |error: io::Error| RunError::io("read", path, &error).at("`target`");
    if size_bytes < (HEAD_BYTES as u64) + MARK_BYTES {
        return Err(RunError::invalid(
            format!("`{}` is too small for a database: {size_bytes} bytes", path.display()),
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
    Err(RunError::new(
        Code::ForeignData,
        format!("`{}` contains {}", path.display(), what_is(&head)),
        "name another device, or erase this one first (`wipefs --all`, `blkdiscard`) if nothing on it is needed",
    )
    .at("`target`"))
}

fn mark_of(text: &[u8]) -> Option<Marker> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    serde_json::from_slice(&text[..end]).ok()
}

/// Signatures in the first bytes of a device, with their offsets (as in libblkid).
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
        (None, Some(place)) => format!("unknown data at byte {place}"),
        (None, None) => "unknown data in its last 4096 bytes".into(),
    }
}

fn write_zeros(file: &File, offset: u64, bytes: usize) -> io::Result<()> {
    file.write_all_at(&vec![0; bytes], offset)
}

fn collect_files(directory: &Path, files: &mut Vec<PathBuf>) {
    // A directory that was just removed has no files.
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect_files(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

/// Opens a file of the database; links are refused.
fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Free bytes of a file system for this user.
pub fn free_bytes(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: `statvfs` is made of integers, for which zero is a valid value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string, and `found` a valid place for the result.
    let status = unsafe { libc::statvfs(path.as_ptr(), &mut found) };
    (status == 0).then(|| found.f_bavail * found.f_frsize)
}
