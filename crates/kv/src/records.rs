//! Contents of the records, which can be verified byte by byte without keeping anything in memory.
//!
//! A key is the record's number or a hash of it, most significant byte first, padded with `0` (as in db_bench). The hash is
//! a bijection, so every key leads back to its number. A value, or each of its fields, starts with 16 bytes: its
//! generation, and a checksum of generation, number, size and seed. The remaining bytes are taken from a random text, from
//! a position that number and generation determine. Comparing with that text is a `memcmp`: exact, and faster than a
//! checksum of the value.

use std::ops::Range;

use iosonde_harness::load::Rng;
use iosonde_protocol::{KeyOrder, KvSize, Records};

/// Bytes before the text in a value.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the number at the beginning of a key.
pub const NUMBER_BYTES: usize = 8;

/// Number of positions in the text where values start. Small enough for a CPU's cache, large enough that the values in one
/// block of a store rarely share a stretch that a compressor would find.
const STARTS: usize = 1 << 18;
/// Bytes of text that are copied or compared at a time: with [`STARTS`] the length of the text.
pub(crate) const PIECE: usize = 1 << 19;
/// Bytes of text between the values of a record in two successive generations: odd, so that [`STARTS`] generations have
/// different positions, and about a cache line, so that a writing job reads the text in order.
const GENERATION_STRIDE: u64 = 67;
/// Generation of records that no job has written.
const LOADED: u64 = 0;
/// Bytes that are prefetched of a text or value.
const PREFETCHED_BYTES: usize = 128;
const CACHE_LINE_BYTES: usize = 64;
/// Distance at which text that can be compressed repeats itself.
const REPEAT: usize = 128;

/// Version of the contents: a database with another one is loaded again instead of being reported as corrupted.
pub(crate) const CONTENTS_VERSION: u32 = 2;

/// The contents of all records.
pub struct Contents {
    count: u64,
    seed: u64,
    keys: Sizes,
    values: Sizes,
    key_order: KeyOrder,
    fields: usize,
    text: Box<[u8]>,
}

impl Contents {
    /// The contents of a valid description.
    pub fn new(records: &Records) -> Contents {
        Contents {
            count: records.count,
            seed: records.seed,
            keys: Sizes::new(&records.key_bytes),
            values: Sizes::new(&records.value_bytes),
            key_order: records.key_order,
            fields: records.fields as usize,
            text: text(records.seed, records.value_compression_ratio),
        }
    }

    /// Number of records of the described database.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The random text.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Writes a record's key over `key`.
    #[inline]
    pub fn key(&self, number: u64, key: &mut Vec<u8>) {
        self.sized_key(number, self.key_bytes(number), key);
    }

    /// Writes a key of a size that does not follow from its number, at least [`NUMBER_BYTES`].
    #[inline]
    pub(crate) fn sized_key(&self, number: u64, bytes: usize, key: &mut Vec<u8>) {
        if key.len() != bytes {
            key.resize(bytes, b'0');
        }
        let place = match self.key_order {
            KeyOrder::Number => number,
            KeyOrder::Hashed => hashed(number),
        };
        key[..NUMBER_BYTES].copy_from_slice(&place.to_be_bytes());
    }

    /// Size of a record's key.
    #[inline]
    pub fn key_bytes(&self, number: u64) -> usize {
        self.keys.size(number, self.seed)
    }

    /// The number of the record that has this key; `None` for foreign keys.
    #[inline]
    pub fn number(&self, key: &[u8]) -> Option<u64> {
        let (number, rest) = key.split_first_chunk::<NUMBER_BYTES>()?;
        let place = u64::from_be_bytes(*number);
        let number = match self.key_order {
            KeyOrder::Number => place,
            KeyOrder::Hashed => unhashed(place),
        };
        let is_filled_up = match rest.split_first_chunk::<NUMBER_BYTES>() {
            // A key of 16 bytes, as most have: one comparison.
            Some((eight, [])) => *eight == [b'0'; NUMBER_BYTES],
            _ => rest.iter().all(|byte| *byte == b'0'),
        };
        (is_filled_up && key.len() == self.key_bytes(number)).then_some(number)
    }

    /// Size of the value of a record in a generation.
    #[inline]
    pub fn value_bytes(&self, number: u64, generation: u64) -> usize {
        self.values.size(number ^ generation.rotate_left(32), !self.seed)
    }

