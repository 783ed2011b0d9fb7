//! Bytes of the target that each job addresses.

use iosonde_protocol::{Sharing, Stream};

use crate::LoadError;
use crate::error::size_range;

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
pub fn regions(stream: &Stream, target_bytes: u64) -> Result<Vec<Region>, LoadError> {
    let span = &stream.span;
    let beyond = LoadError::SpanBeyondTarget {
        offset_bytes: span.offset_bytes,
        span_bytes: span.bytes,
        target_bytes,
    };
    let end = span.offset_bytes.checked_add(span.bytes).ok_or(beyond.clone())?;
    if end > target_bytes {
        return Err(beyond);
    }
    if stream.jobs == 0 {
        return Err(LoadError::NoJobs);
    }
    let (smallest, largest) = size_range(&stream.block_sizes)?;
    let (bytes, step) = match span.sharing {
        Sharing::Shared => (span.bytes, 0),
        Sharing::Split => {
            let part = span.bytes / u64::from(stream.jobs);
            let part = part - part.checked_rem(smallest).unwrap_or(0);
            (part, part)
        }
    };
    if bytes < largest {
        return Err(LoadError::RegionTooSmall {
            region_bytes: bytes,
            block_bytes: largest,
        });
    }
    let region = |job: u32| Region {
        offset_bytes: span.offset_bytes + u64::from(job) * step,
        bytes,
    };
    Ok((0..stream.jobs).map(region).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;
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

    #[test]
    fn a_shared_span_is_everybodys_region() {
        let regions = regions(&spanning(4096, 40_960, Sharing::Shared, 3), 1 << 20).expect("it fits");
        assert_eq!(
            regions,
            [Region {
                offset_bytes: 4096,
                bytes: 40_960
            }; 3]
        );
    }

    #[test]
    fn a_split_span_gives_equal_parts_of_whole_blocks() {
        let regions = regions(&spanning(4096, 41_000, Sharing::Split, 3), 1 << 20).expect("it fits");
        let part = |offset_bytes| Region {
            offset_bytes,
            bytes: 12_288,
        };
        assert_eq!(regions, [part(4096), part(16_384), part(28_672)]);
    }

    #[test]
    fn a_span_beyond_the_target_is_refused() {
        for (offset_bytes, bytes) in [(4096, 1 << 20), (0, (1 << 20) + 1), (u64::MAX, 4096)] {
            let error = regions(&spanning(offset_bytes, bytes, Sharing::Shared, 1), 1 << 20);
            let expected = LoadError::SpanBeyondTarget {
                offset_bytes,
                span_bytes: bytes,
                target_bytes: 1 << 20,
            };
            assert_eq!(error, Err(expected));
        }
    }

    #[test]
    fn a_part_must_hold_the_largest_block() {
        let mut stream = spanning(0, 32_768, Sharing::Split, 4);
        assert!(regions(&stream, 32_768).is_ok());
        stream.block_sizes.push(BlockSize {
            bytes: 16_384,
            weight: 1.0,
        });
        let expected = LoadError::RegionTooSmall {
            region_bytes: 8192,
            block_bytes: 16_384,
        };
        assert_eq!(regions(&stream, 32_768), Err(expected));
        stream.span.sharing = Sharing::Shared;
        assert!(regions(&stream, 32_768).is_ok());
    }

    #[test]
    fn settings_that_have_no_parts_are_errors_and_not_panics() {
        assert_eq!(
            regions(&spanning(0, 4096, Sharing::Split, 0), 4096),
            Err(LoadError::NoJobs)
        );
        let mut stream = spanning(0, 4096, Sharing::Split, 1);
        stream.block_sizes[0].bytes = 0;
        assert!(
            regions(&stream, 4096).is_ok(),
            "the size itself is the generator's to refuse"
        );
        stream.block_sizes.clear();
        assert_eq!(regions(&stream, 4096), Err(LoadError::NoBlockSize));
    }
}
