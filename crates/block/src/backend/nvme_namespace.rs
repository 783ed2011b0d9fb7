//! The character device of the NVMe namespace that a block device is, and proof that both are the same.
//!
//! Commands to the character device (`/dev/ngXnY`) pass by the block layer: no claim, no mount and no partition stops them.
//! So the device is not named by the user: it is derived from the block device that was checked and claimed, and it is
//! refused unless sysfs places both under the same controller, their namespace numbers agree, and controller and namespace
//! identify themselves with the same bytes through both.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use iosonde_harness::metrics::device;
use libc::{major, minor};

use super::nvme_command::Addressing;

const IDENTIFY_BYTES: usize = 4096;
/// `NVME_IOCTL_ID`.
const NAMESPACE_NUMBER: libc::Ioctl = 0x4e40;
/// `NVME_IOCTL_ADMIN_CMD`.
const ADMIN_COMMAND: libc::Ioctl = 0xc048_4e41_u32 as libc::Ioctl;
const IDENTIFY: u8 = 0x06;
const NAMESPACE: u32 = 0;
const CONTROLLER: u32 = 1;

/// A namespace, open by its character device.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// `/dev/ngXnY`.
    pub(super) device: File,
    /// Addressing of its commands.
    pub(super) addressing: Addressing,
}

impl Namespace {
    /// Opens the character device of the namespace that a block device is.
    ///
    /// # Errors
    /// The reason why there is none, or why it may not be used.
    pub(crate) fn read(block_device: &File, durable_writes: bool) -> Result<Namespace, String> {
        let directory = sysfs_directory(block_device)?;
        let generic = generic_directory(&directory)?;
        let device = open(&generic)?;
        let number = namespace_number(block_device).map_err(in_words("the namespace number of the block device"))?;
        let of_device = namespace_number(&device).map_err(in_words("the namespace number of the character device"))?;
        let [block, character] = [block_device, &device].map(|file| Identity::read(file, number));
        let (block, character) = (block?, character?);
        if number != of_device || !block.is_same(&character) {
            let generic = name(&generic);
            return Err(format!(
                "`/dev/{generic}` is not the namespace of the target: they identify themselves differently"
            ));
        }
        let addressing = Addressing {
            namespace: number,
            block_shift: block.block_shift()?,
            durable_writes,
        };
        Ok(Namespace { device, addressing })
    }
}

/// Directory in sysfs of a block device that is a whole namespace.
fn sysfs_directory(block_device: &File) -> Result<PathBuf, String> {
    let metadata = block_device.metadata().map_err(in_words("the target"))?;
    if !metadata.file_type().is_block_device() {
        return Err("NVMe commands need a block device as the target, not a file".into());
    }
    let number = metadata.rdev();
    let link = device::sysfs_directory(&format!("{}:{}", major(number), minor(number)));
    let directory = link.canonicalize().map_err(in_words(&link.to_string_lossy()))?;
    match directory.join("partition").exists() {
        true => Err(format!(
            "`{}` is a partition, and NVMe commands address the whole namespace",
            name(&directory)
        )),
        false => Ok(directory),
    }
}

/// Directory in sysfs of the character device: beside the block device, under the same controller or subsystem.
fn generic_directory(block: &Path) -> Result<PathBuf, String> {
    let block_name = name(block);
    let generic = generic_name(&block_name).ok_or_else(|| format!("`{block_name}` is not an NVMe namespace"))?;
    let link = Path::new("/sys/class/nvme-generic").join(&generic);
    let directory = link
        .canonicalize()
        .map_err(|_| format!("the kernel has no `{generic}`: NVMe character devices need Linux 5.13"))?;
    match directory.parent() == block.parent() {
        true => Ok(directory),
        false => Err(format!("`{generic}` belongs to another controller than `{block_name}`")),
    }
}

/// `ng0n1` for `nvme0n1`.
fn generic_name(block: &str) -> Option<String> {
    let numbers = block.strip_prefix("nvme")?;
    let (controller, namespace) = numbers.split_once('n')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(controller) && is_number(namespace)).then(|| format!("ng{numbers}"))
}

/// Opens the node of a character device, which must have the number that sysfs gives it.
fn open(generic: &Path) -> Result<File, String> {
    let node = Path::new("/dev").join(name(generic));
    let text = node.display().to_string();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(&node).map_err(in_words(&text))?;
    let metadata = file.metadata().map_err(in_words(&text))?;
    let expected = std::fs::read_to_string(generic.join("dev")).map_err(in_words(&text))?;
    let found = format!("{}:{}", major(metadata.rdev()), minor(metadata.rdev()));
    match metadata.file_type().is_char_device() && found == expected.trim() {
        true => Ok(file),
        false => Err(format!("`{text}` has the number {found} and not {}", expected.trim())),
    }
}

