//! Common parts of the tests of several modules.

use crate::csr::{Csr, Header};

pub(crate) fn csr_of_degrees(degrees: &[u64]) -> Csr {
    let mut offsets = vec![0];
    offsets.extend(degrees.iter().scan(0, |end, degree| {
        *end += degree;
        Some(*end)
    }));
    let header = Header {
        identity: String::new(),
        vertices: degrees.len() as u64,
        edges: degrees.iter().sum(),
        source_edges: 0,
        self_loops: 0,
        duplicates: 0,
        has_out_degrees: false,
        index_checksum: 0,
        adjacency_checksum: 0,
        build_ns: 0,
    };
    Csr::of_offsets(header, offsets)
}
