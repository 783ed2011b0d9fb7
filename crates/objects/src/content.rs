//! Contents of objects, a function of content seed and object number, so that every read can be compared in full.
//!
//! An object starts with a mark, the seed and its number. The rest is a part of one pool of random bytes, from an offset that
//! depends on the number: it cannot be compressed, and making and comparing it costs no more than copying memory. An
//! object that is overwritten keeps its contents, so a lost overwrite is not noticed; a lost, mixed-up, torn or corrupted
//! object is.

use iosonde_harness::load::Rng;

const MARK: u64 = u64::from_le_bytes(*b"iosonde\x01");
const HEAD: usize = 24;
/// Number of offsets into the pool.
const OFFSETS: u64 = 4096;

/// Smallest object.
pub(crate) const SMALLEST: u64 = 64;

/// The contents of all objects of a run.
pub(crate) struct Contents {
    seed: u64,
    object_bytes: usize,
    pool: Vec<u8>,
}

impl Contents {
    pub(crate) fn new(seed: u64, object_bytes: usize) -> Contents {
        let mut pool = vec![0; object_bytes + OFFSETS as usize];
        Rng::new(seed, &[MARK]).fill(&mut pool);
        Contents {
            seed,
            object_bytes,
            pool,
        }
    }

    /// Writes the contents of an object into a buffer of its size.
    pub(crate) fn fill(&self, object: u64, buffer: &mut [u8]) {
        let (head, body) = buffer.split_at_mut(HEAD);
        head.copy_from_slice(&self.head(object));
        body.copy_from_slice(self.body(object));
    }

    /// Returns true if a buffer has the contents of an object.
    pub(crate) fn is_correct(&self, object: u64, buffer: &[u8]) -> bool {
        buffer.len() == self.object_bytes && buffer[..HEAD] == self.head(object) && buffer[HEAD..] == *self.body(object)
    }

    fn head(&self, object: u64) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MARK.to_le_bytes());
        head[8..16].copy_from_slice(&self.seed.to_le_bytes());
        head[16..].copy_from_slice(&object.to_le_bytes());
        head
    }

    fn body(&self, object: u64) -> &[u8] {
        let offset = (object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % OFFSETS;
        &self.pool[offset as usize..][..self.object_bytes - HEAD]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_its_own_contents_and_no_others() {
        let contents = Contents::new(1, 4096);
        let mut buffer = vec![0; 4096];
        contents.fill(7, &mut buffer);
        assert!(contents.is_correct(7, &buffer));
        assert!(!contents.is_correct(8, &buffer), "an object under the name of another");
        assert!(!contents.is_correct(7, &buffer[..4095]), "a truncated object");
        let of_another_run = Contents::new(2, 4096);
        assert!(!of_another_run.is_correct(7, &buffer));
        for wrong in [0, 30, 4095] {
            buffer[wrong] ^= 1;
            assert!(!contents.is_correct(7, &buffer), "a flipped bit in byte {wrong}");
            buffer[wrong] ^= 1;
        }
        assert!(contents.is_correct(7, &buffer));
    }
}
