//! Payload of writes: incompressible by default, and different in every write.
//!
//! Random bytes are made once for each job, as many as stay in the fastest cache. What a write carries is those bytes
//! XORed with a fresh random key of 64 bytes for each [`BASE_BYTES`] of it. XOR with a key maps random data to random
//! data, so each write is as incompressible as the first; and since every write has keys of its own, two writes share no
//! byte string that a deduplicating or Lempel-Ziv compressor could find. It costs one pass over the buffer at memory
//! speed, where generating new random bytes would cost several (`cargo run --release -p iosonde-block --example
//! data_cost` prints both). Nothing depends on what the buffer held: reads go through the same buffers and may have left
//! zeros there.
//!
//! Compressible data consists of granules of 4 KiB, the first part of each random and the rest zeros: every compressor
//! finds that, from Lempel-Ziv to run-length coding, and every block by itself compresses as well as the whole.
//! Duplicates are one or more whole granules out of a small pool that all jobs of a run share.

use iosonde_harness::load::Rng;
use iosonde_protocol::Payload;

/// Random bytes that all writes of a job are made from; with the buffer's own cache lines they fit a first-level cache.
const BASE_BYTES: usize = 16 << 10;
/// Bytes of the key: a cache line, and a multiple of every vector register.
const KEY_BYTES: usize = 64;
/// Unit of compressibility and duplication: what file systems and devices compare and most of them compress.
pub const GRANULE_BYTES: usize = 4096;
/// Number of distinct duplicates: few, so that nearly all of the requested share are copies, and enough that equal ones are
/// rarely adjacent. Each begins one granule after the other in the pool.
const POOL: usize = 16;
/// The largest duplicate: layout writes so much at a time, and a pool of that size stays in the caches.
pub const DUPLICATE_BYTES_MAX: u64 = 1 << 20;
/// Bytes that zstd spends on a granule besides its random bytes: one match and the header of its literals.
const GRANULE_OVERHEAD_BYTES: f64 = 4.0;
/// Bytes that zstd spends on the seal of a sector (`verify::sector`), most of which follows from the sectors before.
const SEAL_OVERHEAD_BYTES: f64 = 7.1;
const SECTOR_BYTES: usize = 512;
const SEAL_BYTES: usize = 32;
/// Threshold of a random choice that is always met ([`Rng::next_u53`]).
const CERTAIN: f64 = (1_u64 << 53) as f64;

/// Makes the data of one job's writes.
pub struct Filler {
    recipe: Recipe,
    rng: Rng,
    base: Box<[u8]>,
    pool: Vec<u8>,
}

enum Recipe {
    Random,
    Zeros,
    Reducible {
        /// Of each granule; the rest is zeros.
        random_bytes: usize,
        duplicate_below: u64,
        duplicate_bytes: usize,
    },
}

impl Filler {
    /// The data of the job at `path` under the run's seed. `sealed` means that verification will overwrite the first 32
    /// bytes of every sector, which compressible data makes allowance for.
    pub fn new(payload: Payload, sealed: bool, seed: u64, path: &[u64]) -> Filler {
        let mut rng = Rng::new(seed, path);
        let mut base = vec![0; BASE_BYTES].into_boxed_slice();
        rng.fill(&mut base);
        let mut filler = Filler {
            recipe: recipe(payload, sealed),
            rng,
            base,
            pool: Vec::new(),
        };
        if let Recipe::Reducible {
            random_bytes,
            duplicate_below: 1..,
            duplicate_bytes,
        } = filler.recipe
        {
            filler.pool = pool(random_bytes, duplicate_bytes, seed);
        }
        filler
    }

