//! The I/Os of one job, one after the other.
//!
//! An I/O of a 70/30 mix costs 2 ns to choose where the visit is ordered or uniform, 5 ns hot/cold, 18 ns each block once,
//! 60 ns zipfian (Sapphire Rapids Xeon; `cargo run --release -p iosonde-harness --example load_cost`).

use iosonde_protocol::{Operation, Sharing, Stream};

use crate::error::{RunError, require};
use crate::load::access::{AccessContext, Visit};
use crate::load::check::{place, size_range, validate};
use crate::load::mix::{Operations, Sizes};
use crate::load::{Purpose, Region, Rng};

/// One I/O to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// Read, write or trim.
    pub operation: Operation,
    /// First byte in the target.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// The endless sequence of I/Os of one job, determined by stream, region, seed and job number.
///
/// Every I/O is within the region. Offsets are multiples, from the region's start, of the block size; where sizes are
/// mixed, of the smallest.
#[derive(Debug, Clone)]
pub struct Generator {
    rng: Rng,
    operations: Operations,
    sizes: Sizes,
    visit: Visit,
    offset_bytes: u64,
    unit_bytes: u64,
}

impl Generator {
    /// The I/Os of job number `job` of `stream`, which is number `stream_index` of the run, in `region`.
    ///
    /// Where jobs share a span ([`Sharing::Shared`]), ordered visits begin evenly spaced over it; otherwise at the
    /// region's start. (Jobs that have a file each share nothing: their stream has [`Sharing::Split`] here.)
    ///
    /// # Errors
    /// When a setting of the stream makes no sense, or the region cannot hold a block.
    pub fn new(stream: &Stream, job: u32, region: Region, seed: u64, stream_index: u64) -> Result<Self, RunError> {
        validate(stream)?;
        debug_assert!(job < stream.jobs, "jobs are numbered from 0");
        let (unit_bytes, largest) = size_range(stream)?;
        require(region.bytes >= largest, place(stream, "span"))?;
        let units = region.bytes / unit_bytes;
        let first = first_unit(stream, job, units);
        let context = AccessContext {
            units,
            unit_bytes,
            first,
            seed,
            stream_index,
        };
        Ok(Self {
            rng: Rng::new(seed, &[stream_index, Purpose::Generator as u64, u64::from(job)]),
            operations: Operations::new(&stream.mix),
            sizes: Sizes::new(&stream.block_sizes, unit_bytes, region.bytes),
            visit: Visit::new(&stream.access, &context),
            offset_bytes: region.offset_bytes,
            unit_bytes,
        })
    }

    /// The next I/O.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "the sequence has no end, so there is no `Option` to return"
    )]
    pub fn next(&mut self) -> Io {
        let operation = self.operations.next(&mut self.rng);
        let size = self.sizes.next(&mut self.rng);
        let unit = self.visit.next(&size, &mut self.rng);
        Io {
            operation,
            offset_bytes: self.offset_bytes + unit * self.unit_bytes,
            bytes: size.bytes,
        }
    }
}

