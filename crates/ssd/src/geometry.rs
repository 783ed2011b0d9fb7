//! Numbers that follow from a model: how many pages, superblocks, and which die a page is on.
//!
//! A *superblock* is one block of every die; it is written stripe by stripe over the dies, and collected as a whole.

use iosonde_protocol::{DriveModel, Translation};

use crate::PAGE_BYTES;

/// Superblocks in addition to over-provisioning: the two that are being written, and the free ones that
/// collection keeps. On average these are half empty or empty, so they hold none of the spare room.
pub(crate) const RESERVE: u32 = 4;

/// Sizes in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Logical pages.
    pub pages: u32,
    /// Pages of one program of one die.
    pub program_pages: u32,
    /// Programs of one die's block.
    pub block_programs: u32,
    pub dies: u32,
    pub superblock_pages: u32,
    pub superblocks: u32,
    /// Pages that one entry of the map covers.
    pub unit_pages: u32,
}

impl Geometry {
    /// Of a model that was checked.
    pub(crate) fn from_model(model: &DriveModel) -> Geometry {
        let pages = logical_pages(model) as u32;
        let program_pages = model.media.program_bytes / PAGE_BYTES as u32;
        let dies = model.media.dies;
        match &model.translation {
            Translation::InPlace => Geometry {
                pages,
                program_pages,
                block_programs: 1,
                dies,
                superblock_pages: program_pages * dies,
                superblocks: 0,
                unit_pages: 1,
            },
            Translation::PageMapped {
                block_programs,
                mapping_bytes,
                ..
            } => Geometry {
                pages,
                program_pages,
                block_programs: *block_programs,
                dies,
                superblock_pages: superblock_pages(model) as u32,
                superblocks: superblocks(model) as u32,
                unit_pages: mapping_bytes / PAGE_BYTES as u32,
            },
        }
    }

    /// The die that a program is on; programs are numbered through the drive.
    #[inline]
    pub(crate) fn die_of(&self, program: u32) -> u32 {
        program % self.dies
    }

    /// The program that a physical page belongs to.
    #[inline]
    pub(crate) fn program_of(&self, physical: u32) -> u32 {
        physical / self.program_pages
    }
}

pub(crate) fn logical_pages(model: &DriveModel) -> u64 {
    model.capacity_bytes / PAGE_BYTES
}

/// Pages of a superblock; 0 where nothing is collected.
pub(crate) fn superblock_pages(model: &DriveModel) -> u64 {
    let Translation::PageMapped { block_programs, .. } = &model.translation else {
        return 0;
    };
    u64::from(model.media.program_bytes) / PAGE_BYTES * u64::from(*block_programs) * u64::from(model.media.dies)
}

/// Superblocks of the whole drive; 0 where nothing is collected.
pub(crate) fn superblocks(model: &DriveModel) -> u64 {
    let Translation::PageMapped { over_provisioning, .. } = &model.translation else {
        return 0;
    };
    let physical = logical_pages(model) as f64 * (1.0 + over_provisioning);
    (physical / superblock_pages(model) as f64).round() as u64 + u64::from(RESERVE)
}
