//! Brings a simulated drive to the jobs: its state file, its layout, and its requests.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use iosonde_harness::load::Io;
use iosonde_harness::target::{OFlags, Targets};
use iosonde_harness::{Run, RunError};
use iosonde_protocol::{
    ArrayModel, Backend, BackendInEffect, BlockWorkload, DeviceUsage, DriveModel, Edge, Event, IoMode, Layout,
    LayoutResult, Operation, Phase, PhaseEvent, RunResult, Warning,
};
use iosonde_ssd::{Action, Request, Storage};

use crate::backend::{SimulatedDevice, VirtualDevice};
use crate::error;
use crate::{simulation, target};

/// Carries the workload out on a simulated drive or array, and keeps its state for the next run.
pub(crate) fn measure(workload: &BlockWorkload, run: &mut Run<'_>) -> Result<RunResult, RunError> {
    let (state, mut device) = open_device(&workload.backend, run)?;
    check_size(target::size_bytes(&workload.target), &device.storage)?;
    warn_of_page_cache(workload, run);
    let always = workload.layout == Layout::Always;
    let layout = match workload.layout {
        Layout::Never => LayoutResult::default(),
        _ => lay_out(target::size_bytes(&workload.target), always, &mut device.storage, run),
    };
    let (mut result, mut device) = simulation::measure_on(device, workload, run)?;
    result.layout = layout;
    if let Some(path) = state {
        save(&mut device.storage, run.inputs.targets, path)?;
    }
    Ok(result)
}

/// The simulated drive of a backend, and where its state is kept.
fn open_device<'b>(backend: &'b Backend, run: &Run<'_>) -> Result<(Option<&'b Path>, SsdDevice), RunError> {
    let Backend::Ssd {
        model,
        array,
        state_path,
    } = backend
    else {
        return Err(RunError::internal("a simulated drive without a model"));
    };
    let state = state_path.as_deref().map(Path::new);
    let (storage, is_new) = open(model, array, run.inputs.targets, state, run.inputs.seed)?;
    Ok((state, SsdDevice { storage, is_new }))
}

/// A simulated device for loads other than block I/O, which write their own requests.
pub(crate) struct SimulatedTarget {
    device: Device,
    state: Option<PathBuf>,
    /// Bytes that were written so that reads are of data.
    pub layout: LayoutResult,
}

enum Device {
    Servers(SimulatedDevice),
    Ssd(Box<SsdDevice>),
}

impl SimulatedTarget {
    /// The device of `backend`, of which the first `filled_bytes` contain data; `bytes` may be addressed.
    ///
    /// # Errors
    /// For another backend, a model that contradicts itself, and a device that is too small.
    pub fn open(
        backend: &Backend,
        bytes: u64,
        filled_bytes: u64,
        run: &mut Run<'_>,
    ) -> Result<SimulatedTarget, RunError> {
        if let Backend::Simulated {
            servers,
            read_service_ns,
            write_service_ns,
            service,
            stalls,
        } = backend
        {
            let times = (*read_service_ns, *write_service_ns);
            return Ok(SimulatedTarget {
                device: Device::Servers(SimulatedDevice::new(*servers, times, *service, stalls, run.inputs.seed)),
                state: None,
                layout: LayoutResult::default(),
            });
        }
        let (state, mut device) = open_device(backend, run)?;
        check_size(bytes, &device.storage)?;
        let layout = match filled_bytes {
            0 => LayoutResult::default(),
            _ => lay_out(filled_bytes, false, &mut device.storage, run),
        };
        Ok(SimulatedTarget {
            device: Device::Ssd(Box::new(device)),
            state: state.map(Path::to_path_buf),
            layout,
        })
    }

    /// The device, whose requests are numbered by the caller (job and slot).
    pub fn device(&mut self) -> &mut dyn VirtualDevice {
        match &mut self.device {
            Device::Servers(device) => device,
            Device::Ssd(device) => device.as_mut(),
        }
    }

    /// Keeps the state for the next run.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn keep(self, targets: &Targets) -> Result<(), RunError> {
        match (self.device, self.state) {
            (Device::Ssd(mut device), Some(path)) => save(&mut device.storage, targets, &path),
            _ => Ok(()),
        }
    }
}

/// A drive with the state of its file, or a new one.
fn open(
    model: &DriveModel,
    array: &ArrayModel,
    targets: &Targets,
    state: Option<&Path>,
    seed: u64,
) -> Result<(Storage, bool), RunError> {
    let mut storage = Storage::new(model, array, seed).map_err(|error| {
        let place = if error.field.starts_with("array") {
            "backend"
        } else {
            "backend.model"
        };
        RunError::invalid(
            format!("the simulated drive `{}` cannot be: {error}", model.name),
            format!("`{place}.{}`", error.field),
            error.hint,
        )
    })?;
    let Some(path) = state else {
        return Ok((storage, true));
    };
    if let Some(mut file) = existing(&limits_path(path), targets)? {
        storage
            .load_limits(&mut file)
            .map_err(|error| unusable(&limits_path(path), &error.to_string()))?;
    }
    let Some(mut file) = existing(path, targets)? else {
        return Ok((storage, true));
    };
    storage
        .load(&mut file)
        .map_err(|error| unusable(path, &error.to_string()))?;
    Ok((storage, false))
}

