//! A graph in compressed sparse rows: the index in memory, adjacency lists on the target.
//!
//! On the target: a page with the header, the index (where each list starts, one `u64` a vertex and one more), the numbers
//! of outgoing edges (one `u32` a vertex, only of lists `in`), and the lists themselves (one `u32` a neighbour, ascending), each part
//! on pages of its own. All numbers are little-endian. The header is written last: without it there is no graph.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use iosonde_protocol::Lists;
use serde::{Deserialize, Serialize};

/// Unit in which lists are read and cached; every direct-I/O alignment in use divides it.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Bytes of a neighbour.
pub(crate) const EDGE_BYTES: u64 = 4;
/// Neighbours on a page.
pub(crate) const PAGE_EDGES: u64 = PAGE_BYTES / EDGE_BYTES;

const MAGIC: &[u8; 16] = b"iosonde-graph-1\n";
/// Bytes read or written at once.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// Description of a graph in its header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Source and lists, as text.
    pub identity: String,
    pub vertices: u64,
    pub edges: u64,
    pub source_edges: u64,
    pub self_loops: u64,
    pub duplicates: u64,
    pub has_out_degrees: bool,
    pub index_checksum: u64,
    pub adjacency_checksum: u64,
    pub build_ns: u64,
}

/// Offsets of the parts of a graph on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    pub index_at: u64,
    pub degrees_at: u64,
    pub adjacency_at: u64,
}

impl Places {
    pub(crate) fn new(vertices: u64, lists: Lists) -> Places {
        let index_at = PAGE_BYTES;
        let degrees_at = index_at + pages_of((vertices + 1) * 8);
        let degrees = if lists == Lists::In { vertices * 4 } else { 0 };
        Places {
            index_at,
            degrees_at,
            adjacency_at: degrees_at + pages_of(degrees),
        }
    }

    /// End of a graph with this many edges.
    pub(crate) fn end(&self, edges: u64) -> u64 {
        self.adjacency_at + pages_of(edges * EDGE_BYTES)
    }
}

/// Bytes in whole pages.
pub(crate) fn pages_of(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// A checksum over whole words of 8 bytes, in any pieces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checksum(u64);

impl Checksum {
    pub(crate) fn new() -> Checksum {
        Checksum(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len().is_multiple_of(8), "whole words");
        for word in bytes.as_chunks::<8>().0 {
            self.word(u64::from_le_bytes(*word));
        }
    }

    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
    }

    pub(crate) fn value(self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

impl Header {
    /// The header of a graph on a file, if there is one.
    pub(crate) fn read(file: &File) -> Option<Header> {
        let mut page = vec![0; PAGE_BYTES as usize];
        file.read_exact_at(&mut page, 0).ok()?;
        let text = page.strip_prefix(MAGIC)?;
        let length = u64::from_le_bytes(*text.first_chunk::<8>()?) as usize;
        let sum = u64::from_le_bytes(*text[8..].first_chunk::<8>()?);
        let padded = text.get(16..16_usize.checked_add(length.checked_next_multiple_of(8)?)?)?;
        let mut checksum = Checksum::new();
        checksum.update(padded);
        if checksum.value() != sum {
            return None;
        }
        serde_json::from_slice(&padded[..length]).ok()
    }

    /// Writes it; the graph exists from now on.
    pub(crate) fn write(&self, file: &File) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        let length = text.len() as u64;
        text.resize(text.len().next_multiple_of(8), b' ');
        let mut checksum = Checksum::new();
        checksum.update(&text);
        let mut page = MAGIC.to_vec();
        page.extend_from_slice(&length.to_le_bytes());
        page.extend_from_slice(&checksum.value().to_le_bytes());
        page.extend_from_slice(&text);
        if page.len() > PAGE_BYTES as usize {
            return Err(io::Error::other("the path of the edge list is too long"));
        }
        page.resize(PAGE_BYTES as usize, 0);
        file.write_all_at(&page, 0)?;
        file.sync_all()
    }

    /// Makes the header of an earlier graph invalid, so that a graph that was not completed is none.
    pub(crate) fn clear(file: &File) -> io::Result<()> {
        file.write_all_at(&[0; PAGE_BYTES as usize], 0)?;
        file.sync_all()
    }
}

/// A graph: its index, and where its lists are.
pub(crate) struct Csr {
    pub header: Header,
    pub adjacency_at: u64,
    /// Start of each vertex' list, in edges; the last is the end of the last list.
    offsets: Vec<u64>,
    /// Outgoing edges of each vertex, where lists are of incoming ones.
    out_degrees: Option<Vec<u32>>,
}

/// The index on the target is not what was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the index has the wrong checksum")]
    Damaged,
}