/// Identity that a controller and one of its namespaces report.
struct Identity {
    controller: Box<[u8; IDENTIFY_BYTES]>,
    namespace: Box<[u8; IDENTIFY_BYTES]>,
}

impl Identity {
    fn read(file: &File, number: u32) -> Result<Identity, String> {
        let ask = |what, number| identify(file, what, number).map_err(in_words("the Identify command"));
        Ok(Identity {
            controller: ask(CONTROLLER, 0)?,
            namespace: ask(NAMESPACE, number)?,
        })
    }

    /// Same vendor, serial number, model and controller number; same size, identifiers and formats. (The used capacity, for
    /// example, may change between two commands.)
    fn is_same(&self, other: &Identity) -> bool {
        let controller = |identity: &Identity| {
            let bytes = &identity.controller;
            (bytes[0..64].to_vec(), bytes[78..80].to_vec())
        };
        let namespace = |identity: &Identity| {
            let bytes = &identity.namespace;
            (bytes[0..8].to_vec(), bytes[25..30].to_vec(), bytes[104..192].to_vec())
        };
        controller(self) == controller(other) && namespace(self) == namespace(other)
    }

    /// Base-2 logarithm of the logical block, of a format without metadata.
    fn block_shift(&self) -> Result<u32, String> {
        let flbas = self.namespace[26];
        let format = usize::from(flbas & 0xf | (flbas & 0x60) >> 1);
        let at = 128 + 4 * format;
        let metadata_bytes = u16::from_le_bytes([self.namespace[at], self.namespace[at + 1]]);
        match (metadata_bytes, self.namespace[at + 2]) {
            (0, shift @ 9..=16) => Ok(u32::from(shift)),
            (0, shift) => Err(format!("logical blocks of 2^{shift} bytes are not supported")),
            (bytes, _) => Err(format!(
                "the namespace has {bytes} bytes of metadata in each logical block"
            )),
        }
    }
}

fn namespace_number(file: &File) -> io::Result<u32> {
    // SAFETY: the command takes no argument and returns the number.
    let number = unsafe { libc::ioctl(file.as_raw_fd(), NAMESPACE_NUMBER) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

fn identify(file: &File, what: u32, namespace: u32) -> io::Result<Box<[u8; IDENTIFY_BYTES]>> {
    let mut data = Box::new([0; IDENTIFY_BYTES]);
    let mut command = AdminCommand {
        opcode: IDENTIFY,
        namespace,
        address: data.as_mut_ptr() as u64,
        data_bytes: IDENTIFY_BYTES as u32,
        words_10_15: [what, 0, 0, 0, 0, 0],
        ..AdminCommand::default()
    };
    // SAFETY: the command is laid out as the kernel expects it and names a buffer of its length; both live until
    // the call returns.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), ADMIN_COMMAND, &raw mut command) };
    match status {
        0 => Ok(data),
        status if status > 0 => Err(io::Error::other(format!("NVMe status {status:#x}"))),
        _ => Err(io::Error::last_os_error()),
    }
}

fn name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn in_words(what: &str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(serial: u8, size: u8) -> Identity {
        let mut controller = Box::new([0; IDENTIFY_BYTES]);
        controller[4] = serial;
        let mut namespace = Box::new([0; IDENTIFY_BYTES]);
        namespace[0] = size;
        // The second format: 4 KiB.
        namespace[26] = 1;
        namespace[132..136].copy_from_slice(&[0, 0, 12, 0]);
        Identity { controller, namespace }
    }

    #[test]
    fn only_namespaces_have_a_character_device() {
        assert_eq!(generic_name("nvme0n1").as_deref(), Some("ng0n1"));
        assert_eq!(generic_name("nvme10n32").as_deref(), Some("ng10n32"));
        for other in ["nvme0n1p1", "nvme0c0n1", "nvme0", "sda", "loop0", "nvmen1"] {
            assert_eq!(generic_name(other), None, "{other}");
        }
        let file = File::open("/proc/version").expect("procfs is mounted");
        let refused = Namespace::read(&file, false).map(|_| ()).unwrap_err();
        assert!(refused.contains("not a file"), "{refused}");
    }

    #[test]
    fn the_format_decides_the_block_size_and_another_size_is_another_namespace() {
        assert_eq!(identity(1, 1).block_shift(), Ok(12));
        let mut with_metadata = identity(1, 1);
        with_metadata.namespace[132] = 8;
        let refused = with_metadata.block_shift().unwrap_err();
        assert!(refused.contains("8 bytes of metadata"), "{refused}");
        assert!(!identity(1, 1).is_same(&identity(2, 1)));
        assert!(!identity(1, 1).is_same(&identity(1, 2)));
        let mut used = identity(1, 1);
        used.namespace[16] = 9;
        assert!(used.is_same(&identity(1, 1)));
    }
}
