//! I/O of the block devices under a target, by the kernel's own counters.
//!
//! `/sys/dev/block/MAJOR:MINOR/stat` is one line (kernel `Documentation/block/stat.rst`): 11 fields since Linux 2.6, 15 with
//! discards since 4.18, 17 with flushes since 5.5. The file stays open, so a reading is one `pread(2)`.
//!
//! Podman masks `/sys/dev/block` in containers; `/sys/class/block` has the same directories by name.
//!
//! The kernel prints times in milliseconds from a 32-bit number. Summed waits at queue depth 256 grow by 256 s each
//! second and wrap within five hours, so counters are carried on in 64 bits from reading to reading.

use std::fs::{File, read_dir, read_to_string};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use iosonde_protocol::DeviceUsage;

use crate::error::RunError;

const SYSFS: &str = "/sys";
/// The unit of the kernel's sector counts, whatever the device's own sectors are.
const SECTOR_BYTES: u64 = 512;
const NS_PER_MS: u64 = 1_000_000;
/// Longer than 17 numbers of 20 digits.
const LINE_BYTES: usize = 512;

/// Watches a list of block devices.
///
/// A device that vanishes counts no further, and [`DeviceWatch::vanished`] names it.
#[derive(Debug)]
pub struct DeviceWatch {
    devices: Vec<Device>,
    sampled: Vec<DeviceUsage>,
}

impl DeviceWatch {
    /// Opens the counters of `devices`, each named `major:minor`; counting begins here.
    ///
    /// # Errors
    /// When a name is not `major:minor`, no such device exists, or its counters cannot be read or understood.
    pub fn open(devices: &[String]) -> Result<Self, RunError> {
        Self::open_in(Path::new(SYSFS), devices)
    }

    /// I/O of each device since the previous sample, or since the opening.
    pub fn sample(&mut self) -> Vec<DeviceUsage> {
        let now = self.snapshot();
        let changes = difference(&now, &self.sampled);
        self.sampled = now;
        changes
    }

    /// I/O of each device since the opening. Does not disturb [`DeviceWatch::sample`]; the [`difference`] of two
    /// snapshots is what was done between them.
    pub fn snapshot(&mut self) -> Vec<DeviceUsage> {
        self.devices.iter_mut().map(Device::read).collect()
    }

    /// The devices that went away while they were watched.
    pub fn vanished(&self) -> Vec<&str> {
        let gone = self.devices.iter().filter(|device| device.file.is_none());
        gone.map(|device| device.total.device.as_str()).collect()
    }

    fn open_in(sysfs: &Path, devices: &[String]) -> Result<Self, RunError> {
        let open = |name: &String| Device::open(sysfs, name);
        let devices = devices.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let sampled = devices.iter().map(|device| device.total.clone()).collect();
        Ok(Self { devices, sampled })
    }
}

/// Directory in sysfs of the block device `number`, which is `major:minor`.
pub fn sysfs_directory(number: &str) -> PathBuf {
    directory_in(Path::new(SYSFS), number)
}

fn directory_in(sysfs: &Path, number: &str) -> PathBuf {
    let by_number = sysfs.join("dev/block").join(number);
    if by_number.exists() {
        return by_number;
    }
    let listed = read_dir(sysfs.join("class/block")).into_iter().flatten().flatten();
    let has_number = |path: &PathBuf| read_to_string(path.join("dev")).is_ok_and(|text| text.trim() == number);
    listed.map(|entry| entry.path()).find(has_number).unwrap_or(by_number)
}

/// I/O between two snapshots of the same watch; I/Os in flight are those of the later.
pub fn difference(later: &[DeviceUsage], earlier: &[DeviceUsage]) -> Vec<DeviceUsage> {
    later
        .iter()
        .zip(earlier)
        .map(|(later, earlier)| change(later, earlier))
        .collect()
}

/// One device: its open counters and what it did so far.
#[derive(Debug)]
struct Device {
    /// `None` once the device is gone.
    file: Option<File>,
    previous: Counters,
    total: DeviceUsage,
}

