//! Contents of a sector that was written with verification.
//!
//! The first 32 bytes are its *seal*, all numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | CRC-32C of all that follows in the sector |
//! | 4..8 | a constant that distinguishes a seal from other data |
//! | 8..16 | position: offset of the sector in its file, in bytes |
//! | 16..20 | generation: how many writes its unit had seen, this one included |
//! | 20..24 | which file of the target |
//! | 24..32 | history: drawn when the file was first laid out under verification |

use super::crc::{Crc, SECTOR_BYTES, Sector};

const MARK: u32 = u32::from_le_bytes(*b"iosV");

/// Owner of the data: the same for every sector of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Drawn when the file was first laid out under verification; the files of one target have it in common.
    pub history: u64,
    /// Number of the file in the target.
    pub file: u32,
}

/// The content of a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// Offset in the file, in bytes.
    pub position: u64,
    /// Number of the write among those of its unit, from 1.
    pub generation: u32,
    /// Owner of the data.
    pub identity: Identity,
}

/// Seals the sectors of a unit.
#[inline]
pub fn seal(crc: Crc, sectors: &mut [Sector], first: Seal) {
    let mut position = first.position;
    for sector in sectors.iter_mut() {
        put(sector, &Seal { position, ..first });
        position += SECTOR_BYTES as u64;
    }
    let (fours, rest) = sectors.as_chunks_mut::<4>();
    for four in fours {
        let sums = crc.four(four);
        for (sector, sum) in four.iter_mut().zip(sums) {
            sector[..4].copy_from_slice(&sum.to_le_bytes());
        }
    }
    for sector in rest {
        let sum = crc.one(sector);
        sector[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

#[inline]
fn put(sector: &mut Sector, seal: &Seal) {
    sector[4..8].copy_from_slice(&MARK.to_le_bytes());
    sector[8..16].copy_from_slice(&seal.position.to_le_bytes());
    sector[16..20].copy_from_slice(&seal.generation.to_le_bytes());
    sector[20..24].copy_from_slice(&seal.identity.file.to_le_bytes());
    sector[24..32].copy_from_slice(&seal.identity.history.to_le_bytes());
}

/// Contents of the sector's first bytes, whether or not the checksum matches.
#[inline]
pub fn read(sector: &Sector) -> Seal {
    Seal {
        position: u64::from_le_bytes(*field(sector, 8)),
        generation: u32::from_le_bytes(*field(sector, 16)),
        identity: Identity {
            file: u32::from_le_bytes(*field(sector, 20)),
            history: u64::from_le_bytes(*field(sector, 24)),
        },
    }
}

/// The checksum in the sector.
#[inline]
pub fn stored_crc(sector: &Sector) -> u32 {
    u32::from_le_bytes(*field(sector, 0))
}

/// Returns true if the sector claims to be sealed.
#[inline]
pub fn is_marked(sector: &Sector) -> bool {
    u32::from_le_bytes(*field(sector, 4)) == MARK
}

#[inline]
fn field<const BYTES: usize>(sector: &Sector, from: usize) -> &[u8; BYTES] {
    sector[from..]
        .first_chunk()
        .expect("a field lies in the first 32 bytes")
}
