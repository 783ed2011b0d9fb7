//! CRC-32C (Castagnoli) of sectors, four at a time.
//!
//! The CPU's instruction (SSE4.2) takes 8 bytes each cycle but answers after three, so one sector after the other would
//! wait two cycles of three. Sectors have a checksum each, so four of them go side by side and nothing has to be
//! combined. The crates at hand are made for long buffers: `crc32c` runs a piece of 512 bytes as one chain (three times
//! slower here), `crc-fast` folds it through vectors with a set-up that such a piece does not repay. Elsewhere a table
//! does it, correctly and slowly.

/// Bytes of a sector, which no device divides further: the unit of every seal.
pub const SECTOR_BYTES: usize = 512;
/// A sector's bytes.
pub type Sector = [u8; SECTOR_BYTES];

/// Bytes of a sector that its checksum covers: all but the checksum itself, which comes first.
const COVERED_FROM: usize = 4;
/// Double words of a sector.
#[cfg(target_arch = "x86_64")]
const WORDS: usize = SECTOR_BYTES / 8;

/// Computes checksums by the best means of this CPU.
#[derive(Debug, Clone, Copy)]
pub struct Crc {
    #[cfg(target_arch = "x86_64")]
    has_instruction: bool,
}

impl Crc {
    /// Looks once at what the CPU can do.
    pub fn detect() -> Crc {
        Crc {
            #[cfg(target_arch = "x86_64")]
            has_instruction: std::arch::is_x86_feature_detected!("sse4.2"),
        }
    }

    /// The checksums of four sectors.
    #[inline]
    pub fn four(self, sectors: &[Sector; 4]) -> [u32; 4] {
        #[cfg(target_arch = "x86_64")]
        if self.has_instruction {
            // SAFETY: the CPU has the instruction.
            return unsafe { four_by_instruction(sectors) };
        }
        sectors.each_ref().map(by_table)
    }

    /// The checksum of one sector.
    #[inline]
    pub fn one(self, sector: &Sector) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if self.has_instruction {
            // SAFETY: the CPU has the instruction.
            return unsafe { one_by_instruction(sector) };
        }
        by_table(sector)
    }
}

/// CRC-32C of bytes of any number, for journals.
#[derive(Debug, Clone, Copy)]
pub struct Crc32c(u32);

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c(u32::MAX)
    }
}

impl Crc32c {
    /// Continues with more bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, table_step);
    }

    /// The checksum of all bytes.
    pub fn value(self) -> u32 {
        !self.0
    }
}

/// Written out, because a closure would not have the instruction, and four variables stay in registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn four_by_instruction(sectors: &[Sector; 4]) -> [u32; 4] {
    use std::arch::x86_64::_mm_crc32_u64;
    let [a, b, c, d] = sectors;
    let (mut sum_a, mut sum_b, mut sum_c, mut sum_d) = (begin(a), begin(b), begin(c), begin(d));
    let (a, b, c, d) = (words(a), words(b), words(c), words(d));
    for index in 1..WORDS {
        sum_a = _mm_crc32_u64(sum_a, u64::from_le_bytes(a[index]));
        sum_b = _mm_crc32_u64(sum_b, u64::from_le_bytes(b[index]));
        sum_c = _mm_crc32_u64(sum_c, u64::from_le_bytes(c[index]));
        sum_d = _mm_crc32_u64(sum_d, u64::from_le_bytes(d[index]));
    }
    [!(sum_a as u32), !(sum_b as u32), !(sum_c as u32), !(sum_d as u32)]
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn one_by_instruction(sector: &Sector) -> u32 {
    use std::arch::x86_64::_mm_crc32_u64;
    let mut sum = begin(sector);
    for word in &words(sector)[1..] {
        sum = _mm_crc32_u64(sum, u64::from_le_bytes(*word));
    }
    !(sum as u32)
}

/// The first four bytes are the checksum; the next four precede the whole double words.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline]
fn begin(sector: &Sector) -> u64 {
    let word = [sector[4], sector[5], sector[6], sector[7]];
    u64::from(std::arch::x86_64::_mm_crc32_u32(u32::MAX, u32::from_le_bytes(word)))
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn words(sector: &Sector) -> &[[u8; 8]; WORDS] {
    sector.as_chunks().0.try_into().expect("a sector is whole double words")
}

/// One byte at a time.
fn by_table(sector: &Sector) -> u32 {
    !sector[COVERED_FROM..].iter().fold(u32::MAX, table_step)
}

fn table_step(sum: u32, byte: &u8) -> u32 {
    (sum >> 8) ^ TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize]
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut sum = index as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 {
                (sum >> 1) ^ 0x82f6_3b78
            } else {
                sum >> 1
            };
            bit += 1;
        }
        table[index] = sum;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosonde_harness::load::Rng;

    #[test]
    fn the_polynomial_is_castagnolis_in_the_table_and_in_the_instruction() {
        // The check value of the catalogue of parametrised CRC algorithms: CRC-32C of "123456789".
        let sum = b"123456789".iter().fold(u32::MAX, |sum, byte| {
            (sum >> 8) ^ TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize]
        });
        assert_eq!(!sum, 0xe306_9283);
        let crc = Crc::detect();
        let mut rng = Rng::new(1, &[]);
        for _ in 0..200 {
            let mut sectors = [[0; SECTOR_BYTES]; 4];
            sectors.iter_mut().for_each(|sector| rng.fill(sector));
            assert_eq!(crc.four(&sectors), sectors.each_ref().map(by_table));
            assert_eq!(crc.one(&sectors[0]), by_table(&sectors[0]));
        }
    }

    #[test]
    fn every_single_flipped_bit_changes_the_checksum() {
        let crc = Crc::detect();
        let mut sector = [0x5a; SECTOR_BYTES];
        let sum = crc.one(&sector);
        for bit in COVERED_FROM * 8..SECTOR_BYTES * 8 {
            sector[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(crc.one(&sector), sum, "bit {bit}");
            sector[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
