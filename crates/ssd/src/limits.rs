//! Rate limits as of cloud volumes: token buckets that requests wait for, and the time of first accesses.
//!
//! A bucket has credits. A request passes when they are not negative, and takes what it costs: a large one leaves a debt
//! that later requests wait for, so the long-term rate is exact for every size. With `burst_rate` a second bucket without
//! savings bounds the rate while there are credits. Reads and writes wait in queues of their own, each in order, so that
//! a limit of one does not hold up the other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iosonde_protocol::{Counted, DriveModel, FirstTouchModel, LimitModel, LimitStyle, SharedBy};

use crate::Action;

/// A request that waits for credits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub operation: Action,
    pub offset_bytes: u64,
    pub bytes: u64,
}

impl Claim {
    /// Reads and writes are limited; trims and flushes are not.
    fn queue(&self) -> Option<usize> {
        match self.operation {
            Action::Read => Some(0),
            Action::Write => Some(1),
            Action::Trim | Action::Flush => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    rate: f64,
    capacity: f64,
    credits: f64,
    at_ns: u64,
}

impl Bucket {
    fn full(rate: f64, capacity: f64) -> Bucket {
        Bucket {
            rate,
            capacity,
            credits: capacity,
            at_ns: 0,
        }
    }

    fn earn(&mut self, to_ns: u64) {
        if to_ns > self.at_ns {
            // The fraction that a nanosecond adds is kept: requests pass at whole nanoseconds, and would lose the rest.
            let most = self.capacity + self.rate / 1e9;
            self.credits = (self.credits + (to_ns - self.at_ns) as f64 * self.rate / 1e9).min(most);
            self.at_ns = to_ns;
        }
    }

    /// Instant at which the next request passes.
    fn ready_ns(&self) -> u64 {
        if self.credits >= 0.0 {
            return self.at_ns;
        }
        self.at_ns + (-self.credits / self.rate * 1e9).ceil() as u64
    }

    fn take(&mut self, now_ns: u64, cost: f64) {
        self.earn(now_ns);
        self.credits -= cost;
    }

    /// The present becomes the beginning of a new clock.
    fn restart(&mut self, now_ns: u64) {
        self.earn(now_ns);
        self.at_ns = 0;
    }
}

/// One limit of one volume, or of all of them.
#[derive(Debug, Clone)]
struct Limit {
    model: LimitModel,
    sustained: Bucket,
    burst: Option<Bucket>,
    /// Changes that have happened.
    changed: usize,
    /// Last operation of each kind: where it ended, and bytes since the unit that it is merged into began.
    last: [(u64, u64); 2],
}

impl Limit {
    fn new(model: &LimitModel) -> Limit {
        Limit {
            sustained: Bucket::full(model.rate, model.bucket),
            burst: model.burst_rate.map(|rate| Bucket::full(rate, 0.0)),
            changed: 0,
            last: [(u64::MAX, 0); 2],
            model: model.clone(),
        }
    }

    fn weight(&self, queue: usize) -> f64 {
        [self.model.read_weight, self.model.write_weight][queue]
    }

    fn ready_ns(&self) -> u64 {
        let burst_ns = self.burst.map_or(0, |burst| burst.ready_ns());
        self.sustained.ready_ns().max(burst_ns)
    }

    fn take(&mut self, now_ns: u64, claim: &Claim, queue: usize) {
        let cost = self.count(claim, queue) * self.weight(queue);
        self.sustained.take(now_ns, cost);
        if let Some(burst) = &mut self.burst {
            burst.take(now_ns, cost);
        }
    }

    fn count(&mut self, claim: &Claim, queue: usize) -> f64 {
        match (self.model.counts, self.model.unit_bytes) {
            (Counted::Bytes, _) => claim.bytes as f64,
            (Counted::Operations, None) => 1.0,
            (Counted::Operations, Some(unit)) if !self.model.merge => claim.bytes.div_ceil(unit) as f64,
            (Counted::Operations, Some(unit)) => {
                let (end, merged) = self.last[queue];
                let merged = if end == claim.offset_bytes { merged } else { 0 };
                let total = merged + claim.bytes;
                self.last[queue] = (claim.offset_bytes + claim.bytes, total % unit);
                (total.div_ceil(unit) - merged.div_ceil(unit)) as f64
            }
        }
    }

    fn next_change(&self, origin_ns: u64) -> Option<(u64, f64)> {
        let change = self.model.changes.get(self.changed)?;
        Some((change.after_ns.saturating_sub(origin_ns), change.rate))
    }

    fn change(&mut self, origin_ns: u64, now_ns: u64) {
        while let Some((at_ns, rate)) = self.next_change(origin_ns)
            && at_ns <= now_ns
        {
            self.sustained.earn(at_ns);
            self.sustained.rate = rate;
            self.changed += 1;
        }
    }
}

/// Requests in front of the limits of one style; what passes is what the caller put in, `T`.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    limits: Vec<Limit>,
    /// Limits that hold for each volume, by their numbers.
    of_volume: Vec<Vec<usize>>,
    /// Reads and writes of each volume, each with the order of arrival.
    queues: Vec<[VecDeque<(u64, Claim, T)>; 2]>,
    arrived: u64,
    waiting: usize,
    /// Virtual time of earlier runs.
    origin_ns: u64,
}

impl<T> Gate<T> {
    /// The limits of this style; None if the model has none.
    pub(crate) fn new(model: &DriveModel, style: LimitStyle, volumes: u32) -> Option<Gate<T>> {
        let mut limits = Vec::new();
        let mut of_volume = vec![Vec::new(); volumes as usize];
        for limit in model.limits.iter().filter(|limit| limit.style == style) {
            for (volume, numbers) in of_volume.iter_mut().enumerate() {
                if limit.shared_by == SharedBy::Volume || volume == 0 {
                    limits.push(Limit::new(limit));
                }
                numbers.push(limits.len() - 1);
            }
        }
        let queues = (0..volumes).map(|_| [VecDeque::new(), VecDeque::new()]).collect();
        (!limits.is_empty()).then_some(Gate {
            limits,
            of_volume,
            queues,
            arrived: 0,
            waiting: 0,
            origin_ns: 0,
        })
    }

