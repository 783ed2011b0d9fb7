//! Writes a graph: edges are sorted externally, by distribution, within a memory limit.
//!
//! The source is gone through twice. First edges are counted by vertex, which divides the vertices into parts whose edges
//! fit into memory. Then every edge is written to the sort area of its part, which follows the area of the graph.
//! At last each part is read, sorted, and written to its place without duplicates. The header comes last.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use iosonde_block::available_memory_bytes;
use iosonde_harness::{Code, RunError};
use iosonde_protocol::{Lists, Target};

use crate::csr::{CHUNK_BYTES, Checksum, EDGE_BYTES, Header, PAGE_BYTES, Places, pages_of};
use crate::source::{Edge, Edges};

/// Bytes of an edge in the sort area: its vertex within the part, and the neighbour.
const RECORD_BYTES: u64 = 8;
/// Largest buffer of a part.
const BUFFER_BYTES_MAX: u64 = 1 << 20;
/// Memory of a vertex while the graph is written: its count, and its outgoing edges.
const VERTEX_BYTES: u64 = 12;
const MEMORY_SHARE: f64 = 0.8;

/// Inputs of a build.
pub(crate) struct Builder<'a> {
    pub file: &'a File,
    pub path: &'a Path,
    pub target: &'a Target,
    pub edges: &'a Edges<'a>,
    pub lists: Lists,
    pub identity: String,
    pub sort_memory_bytes: u64,
}

/// Receives the bytes written so far, and returns whether to continue.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64) -> bool;

/// The edges of the source, counted.
struct Counted {
    /// Of each vertex its stored edges; after writing, where its list starts.
    counts: Vec<u64>,
    source_edges: u64,
    self_loops: u64,
}

/// Some vertices whose edges fit into memory, and their place in the sort area.
struct Part {
    vertices: Range<u32>,
    at: u64,
    records: u64,
}

