//! The world of a simulated device and a virtual clock.

use iosonde_block::{VirtualThread, simulate};
use iosonde_harness::load::Io;
use iosonde_harness::{JobPhases, LoadPlan, Measured, Run, RunError};
use iosonde_protocol::{Backend, Operation};

use crate::files::FileSet;
use crate::world::{Extent, Load, Mapped, PAGE_BYTES, World};

/// Applies the load to the device of `backend`.
pub(crate) fn measure<L: Load>(
    backend: &Backend,
    size_bytes: u64,
    files: &FileSet,
    plan: &LoadPlan<'_>,
    load: &L,
    run: &mut Run<'_>,
) -> Result<Measured<L::Found>, RunError> {
    if files.extent() > size_bytes {
        return Err(RunError::out_of_range("`target.size_bytes`"));
    }
    let places = plan.places(|_| load.lanes());
    simulate(
        backend,
        (files.extent(), size_bytes),
        plan,
        &places,
        run,
        |place, thread| load.work(&mut VirtualWorld { files, thread }, place),
    )
}

struct VirtualWorld<'w, 'a, 't> {
    files: &'w FileSet,
    thread: &'w mut VirtualThread<'a, 't>,
}

impl<'a> World<'a> for VirtualWorld<'_, 'a, '_> {
    fn phases(&mut self) -> &mut JobPhases<'a> {
        self.thread.phases()
    }

    fn files(&self) -> &FileSet {
        self.files
    }

    fn now(&self) -> u64 {
        self.thread.now()
    }

    fn read(&mut self, extents: &[Extent]) -> Result<(), RunError> {
        self.io(Operation::Read, extents)
    }

    fn write(&mut self, extent: Extent) -> Result<(), RunError> {
        self.io(Operation::Write, &[extent])
    }

    fn sync(&mut self, _file: usize) -> Result<(), RunError> {
        self.thread.submit(&[Io {
            operation: Operation::Flush,
            offset_bytes: 0,
            bytes: 0,
        }])
    }

    fn sleep_until(&mut self, at_ns: u64) {
        while self.now() < at_ns && self.continues() {
            self.thread.sleep(at_ns);
        }
    }

    fn wait_at(&mut self, meeting: usize, mut ready: impl FnMut() -> bool) -> bool {
        while !ready() {
            if !self.continues() {
                return false;
            }
            self.thread.wait_at(meeting);
        }
        true
    }

    fn notify_at(&mut self, meeting: usize) {
        self.thread.notify_at(meeting);
    }

    fn map(&mut self, _file: usize, how: Mapped) -> Result<(), RunError> {
        match how {
            Mapped::Random => Ok(()),
            _ => Err(RunError::unsupported(
                "a simulated device has no page cache, and mappings are simulated without read-ahead only",
                "choose the strategy `mmap-random`, `read` or `direct`, or a target with files",
            )),
        }
    }

    /// One page after the other.
    fn copy_mapped(&mut self, extent: Extent) -> Result<(), RunError> {
        let end = extent.offset + extent.bytes;
        let first = extent.offset.next_multiple_of(PAGE_BYTES);
        (first..end).step_by(PAGE_BYTES as usize).try_for_each(|offset| {
            let bytes = PAGE_BYTES.min(self.files.bytes(extent.file) - offset);
            self.read(&[Extent::new(extent.file, offset, bytes)])
        })
    }
}

impl VirtualWorld<'_, '_, '_> {
    fn io(&mut self, operation: Operation, extents: &[Extent]) -> Result<(), RunError> {
        let requests: Vec<_> = extents
            .iter()
            .map(|extent| Io {
                operation,
                offset_bytes: self.files.base(extent.file) + extent.offset,
                bytes: extent.bytes as u32,
            })
            .collect();
        self.thread.submit(&requests)
    }
}