impl Csr {
    /// Reads the index of the graph that a header describes.
    pub(crate) fn read(file: &File, header: Header, lists: Lists) -> Result<Csr, Unreadable> {
        let places = Places::new(header.vertices, lists);
        let mut checksum = Checksum::new();
        let mut offsets = Vec::with_capacity(header.vertices as usize + 1);
        let index_bytes = pages_of((header.vertices + 1) * 8);
        each_chunk(file, places.index_at..places.index_at + index_bytes, |chunk| {
            checksum.update(chunk);
            offsets.extend(chunk.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
        })?;
        offsets.truncate(header.vertices as usize + 1);
        let mut degrees = Vec::new();
        each_chunk(file, places.degrees_at..places.adjacency_at, |chunk| {
            checksum.update(chunk);
            degrees.extend(chunk.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)));
        })?;
        degrees.truncate(header.vertices as usize);
        let is_ascending = offsets.is_sorted() && offsets.last() == Some(&header.edges);
        if checksum.value() != header.index_checksum || !is_ascending {
            return Err(Unreadable::Damaged);
        }
        Ok(Csr {
            adjacency_at: places.adjacency_at,
            offsets,
            out_degrees: header.has_out_degrees.then_some(degrees),
            header,
        })
    }

    /// A graph without lists.
    #[cfg(test)]
    pub(crate) fn of_offsets(header: Header, offsets: Vec<u64>) -> Csr {
        Csr {
            adjacency_at: 0,
            offsets,
            out_degrees: None,
            header,
        }
    }

    pub(crate) fn vertices(&self) -> u32 {
        (self.offsets.len() - 1) as u32
    }

    pub(crate) fn edges(&self) -> u64 {
        self.header.edges
    }

    /// The edges of a vertex, by their numbers.
    #[inline]
    pub(crate) fn list(&self, vertex: u32) -> Range<u64> {
        self.offsets[vertex as usize]..self.offsets[vertex as usize + 1]
    }

    #[inline]
    pub(crate) fn degree(&self, vertex: u32) -> u64 {
        let list = self.list(vertex);
        list.end - list.start
    }

    /// Outgoing edges of a vertex.
    #[inline]
    pub(crate) fn out_degree(&self, vertex: u32) -> u64 {
        match &self.out_degrees {
            Some(degrees) => u64::from(degrees[vertex as usize]),
            None => self.degree(vertex),
        }
    }

    /// The first vertex from `from` that has edges; `end` if none before it has.
    #[inline]
    pub(crate) fn next_connected(&self, mut from: u32, end: u32) -> u32 {
        while from < end && self.offsets[from as usize] == self.offsets[from as usize + 1] {
            from += 1;
        }
        from
    }

    /// Divides all vertices into ranges with about as many edges each.
    pub(crate) fn shares(&self, parts: u32) -> Vec<Range<u32>> {
        let edges = u128::from(self.edges());
        let boundary = |part: u32| match part == parts {
            true => self.vertices(),
            false => {
                let before = (edges * u128::from(part) / u128::from(parts)) as u64;
                self.offsets[1..].partition_point(|end| *end <= before) as u32
            }
        };
        (0..parts)
            .map(|part| boundary(part).min(self.vertices())..boundary(part + 1))
            .collect()
    }

    /// Bytes of memory of the index.
    pub(crate) fn index_bytes(&self) -> u64 {
        let degrees = self.out_degrees.as_ref().map_or(0, |degrees| degrees.len() * 4);
        (self.offsets.len() * 8 + degrees) as u64
    }
}

/// Reads a part of a file, chunk by chunk.
pub(crate) fn each_chunk(file: &File, part: Range<u64>, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = part.start;
    while at < part.end {
        let bytes = (part.end - at).min(CHUNK_BYTES as u64) as usize;
        file.read_exact_at(&mut chunk[..bytes], at)?;
        take(&chunk[..bytes]);
        at += bytes as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::csr_of_degrees;

    #[test]
    fn shares_cover_all_vertices_and_a_header_is_read_back() {
        let csr = csr_of_degrees(&[5, 0, 0, 100, 5, 5, 5, 80, 0, 0]);
        for parts in 1..=12 {
            let shares = csr.shares(parts);
            assert_eq!((shares[0].start, shares.last().unwrap().end), (0, 10));
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start), "{shares:?}");
        }
        assert_eq!(csr.shares(2), [0..3, 3..10]);
        let file = tempfile::tempfile().unwrap();
        let header = csr_of_degrees(&[1, 2]).header;
        header.write(&file).unwrap();
        assert_eq!(Header::read(&file), Some(header));
        file.write_all_at(b"9", 60).unwrap();
        assert_eq!(Header::read(&file), None);
        Header::clear(&file).unwrap();
        assert_eq!(Header::read(&file), None);
    }
}
