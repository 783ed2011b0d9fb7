//! R-MAT graphs (Chakrabarti, Zhan and Faloutsos 2004) with the parameters of Graph500.
//!
//! Each edge is a cell of the adjacency matrix, found by choosing one of four quadrants `scale` times. Numbers of vertices
//! are permuted afterwards, so that they do not depend on degrees. Edges come in chunks with random numbers of their own.

use iosonde_harness::RunError;
use iosonde_harness::load::{Permutation, Rng};

use super::{Edge, Take};

/// Edges that share a stream of random numbers.
const CHUNK_EDGES: u64 = 8_192;

/// Streams of random numbers under the graph's seed.
const OF_EDGES: u64 = 0x6772_0001;
const OF_VERTICES: u64 = 0x6772_0002;

/// A generator of edges.
pub(crate) struct Rmat {
    scale: u32,
    edges: u64,
    /// Quadrants are chosen by 32 random bits below these.
    bounds: [u64; 3],
    seed: u64,
    permutation: Permutation,
}

impl Rmat {
    pub(crate) fn new(scale: u32, edge_factor: u32, quadrants: [f64; 3], seed: u64) -> Rmat {
        let vertices = 1_u64 << scale;
        let [a, b, c] = quadrants;
        let bound = |share: f64| (share * (1_u64 << 32) as f64).round() as u64;
        Rmat {
            scale,
            edges: vertices * u64::from(edge_factor),
            bounds: [bound(a), bound(a + b), bound(a + b + c)],
            seed,
            permutation: Permutation::new(vertices, &mut Rng::new(seed, &[OF_VERTICES])),
        }
    }

    pub(crate) fn vertices(&self) -> u64 {
        1 << self.scale
    }

    pub(crate) fn each(&self, take: Take<'_>) -> Result<(), RunError> {
        let mut chunk = Vec::with_capacity(CHUNK_EDGES as usize);
        for number in 0..self.edges.div_ceil(CHUNK_EDGES) {
            let count = CHUNK_EDGES.min(self.edges - number * CHUNK_EDGES);
            let mut rng = Rng::new(self.seed, &[OF_EDGES, number]);
            chunk.clear();
            chunk.extend((0..count).map(|_| self.edge(&mut rng)));
            take(&chunk)?;
        }
        Ok(())
    }

    fn edge(&self, rng: &mut Rng) -> Edge {
        let (mut row, mut column) = (0_u64, 0_u64);
        let mut bits = 0;
        for level in 0..self.scale {
            // Two choices a random number.
            bits = if level % 2 == 0 { rng.next_u64() } else { bits >> 32 };
            let draw = bits & 0xffff_ffff;
            let [a, b, c] = self.bounds;
            let below = draw >= b;
            let right = (draw >= a && draw < b) || draw >= c;
            row = row << 1 | u64::from(below);
            column = column << 1 | u64::from(right);
        }
        let vertex = |number| self.permutation.apply(number) as u32;
        (vertex(row), vertex(column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH500: [f64; 3] = [0.57, 0.19, 0.19];

    fn all(rmat: &Rmat) -> Vec<Edge> {
        let mut edges = Vec::new();
        rmat.each(&mut |chunk| {
            edges.extend_from_slice(chunk);
            Ok(())
        })
        .unwrap();
        edges
    }

    #[test]
    fn the_same_seed_gives_the_same_edges_and_quadrants_have_their_probabilities() {
        let edges = all(&Rmat::new(10, 16, GRAPH500, 7));
        assert_eq!(edges.len(), 16 << 10);
        assert_eq!(edges, all(&Rmat::new(10, 16, GRAPH500, 7)));
        assert_ne!(edges, all(&Rmat::new(10, 16, GRAPH500, 8)));
        assert!(edges.iter().all(|(from, to)| from.max(to) < &(1 << 10)));
        // Without the permutation, the quadrant of an edge is that of its first choice.
        let rmat = Rmat::new(8, 512, GRAPH500, 1);
        let mut back = vec![0_u32; 1 << 8];
        for number in 0..1_u64 << 8 {
            back[rmat.permutation.apply(number) as usize] = number as u32;
        }
        let edges = all(&rmat);
        for level in 0..8 {
            let mut counts = [0_u32; 4];
            for (from, to) in &edges {
                let row = back[*from as usize] >> (7 - level) & 1;
                let column = back[*to as usize] >> (7 - level) & 1;
                counts[(row * 2 + column) as usize] += 1;
            }
            for (count, expected) in counts.iter().zip([0.57, 0.19, 0.19, 0.05]) {
                let share = f64::from(*count) / edges.len() as f64;
                assert!((share - expected).abs() < 0.01, "level {level}: {share} of {expected}");
            }
        }
    }
}