impl Device {
    fn open(sysfs: &Path, name: &str) -> Result<Self, RunError> {
        if !is_device_number(name) {
            let rule = "it must be `major:minor`, as `lsblk -o NAME,MAJ:MIN` shows";
            return Err(unobservable(format!("`{name}` does not name a block device: {rule}")));
        }
        let path = directory_in(sysfs, name).join("stat");
        let opened = File::open(&path).and_then(|file| read_line(&file).map(|line| (file, line)));
        let (file, line) = opened.map_err(|error| {
            let place = path.display();
            unobservable(format!(
                "cannot read the counters of block device `{name}` in `{place}`: {error}"
            ))
        })?;
        let previous = Counters::parse(&line).ok_or_else(|| {
            unobservable(format!(
                "the counters of block device `{name}` are not in a known form: `{line}`"
            ))
        })?;
        let total = DeviceUsage {
            device: name.to_owned(),
            in_flight: previous.in_flight,
            ..DeviceUsage::default()
        };
        Ok(Self {
            file: Some(file),
            previous,
            total,
        })
    }

    /// I/O of the device since the opening. A reading that fails or makes no sense means that it is gone.
    fn read(&mut self) -> DeviceUsage {
        let line = self.file.as_ref().and_then(|file| read_line(file).ok());
        match line.as_deref().and_then(Counters::parse) {
            Some(counters) => {
                counters.add_change_to(&mut self.total, &self.previous);
                self.previous = counters;
            }
            None => {
                self.file = None;
                self.total.in_flight = 0;
            }
        }
        self.total.clone()
    }
}

fn unobservable(problem: String) -> RunError {
    let hint = "name devices as `major:minor`, as in `lsblk`";
    RunError::invalid(problem, "`observe.block_devices`", hint)
}

fn is_device_number(name: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once(':')
        .is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

fn read_line(file: &File) -> std::io::Result<String> {
    let mut buffer = [0; LINE_BYTES];
    let length = file.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).trim().to_owned())
}

/// One line of counters, in the kernel's units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    reads: u64,
    read_merges: u64,
    read_sectors: u64,
    read_wait_ms: u32,
    writes: u64,
    write_merges: u64,
    write_sectors: u64,
    write_wait_ms: u32,
    in_flight: u64,
    busy_ms: u32,
    discards: u64,
    discard_sectors: u64,
    flushes: u64,
}

impl Counters {
    /// The counters in a line, or `None` if it is not one. Fields that an older kernel does not have are 0.
    fn parse(line: &str) -> Option<Self> {
        let fields = line
            .split_ascii_whitespace()
            .map(str::parse)
            .collect::<Result<Vec<u64>, _>>()
            .ok()?;
        if fields.len() < 11 {
            return None;
        }
        let optional = |index: usize| fields.get(index).copied().unwrap_or(0);
        Some(Self {
            reads: fields[0],
            read_merges: fields[1],
            read_sectors: fields[2],
            read_wait_ms: fields[3] as u32,
            writes: fields[4],
            write_merges: fields[5],
            write_sectors: fields[6],
            write_wait_ms: fields[7] as u32,
            in_flight: fields[8],
            busy_ms: fields[9] as u32,
            // Field 10 is the time spent in the queue: the sum of the waits, which are separate above.
            discards: optional(11),
            discard_sectors: optional(13),
            flushes: optional(15),
        })
    }

    fn add_change_to(&self, total: &mut DeviceUsage, previous: &Self) {
        let bytes = |now: u64, before: u64| now.saturating_sub(before) * SECTOR_BYTES;
        let nanoseconds = |now: u32, before: u32| u64::from(now.wrapping_sub(before)) * NS_PER_MS;
        total.reads += self.reads.saturating_sub(previous.reads);
        total.read_merges += self.read_merges.saturating_sub(previous.read_merges);
        total.read_bytes += bytes(self.read_sectors, previous.read_sectors);
        total.read_wait_ns += nanoseconds(self.read_wait_ms, previous.read_wait_ms);
        total.writes += self.writes.saturating_sub(previous.writes);
        total.write_merges += self.write_merges.saturating_sub(previous.write_merges);
        total.write_bytes += bytes(self.write_sectors, previous.write_sectors);
        total.write_wait_ns += nanoseconds(self.write_wait_ms, previous.write_wait_ms);
        total.in_flight = self.in_flight;
        total.busy_ns += nanoseconds(self.busy_ms, previous.busy_ms);
        total.discards += self.discards.saturating_sub(previous.discards);
        total.discard_bytes += bytes(self.discard_sectors, previous.discard_sectors);
        total.flushes += self.flushes.saturating_sub(previous.flushes);
    }
}

