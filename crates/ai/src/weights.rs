//! Loading of the weights of a model, once.
//!
//! Files are in the format safetensors. A loader that maps them copies tensors in their order, so that the kernel reads at page
//! faults; one that reads whole files leaves read-ahead to the kernel; one with direct I/O decides about size and number of requests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use iosonde_harness::{LoadPlan, Place, Run, RunError, Workload, require};
use iosonde_protocol::{
    AiTarget, AiWeightsWorkload, Operation, PageCache, RunResult, WeightFile, WeightMemory, WeightStrategy,
};

use crate::files::{Content, FileNeed};
use crate::world::{Extent, Load, Mapped, Memory, World};
use crate::{check_request, measure, plan};

/// The weights of a spec.
pub struct AiWeights<'a>(pub &'a AiWeightsWorkload);

impl Workload for AiWeights<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        let stream = ("weights", self.0.threads);
        plan(&[stream], None, None, self.0.interval_ns, &self.0.cpus)
    }

    fn check(&self) -> Result<(), RunError> {
        let workload = self.0;
        check_request(workload.request_bytes, "`request_bytes`")?;
        require(!workload.files.is_empty(), "`files`")?;
        let is_generated = matches!(workload.target, AiTarget::Virtual { .. }) || workload.generate;
        workload.files.iter().try_for_each(|file| {
            let path = PathBuf::from(&file.path);
            let is_name = path.components().count() == 1 && path.file_name().is_some();
            require(if is_generated { is_name } else { path.is_absolute() }, "`files.path`")?;
            let first = file.tensors.first().is_some_and(|first| *first >= 8);
            let rises = file.tensors.windows(2).all(|pair| pair[0] <= pair[1]);
            let ends = file.tensors.last().is_some_and(|last| *last < file.bytes);
            require(first && rises && ends, "`files.tensors`")
        })
    }

    placed!(|workload: &AiWeightsWorkload| {
        let files = workload.files.iter().filter(|_| !workload.generate);
        files.map(|file| file.path.clone().into()).collect()
    });

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let workload = self.0;
        let loading = Loading {
            workload,
            parts: parts(workload),
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            end_ns: AtomicU64::new(0),
        };
        let backend = workload.backend.as_ref();
        measure(self, &workload.target, backend, &loading, run, |facts, loaded| {
            facts.loaded_bytes = Some(loaded.iter().sum());
        })
    }
}

/// The header of a generated file, with tensors of bytes: <https://github.com/huggingface/safetensors>, section Format.
fn header(file: &WeightFile) -> Vec<u8> {
    let first = file.tensors[0];
    let ends = file.tensors[1..].iter().chain([&file.bytes]);
    let tensors = file.tensors.iter().zip(ends).enumerate().map(|(number, (begin, end))| {
        let (begin, end) = (begin - first, end - first);
        format!(
            r#""tensor.{number}":{{"dtype":"U8","shape":[{}],"data_offsets":[{begin},{end}]}}"#,
            end - begin
        )
    });
    let json = format!("{{{}}}", tensors.collect::<Vec<_>>().join(","));
    // Spaces pad it to the first tensor; without room for it, the file is no safetensors file, only of the same size.
    let length = first - 8;
    let mut head = length.to_le_bytes().to_vec();
    head.extend(json.bytes().chain(std::iter::repeat(b' ')).take(length as usize));
    head
}

/// Parts that a thread takes from what is to be loaded: requests of direct I/O, otherwise files.
fn parts(workload: &AiWeightsWorkload) -> Vec<Extent> {
    let files = workload.files.iter().enumerate();
    files
        .flat_map(|(number, file)| {
            let piece = match workload.strategy {
                WeightStrategy::Direct => workload.request_bytes,
                _ => file.bytes,
            };
            pieces(Extent::new(number, 0, file.bytes), piece)
        })
        .collect()
}

/// An extent in pieces of this size; the last one may be smaller.
pub(crate) fn pieces(extent: Extent, bytes: u64) -> impl Iterator<Item = Extent> {
    let end = extent.offset + extent.bytes;
    (extent.offset..end)
        .step_by(bytes.max(1) as usize)
        .map(move |offset| Extent {
            offset,
            bytes: bytes.min(end - offset),
            ..extent
        })
}

