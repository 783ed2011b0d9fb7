//! In which order a job visits the blocks of its region.
//!
//! A visit counts in units of the stream's smallest block size, without bytes, operations or time. It is
//! called for the next place of an I/O of some [`Size`] and returns a unit at which that I/O fits into the region.
//! Where sizes are mixed, a random place too close to the end for the size drawn is moved back to the last that fits.

use iosonde_protocol::{Access, Coverage, Distribution};

use crate::load::mix::Size;
use crate::load::permutation::Permutation;
use crate::load::zipf::Zipf;
use crate::load::{Purpose, Rng};

/// Parameters of a visit besides its kind.
pub(crate) struct AccessContext {
    /// Units in the region.
    pub(crate) units: u64,
    pub(crate) unit_bytes: u64,
    /// Unit at which an ordered visit begins.
    pub(crate) first: u64,
    /// The run's seed.
    pub(crate) seed: u64,
    /// Number of the stream in the run.
    pub(crate) stream_index: u64,
}

/// An order of visiting blocks, and how far it got.
#[derive(Debug, Clone)]
pub(crate) enum Visit {
    Sequential(Sequential),
    Strided(Strided),
    Uniform,
    Zipfian(Zipfian),
    HotCold(HotCold),
    EachOnce(EachOnce),
    Aging(Aging),
}

impl Visit {
    /// The visit that a valid `access` describes.
    pub(crate) fn new(access: &Access, context: &AccessContext) -> Self {
        match *access {
            Access::Sequential => Self::Sequential(Sequential { next: context.first }),
            Access::Strided { stride_bytes } => {
                Self::Strided(Strided::new(stride_bytes / context.unit_bytes, context.first))
            }
            Access::Aging { over_provisioning } => Self::Aging(Aging::new(context.units, over_provisioning)),
            Access::Random {
                coverage: Coverage::EachOnce,
                ..
            } => Self::EachOnce(EachOnce::new(context.units)),
            Access::Random {
                coverage: Coverage::WithReplacement,
                distribution,
            } => match distribution {
                Distribution::Uniform => Self::Uniform,
                Distribution::Zipfian { theta } => Self::Zipfian(Zipfian::new(theta, context)),
                Distribution::HotCold { hot_span, hot_access } => {
                    Self::HotCold(HotCold::new(hot_span, hot_access, context.units))
                }
            },
        }
    }

    /// The unit at which the next I/O, of `size`, starts.
    #[inline]
    pub(crate) fn next(&mut self, size: &Size, rng: &mut Rng) -> u64 {
        match self {
            Self::Sequential(visit) => visit.next(size),
            Self::Strided(visit) => visit.next(size),
            Self::Uniform => rng.below(size.starts),
            Self::Zipfian(visit) => visit.next(rng).min(size.starts - 1),
            Self::HotCold(visit) => visit.next(rng).min(size.starts - 1),
            Self::EachOnce(visit) => visit.next(rng).min(size.starts - 1),
            Self::Aging(visit) => visit.next(rng).min(size.starts - 1),
        }
    }
}

/// One block after the other, beginning again at the end of the region.
#[derive(Debug, Clone)]
pub(crate) struct Sequential {
    next: u64,
}

impl Sequential {
    #[inline]
    fn next(&mut self, size: &Size) -> u64 {
        let unit = if self.next < size.starts { self.next } else { 0 };
        self.next = unit + size.units;
        unit
    }
}

/// Every `stride` a block; each pass over the region begins one unit further, until the gaps are filled.
#[derive(Debug, Clone)]
pub(crate) struct Strided {
    stride: u64,
    pass: u64,
    next: u64,
}

impl Strided {
    /// Begins at the last multiple of the stride that is not beyond `first`.
    fn new(stride: u64, first: u64) -> Self {
        Self {
            stride,
            pass: 0,
            next: first - first % stride,
        }
    }

    #[inline]
    fn next(&mut self, size: &Size) -> u64 {
        if self.next >= size.starts {
            self.pass = (self.pass + 1) % self.stride.min(size.starts);
            self.next = self.pass;
        }
        let unit = self.next;
        self.next += self.stride;
        unit
    }
}

/// Ranks by Zipf's law, scattered: neighbouring ranks lie anywhere, and all jobs of a stream agree where.
#[derive(Debug, Clone)]
pub(crate) struct Zipfian {
    ranks: Zipf,
    places: Permutation,
}

impl Zipfian {
    fn new(theta: f64, context: &AccessContext) -> Self {
        let mut rng = Rng::new(context.seed, &[context.stream_index, Purpose::Scatter as u64]);
        Self {
            ranks: Zipf::new(context.units, theta),
            places: Permutation::new(context.units, &mut rng),
        }
    }