/// The state of the limits, which outlives a purge of the drive.
fn limits_path(state: &Path) -> PathBuf {
    state.with_extension("limits")
}

fn existing(path: &Path, targets: &Targets) -> Result<Option<BufReader<File>>, RunError> {
    match targets.open(path, OFlags::RDONLY) {
        Ok(file) => Ok(Some(BufReader::with_capacity(1 << 20, file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(path, &error.to_string())),
    }
}

fn unusable(path: &Path, reason: &str) -> RunError {
    RunError::invalid(
        format!("the drive's state in `{}` cannot be used: {reason}", path.display()),
        "`backend.state_path`",
        "remove the file, and the drive begins as new; or name the model that it was written with",
    )
}

fn check_size(wanted: u64, storage: &Storage) -> Result<(), RunError> {
    let capacity = storage.capacity_bytes();
    if wanted <= capacity {
        return Ok(());
    }
    Err(RunError::invalid(
        format!("a span up to byte {wanted} on a simulated drive of {capacity} bytes"),
        "`target.size_bytes`",
        "make the span smaller, or the drive's capacity larger",
    ))
}

fn warn_of_page_cache(workload: &BlockWorkload, run: &mut Run<'_>) {
    let buffered = workload
        .streams
        .iter()
        .find(|stream| stream.io_mode == IoMode::Buffered);
    if let Some(stream) = buffered {
        run.warn(Warning {
            code: "no_page_cache".into(),
            message: format!(
                "stream `{}` uses buffered I/O, but simulated drives have no page cache",
                stream.name
            ),
            hint: "treat its results as direct I/O, and compare them only with direct I/O".into(),
        });
    }
}

/// Phase `layout`: what was never written is written, in no time.
fn lay_out(bytes: u64, always: bool, storage: &mut Storage, run: &mut Run<'_>) -> LayoutResult {
    let mut report = |edge, bytes| {
        run.emit(Event::Phase(PhaseEvent {
            phase: Phase::Layout,
            edge,
            at_ns: 0,
            bytes,
        }))
    };
    report(Edge::Begin, 0);
    let filled = storage.fill(bytes, always);
    report(Edge::End, filled.written_bytes);
    LayoutResult {
        written_bytes: filled.written_bytes,
        kept_bytes: filled.kept_bytes,
    }
}

/// Under a temporary name first, so that a crash leaves the state of the run before.
fn save(storage: &mut Storage, targets: &Targets, path: &Path) -> Result<(), RunError> {
    storage.settle();
    if storage.has_limits() {
        replace(&limits_path(path), targets, |writer| storage.save_limits(writer))?;
    }
    replace(path, targets, |writer| storage.save(writer))
}

fn replace(
    path: &Path,
    targets: &Targets,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), RunError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".writing");
    let temporary = PathBuf::from(temporary);
    let written = write_state(write, targets, &temporary).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|error| {
        // An incomplete file is useless; if it cannot be removed, the first error suffices.
        let _ = std::fs::remove_file(&temporary);
        error::target("write the drive's state to", path)(error)
    })
}

fn write_state(
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    targets: &Targets,
    path: &Path,
) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = targets.open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    write(&mut writer)?;
    writer.flush()?;
    writer.get_ref().sync_all()
}

struct SsdDevice {
    storage: Storage,
    is_new: bool,
}

fn action(operation: Operation) -> Action {
    match operation {
        Operation::Read => Action::Read,
        Operation::Write => Action::Write,
        Operation::Trim => Action::Trim,
        Operation::Flush => Action::Flush,
        other => unreachable!("block I/O knows no {other:?}"),
    }
}

/// An I/O in flight in the drive.
fn token(job: usize, slot: u32) -> u64 {
    (job as u64) << 32 | u64::from(slot)
}

impl VirtualDevice for SsdDevice {
    fn now(&self) -> u64 {
        self.storage.now()
    }

    fn submit(&mut self, job: usize, slot: u32, io: &Io, durable: bool) {
        let request = Request {
            operation: action(io.operation),
            offset_bytes: io.offset_bytes,
            bytes: io.bytes.into(),
            durable,
        };
        self.storage.submit(token(job, slot), &request);
    }

    fn advance(&mut self, limit_ns: u64) {
        self.storage.advance(limit_ns);
    }

    fn completed(&mut self) -> Option<(usize, u32, i32)> {
        let (token, bytes) = self.storage.completed()?;
        Some(((token >> 32) as usize, token as u32, bytes as i32))
    }

    fn usage(&self) -> Vec<DeviceUsage> {
        self.storage.usage()
    }

    fn in_effect(&self) -> BackendInEffect {
        let state = if self.is_new { "new_drive" } else { "kept_state" };
        BackendInEffect {
            kind: "ssd".into(),
            features: vec![state.into()],
            fallbacks: Vec::new(),
        }
    }
}