/// First unit of an ordered visit: job `j` of `n` that share a span starts at the `j`-th `n`-th of it.
fn first_unit(stream: &Stream, job: u32, units: u64) -> u64 {
    match stream.span.sharing {
        Sharing::Shared => (u128::from(units) * u128::from(job) / u128::from(stream.jobs)) as u64,
        Sharing::Split => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::{assert_frequencies, each_once, random, stream};
    use iosonde_protocol::{Access, BlockSize, Distribution};
    use proptest::prelude::*;

    const KIB: u64 = 1024;

    fn generator(stream: &Stream, job: u32, bytes: u64) -> Generator {
        Generator::new(stream, job, Region { offset_bytes: 0, bytes }, 1, 0).expect("the stream is valid")
    }

    fn visiting(access: Access) -> Stream {
        Stream { access, ..stream() }
    }

    /// Numbers of the 4 KiB blocks that the next `count` I/Os go to.
    fn blocks(generator: &mut Generator, count: usize) -> Vec<u64> {
        (0..count).map(|_| generator.next().offset_bytes / (4 * KIB)).collect()
    }

    /// Number of times that each of the first `N` blocks comes up among so many I/Os.
    fn counts<const N: usize>(stream: &Stream, job: u32, draws: usize) -> [u64; N] {
        let mut counts = [0; N];
        let visited = blocks(&mut generator(stream, job, N as u64 * 4 * KIB), draws);
        visited.iter().for_each(|&block| counts[block as usize] += 1);
        counts
    }

    fn hot_cold(hot_span: f64, hot_access: f64) -> Access {
        random(Distribution::HotCold { hot_span, hot_access })
    }

    fn sorted(mut blocks: Vec<u64>) -> Vec<u64> {
        blocks.sort_unstable();
        blocks
    }

    fn any_access() -> impl Strategy<Value = Access> {
        prop_oneof![
            Just(Access::Sequential),
            (16_u64..40).prop_map(|blocks| Access::Strided {
                stride_bytes: blocks * 4 * KIB
            }),
            Just(each_once()),
            (0.01..3.0).prop_map(|over_provisioning| Access::Aging { over_provisioning }),
            Just(random(Distribution::Uniform)),
            (0.1..2.0).prop_map(|theta| random(Distribution::Zipfian { theta })),
            (0.01..0.99, 0.0..=1.0).prop_map(|(span, access)| hot_cold(span, access)),
        ]
    }

    proptest! {
        #[test]
        fn every_io_is_aligned_and_inside_the_region(
            access in any_access(),
            sizes in prop::collection::vec((1_u64..=16, 0.1..9.0), 1..4),
            region_bytes in 64 * KIB..400 * KIB,
            jobs in 1_u32..5,
            seed: u64,
        ) {
            let block_size = |(multiple, weight)| BlockSize { bytes: multiple * 4 * KIB, weight };
            let mut block_sizes: Vec<BlockSize> = sizes.into_iter().map(block_size).collect();
            block_sizes.push(BlockSize { bytes: 4 * KIB, weight: 1.0 });
            let stream = Stream { access, block_sizes, jobs, ..stream() };
            let region = Region { offset_bytes: 512, bytes: region_bytes };
            for job in 0..jobs {
                let mut generator = Generator::new(&stream, job, region, seed, 3).expect("the stream is valid");
                for _ in 0..100 {
                    let io = generator.next();
                    let begin = io.offset_bytes - region.offset_bytes;
                    prop_assert_eq!(begin % (4 * KIB), 0);
                    prop_assert!(begin + u64::from(io.bytes) <= region.bytes);
                    prop_assert!(stream.block_sizes.iter().any(|size| size.bytes == u64::from(io.bytes)));
                }
            }
        }

        #[test]
        fn ordered_and_each_once_visits_take_every_block_exactly_once_a_pass(
            access in prop_oneof![
                Just(Access::Sequential),
                Just(each_once()),
                (1_u64..30).prop_map(|blocks| Access::Strided { stride_bytes: blocks * 4 * KIB }),
            ],
            count in 1_u64..200,
            jobs in 1_u32..5,
            rest in 0_u64..4096,
        ) {
            let stream = Stream { jobs, ..visiting(access) };
            for job in 0..jobs {
                let mut generator = generator(&stream, job, count * 4 * KIB + rest);
                for _ in 0..3 {
                    prop_assert!(sorted(blocks(&mut generator, count as usize)).into_iter().eq(0..count));
                }
            }
        }
    }

    #[test]
    fn a_sequential_visit_begins_at_the_jobs_share_wraps_and_leaves_no_gap() {
        let mut stream = visiting(Access::Sequential);
        stream.jobs = 4;
        assert_eq!(blocks(&mut generator(&stream, 0, 40 * KIB), 5), [0, 1, 2, 3, 4]);
        assert_eq!(blocks(&mut generator(&stream, 3, 40 * KIB), 5), [7, 8, 9, 0, 1]);
        let mut span = stream.span;
        span.sharing = Sharing::Split;
        let split = Stream { span, ..stream };
        assert_eq!(blocks(&mut generator(&split, 3, 40 * KIB), 3), [0, 1, 2]);
        let sizes = [4 * KIB, 8 * KIB, 16 * KIB].map(|bytes| BlockSize { bytes, weight: 1.0 });
        let mut stream = visiting(Access::Sequential);
        stream.block_sizes = sizes.to_vec();
        let mut generator = generator(&stream, 0, 1 << 20);
        let mut end = 0;
        for _ in 0..1000 {
            let io = generator.next();
            let wrapped = io.offset_bytes == 0 && end + u64::from(io.bytes) > 1 << 20;
            assert!(io.offset_bytes == end || wrapped, "{io:?} after {end}");
            end = io.offset_bytes + u64::from(io.bytes);
        }
    }

    #[test]
    fn a_strided_visit_begins_one_block_further_each_pass_also_with_a_stride_beyond_the_region() {
        let mut stream = visiting(Access::Strided { stride_bytes: 16 * KIB });
        let passes = [0, 4, 8, 1, 5, 9, 2, 6, 3, 7];
        assert_eq!(blocks(&mut generator(&stream, 0, 40 * KIB), 10), passes);
        stream.jobs = 2;
        let of_second = [4, 8, 1, 5, 9, 2, 6, 3, 7, 0];
        assert_eq!(blocks(&mut generator(&stream, 1, 40 * KIB), 10), of_second);
        let far = visiting(Access::Strided { stride_bytes: 1 << 30 });
        assert_eq!(blocks(&mut generator(&far, 0, 12 * KIB), 4), [0, 1, 2, 0]);
    }

    /// Valid data from `x` before the end of the pass is what first-in-first-out collection leaves: the share `a` of
    /// the oldest, by its own equation, and everything of the newest.
    #[test]
    fn an_aging_pass_takes_every_block_and_leaves_each_part_as_stale_as_random_writes_do() {
        let (count, over_provisioning) = (100_000_u64, 0.28);
        let mut generator = generator(&visiting(Access::Aging { over_provisioning }), 0, count * 4 * KIB);
        let pass = blocks(&mut generator, 128_000);
        let mut last = vec![usize::MAX; count as usize];
        for (time, block) in pass.iter().enumerate() {
            last[*block as usize] = time;
        }
        assert!(last.iter().all(|time| *time != usize::MAX), "every block is written");
        let valid = |part: usize| {
            let times = part * 12_800..(part + 1) * 12_800;
            times.filter(|time| last[pass[*time] as usize] == *time).count() as f64 / 12_800.0
        };
        let mut oldest = 0.0_f64;
        for _ in 0..1000 {
            oldest = (-(1.0 - oldest) * (1.0 + over_provisioning)).exp();
        }
        for part in 0..10 {
            let (found, age) = (valid(part), 1.0 - (part as f64 + 0.5) / 10.0);
            let expected = oldest.powf(age);
            assert!((found - expected).abs() < 0.015, "{found} {part} {expected}");
        }
        assert_eq!(blocks(&mut generator, 128_000).len(), 128_000, "another pass follows");
    }

    #[test]
    fn uniform_blocks_come_up_alike_and_hot_ones_take_their_share() {
        assert_frequencies(&counts::<100>(&stream(), 0, 50_000), &[0.01; 100]);
        let mut expected = [0.0125; 10];
        expected[..2].fill(0.45);
        assert_frequencies(&counts::<10>(&visiting(hot_cold(0.2, 0.9)), 0, 50_000), &expected);
        // A hot part of a single block is all there is.
        assert_eq!(counts::<1>(&visiting(hot_cold(0.2, 0.5)), 0, 10), [10]);
    }

    #[test]
    fn zipfian_ranks_are_scattered_and_all_jobs_agree_where() {
        let mut stream = visiting(random(Distribution::Zipfian { theta: 0.99 }));
        stream.jobs = 2;
        let ranked = |job: u32| {
            let mut counts: Vec<(u64, u64)> = counts::<256>(&stream, job, 200_000).into_iter().zip(0..).collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts
        };
        let (one, other) = (ranked(0), ranked(1));
        let popular = |counts: &[(u64, u64)]| [0, 1, 2, 3].map(|rank| counts[rank].1);
        let found = popular(&one);
        assert_eq!(found, popular(&other));
        assert!(found.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "{found:?}");
        let total: f64 = (1..=256).map(|rank| f64::from(rank).powf(-0.99)).sum();
        let share = one[0].0 as f64 / 200_000.0;
        assert!((share * total - 1.0).abs() < 0.03, "the first of the ranks has {share}");
    }

    #[test]
    fn the_same_seed_gives_the_same_ios_and_any_other_number_or_pass_others() {
        let stream = Stream { jobs: 2, ..stream() };
        let region = Region {
            offset_bytes: 0,
            bytes: 1 << 20,
        };
        let offsets = |seed, stream_index, job| {
            let mut generator = Generator::new(&stream, job, region, seed, stream_index).expect("it is valid");
            blocks(&mut generator, 20)
        };
        assert_eq!(offsets(1, 0, 0), offsets(1, 0, 0));
        assert_ne!(offsets(1, 0, 0), offsets(2, 0, 0));
        assert_ne!(offsets(1, 0, 0), offsets(1, 1, 0));
        assert_ne!(offsets(1, 0, 0), offsets(1, 0, 1));
        let mut stream = visiting(each_once());
        stream.jobs = 2;
        let (mut one, mut other) = (generator(&stream, 0, 1 << 20), generator(&stream, 1, 1 << 20));
        let (first, second) = (blocks(&mut one, 256), blocks(&mut one, 256));
        assert_ne!(first, second);
        assert_ne!(first, blocks(&mut other, 256));
        assert!(!first.is_sorted());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let region = Region {
            offset_bytes: 0,
            bytes: 4 * KIB,
        };
        let mut stream = stream();
        stream.block_sizes[0].bytes = 8 * KIB;
        let refused = |stream: &_| Generator::new(stream, 0, region, 1, 0).err().map(|error| error.context);
        assert_eq!(refused(&stream), Some(place(&stream, "span")));
        stream.block_sizes.clear();
        assert_eq!(refused(&stream), Some(place(&stream, "block_sizes")));
    }
}