    #[inline]
    fn next(&self, rng: &mut Rng) -> u64 {
        self.places.apply(self.ranks.next(rng) - 1)
    }
}

/// The beginning of the region is hot: it takes a given share of the accesses; within each part all units are alike.
#[derive(Debug, Clone)]
pub(crate) struct HotCold {
    hot_units: u64,
    cold_units: u64,
    hot_access: f64,
}

impl HotCold {
    /// Both parts have at least one unit, if there are two.
    fn new(hot_span: f64, hot_access: f64, units: u64) -> Self {
        let hot_units = ((hot_span * units as f64).round() as u64).clamp(1, (units - 1).max(1));
        Self {
            hot_units,
            cold_units: units - hot_units,
            hot_access,
        }
    }

    #[inline]
    fn next(&self, rng: &mut Rng) -> u64 {
        if self.cold_units == 0 || rng.unit() < self.hot_access {
            rng.below(self.hot_units)
        } else {
            self.hot_units + rng.below(self.cold_units)
        }
    }
}

/// Each unit once a pass, each pass in another random order.
#[derive(Debug, Clone)]
pub(crate) struct EachOnce {
    units: u64,
    /// Number of units of this pass that were visited.
    visited: u64,
    /// The order of this pass; `None` until the first is drawn.
    order: Option<Permutation>,
}

impl EachOnce {
    fn new(units: u64) -> Self {
        Self {
            units,
            visited: 0,
            order: None,
        }
    }

    #[inline]
    fn next(&mut self, rng: &mut Rng) -> u64 {
        if self.visited == self.units {
            self.visited = 0;
            self.order = None;
        }
        let order = self.order.get_or_insert_with(|| Permutation::new(self.units, rng));
        let unit = order.apply(self.visited);
        self.visited += 1;
        unit
    }
}

/// A drive aged in one pass.
///
/// Under uniform random writes a drive that collects its oldest block first holds blocks of every age, and of a block
/// onto which `h` units were written ago a share of `exp(-h / units)` is still valid. The oldest, which is collected
/// next, holds the share `a` with `a = exp(-(1 - a) (1 + over_provisioning))` (write amplification is `1 / (1 - a)`).
/// So with `x` of the physical room still to be written, `exp(-(1 - a) (1 + over_provisioning) x)` of what is written
/// now must last: those are the next units of a random order. The rest goes to units that are still to come in that
/// order, which makes it stale by the end.
#[derive(Debug, Clone)]
pub(crate) struct Aging {
    units: u64,
    /// Units of the drive with its spare room: the length of the pass.
    physical: u64,
    /// The share that is still valid at the start of the pass is `exp(-decay)`.
    decay: f64,
    written: u64,
    /// Units that were written and are not written again.
    settled: u64,
    order: Option<Permutation>,
}

impl Aging {
    fn new(units: u64, over_provisioning: f64) -> Self {
        Self {
            units,
            physical: units + (units as f64 * over_provisioning).round() as u64,
            decay: (1.0 - oldest_valid_share(over_provisioning)) * (1.0 + over_provisioning),
            written: 0,
            settled: 0,
            order: None,
        }
    }

    #[inline]
    fn next(&mut self, rng: &mut Rng) -> u64 {
        if self.written == self.physical {
            (self.written, self.settled, self.order) = (0, 0, None);
        }
        let (left, to_settle) = (self.physical - self.written, self.units - self.settled);
        self.written += 1;
        match to_settle {
            // Chance has settled the last unit a little before the end.
            0 => rng.below(self.units),
            1 => self.settle_next(rng),
            _ if to_settle >= left || rng.unit() < self.lasting_share(left) => self.settle_next(rng),
            _ => {
                let place = self.settled + 1 + rng.below(to_settle - 1);
                self.at(place, rng)
            }
        }
    }

    /// Share that must last of data written with so much left of the pass.
    fn lasting_share(&self, left: u64) -> f64 {
        (-self.decay * (left as f64 / self.physical as f64)).exp()
    }

    fn settle_next(&mut self, rng: &mut Rng) -> u64 {
        self.settled += 1;
        self.at(self.settled - 1, rng)
    }

    /// The unit at a place of this pass's order.
    fn at(&mut self, place: u64, rng: &mut Rng) -> u64 {
        let units = self.units;
        self.order
            .get_or_insert_with(|| Permutation::new(units, rng))
            .apply(place)
    }
}

/// The share of valid units in the block that is collected next, by iteration from below: the other solution is 1.
fn oldest_valid_share(over_provisioning: f64) -> f64 {
    let mut share = 0.0_f64;
    for _ in 0..10_000 {
        let next = (-(1.0 - share) * (1.0 + over_provisioning)).exp();
        if (next - share).abs() < 1e-12 {
            break;
        }
        share = next;
    }
    share
}