impl Builder<'_> {
    /// Writes the graph; nothing if it was stopped. The header's build time is the caller's to add.
    pub(crate) fn build(&self, progress: Progress<'_>) -> Result<Option<Header>, RunError> {
        let done = self.write(progress);
        if !matches!(done, Ok(Some(_))) && matches!(self.target, Target::File { .. }) {
            // The written part is of no use and occupies space; the file stays, because others know it.
            let _ = self.file.set_len(0);
        }
        done
    }

    fn write(&self, progress: Progress<'_>) -> Result<Option<Header>, RunError> {
        self.in_io("clear", Header::clear(self.file))?;
        let Some(mut counted) = self.count(progress)? else {
            return Ok(None);
        };
        let vertices = counted.counts.len() as u64;
        let places = Places::new(vertices, self.lists);
        let parts = self.parts(&counted.counts, &places)?;
        self.check_space(&parts, &places)?;
        if !self.distribute(&parts, progress)? {
            return Ok(None);
        }
        let Some(merged) = self.merge(&parts, &places, &mut counted.counts, progress)? else {
            return Ok(None);
        };
        let index_checksum = self.write_index(&places, &counted.counts, &merged)?;
        let end = places.end(merged.edges);
        if matches!(self.target, Target::File { .. }) {
            self.in_io("truncate", self.file.set_len(end))?;
        }
        self.in_io("sync", self.file.sync_all())?;
        Ok(Some(Header {
            identity: self.identity.clone(),
            vertices,
            edges: merged.edges,
            source_edges: counted.source_edges,
            self_loops: counted.self_loops,
            duplicates: merged.duplicates,
            has_out_degrees: self.lists == Lists::In,
            index_checksum,
            adjacency_checksum: merged.checksum,
            build_ns: 0,
        }))
    }

    /// First pass: stored edges by vertex.
    fn count(&self, progress: Progress<'_>) -> Result<Option<Counted>, RunError> {
        let known = self.edges.vertices().unwrap_or(0);
        check_memory(known)?;
        let mut counted = Counted {
            counts: vec![0; known as usize],
            source_edges: 0,
            self_loops: 0,
        };
        let mut continues = true;
        self.edges
            .each(&mut |batch| {
                continues = continues && progress(0);
                if !continues {
                    return Err(stopped());
                }
                counted.add(batch, self.lists)
            })
            .or_else(|error| if continues { Err(error) } else { Ok(()) })?;
        if !continues {
            return Ok(None);
        }
        if counted.counts.iter().all(|count| *count == 0) {
            return Err(RunError::new(
                Code::InvalidInput,
                "the graph has no edges between different vertices",
                "check the edge list",
            )
            .at("`graph.source`"));
        }
        Ok(Some(counted))
    }

    /// Divides the vertices so that the edges of a part fit into memory.
    fn parts(&self, counts: &[u64], places: &Places) -> Result<Vec<Part>, RunError> {
        let fitting = self.sort_memory_bytes / RECORD_BYTES;
        let total: u64 = counts.iter().sum();
        let mut at = places.end(total);
        let mut parts: Vec<Part> = Vec::new();
        let (mut first, mut records) = (0, 0);
        for vertex in 0..=counts.len() {
            let count = counts.get(vertex).copied();
            if count.is_some_and(|count| count > fitting) {
                let needed = counts.iter().max().unwrap_or(&0) * RECORD_BYTES;
                return Err(RunError::new(
                    Code::Unsupported,
                    format!(
                        "sorting the edges of vertex {vertex} alone needs more than {} bytes",
                        self.sort_memory_bytes
                    ),
                    format!("raise the memory for sorting to {needed} bytes or more"),
                )
                .at("`sort_memory_bytes`"));
            }
            if records > 0 && count.is_none_or(|count| records + count > fitting) {
                parts.push(Part {
                    vertices: first as u32..vertex as u32,
                    at,
                    records,
                });
                at += pages_of(records * RECORD_BYTES);
                (first, records) = (vertex, 0);
            }
            records += count.unwrap_or(0);
        }
        // Vertices without edges at the end belong to no part; they have no lists to write.
        Ok(parts)
    }

    /// Fails early, with what would be needed.
    fn check_space(&self, parts: &[Part], places: &Places) -> Result<(), RunError> {
        let last = parts.last().expect("the graph has edges");
        let needed = last.at + pages_of(last.records * RECORD_BYTES);
        let no_space = |room: u64, place: &str| {
            let graph = places.end(parts.iter().map(|part| part.records).sum());
            RunError::new(
                Code::NoSpace,
                format!(
                    "the graph needs {needed} bytes of `{}`, {graph} of them permanently, and {place} has {room}",
                    self.path.display()
                ),
                "use a smaller graph (`scale`, `edge_factor`) or a larger target",
            )
            .at("phase `layout`")
        };
        match self.target {
            Target::Device { size_bytes, .. } if needed > *size_bytes => Err(no_space(*size_bytes, "the device")),
            Target::File { .. } => {
                let found = self.in_io("examine", rustix::fs::fstatvfs(self.file).map_err(io::Error::from))?;
                let kept = self.in_io("examine", self.file.metadata())?.len();
                let free = found.f_bavail * found.f_frsize + kept;
                if needed > free {
                    Err(no_space(free, "its file system"))
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    /// Second pass: every edge to the sort area of its part. Whether it was completed.
    fn distribute(&self, parts: &[Part], progress: Progress<'_>) -> Result<bool, RunError> {
        let buffer_bytes =
            (self.sort_memory_bytes / parts.len() as u64).min(BUFFER_BYTES_MAX) / PAGE_BYTES * PAGE_BYTES;
        if buffer_bytes == 0 {
            return Err(RunError::new(
                Code::Unsupported,
                format!(
                    "{} bytes of memory are too little to sort the edges in {} parts",
                    self.sort_memory_bytes,
                    parts.len()
                ),
                "raise the memory for sorting",
            )
            .at("`sort_memory_bytes`"));
        }
        let mut area = SortArea {
            builder: self,
            parts,
            buffers: parts
                .iter()
                .map(|_| Vec::with_capacity(buffer_bytes as usize))
                .collect(),
            written: vec![0; parts.len()],
            written_bytes: 0,
        };
        let mut continues = true;
        self.edges
            .each(&mut |batch| {
                continues = continues && progress(area.written_bytes);
                if !continues {
                    return Err(stopped());
                }
                area.add(batch)
            })
            .or_else(|error| if continues { Err(error) } else { Ok(()) })?;
        if continues {
            area.finish()?;
        }
        Ok(continues)
    }

    /// Sorts each part and writes its lists. `counts` become the starts of lists.
    fn merge(
        &self,
        parts: &[Part],
        places: &Places,
        counts: &mut Vec<u64>,
        progress: Progress<'_>,
    ) -> Result<Option<Merged>, RunError> {
        let mut merged = Merged::new(places, counts.len(), self.lists);
        counts.fill(0);
        let before: u64 = parts.iter().map(|part| part.records * RECORD_BYTES).sum();
        for part in parts {
            if !progress(before + merged.edges * EDGE_BYTES) {
                return Ok(None);
            }
            let mut records = self.in_io("read", read_records(self.file, part))?;
            records.sort_unstable();
            let mut previous = None;
            for record in records {
                if previous.replace(record) == Some(record) {
                    merged.duplicates += 1;
                    continue;
                }
                let vertex = part.vertices.start + (record >> 32) as u32;
                counts[vertex as usize] += 1;
                self.in_io("write", merged.push(record as u32, self.file))?;
            }
        }
        self.in_io("write", merged.finish(self.file))?;
        let mut start = 0;
        for count in counts.iter_mut() {
            start += std::mem::replace(count, start);
        }
        counts.push(start);
        Ok(Some(merged))
    }

    /// Writes where lists start, and the numbers of outgoing edges; returns their checksum.
    fn write_index(&self, places: &Places, starts: &[u64], merged: &Merged) -> Result<u64, RunError> {
        let mut writer = Writer::new(places.index_at);
        let mut write = |bytes: &[u8]| writer.push(bytes, self.file);
        self.in_io("write", starts.iter().try_for_each(|start| write(&start.to_le_bytes())))?;
        self.in_io("write", writer.pad(self.file))?;
        debug_assert_eq!(writer.at(), places.degrees_at, "the index has its place");
        if let Some(degrees) = &merged.out_degrees {
            let mut write = |bytes: &[u8]| writer.push(bytes, self.file);
            self.in_io(
                "write",
                degrees.iter().try_for_each(|degree| write(&degree.to_le_bytes())),
            )?;
            self.in_io("write", writer.pad(self.file))?;
        }
        self.in_io("write", writer.flush(self.file))?;
        Ok(writer.checksum.value())
    }

    fn in_io<T>(&self, action: &str, result: io::Result<T>) -> Result<T, RunError> {
        result.map_err(|error| RunError::io(action, self.path, &error).at("phase `layout`"))
    }
}

impl Counted {
    fn add(&mut self, batch: &[Edge], lists: Lists) -> Result<(), RunError> {
        for &(from, to) in batch {
            let largest = from.max(to) as usize;
            if largest >= self.counts.len() {
                check_memory(largest as u64 + 1)?;
                self.counts.resize(largest + 1, 0);
            }
            if from == to {
                self.self_loops += 1;
                continue;
            }
            if lists != Lists::In {
                self.counts[from as usize] += 1;
            }
            if lists != Lists::Out {
                self.counts[to as usize] += 1;
            }
        }
        self.source_edges += batch.len() as u64;
        Ok(())
    }
}

fn check_memory(vertices: u64) -> Result<(), RunError> {
    let needed = require_memory(&format!("a graph of {vertices} vertices"), vertices * VERTEX_BYTES);
    needed.map_err(|error| error.at("phase `layout`"))
}

/// Refuses what takes more than its share of the free memory.
pub(crate) fn require_memory(what: &str, needed: u64) -> Result<(), RunError> {
    let available = available_memory_bytes();
    if needed as f64 <= available as f64 * MEMORY_SHARE {
        return Ok(());
    }
    Err(RunError::unsupported(
        format!("{what} needs {needed} bytes of memory and {available} are available"),
        "use a smaller graph, fewer jobs, a smaller page cache or smaller requests",
    ))
}

/// Ends a pass over the source that was stopped; never reported.
fn stopped() -> RunError {
    RunError::internal("the run was stopped")
}

/// Edges on their way to the sort area.
struct SortArea<'a> {
    builder: &'a Builder<'a>,
    parts: &'a [Part],
    buffers: Vec<Vec<u8>>,
    /// Bytes written of each part.
    written: Vec<u64>,
    written_bytes: u64,
}

impl SortArea<'_> {
    fn add(&mut self, batch: &[Edge]) -> Result<(), RunError> {
        let lists = self.builder.lists;
        for &(from, to) in batch.iter().filter(|(from, to)| from != to) {
            if lists != Lists::In {
                self.push(from, to)?;
            }
            if lists != Lists::Out {
                self.push(to, from)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, vertex: u32, neighbour: u32) -> Result<(), RunError> {
        let number = self.parts.partition_point(|part| part.vertices.end <= vertex);
        let Some(part) = self.parts.get(number) else {
            return Err(changed(self.builder.path));
        };
        let record = u64::from(vertex - part.vertices.start) << 32 | u64::from(neighbour);
        let buffer = &mut self.buffers[number];
        buffer.extend_from_slice(&record.to_le_bytes());
        if buffer.len() == buffer.capacity() {
            self.write(number)?;
        }
        Ok(())
    }

    fn write(&mut self, number: usize) -> Result<(), RunError> {
        let (part, buffer) = (&self.parts[number], &mut self.buffers[number]);
        let bytes = buffer.len() as u64;
        if self.written[number] + bytes > part.records * RECORD_BYTES {
            return Err(changed(self.builder.path));
        }
        let written = self.builder.file.write_all_at(buffer, part.at + self.written[number]);
        self.builder.in_io("write", written)?;
        self.written[number] += bytes;
        self.written_bytes += bytes;
        buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<(), RunError> {
        (0..self.parts.len()).try_for_each(|number| self.write(number))?;
        let is_complete = |(part, written): (&Part, &u64)| part.records * RECORD_BYTES == *written;
        match self.parts.iter().zip(&self.written).all(is_complete) {
            true => Ok(()),
            false => Err(changed(self.builder.path)),
        }
    }
}

fn changed(path: &Path) -> RunError {
    RunError::new(
        Code::InvalidInput,
        format!(
            "the edge list changed while the graph was written to `{}`",
            path.display()
        ),
        "import a file that nothing writes to",
    )
    .at("phase `layout`")
}

fn read_records(file: &File, part: &Part) -> io::Result<Vec<u64>> {
    let mut records = Vec::with_capacity(part.records as usize);
    crate::csr::each_chunk(file, part.at..part.at + part.records * RECORD_BYTES, |chunk| {
        records.extend(chunk.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
    })?;
    Ok(records)
}

/// The lists as far as they are written.
struct Merged {
    edges: u64,
    duplicates: u64,
    out_degrees: Option<Vec<u32>>,
    writer: Writer,
    checksum: u64,
}

impl Merged {
    fn new(places: &Places, vertices: usize, lists: Lists) -> Merged {
        Merged {
            edges: 0,
            duplicates: 0,
            out_degrees: (lists == Lists::In).then(|| vec![0; vertices]),
            writer: Writer::new(places.adjacency_at),
            checksum: 0,
        }
    }

    fn push(&mut self, neighbour: u32, file: &File) -> io::Result<()> {
        self.edges += 1;
        if let Some(degrees) = &mut self.out_degrees {
            degrees[neighbour as usize] += 1;
        }
        self.writer.push(&neighbour.to_le_bytes(), file)
    }

    fn finish(&mut self, file: &File) -> io::Result<()> {
        self.writer.pad(file)?;
        self.writer.flush(file)?;
        self.checksum = self.writer.checksum.value();
        Ok(())
    }
}

/// Writes one part of the target from its start to its end.
struct Writer {
    flushed_at: u64,
    buffer: Vec<u8>,
    checksum: Checksum,
}

impl Writer {
    fn new(at: u64) -> Writer {
        Writer {
            flushed_at: at,
            buffer: Vec::with_capacity(CHUNK_BYTES),
            checksum: Checksum::new(),
        }
    }

    fn at(&self) -> u64 {
        self.flushed_at + self.buffer.len() as u64
    }

    #[inline]
    fn push(&mut self, bytes: &[u8], file: &File) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK_BYTES {
            self.flush(file)
        } else {
            Ok(())
        }
    }

    /// Fills the last page with zeros.
    fn pad(&mut self, file: &File) -> io::Result<()> {
        let length = self.buffer.len().next_multiple_of(PAGE_BYTES as usize);
        self.buffer.resize(length, 0);
        if length >= CHUNK_BYTES {
            self.flush(file)
        } else {
            Ok(())
        }
    }

    fn flush(&mut self, file: &File) -> io::Result<()> {
        self.checksum.update(&self.buffer);
        file.write_all_at(&self.buffer, self.flushed_at)?;
        self.flushed_at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use iosonde_harness::target::Targets;
    use iosonde_protocol::EdgeSource;

    use super::*;

    fn build(source: &EdgeSource, target: &Target) -> Result<bool, RunError> {
        let targets = Targets::default();
        let builder = Builder {
            file: &tempfile::tempfile().unwrap(),
            path: Path::new("graph"),
            target,
            edges: &Edges::open(source, &targets).unwrap(),
            lists: Lists::Out,
            identity: String::new(),
            sort_memory_bytes: 1 << 20,
        };
        builder.build(&mut |_| true).map(|built| built.is_some())
    }

    #[test]
    fn a_graph_larger_than_the_device_is_refused_with_what_it_needs() {
        let source = EdgeSource::Rmat {
            scale: 10,
            edge_factor: 16,
            a: 0.57,
            b: 0.19,
            c: 0.19,
            seed: 1,
        };
        let on_device = |size_bytes: u64| {
            let target = Target::Device {
                path: "/dev/x".into(),
                size_bytes,
                beside: Vec::new(),
                is_claimed: true,
            };
            build(&source, &target)
        };
        let failure = on_device(100_000).unwrap_err().to_failure();
        assert_eq!([&failure.code[..], &failure.context], ["no_space", "phase `layout`"]);
        assert!(failure.message.contains("the device has 100000"), "{}", failure.message);
        assert_eq!(on_device(1 << 20), Ok(true));
    }

    #[test]
    fn a_list_that_does_not_fit_into_the_sort_memory_is_refused_with_what_it_needs() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("star");
        let star: String = (1..150_000).map(|leaf| format!("0 {leaf}\n")).collect();
        std::fs::write(&list, star).unwrap();
        let source = EdgeSource::EdgeList {
            path: list.display().to_string(),
            format: iosonde_protocol::EdgeFormat::Text,
        };
        let target = Target::File {
            path: "graph".into(),
            size_bytes: 1 << 30,
        };
        let failure = build(&source, &target).unwrap_err().to_failure();
        assert_eq!(failure.context, "`sort_memory_bytes`");
        assert!(failure.hint.contains("1199992"), "{}", failure.hint);
    }
}