    /// Appends the value of a record in a generation to `memory`.
    #[inline]
    pub fn add_value(&self, number: u64, generation: u64, memory: &mut Vec<u8>) {
        if self.fields == 1 {
            return self.add_part(number, generation, self.value_bytes(number, generation), memory);
        }
        (0..self.fields).for_each(|field| self.add_field(number, field, generation, memory));
    }

    /// Appends a value of a size that does not follow from its number and generation.
    #[inline]
    pub(crate) fn add_sized_value(&self, number: u64, generation: u64, bytes: usize, memory: &mut Vec<u8>) {
        self.add_part(number, generation, bytes.max(HEADER_BYTES), memory);
    }

    /// Returns true if every byte of a value is as written by [`Contents::add_sized_value`] for this record.
    #[inline]
    pub(crate) fn is_sized_value_of(&self, number: u64, value: &[u8]) -> bool {
        self.is_part_of(number, value, |_| value.len())
    }

    /// Returns true if keys sort like the numbers of their records.
    pub(crate) fn sorts_by_number(&self) -> bool {
        self.key_order == KeyOrder::Number
    }

    /// Fields of a value.
    pub fn fields(&self) -> usize {
        self.fields
    }

    /// Puts a field of the value of a record in a generation behind what is in `memory`.
    pub fn add_field(&self, number: u64, field: usize, generation: u64, memory: &mut Vec<u8>) {
        self.add_part(self.part(number, field), generation, self.field_bytes(), memory);
    }

    /// Range of a field in a value.
    pub fn field_range(&self, field: usize) -> Range<usize> {
        let bytes = self.field_bytes();
        field * bytes..(field + 1) * bytes
    }

    fn field_bytes(&self) -> usize {
        self.values.max() / self.fields
    }

    /// The number that identifies a field among the fields of all records.
    fn part(&self, number: u64, field: usize) -> u64 {
        number.wrapping_mul(self.fields as u64).wrapping_add(field as u64)
    }

    #[inline]
    fn add_part(&self, number: u64, generation: u64, bytes: usize, memory: &mut Vec<u8>) {
        let (header, start) = self.header(number, generation, bytes);
        memory.extend_from_slice(&header);
        let mut left = bytes - HEADER_BYTES;
        while left > 0 {
            let piece = left.min(PIECE);
            memory.extend_from_slice(&self.text[start..start + piece]);
            left -= piece;
        }
    }

