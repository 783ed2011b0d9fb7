//! Bytes of the target that each job addresses.

use iosonde_protocol::{Sharing, Stream};

use crate::error::{RunError, require};
use crate::load::check::{place, size_range};

/// A range of bytes of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// The region of each job of a stream, in a target (or in each job's own file) of `target_bytes`.
///
/// A shared span is the region of every job. A split one is divided into equal parts, each a multiple of the smallest block
/// size; what remains at the end is not addressed.
///
/// # Errors
/// When the span reaches beyond the target, or a region cannot hold one block of the largest size.
pub fn regions(stream: &Stream, target_bytes: u64) -> Result<Vec<Region>, RunError> {
    let span = &stream.span;
    let end = span.offset_bytes.checked_add(span.bytes);
    require(end.is_some_and(|end| end <= target_bytes), place(stream, "span"))?;
    require(stream.jobs > 0, place(stream, "jobs"))?;
    let (smallest, largest) = size_range(stream)?;
    let (bytes, step) = match span.sharing {
        Sharing::Shared => (span.bytes, 0),
        Sharing::Split => {
            let part = span.bytes / u64::from(stream.jobs);
            let part = part - part.checked_rem(smallest).unwrap_or(0);
            (part, part)
        }
    };
    require(bytes >= largest, place(stream, "span"))?;
    let region = |job: u32| Region {
        offset_bytes: span.offset_bytes + u64::from(job) * step,
        bytes,
    };
    Ok((0..stream.jobs).map(region).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::stream;
    use iosonde_protocol::{BlockSize, Span};

    fn spanning(offset_bytes: u64, bytes: u64, sharing: Sharing, jobs: u32) -> Stream {
        Stream {
            span: Span {
                offset_bytes,
                bytes,
                sharing,
            },
            jobs,
            ..stream()
        }
    }

    /// The field that is named.
    fn refused(stream: &Stream, target_bytes: u64) -> String {
        regions(stream, target_bytes).unwrap_err().context
    }

    fn region((offset_bytes, bytes): (u64, u64)) -> Region {
        Region { offset_bytes, bytes }
    }

    #[test]
    fn a_shared_span_is_everybodys_region_and_a_split_one_has_equal_parts() {
        let regions = regions(&spanning(4096, 40_960, Sharing::Shared, 3), 1 << 20).expect("it fits");
        assert_eq!(regions, [(4096, 40_960); 3].map(region));
        let regions = super::regions(&spanning(4096, 41_000, Sharing::Split, 3), 1 << 20).expect("it fits");
        assert_eq!(regions, [4096, 16_384, 28_672].map(|offset| region((offset, 12_288))));
    }

    #[test]
    fn a_span_beyond_the_target_or_with_parts_too_small_is_refused() {
        for (offset_bytes, bytes) in [(4096, 1 << 20), (0, (1 << 20) + 1), (u64::MAX, 4096)] {
            let stream = spanning(offset_bytes, bytes, Sharing::Shared, 1);
            assert_eq!(refused(&stream, 1 << 20), place(&stream, "span"));
        }
        let mut stream = spanning(0, 32_768, Sharing::Split, 4);
        assert!(regions(&stream, 32_768).is_ok());
        stream.block_sizes.push(BlockSize {
            bytes: 16_384,
            weight: 1.0,
        });
        assert_eq!(refused(&stream, 32_768), place(&stream, "span"));
        stream.span.sharing = Sharing::Shared;
        assert!(regions(&stream, 32_768).is_ok());
        let no_jobs = spanning(0, 4096, Sharing::Split, 0);
        assert_eq!(refused(&no_jobs, 4096), place(&no_jobs, "jobs"));
        let mut stream = spanning(0, 4096, Sharing::Split, 1);
        stream.block_sizes[0].bytes = 0;
        // The size itself is the generator's to refuse.
        assert!(regions(&stream, 4096).is_ok());
        stream.block_sizes.clear();
        assert_eq!(refused(&stream, 4096), place(&stream, "block_sizes"));
    }
}