    /// The contents of the next write.
    #[inline]
    pub fn fill(&mut self, buffer: &mut [u8]) {
        match self.recipe {
            Recipe::Random => buffer
                .chunks_mut(BASE_BYTES)
                .for_each(|part| fresh(&mut self.rng, &self.base, part)),
            Recipe::Zeros => buffer.fill(0),
            Recipe::Reducible {
                random_bytes,
                duplicate_below,
                duplicate_bytes,
            } => {
                for part in buffer.chunks_mut(duplicate_bytes) {
                    if duplicate_below > 0 && self.rng.next_u53() < duplicate_below {
                        let from = self.rng.below(POOL as u64) as usize * GRANULE_BYTES;
                        part.copy_from_slice(&self.pool[from..from + part.len()]);
                    } else {
                        self.fill_granules(part, random_bytes);
                    }
                }
            }
        }
    }

    fn fill_granules(&mut self, part: &mut [u8], random_bytes: usize) {
        for granule in part.chunks_mut(GRANULE_BYTES) {
            // The last one may be shorter: the same share of it is random.
            let random = random_bytes * granule.len() / GRANULE_BYTES;
            let (random, zeros) = granule.split_at_mut(random);
            fresh(&mut self.rng, &self.base, random);
            zeros.fill(0);
        }
    }
}

/// Random bytes that never were before: the base under a new key. `part` is no longer than the base.
#[inline]
fn fresh(rng: &mut Rng, base: &[u8], part: &mut [u8]) {
    let key: [u64; KEY_BYTES / 8] = std::array::from_fn(|_| rng.next_u64());
    xor(part, base, &key);
}

/// A function of its own, so that the key lies in memory and not in eight registers: only then the compiler makes vector
/// instructions of the loop.
#[inline(never)]
fn xor(part: &mut [u8], base: &[u8], key: &[u64; KEY_BYTES / 8]) {
    let changed = |from: &[u8; KEY_BYTES]| -> [u8; KEY_BYTES] {
        let mut line = [0; KEY_BYTES];
        let (from, _) = from.as_chunks::<8>();
        for (number, word) in line.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = (u64::from_ne_bytes(from[number]) ^ key[number]).to_ne_bytes();
        }
        line
    };
    let (lines, rest) = part.as_chunks_mut::<KEY_BYTES>();
    let (base, _) = base.as_chunks::<KEY_BYTES>();
    for (line, from) in lines.iter_mut().zip(base) {
        *line = changed(from);
    }
    if let (length @ 1.., Some(from)) = (rest.len(), base.get(lines.len())) {
        rest.copy_from_slice(&changed(from)[..length]);
    }
}

fn recipe(payload: Payload, sealed: bool) -> Recipe {
    match payload {
        Payload::Random => Recipe::Random,
        Payload::Zeros => Recipe::Zeros,
        Payload::Reducible {
            compression_ratio,
            duplicate_fraction,
            duplicate_bytes,
        } => Recipe::Reducible {
            random_bytes: random_bytes(compression_ratio, sealed),
            duplicate_below: (duplicate_fraction * CERTAIN) as u64,
            duplicate_bytes: duplicate_bytes as usize,
        },
    }
}

/// Random bytes of a granule that zstd then compresses to `1 / ratio` of its size.
fn random_bytes(ratio: f64, sealed: bool) -> usize {
    if ratio <= 1.0 {
        return GRANULE_BYTES;
    }
    let compressed = GRANULE_BYTES as f64 / ratio - GRANULE_OVERHEAD_BYTES;
    if !sealed {
        return compressed.round() as usize;
    }
    // The seals cost what they cost; what remains is spread over the parts of sectors that are no seal.
    let sectors = GRANULE_BYTES / SECTOR_BYTES;
    let random = (compressed - SEAL_OVERHEAD_BYTES * sectors as f64).max(0.0).round() as usize;
    let room = SECTOR_BYTES - SEAL_BYTES;
    (random + SEAL_BYTES * random.div_ceil(room)).min(GRANULE_BYTES)
}

