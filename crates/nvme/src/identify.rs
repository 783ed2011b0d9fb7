//! Data returned by Identify: the fields that the driver uses, read with checked accesses.

use crate::NvmeError;

/// Bytes of each data structure.
pub const STRUCTURE_BYTES: usize = 4096;

/// Identify Controller (NVM Express Base Specification 2.0, section 5.17.2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerIdentity {
    pub serial: String,
    pub model: String,
    /// Firmware revision.
    pub firmware: String,
    /// Largest transfer in units of the smallest page, as a power of two (MDTS); 0 for no limit.
    pub transfer_exponent: u8,
    /// Abort commands that may be outstanding, less one (ACL).
    pub abort_limit: u8,
    /// Namespaces that it may have (NN).
    pub namespaces: u32,
    /// True if it has Dataset Management (ONCS bit 2).
    pub can_deallocate: bool,
    /// True if it has shadow doorbells (OACS bit 8).
    pub has_shadow_doorbells: bool,
    /// True if it has a volatile write cache (VWC bit 0).
    pub has_write_cache: bool,
    /// True if commands of the NVM command set may use SGLs of byte-aligned or dword-aligned data (SGLS bits 0 and 1).
    pub has_sgl: bool,
}

impl ControllerIdentity {
    /// Parses the data structure.
    pub fn parse(page: &[u8; STRUCTURE_BYTES]) -> ControllerIdentity {
        ControllerIdentity {
            serial: text(&page[4..24]),
            model: text(&page[24..64]),
            firmware: text(&page[64..72]),
            transfer_exponent: page[77],
            abort_limit: page[258],
            namespaces: word32(page, 516),
            can_deallocate: word16(page, 520) & 1 << 2 != 0,
            has_shadow_doorbells: word16(page, 256) & 1 << 8 != 0,
            has_write_cache: page[525] & 1 != 0,
            has_sgl: matches!(word32(page, 536) & 3, 1 | 2),
        }
    }

    /// Bytes that one command may transfer, for the smallest page of the controller.
    pub fn largest_transfer_bytes(&self, smallest_page_bytes: u64) -> u64 {
        match self.transfer_exponent {
            0 => u64::MAX,
            exponent => smallest_page_bytes.checked_shl(exponent.into()).unwrap_or(u64::MAX),
        }
    }
}

/// Identify Namespace (NVM Command Set Specification 1.0, section 4.1.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    pub number: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
}

impl Namespace {
    /// Parses the data structure.
    ///
    /// # Errors
    /// When the namespace is inactive, or has a format other than plain blocks of 512 B to 4 KiB.
    pub fn parse(number: u32, page: &[u8; STRUCTURE_BYTES]) -> Result<Namespace, NvmeError> {
        let refuse = |why: String| Err(NvmeError::Unsupported(format!("namespace {number} {why}")));
        let blocks = word64(page, 0);
        if blocks == 0 {
            return refuse("is not active".into());
        }
        // FLBAS: the index of the format in bits 0 to 3, and, where there are more than 16 formats, in bits 5 and 6.
        let (formats, current) = (u32::from(page[25]) + 1, page[26]);
        let high = if formats > 16 {
            usize::from(current >> 5 & 3) << 4
        } else {
            0
        };
        let format = word32(page, 128 + 4 * (high | usize::from(current & 15)));
        let (metadata_bytes, exponent) = (format & 0xffff, format >> 16 & 0xff);
        if metadata_bytes != 0 {
            return refuse(format!("has {metadata_bytes} bytes of metadata for each block"));
        }
        if !(9..=12).contains(&exponent) {
            return refuse(format!("has logical blocks of 2^{exponent} bytes"));
        }
        Ok(Namespace {
            number,
            blocks,
            block_bytes: 1 << exponent,
        })
    }

    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }
}

/// Numbers of namespaces in a namespace list (section 5.17.2.2): ascending, 0 after the last.
pub fn namespace_list(page: &[u8; STRUCTURE_BYTES]) -> Vec<u32> {
    let words = page.chunks_exact(4);
    words
        .map(|word| u32::from_le_bytes(word.try_into().expect("chunks of 4 bytes")))
        .take_while(|number| *number != 0)
        .collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches([' ', '\0']).to_string()
}

fn word16(page: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(page[offset..][..2].try_into().expect("2 bytes"))
}

fn word32(page: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(page[offset..][..4].try_into().expect("4 bytes"))
}

fn word64(page: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(page[offset..][..8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A namespace of 1000 blocks with this format in use.
    fn page(formats: u8, current: u8, format: u32) -> [u8; STRUCTURE_BYTES] {
        let mut page = [0; STRUCTURE_BYTES];
        page[..8].copy_from_slice(&1000u64.to_le_bytes());
        page[25] = formats - 1;
        page[26] = current;
        let upper = if formats > 16 { current >> 5 & 3 } else { 0 };
        let index = usize::from(upper << 4 | current & 15);
        page[128 + 4 * index..][..4].copy_from_slice(&format.to_le_bytes());
        page
    }

    #[test]
    fn blocks_of_512_bytes_and_4_kib_are_accepted_and_other_formats_refused_with_the_reason() {
        for (format, bytes) in [(9 << 16, 512), (12 << 16, 4096)] {
            let namespace = Namespace::parse(2, &page(8, 3, format)).expect("a plain format");
            assert_eq!((namespace.number, namespace.block_bytes), (2, bytes));
            assert_eq!((namespace.blocks, namespace.bytes()), (1000, 1000 * u64::from(bytes)));
        }
        let format_18 = Namespace::parse(1, &page(20, 1 << 5 | 2, 12 << 16));
        assert!(format_18.is_ok());
        for (page, reason) in [
            (page(1, 0, 9 << 16 | 8), "8 bytes of metadata"),
            (page(1, 0, 16 << 16), "logical blocks of 2^16 bytes"),
            ([0; STRUCTURE_BYTES], "namespace 1 is not active"),
        ] {
            let refused = Namespace::parse(1, &page).expect_err("refused").to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn a_controller_is_parsed() {
        let mut page = [0; STRUCTURE_BYTES];
        page[4..24].copy_from_slice(b"SERIAL              ");
        page[24..64].copy_from_slice(format!("{:<40}", "A drive").as_bytes());
        page[64..72].copy_from_slice(b"1.0     ");
        for (at, value) in [(77, 5), (257, 1), (520, 4), (525, 1), (536, 1)] {
            page[at] = value;
        }
        let found = ControllerIdentity::parse(&page);
        let names = [found.serial, found.model, found.firmware];
        assert_eq!(names, ["SERIAL", "A drive", "1.0"]);
        let found = ControllerIdentity::parse(&page);
        assert_eq!(found.largest_transfer_bytes(4096), 128 << 10);
        assert!(found.can_deallocate && found.has_write_cache && found.has_sgl && found.has_shadow_doorbells);
        page[77] = 0;
        assert_eq!(ControllerIdentity::parse(&page).largest_transfer_bytes(4096), u64::MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), STRUCTURE_BYTES)) {
            let page: [u8; STRUCTURE_BYTES] = bytes.try_into().expect("4096 bytes");
            ControllerIdentity::parse(&page).largest_transfer_bytes(4096);
            let _ = Namespace::parse(1, &page);
            namespace_list(&page);
        }
    }
}