fn change(later: &DeviceUsage, earlier: &DeviceUsage) -> DeviceUsage {
    debug_assert_eq!(later.device, earlier.device, "both snapshots are of the same watch");
    let media = later.media.zip(earlier.media);
    DeviceUsage {
        media: media.map(|(later, earlier)| later.since(&earlier)),
        ..later.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, rename, write};

    use tempfile::TempDir;

    use super::*;

    const FIELDS_11: &str = "    1   2   3   4   5   6   7   8   9   10   11\n";
    const FIELDS_15: &str = "    1   2   3   4   5   6   7   8   9   10   11   12   13   14   15\n";
    const FIELDS_17: &str = "    1   2   3   4   5   6   7   8   9   10   11   12   13   14   15   16   17\n";

    /// A directory as the kernel's, with one device whose counters the test writes.
    struct Kernel {
        directory: TempDir,
    }

    impl Kernel {
        fn new(line: &str) -> Self {
            let kernel = Self {
                directory: tempfile::tempdir().expect("a temporary directory"),
            };
            create_dir_all(kernel.directory.path().join("dev/block/8:0")).expect("the directory is new");
            kernel.reports(line);
            kernel
        }

        /// Overwrites the counters in place, so that an open file sees it.
        fn reports(&self, line: &str) {
            write(self.directory.path().join("dev/block/8:0/stat"), line).expect("a small file");
        }

        fn watch(&self) -> DeviceWatch {
            self.try_watch("8:0").expect("the device is there")
        }

        fn try_watch(&self, device: &str) -> Result<DeviceWatch, RunError> {
            DeviceWatch::open_in(self.directory.path(), &[device.to_owned()])
        }
    }

    #[test]
    fn a_device_is_found_by_its_name_where_devices_are_not_listed_by_number() {
        let kernel = Kernel::new(FIELDS_11);
        let (sysfs, by_name) = (kernel.directory.path(), kernel.directory.path().join("class/block/sda"));
        create_dir_all(sysfs.join("class/block/sdb")).expect("the directory is new");
        rename(sysfs.join("dev/block/8:0"), &by_name).expect("the same file system");
        write(by_name.join("dev"), "8:0\n").expect("a small file");
        assert_eq!(directory_in(sysfs, "8:0"), by_name);
        assert_eq!(kernel.watch().snapshot().len(), 1);
        assert!(kernel.try_watch("8:16").is_err());
    }

    #[test]
    fn every_form_of_the_line_is_read_and_what_is_none_is_refused() {
        let common = Counters {
            reads: 1,
            read_merges: 2,
            read_sectors: 3,
            read_wait_ms: 4,
            writes: 5,
            write_merges: 6,
            write_sectors: 7,
            write_wait_ms: 8,
            in_flight: 9,
            busy_ms: 10,
            ..Counters::default()
        };
        let mut with_discards = common;
        with_discards.discards = 12;
        with_discards.discard_sectors = 14;
        let mut with_flushes = with_discards;
        with_flushes.flushes = 16;
        assert_eq!(Counters::parse(FIELDS_11), Some(common));
        assert_eq!(Counters::parse(FIELDS_15), Some(with_discards));
        assert_eq!(Counters::parse(FIELDS_17), Some(with_flushes));
        let line = "1 2 3 4 5 6 7 8 9 10";
        for wrong in ["", line, &format!("{line} eleven"), &format!("-{line} 11")] {
            assert_eq!(Counters::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_sample_is_what_was_done_since_the_last_in_bytes_and_nanoseconds() {
        let kernel = Kernel::new("100 0 800 10 200 0 1600 20 0 30 30 0 0 0 0 5 1");
        let mut watch = kernel.watch();
        kernel.reports("110 1 1000 12 230 2 2000 25 4 37 37 3 0 16 1 6 1");
        let expected = DeviceUsage {
            device: "8:0".to_owned(),
            reads: 10,
            read_merges: 1,
            read_bytes: 200 * 512,
            read_wait_ns: 2_000_000,
            writes: 30,
            write_merges: 2,
            write_bytes: 400 * 512,
            write_wait_ns: 5_000_000,
            in_flight: 4,
            busy_ns: 7_000_000,
            discards: 3,
            discard_bytes: 16 * 512,
            flushes: 1,
            media: None,
        };
        assert_eq!(watch.sample(), [expected]);
        let idle = DeviceUsage {
            device: "8:0".to_owned(),
            in_flight: 4,
            ..DeviceUsage::default()
        };
        assert_eq!(watch.sample(), [idle]);
    }

    #[test]
    fn samples_add_up_and_carry_on_when_the_kernels_counter_wraps() {
        let line = |reads: u64| format!("{reads} 0 0 0 0 0 0 0 0 0 0");
        let kernel = Kernel::new(&line(1000));
        let mut watch = kernel.watch();
        let begin = watch.snapshot();
        let sampled = [1007, 1020, 1100].map(|reads| {
            kernel.reports(&line(reads));
            watch.sample()[0].reads
        });
        assert_eq!(sampled, [7, 13, 80]);
        assert_eq!(difference(&watch.snapshot(), &begin)[0].reads, 100);
        // Times are 32-bit milliseconds in the kernel; at queue depth 256 they wrap within five hours.
        let line = |wait_ms: u32| format!("0 0 0 {wait_ms} 0 0 0 0 0 {wait_ms} 0");
        let kernel = Kernel::new(&line(u32::MAX - 99));
        let mut watch = kernel.watch();
        kernel.reports(&line(50));
        let change = &watch.sample()[0];
        assert_eq!([change.read_wait_ns, change.busy_ns], [150 * NS_PER_MS; 2]);
        kernel.reports(&line(u32::MAX - 99));
        watch.sample();
        kernel.reports(&line(0));
        let sum_ns = watch.snapshot()[0].read_wait_ns;
        assert_eq!(sum_ns, ((1 << 32) + 100) * NS_PER_MS);
    }

    #[test]
    fn a_device_that_vanishes_keeps_what_it_did_and_is_named() {
        let kernel = Kernel::new("100 0 0 0 0 0 0 0 7 0 0");
        let mut watch = kernel.watch();
        kernel.reports("150 0 0 0 0 0 0 0 7 0 0");
        let begin = watch.snapshot();
        assert!(watch.vanished().is_empty());
        kernel.reports("");
        let nothing = DeviceUsage {
            device: "8:0".to_owned(),
            ..DeviceUsage::default()
        };
        assert_eq!(watch.sample()[0].reads, 50, "done before it vanished");
        assert_eq!(watch.sample(), std::slice::from_ref(&nothing));
        assert_eq!(watch.vanished(), ["8:0"]);
        kernel.reports("900 0 0 0 0 0 0 0 7 0 0");
        let later = difference(&watch.snapshot(), &begin);
        assert_eq!(later, [nothing], "what comes back is another device");
    }

    #[test]
    fn a_device_that_cannot_be_watched_is_named_and_those_of_this_machine_can() {
        let kernel = Kernel::new("these are no counters");
        let no_device = "does not name a block device";
        let names = ["sda", "8", "8:0:1", "+8:0", "../8:0", "8:", ""].map(|name| (name, no_device));
        let others = [("8:1", "No such file or directory"), ("8:0", "`these are no counters`")];
        for (name, reason) in names.into_iter().chain(others) {
            let error = kernel.try_watch(name).expect_err("it cannot be watched").to_string();
            let is_named = error.contains(&format!("`{name}`"));
            assert!(is_named && error.contains(reason), "{error}");
        }
        let Ok(entries) = read_dir("/sys/dev/block") else {
            eprintln!("skipped: no `/sys/dev/block` here");
            return;
        };
        let names = entries.map(|entry| entry.expect("listed").file_name().to_string_lossy().into_owned());
        let names: Vec<String> = names.collect();
        let mut watch = DeviceWatch::open(&names).expect("every device listed has counters");
        assert_eq!(watch.sample().len(), names.len());
        assert!(watch.vanished().is_empty());
    }
}