    /// The value of a record in the generation in which it was loaded, if it is one piece of text.
    #[inline]
    pub(crate) fn loaded_value(&self, number: u64) -> Option<LoadedValue<'_>> {
        let bytes = self.value_bytes(number, LOADED);
        if self.fields > 1 || bytes - HEADER_BYTES > PIECE {
            return None;
        }
        let (header, start) = self.header(number, LOADED, bytes);
        let text = &self.text[start..start + bytes - HEADER_BYTES];
        Some(LoadedValue { header, text })
    }

    /// Loads the text that the value of a loaded record is compared with into the CPU's cache, without waiting for it.
    ///
    /// A store reads many other cache lines between two uses of the same text, so that the comparison would wait for it.
    #[inline]
    pub(crate) fn prefetch(&self, number: u64) {
        let Sizes::Fixed(bytes) = self.values else {
            return; // Computing the size can take as long as waiting.
        };
        if self.fields > 1 {
            return;
        }
        let start = start(number, LOADED, bytes);
        prefetch(&self.text[start..start + bytes.min(PREFETCHED_BYTES)]);
    }

    /// Returns true if every byte of a value is as written for this record, in any generation.
    #[inline]
    pub fn is_value_of(&self, number: u64, value: &[u8]) -> bool {
        if self.fields == 1 {
            return self.is_part_of(number, value, |generation| self.value_bytes(number, generation));
        }
        self.is_value_of_fields(number, value)
    }

    #[inline(never)]
    fn is_value_of_fields(&self, number: u64, value: &[u8]) -> bool {
        let bytes = self.field_bytes();
        let mut fields = value.chunks(bytes).enumerate();
        value.len() == bytes * self.fields
            && fields.all(|(field, part)| self.is_part_of(self.part(number, field), part, |_| bytes))
    }

    #[inline(always)]
    fn is_part_of(&self, number: u64, value: &[u8], bytes_of: impl Fn(u64) -> usize) -> bool {
        let Some((header, body)) = value.split_first_chunk::<HEADER_BYTES>() else {
            return false;
        };
        let generation = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
        let checksum = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
        if checksum != self.checksum(number, generation, value.len()) || value.len() != bytes_of(generation) {
            return false;
        }
        let start = start(number, generation, value.len());
        let is_text = |piece: &[u8]| *piece == self.text[start..start + piece.len()];
        let is_long_text = |body: &[u8]| body.chunks(PIECE).all(is_text);
        // Nearly every value is one piece.
        match body.len() <= PIECE {
            true => is_text(body),
            false => is_long_text(body),
        }
    }

    /// Header and start in the text of a value.
    #[inline]
    pub(crate) fn header(&self, number: u64, generation: u64, bytes: usize) -> ([u8; HEADER_BYTES], usize) {
        let checksum = self.checksum(number, generation, bytes);
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&generation.to_le_bytes());
        header[8..].copy_from_slice(&checksum.to_le_bytes());
        (header, start(number, generation, bytes))
    }

    /// Bytes of keys and values of all records together, at generation 0.
    ///
    /// The expected sum if sizes vary: adding up every record would take longer than opening the database.
    pub fn record_bytes(&self) -> u64 {
        (self.count as f64 * (self.keys.mean() + self.values.mean())).round() as u64
    }

    /// The largest possible key and value.
    pub fn bytes_max(&self) -> (u64, u64) {
        (self.keys.max() as u64, self.values.max() as u64)
    }

    #[inline]
    fn checksum(&self, number: u64, generation: u64, bytes: usize) -> u64 {
        let first = folded(number ^ self.seed, 0x9e37_79b9_7f4a_7c15 ^ bytes as u64);
        folded(first ^ generation, 0xd6e8_feb8_6659_fd93)
    }
}

/// The value of a record that nobody has written since it was loaded.
#[derive(Clone, Copy)]
pub(crate) struct LoadedValue<'a> {
    header: [u8; HEADER_BYTES],
    text: &'a [u8],
}

impl LoadedValue<'_> {
    /// Loads what a value is compared with into the CPU's cache, without waiting for it.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        prefetch(self.text);
    }

    /// Returns true if a value is the same, byte by byte.
    #[inline(always)]
    pub(crate) fn is(&self, value: &[u8]) -> bool {
        matches!(value.split_first_chunk(), Some((header, text)) if *header == self.header && *text == *self.text)
    }
}

/// Position of a value in the text: after that of the previous record, so that records written in order read the text in
/// order, as in db_bench, and neighbours in a block of the store share nothing. It differs between generations.
#[inline]
fn start(number: u64, generation: u64, bytes: usize) -> usize {
    let place = number.wrapping_mul(bytes as u64);
    place.wrapping_add(generation.wrapping_mul(GENERATION_STRIDE)) as usize % STARTS
}

/// Starts to load the first [`PREFETCHED_BYTES`] of a stretch of memory into the CPU's cache, where the CPU has such an
/// instruction, without waiting for them. The CPU itself continues with the following lines.
#[inline]
pub(crate) fn prefetch(memory: &[u8]) {
    if let Some(last) = memory.len().checked_sub(1) {
        // Memory that does not begin at a cache line has its end in a line more.
        for at in [0, CACHE_LINE_BYTES, PREFETCHED_BYTES - 1] {
            prefetch_line(&memory[at.min(last)]);
        }
    }
}

#[inline]
fn prefetch_line(byte: &u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction has no effect but on caches, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = byte;
}