    /// Puts a request into its queue; gives it back if it has nothing to wait for.
    pub(crate) fn arrive(&mut self, volume: usize, claim: Claim, what: T) -> Option<T> {
        let Some(queue) = claim.queue() else {
            return Some(what);
        };
        self.arrived += 1;
        self.waiting += 1;
        self.queues[volume][queue].push_back((self.arrived, claim, what));
        None
    }

    /// Instant at which the next request may pass, or at which a rate changes while one waits.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let (ready_ns, ..) = self.first()?;
        let change_ns = self
            .limits
            .iter()
            .filter_map(|limit| limit.next_change(self.origin_ns))
            .map(|(at_ns, _)| at_ns)
            .min();
        Some(change_ns.map_or(ready_ns, |change_ns| change_ns.min(ready_ns)))
    }

    /// A request that passes by now.
    pub(crate) fn pass(&mut self, now_ns: u64) -> Option<T> {
        self.limits
            .iter_mut()
            .for_each(|limit| limit.change(self.origin_ns, now_ns));
        let (ready_ns, _, volume, queue) = self.first()?;
        if ready_ns > now_ns {
            return None;
        }
        let (_, claim, what) = self.queues[volume][queue].pop_front()?;
        self.waiting -= 1;
        for &number in &self.of_volume[volume] {
            let limit = &mut self.limits[number];
            if limit.weight(queue) > 0.0 {
                limit.take(now_ns, &claim, queue);
            }
        }
        Some(what)
    }

    /// The clock starts again at 0; credits stay as they are.
    pub(crate) fn restart(&mut self, now_ns: u64) {
        for limit in &mut self.limits {
            limit.change(self.origin_ns, now_ns);
            limit.sustained.restart(now_ns);
            if let Some(burst) = &mut limit.burst {
                burst.restart(now_ns);
            }
        }
        self.origin_ns += now_ns;
    }