/// The duplicates: the same for every job of a run.
fn pool(random_bytes: usize, duplicate_bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed, &[0xd0b1e]);
    let mut pool = vec![0; (POOL - 1) * GRANULE_BYTES + duplicate_bytes];
    for granule in pool.chunks_mut(GRANULE_BYTES) {
        rng.fill(&mut granule[..random_bytes]);
    }
    pool
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn filler(payload: Payload) -> Filler {
        Filler::new(payload, false, 7, &[])
    }

    fn reducible(compression_ratio: f64, duplicate_fraction: f64, duplicate_bytes: usize) -> Payload {
        Payload::Reducible {
            compression_ratio,
            duplicate_fraction,
            duplicate_bytes: duplicate_bytes as u64,
        }
    }

    #[test]
    fn no_two_writes_share_a_word_and_each_is_random() {
        let mut filler = filler(Payload::Random);
        let mut buffer = vec![0; 3 * BASE_BYTES];
        let mut seen = HashSet::new();
        for _ in 0..20 {
            // A read through the same buffer may have brought anything, zeros included.
            buffer.fill(0);
            filler.fill(&mut buffer);
            let ones: u32 = buffer.iter().map(|byte| byte.count_ones()).sum();
            let half = buffer.len() as u32 * 4;
            assert!(ones.abs_diff(half) < half / 50, "{ones} of all bits are ones");
            for word in buffer.chunks_exact(8) {
                assert!(seen.insert(word.to_vec()), "a word came twice");
            }
        }
    }

    #[test]
    fn a_write_of_any_length_is_random_to_its_last_byte_or_as_far_as_its_ratio_says() {
        let mut filler = filler(Payload::Random);
        for length in [1, 7, 63, 65, 512, 1000, BASE_BYTES + 5] {
            let mut tails = HashSet::new();
            for _ in 0..100 {
                let mut buffer = vec![0; length];
                filler.fill(&mut buffer);
                tails.insert(buffer[length - 1]);
            }
            assert!(tails.len() > 50, "{} values of the last of {length}", tails.len());
        }
        for ratio in [1.5, 2.0, 8.0, 32.0] {
            let mut buffer = vec![9; 64 * GRANULE_BYTES];
            self::filler(reducible(ratio, 0.0, GRANULE_BYTES)).fill(&mut buffer);
            for granule in buffer.chunks(GRANULE_BYTES) {
                let random = 4096 - granule.iter().rev().take_while(|byte| **byte == 0).count();
                assert!((random as f64 - 4096.0 / ratio).abs() <= 8.0, "{random} at {ratio}");
            }
        }
        let mut buffer = vec![9; 4096];
        self::filler(Payload::Zeros).fill(&mut buffer);
        assert_eq!(buffer, vec![0; 4096]);
    }

    #[test]
    fn the_share_of_duplicates_is_as_asked_for_and_the_same_for_every_job() {
        for bytes in [GRANULE_BYTES, 16 * GRANULE_BYTES] {
            let mut parts = Vec::new();
            for job in 0..2 {
                let mut filler = Filler::new(reducible(1.0, 0.3, bytes), false, 7, &[job]);
                let mut buffer = vec![0; 5_000 * bytes];
                filler.fill(&mut buffer);
                parts.extend(buffer.chunks(bytes).map(<[u8]>::to_vec));
            }
            let distinct: HashSet<_> = parts.iter().collect();
            let duplicates = 1.0 - distinct.len() as f64 / parts.len() as f64;
            assert!(
                (duplicates - 0.3).abs() < 0.015,
                "{duplicates} of {bytes} B are duplicates"
            );
        }
    }

    #[test]
    fn a_duplicate_is_a_whole_io_up_to_its_size_without_repetition_inside() {
        let mut filler = filler(reducible(1.0, 1.0, DUPLICATE_BYTES_MAX as usize));
        let mut seen = HashSet::new();
        for length in [DUPLICATE_BYTES_MAX as usize, GRANULE_BYTES] {
            for _ in 0..10 * POOL {
                let mut buffer = vec![0; length];
                filler.fill(&mut buffer);
                let granules: HashSet<_> = buffer.chunks(GRANULE_BYTES).collect();
                assert_eq!(granules.len(), length / GRANULE_BYTES);
                seen.insert(buffer);
            }
        }
        assert_eq!(seen.len(), 2 * POOL);
    }
}
