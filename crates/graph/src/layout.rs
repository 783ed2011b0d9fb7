//! Brings the graph to the target, unless it is there.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use iosonde_harness::target::{OFlags, Targets};
use iosonde_harness::{Code, RunError};
use iosonde_protocol::{GraphWorkload, Layout, LayoutResult, Target};

use crate::build::{Builder, Progress};
use crate::csr::{Csr, Header, PAGE_BYTES, Places, Unreadable};
use crate::source::Edges;

/// A graph on the target.
pub(crate) struct Graph {
    pub csr: Csr,
    /// Its file or device, opened for direct reads.
    pub file: File,
    pub layout: LayoutResult,
    /// True if it existed already.
    pub was_kept: bool,
}

/// The path of the target.
pub(crate) fn path(target: &Target) -> &Path {
    match target {
        Target::File { path, .. } | Target::Device { path, .. } => Path::new(path),
        _ => unreachable!("the spec was checked"),
    }
}

/// Opens the graph and writes it where it is missing; nothing if the run was stopped meanwhile. `now_ns` reads the clock.
pub(crate) fn lay_out(
    workload: &GraphWorkload,
    targets: &Targets,
    now_ns: &dyn Fn() -> u64,
    progress: Progress<'_>,
) -> Result<Option<Graph>, RunError> {
    let path = path(&workload.target);
    let file = open(workload, targets, path)?;
    let edges = Edges::open(&workload.graph.source, targets)?;
    let identity = identity(workload, &edges);
    let found = Header::read(&file).filter(|header| header.identity == identity);
    let kept = match workload.layout {
        Layout::Always => None,
        Layout::Missing => found.and_then(|header| Csr::read(&file, header, workload.graph.lists).ok()),
        Layout::Never => Some(existing(&file, found, workload, path)?),
    };
    let was_kept = kept.is_some();
    let csr = match kept {
        Some(csr) => csr,
        None => {
            let builder = Builder {
                file: &file,
                path,
                target: &workload.target,
                edges: &edges,
                lists: workload.graph.lists,
                identity,
                sort_memory_bytes: workload.sort_memory_bytes,
            };
            let begin_ns = now_ns();
            let Some(mut header) = builder.build(progress)? else {
                return Ok(None);
            };
            header.build_ns = now_ns() - begin_ns;
            let written = header.write(&file);
            written.map_err(|error| RunError::io("write", path, &error).at("phase `layout`"))?;
            let read = Csr::read(&file, header, workload.graph.lists);
            read.map_err(|error| unreadable(path, error))?
        }
    };
    // Pages in the page cache would have to be written back before direct reads, and are of no use afterwards.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    let end = Places::new(csr.header.vertices, workload.graph.lists).end(csr.edges());
    Ok(Some(Graph {
        layout: LayoutResult {
            written_bytes: if was_kept { 0 } else { end },
            kept_bytes: if was_kept { end } else { 0 },
        },
        file: open_direct(targets, path)?,
        csr,
        was_kept,
    }))
}

/// Contents of the header of the right graph.
fn identity(workload: &GraphWorkload, edges: &Edges<'_>) -> String {
    let graph = serde_json::to_string(&workload.graph).expect("a graph has no keys but text");
    format!("{graph} {}", edges.version())
}

fn existing(file: &File, found: Option<Header>, workload: &GraphWorkload, path: &Path) -> Result<Csr, RunError> {
    let header = found.ok_or_else(|| {
        RunError::new(
            Code::ForeignData,
            format!("`{}` does not have the graph of this run", path.display()),
            "write it with the layout `missing`",
        )
        .at("phase `layout`")
    })?;
    Csr::read(file, header, workload.graph.lists).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, error: Unreadable) -> RunError {
    match error {
        Unreadable::Io(error) => RunError::io("read", path, &error),
        Unreadable::Damaged => RunError::new(
            Code::ForeignData,
            format!(
                "the index of the graph on `{}` is damaged: it has the wrong checksum",
                path.display()
            ),
            "write the graph again with the layout `always`, and find out what changed it",
        ),
    }
    .at("phase `layout`")
}

fn open(workload: &GraphWorkload, targets: &Targets, path: &Path) -> Result<File, RunError> {
    let is_device = matches!(workload.target, Target::Device { .. });
    let flags = match (workload.layout, is_device) {
        (Layout::Never, _) => OFlags::RDONLY,
        (_, true) => OFlags::RDWR,
        (_, false) => OFlags::RDWR | OFlags::CREATE,
    };
    let failed = |error: &std::io::Error| RunError::io("open", path, error).at("phase `layout`");
    let file = targets.open(path, flags).map_err(|error| failed(&error))?;
    let kind = file.metadata().map_err(|error| failed(&error))?.file_type();
    if kind.is_block_device() != is_device || !(kind.is_file() || is_device) {
        let wanted = if is_device { "a block device" } else { "a regular file" };
        return Err(RunError::invalid(
            format!("`{}` is not {wanted}", path.display()),
            "`target`",
            "check the target's kind and path",
        ));
    }
    Ok(file)
}

/// As fio opens files: each read would update the access time otherwise. Only a file's owner may ask for it.
fn open_direct(targets: &Targets, path: &Path) -> Result<File, RunError> {
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    let opened = targets
        .open(path, flags | OFlags::NOATIME)
        .or_else(|_| targets.open(path, flags));
    let file = opened.map_err(|error| RunError::io("open", path, &error).at("direct I/O"))?;
    let mut page =
        iosonde_block::Buffer::new(PAGE_BYTES).map_err(|error| RunError::io("read", path, &error).at("direct I/O"))?;
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut page, PAGE_BYTES)
        .map_err(|error| RunError::io("read", path, &error).at("direct I/O"))?;
    Ok(file)
}