    /// State that outlives a run.
    pub(crate) fn state(&self) -> Vec<u64> {
        let mut words = vec![self.origin_ns];
        for limit in &self.limits {
            words.push(limit.sustained.credits.to_bits());
            words.push(limit.burst.map_or(0, |burst| burst.credits.to_bits()));
            words.extend(limit.last.iter().flat_map(|&(end, merged)| [end, merged]));
        }
        words
    }

    /// Takes over what [`Gate::state`] gave; None if it belongs to other limits.
    pub(crate) fn restore(&mut self, words: &[u64]) -> Option<()> {
        let (&origin_ns, each) = words.split_first()?;
        if each.len() != 6 * self.limits.len() {
            return None;
        }
        self.origin_ns = origin_ns;
        for (limit, words) in self.limits.iter_mut().zip(each.chunks_exact(6)) {
            limit.sustained.credits = f64::from_bits(words[0]);
            if let Some(burst) = &mut limit.burst {
                burst.credits = f64::from_bits(words[1]);
            }
            limit.last = [(words[2], words[3]), (words[4], words[5])];
            limit.change(origin_ns, 0);
        }
        Some(())
    }

    /// The head that passes next: when, its order of arrival, its volume and its queue.
    fn first(&self) -> Option<(u64, u64, usize, usize)> {
        if self.waiting == 0 {
            return None;
        }
        let heads = self.queues.iter().enumerate().flat_map(|(volume, queues)| {
            let heads = queues.iter().enumerate();
            heads.filter_map(move |(queue, waiting)| Some((waiting.front()?.0, volume, queue)))
        });
        heads
            .map(|(order, volume, queue)| (self.ready_ns(volume, queue), order, volume, queue))
            .min()
    }

    fn ready_ns(&self, volume: usize, queue: usize) -> u64 {
        let limits = self.of_volume[volume].iter().map(|&number| &self.limits[number]);
        limits
            .filter(|limit| limit.weight(queue) > 0.0)
            .map(Limit::ready_ns)
            .max()
            .unwrap_or(0)
    }
}

/// First accesses: which regions were touched, and requests that wait for theirs.
#[derive(Debug)]
pub(crate) struct FirstTouch<T> {
    model: FirstTouchModel,
    /// One bit for each region.
    touched: Vec<u64>,
    waiting: BinaryHeap<Reverse<(u64, T)>>,
}

impl<T: Ord> FirstTouch<T> {
    pub(crate) fn new(model: FirstTouchModel, capacity_bytes: u64) -> FirstTouch<T> {
        let regions = capacity_bytes.div_ceil(model.region_bytes);
        FirstTouch {
            model,
            touched: vec![0; regions.div_ceil(64) as usize],
            waiting: BinaryHeap::new(),
        }
    }

    /// Lets a request wait for the regions that it touches first; gives it back if there are none.
    pub(crate) fn arrive(&mut self, now_ns: u64, claim: &Claim, what: T) -> Option<T> {
        if claim.queue().is_none() || claim.bytes == 0 {
            return Some(what);
        }
        let last = (claim.offset_bytes + claim.bytes - 1) / self.model.region_bytes;
        let mut fresh = 0;
        for region in claim.offset_bytes / self.model.region_bytes..=last {
            let (word, bit) = ((region / 64) as usize, 1 << (region % 64));
            fresh += u64::from(self.touched[word] & bit == 0);
            self.touched[word] |= bit;
        }
        if fresh == 0 {
            return Some(what);
        }
        self.waiting.push(Reverse((now_ns + fresh * self.model.time_ns, what)));
        None
    }

    pub(crate) fn next_event(&self) -> Option<u64> {
        self.waiting.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    pub(crate) fn pass(&mut self, now_ns: u64) -> Option<T> {
        if self.next_event()? > now_ns {
            return None;
        }
        self.waiting.pop().map(|Reverse((_, what))| what)
    }

    pub(crate) fn state(&self) -> &[u64] {
        &self.touched
    }

    pub(crate) fn restore(&mut self, words: &[u64]) -> Option<()> {
        if words.len() != self.touched.len() {
            return None;
        }
        self.touched.copy_from_slice(words);
        Some(())
    }
}
