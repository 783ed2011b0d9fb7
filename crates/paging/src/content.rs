//! Contents of a page, with which data from swap or a file can be checked.
//!
//! One word of each page is its *seal*: 24 bits that identify the page, and a generation of 40 bits, which each write raises
//! by one. The seal's place differs from page to page, so that pages do not share cache lines of one set. All other words
//! follow from page, place and seed, except for a tail of zeros in compressible pages.

pub(crate) const WORD_BYTES: u64 = 8;
const GENERATION_BITS: u32 = 40;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

/// The contents of all pages of a mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contents {
    seed: u64,
    words: u64,
    /// Words from here on are zero.
    filled_words: u64,
}

impl Contents {
    /// Pages of `page_bytes`, of which a fraction is zeros.
    pub(crate) fn new(seed: u64, page_bytes: u64, compressible_fraction: f64) -> Contents {
        let words = page_bytes / WORD_BYTES;
        let filled = (words as f64 * (1.0 - compressible_fraction)).ceil() as u64;
        Contents {
            seed,
            words,
            filled_words: filled.clamp(1, words),
        }
    }

    /// Words of a page.
    pub(crate) fn words(&self) -> u64 {
        self.words
    }

    /// The place of a page's seal among its words.
    #[inline]
    pub(crate) fn seal_place(&self, page: u64) -> u64 {
        // The high half of a product distributes the places evenly, whatever the number of words.
        let spread = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(spread) * u128::from(self.filled_words)) >> 64) as u64
    }

    /// The seal of a page that was never written to since it was filled.
    #[inline]
    pub(crate) fn seal(&self, page: u64) -> u64 {
        mixed(self.seed ^ page) & !GENERATION_MASK
    }

    /// A word other than the seal.
    #[inline]
    pub(crate) fn word(&self, page: u64, place: u64) -> u64 {
        if place >= self.filled_words {
            return 0;
        }
        mixed(self.seed ^ page.rotate_left(32) ^ place.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// The word at a place of a page that was just filled.
    pub(crate) fn first(&self, page: u64, place: u64) -> u64 {
        match place == self.seal_place(page) {
            true => self.seal(page),
            false => self.word(page, place),
        }
    }

    /// Compares a seal that was read with its page and the writes that were acknowledged before the read.
    #[inline]
    pub(crate) fn judge(&self, page: u64, seal: u64, acknowledged: u64) -> Judgement {
        if seal & !GENERATION_MASK != self.seal(page) {
            Judgement::Corrupted
        } else if seal & GENERATION_MASK < acknowledged {
            Judgement::Stale
        } else {
            Judgement::Correct
        }
    }

    /// Returns true if a whole page is correct after that many acknowledged writes; `read` returns its words.
    pub(crate) fn is_whole(&self, page: u64, acknowledged: u64, read: impl Fn(u64) -> u64) -> bool {
        let seal_place = self.seal_place(page);
        (0..self.words).all(|place| match place == seal_place {
            true => self.judge(page, read(place), acknowledged) == Judgement::Correct,
            false => read(place) == self.word(page, place),
        })
    }
}

/// Result of checking a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Correct,
    /// Another page's contents, or none that was ever written.
    Corrupted,
    /// An older version than one that was acknowledged.
    Stale,
}

/// The finalizer of SplitMix64: every bit of the input changes half of the output's.
#[inline]
fn mixed(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: u64 = 4096;

    fn page(contents: &Contents, number: u64) -> Vec<u64> {
        let words = 0..contents.words();
        words.map(|place| contents.first(number, place)).collect()
    }

    #[test]
    fn a_page_is_recognized_and_no_other_or_changed_one_in_its_place() {
        let contents = Contents::new(7, PAGE_BYTES, 0.0);
        for number in 0..200 {
            let words = page(&contents, number);
            assert!(contents.is_whole(number, 0, |place| words[place as usize]));
            assert!(!contents.is_whole(number + 1, 0, |place| words[place as usize]));
        }
        let contents = Contents::new(7, PAGE_BYTES, 0.5);
        for place in 0..contents.words() as usize {
            let mut words = page(&contents, 3);
            words[place] ^= 1 << 63;
            assert!(!contents.is_whole(3, 0, |place| words[place as usize]), "word {place}");
        }
    }

    #[test]
    fn pages_have_their_share_of_zeros_and_a_version_that_may_be_stale() {
        let contents = Contents::new(7, PAGE_BYTES, 0.75);
        for number in 0..100 {
            let zeros = page(&contents, number).iter().filter(|word| **word == 0).count();
            assert!((384..=385).contains(&zeros), "{zeros} zeros in page {number}");
            assert!(contents.seal_place(number) < 128);
        }
        let contents = Contents::new(7, PAGE_BYTES, 0.0);
        let seal = contents.seal(5) + 2;
        assert_eq!(contents.judge(5, seal, 2), Judgement::Correct);
        assert_eq!(contents.judge(5, seal, 3), Judgement::Stale);
        assert_eq!(contents.judge(6, seal, 0), Judgement::Corrupted);
        assert_eq!(contents.judge(5, 0, 0), Judgement::Corrupted);
    }
}