struct Loading<'w> {
    workload: &'w AiWeightsWorkload,
    parts: Vec<Extent>,
    /// Next part to be taken.
    next: AtomicUsize,
    /// Parts that are loaded.
    done: AtomicUsize,
    /// End of the last one.
    end_ns: AtomicU64,
}

impl Load for Loading<'_> {
    /// Bytes loaded.
    type Found = u64;

    fn needs(&self) -> Vec<FileNeed> {
        let needs = self.workload.files.iter().map(|file| FileNeed {
            path: file.path.clone().into(),
            bytes: file.bytes,
            content: match self.workload.generate {
                true => Content::Generated(header(file)),
                false => Content::Existing,
            },
            is_direct: self.workload.strategy == WeightStrategy::Direct,
        });
        needs.collect()
    }

    fn page_cache(&self) -> PageCache {
        self.workload.page_cache
    }

    fn memory(&self, _place: Place) -> Memory {
        Memory {
            is_new_each_time: self.workload.memory == WeightMemory::Pageable,
            is_locked: self.workload.memory == WeightMemory::Locked,
            ..Memory::of_one(self.workload.request_bytes)
        }
    }

    fn work<'a>(&self, world: &mut impl World<'a>, _place: Place) -> Result<u64, RunError> {
        let mut loaded = 0;
        while let Some(part) = self.parts.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let how = match self.workload.strategy {
                WeightStrategy::Direct | WeightStrategy::Read => None,
                WeightStrategy::Mmap => Some(Mapped::Normal),
                WeightStrategy::MmapRandom => Some(Mapped::Random),
                WeightStrategy::MmapWillneed => Some(Mapped::WillNeed),
                WeightStrategy::MmapPopulate => Some(Mapped::Populate),
            };
            loaded += match how {
                None => self.read(world, *part)?,
                Some(how) => self.copy_tensors(world, part.file, how)?,
            };
            self.end_ns.fetch_max(world.now(), Ordering::Relaxed);
            self.done.fetch_add(1, Ordering::Release);
            if !world.continues() {
                break;
            }
        }
        // All threads end together, so that the CPU time of each is of the whole load.
        world.notify();
        if world.wait(|| self.done.load(Ordering::Acquire) == self.parts.len()) {
            world.phases().end_load(self.end_ns.load(Ordering::Relaxed));
        }
        Ok(loaded)
    }

    fn interface(&self) -> &'static str {
        match self.workload.strategy {
            WeightStrategy::Direct | WeightStrategy::Read => "sync",
            _ => "file_mapping",
        }
    }
}

impl Loading<'_> {
    fn read<'a>(&self, world: &mut impl World<'a>, part: Extent) -> Result<u64, RunError> {
        let mut loaded = 0;
        for piece in pieces(part, self.workload.request_bytes) {
            if !world.continues() {
                break;
            }
            let start_ns = world.now();
            world.read(&[piece])?;
            world.record(Operation::Read, piece.bytes, start_ns);
            loaded += piece.bytes;
        }
        Ok(loaded)
    }

    /// Maps a file and copies its tensors. The advice is a part of the first one's time.
    fn copy_tensors<'a>(&self, world: &mut impl World<'a>, file: usize, how: Mapped) -> Result<u64, RunError> {
        let WeightFile { bytes, tensors, .. } = &self.workload.files[file];
        let (mut loaded, mut start_ns) = (0, world.now());
        world.map(file, how)?;
        for (offset, end) in tensors.iter().zip(tensors[1..].iter().chain([bytes])) {
            let tensor = Extent::new(file, *offset, end - offset);
            for piece in pieces(tensor, self.workload.request_bytes) {
                world.copy_mapped(piece)?;
            }
            world.record(Operation::Read, tensor.bytes, start_ns);
            loaded += tensor.bytes;
            if !world.continues() {
                break;
            }
            start_ns = world.now();
        }
        Ok(loaded)
    }
}