/// The last step of splitmix64: a bijection that scatters neighbours over the whole range.
#[inline]
fn hashed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The number of which `place` is the hash. The factors are the inverses modulo 2^64 of those in [`hashed`].
#[inline]
fn unhashed(place: u64) -> u64 {
    let mixed = (place ^ (place >> 31) ^ (place >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let mixed = (mixed ^ (mixed >> 27) ^ (mixed >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    mixed ^ (mixed >> 30) ^ (mixed >> 60)
}

/// The generation in the header of a value, if it has one.
#[inline]
pub(crate) fn generation_of(value: &[u8]) -> Option<u64> {
    value.first_chunk::<8>().map(|header| u64::from_le_bytes(*header))
}

/// A hash that depends on every bit of `value` and `key`: both halves of a product, as in wyhash.
#[inline]
fn folded(value: u64, key: u64) -> u64 {
    let product = u128::from(value ^ 0xa076_1d64_78bd_642f) * u128::from(key ^ 0xe703_7ed1_a0b4_28db);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Random bytes. The end of each stretch of 128 bytes repeats its start, so that any compressor reduces it to `ratio`.
fn text(seed: u64, ratio: f64) -> Box<[u8]> {
    let mut text = vec![0; STARTS + PIECE].into_boxed_slice();
    Rng::new(seed, &[0x7e87]).fill(&mut text);
    let fresh = ((REPEAT as f64 * ratio).round() as usize).clamp(1, REPEAT);
    for stretch in text.chunks_mut(REPEAT) {
        for index in fresh..stretch.len() {
            stretch[index] = stretch[index - fresh];
        }
    }
    text
}

/// Sizes, each following from a number.
enum Sizes {
    Fixed(usize),
    Uniform { min: usize, span: u64 },
    Pareto(Pareto),
    Weighted { sizes: Vec<(u64, usize)>, mean: f64 },
}

impl Sizes {
    fn new(size: &KvSize) -> Sizes {
        match size {
            KvSize::Fixed { bytes } => Sizes::Fixed(*bytes as usize),
            KvSize::Uniform { min_bytes, max_bytes } => Sizes::Uniform {
                min: *min_bytes as usize,
                span: max_bytes - min_bytes + 1,
            },
            KvSize::Pareto {
                scale,
                shape,
                min_bytes,
                max_bytes,
            } => Sizes::Pareto(Pareto {
                scale: *scale,
                shape: *shape,
                min: *min_bytes as usize,
                max: *max_bytes as usize,
            }),
            KvSize::Weighted { sizes } => {
                let total: f64 = sizes.iter().map(|size| size.weight).sum();
                let mean = sizes.iter().map(|size| size.bytes as f64 * size.weight).sum::<f64>() / total;
                let mut sum = 0.0;
                let mut cumulative: Vec<(u64, usize)> = sizes
                    .iter()
                    .map(|size| {
                        sum += size.weight;
                        ((sum / total * u64::MAX as f64) as u64, size.bytes as usize)
                    })
                    .collect();
                if let Some(last) = cumulative.last_mut() {
                    last.0 = u64::MAX;
                }
                Sizes::Weighted {
                    sizes: cumulative,
                    mean,
                }
            }
        }
    }

    /// The size that belongs to a number.
    #[inline(always)]
    fn size(&self, number: u64, seed: u64) -> usize {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            _ => self.drawn(number, seed),
        }
    }

    fn drawn(&self, number: u64, seed: u64) -> usize {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Uniform { min, span } => {
                min + ((u128::from(folded(number ^ seed, 1)) * u128::from(*span)) >> 64) as usize
            }
            Sizes::Pareto(pareto) => pareto.quantile(folded(number ^ seed, 1)),
            Sizes::Weighted { sizes, .. } => {
                let draw = folded(number ^ seed, 1);
                sizes[sizes.partition_point(|(limit, _)| *limit < draw)].1
            }
        }
    }

    fn mean(&self) -> f64 {
        match self {
            Sizes::Fixed(bytes) => *bytes as f64,
            Sizes::Uniform { min, span } => *min as f64 + (*span - 1) as f64 / 2.0,
            Sizes::Pareto(pareto) => pareto.mean(),
            Sizes::Weighted { mean, .. } => *mean,
        }
    }

    fn max(&self) -> usize {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Uniform { min, span } => min + (*span - 1) as usize,
            Sizes::Pareto(pareto) => pareto.max,
            Sizes::Weighted { sizes, .. } => sizes.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0),
        }
    }
}

/// Generalized Pareto distribution with location 0, limited to `min` and `max`.
struct Pareto {
    scale: f64,
    shape: f64,
    min: usize,
    max: usize,
}

impl Pareto {
    /// The quantile of a draw from all 64-bit numbers.
    #[inline]
    fn quantile(&self, draw: u64) -> usize {
        // The upper 53 bits, as a number above 0 and up to 1: the probability of a larger value.
        let survival = ((draw >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        let quantile = self.scale / self.shape * (survival.powf(-self.shape) - 1.0);
        (quantile as usize).clamp(self.min, self.max)
    }

    /// The integral of the survival function between the limits, which are above and below all sizes.
    fn mean(&self) -> f64 {
        let upper = |bytes: usize| (1.0 + self.shape * bytes as f64 / self.scale).powf(1.0 - 1.0 / self.shape);
        self.min as f64 + self.scale / (1.0 - self.shape) * (upper(self.min) - upper(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosonde_protocol::WeightedSize;
    use proptest::prelude::*;

    fn records(value_bytes: KvSize) -> Records {
        Records {
            count: 1000,
            key_bytes: KvSize::Fixed { bytes: 16 },
            value_bytes,
            value_compression_ratio: 1.0,
            key_order: KeyOrder::Number,
            fields: 1,
            seed: 7,
        }
    }

    fn contents() -> Contents {
        Contents::new(&records(KvSize::Uniform {
            min_bytes: 16,
            max_bytes: 5000,
        }))
    }

    /// Keys in the order of hashes of their numbers.
    fn hashed() -> Contents {
        Contents::new(&Records {
            key_order: KeyOrder::Hashed,
            ..records(KvSize::Fixed { bytes: 100 })
        })
    }

    fn key(contents: &Contents, number: u64) -> Vec<u8> {
        let mut key = Vec::new();
        contents.key(number, &mut key);
        key
    }

    fn value(contents: &Contents, number: u64, generation: u64) -> Vec<u8> {
        let mut value = Vec::new();
        contents.add_value(number, generation, &mut value);
        value
    }

    proptest! {
        #[test]
        fn a_value_is_recognised_for_its_record_and_for_no_other_and_no_byte_of_it_can_change(
            number: u64, other: u64, generation: u64, place: prop::sample::Index, change in 1_u8.., bytes in 0_usize..5100
        ) {
            let contents = contents();
            let mut value = value(&contents, number, generation);
            prop_assert_eq!(value.len(), contents.value_bytes(number, generation));
            prop_assert!(contents.is_value_of(number, &value));
            prop_assert!(number == other || !contents.is_value_of(other, &value));
            let place = place.index(value.len());
            value[place] ^= change;
            prop_assert!(!contents.is_value_of(number, &value));
            value[place] ^= change;
            let whole = value.len();
            value.resize(bytes, 0);
            prop_assert!(bytes == whole || !contents.is_value_of(number, &value));
        }

        #[test]
        fn keys_sort_as_numbers_do_and_lead_back(a: u64, b: u64, min in 8_u64..20, more in 0_u64..20) {
            let contents = Contents::new(&Records {
                key_bytes: KvSize::Uniform { min_bytes: min, max_bytes: min + more },
                ..records(KvSize::Fixed { bytes: 100 })
            });
            let (key_a, key_b) = (key(&contents, a), key(&contents, b));
            prop_assert_eq!(key_a.cmp(&key_b), a.cmp(&b));
            prop_assert_eq!(contents.number(&key_a), Some(a));
            prop_assert!((min..=min + more).contains(&(key_a.len() as u64)));
            prop_assert_eq!(hashed().number(&key(&hashed(), a)), Some(a));
        }
    }

    #[test]
    fn any_field_may_be_of_another_generation_and_no_other_change_is_accepted() {
        let contents = Contents::new(&Records {
            fields: 10,
            ..records(KvSize::Fixed { bytes: 1000 })
        });
        let mut value = value(&contents, 7, 1);
        assert_eq!(value.len(), 1000);
        let mut field = Vec::new();
        contents.add_field(7, 3, 99, &mut field);
        value[contents.field_range(3)].copy_from_slice(&field);
        assert!(contents.is_value_of(7, &value));
        assert!(!contents.is_value_of(8, &value));
        assert!(!contents.is_value_of(7, &value[..900]));
        value[contents.field_range(4)].copy_from_slice(&field);
        assert!(!contents.is_value_of(7, &value), "a field in the place of another");
    }

    #[test]
    fn keys_that_are_not_ours_and_those_of_new_records_are_distinguished() {
        let contents = contents();
        for key in ["short", "\0\0\0\0\0\0\0\x010000000", "\0\0\0\0\0\0\0\x010000000x"] {
            assert_eq!(contents.number(key.as_bytes()), None);
        }
        assert_eq!(contents.number(b"\0\0\0\0\0\0\0\x0100000000"), Some(1));
        let (contents, new) = (hashed(), key(&hashed(), 1000));
        let before = (0..1000).filter(|number| key(&contents, *number) < new).count();
        assert!((1..999).contains(&before), "{before}");
    }

    #[test]
    fn records_written_in_order_read_the_text_in_order_and_share_none_of_it() {
        let (first, generation, bytes) = (1000, 1 << 63, 100);
        let begin = start(first, generation, bytes);
        for step in 1..1000 {
            let further = (start(first + step, generation + step, bytes) + STARTS - begin) % STARTS;
            assert_eq!(further as u64, step * (bytes as u64 + GENERATION_STRIDE));
        }
    }

    #[test]
    fn a_value_torn_between_two_generations_and_damage_beyond_the_text_are_found() {
        let contents = contents();
        let first = value(&contents, 7, 0);
        for generation in 1..2000 {
            let mut torn = value(&contents, 7, generation);
            let cut = first.len().min(torn.len());
            torn[HEADER_BYTES..cut].copy_from_slice(&first[HEADER_BYTES..cut]);
            let is_found = cut <= HEADER_BYTES + 8 || !contents.is_value_of(7, &torn);
            assert!(is_found, "generation {generation}");
        }
        let contents = Contents::new(&records(KvSize::Fixed { bytes: 3 << 20 }));
        let mut value = value(&contents, 5, 6);
        assert!(contents.is_value_of(5, &value));
        *value.last_mut().unwrap() ^= 1;
        assert!(!contents.is_value_of(5, &value));
    }

    #[test]
    fn sizes_follow_their_weights_and_reach_both_ends() {
        let sizes = [(100, 3.0), (1000, 1.0)].map(|(bytes, weight)| WeightedSize { bytes, weight });
        let sizes = Sizes::new(&KvSize::Weighted { sizes: sizes.to_vec() });
        let large = (0..40_000).filter(|number| sizes.size(*number, 1) == 1000).count();
        assert!((9_700..10_300).contains(&large), "{large} of 40000");
        assert_eq!(sizes.mean(), 325.0);
        assert_eq!(sizes.max(), 1000);
        let sizes = Sizes::new(&KvSize::Uniform {
            min_bytes: 16,
            max_bytes: 19,
        });
        let found: std::collections::BTreeSet<usize> = (0..1000).map(|number| sizes.size(number, 1)).collect();
        assert_eq!(found, [16, 17, 18, 19].into());
    }

    /// Quantiles of the distribution that Atikoglu et al. (SIGMETRICS 2012) fit to the values of the pool ETC, by hand:
    /// 214.476 / 0.348238 * (0.5^-0.348238 - 1) = 168.1, and 214.476 / 0.348238 * (0.1^-0.348238 - 1) = 757.3.
    #[test]
    fn pareto_sizes_have_the_quantiles_and_the_mean_of_their_distribution() {
        let sizes = Sizes::new(&KvSize::Pareto {
            scale: 214.476,
            shape: 0.348_238,
            min_bytes: 16,
            max_bytes: 4096,
        });
        let mut drawn: Vec<usize> = (0..100_000).map(|number| sizes.size(number, 1)).collect();
        drawn.sort_unstable();
        assert!((165..172).contains(&drawn[50_000]), "median {}", drawn[50_000]);
        assert!((740..775).contains(&drawn[90_000]), "90 % {}", drawn[90_000]);
        assert_eq!((drawn[0], drawn[99_999], sizes.max()), (16, 4096, 4096));
        let mean = drawn.iter().sum::<usize>() as f64 / 100_000.0;
        assert!((sizes.mean() / mean - 1.0).abs() < 0.01, "{} and {mean}", sizes.mean());
    }

    /// Distinct stretches of eight bytes approximate what a compressor with a window could not omit.
    #[test]
    fn text_repeats_itself_as_far_as_the_ratio_says() {
        for ratio in [1.0, 0.5, 0.25] {
            let (text, mut fresh) = (text(1, ratio), 0);
            for stretch in text.chunks(REPEAT) {
                fresh += stretch.windows(8).collect::<std::collections::HashSet<_>>().len();
            }
            let found = fresh as f64 / text.len() as f64;
            assert!((found - ratio).abs() < 0.06, "asked {ratio}, found {found}");
        }
    }
}
