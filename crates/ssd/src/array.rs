//! Mapping of array requests to drives: pure arithmetic, no time.
//!
//! Layouts are those of Linux md: RAID 10 as near copies over pairs, RAID 5 and 6 with left-symmetric rotating parity. A
//! write that covers a whole stripe writes data and parity; any other must know the old data first and either reads what
//! it replaces, with the parity (read-modify-write), or the rest of the stripe (reconstruct-write), whichever is less.
//! Requests are treated one by one: no stripe cache merges them, and none locks a stripe against another.

use iosonde_protocol::{ArrayModel, RaidLevel};

use crate::Action;

/// An I/O on one drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemberIo {
    pub drive: u32,
    pub operation: Action,
    pub offset_bytes: u64,
    pub bytes: u64,
}

/// Drive I/O of a request: the second part starts when the first is complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    pub first: Vec<MemberIo>,
    pub second: Vec<MemberIo>,
}

/// A range on one drive, of data or parity.
#[derive(Debug, Clone, Copy)]
struct Part {
    drive: u32,
    offset_bytes: u64,
    bytes: u64,
}

/// An array of drives that each hold `member_bytes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Array {
    model: ArrayModel,
    /// Of each drive, in whole chunks where data is striped.
    member_bytes: u64,
}

impl Array {
    pub(crate) fn new(model: ArrayModel, drive_bytes: u64) -> Array {
        let is_striped = model.drives > 1 && model.level != RaidLevel::Raid1;
        let member_bytes = if is_striped {
            drive_bytes / model.chunk_bytes * model.chunk_bytes
        } else {
            drive_bytes
        };
        Array { model, member_bytes }
    }

    /// Bytes that the host sees.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.member_bytes * self.data_chunks()
    }

    /// Divides a request into drive I/O. `least_busy` is the drive that a mirror should read from, among some.
    pub(crate) fn divide(
        &self,
        operation: Action,
        offset_bytes: u64,
        bytes: u64,
        least_busy: impl Fn(u32, u32) -> u32,
    ) -> Steps {
        let drives = self.model.drives;
        if operation == Action::Flush {
            let flush = |drive| MemberIo {
                drive,
                operation,
                offset_bytes: 0,
                bytes: 0,
            };
            return Steps {
                first: (0..drives).map(flush).collect(),
                ..Steps::default()
            };
        }
        let first = match self.model.level {
            RaidLevel::Raid0 => ios(operation, self.striped(offset_bytes, bytes, drives)),
            RaidLevel::Raid1 => mirrored(
                operation,
                Part {
                    drive: 0,
                    offset_bytes,
                    bytes,
                },
                drives,
                &least_busy,
            ),
            RaidLevel::Raid10 => {
                let parts = self.striped(offset_bytes, bytes, drives / 2);
                let pairs = parts.into_iter().map(|part| Part {
                    drive: part.drive * 2,
                    ..part
                });
                pairs
                    .flat_map(|part| mirrored(operation, part, 2, &least_busy))
                    .collect()
            }
            RaidLevel::Raid5 | RaidLevel::Raid6 if operation == Action::Write => {
                return self.write_with_parity(offset_bytes, bytes);
            }
            RaidLevel::Raid5 | RaidLevel::Raid6 => ios(operation, self.data_parts(offset_bytes, bytes)),
        };
        Steps {
            first: merged(first),
            second: Vec::new(),
        }
    }

    /// Chunks of data in a stripe.
    fn data_chunks(&self) -> u64 {
        let drives = u64::from(self.model.drives);
        match self.model.level {
            RaidLevel::Raid0 => drives,
            RaidLevel::Raid1 => 1,
            RaidLevel::Raid10 => drives / 2,
            RaidLevel::Raid5 => drives - 1,
            RaidLevel::Raid6 => drives - 2,
        }
    }

    fn striped(&self, offset_bytes: u64, bytes: u64, columns: u32) -> Vec<Part> {
        if columns == 1 {
            return vec![Part {
                drive: 0,
                offset_bytes,
                bytes,
            }];
        }
        let place = |chunk: u64| {
            let (row, column) = (chunk / u64::from(columns), chunk % u64::from(columns));
            (column as u32, row)
        };
        self.chunks(offset_bytes, bytes, place)
    }

    /// Data of RAID 5 and 6, around the parity.
    fn data_parts(&self, offset_bytes: u64, bytes: u64) -> Vec<Part> {
        let columns = self.data_chunks();
        let place = |chunk: u64| (self.data_drive(chunk / columns, chunk % columns), chunk / columns);
        self.chunks(offset_bytes, bytes, place)
    }

    /// The range chunk by chunk; `place` returns the drive and row of a chunk.
    fn chunks(&self, offset_bytes: u64, bytes: u64, place: impl Fn(u64) -> (u32, u64)) -> Vec<Part> {
        let (chunk_bytes, end) = (self.model.chunk_bytes, offset_bytes + bytes);
        let (mut at, mut parts) = (offset_bytes, Vec::new());
        while at < end {
            let (chunk, within) = (at / chunk_bytes, at % chunk_bytes);
            let length = (chunk_bytes - within).min(end - at);
            let (drive, row) = place(chunk);
            parts.push(Part {
                drive,
                offset_bytes: row * chunk_bytes + within,
                bytes: length,
            });
            at += length;
        }
        parts
    }

    /// The drive that holds the parity of a row; that of a second parity follows it.
    fn parity_drive(&self, row: u64) -> u64 {
        let drives = u64::from(self.model.drives);
        drives - 1 - row % drives
    }

    fn data_drive(&self, row: u64, column: u64) -> u32 {
        let drives = u64::from(self.model.drives);
        ((self.parity_drive(row) + (drives - self.data_chunks()) + column) % drives) as u32
    }

    fn write_with_parity(&self, offset_bytes: u64, bytes: u64) -> Steps {
        let stripe_bytes = self.model.chunk_bytes * self.data_chunks();
        let (mut at, end, mut steps) = (offset_bytes, offset_bytes + bytes, Steps::default());
        while at < end {
            let row = at / stripe_bytes;
            let until = end.min((row + 1) * stripe_bytes);
            self.write_stripe(row, at, until, &mut steps);
            at = until;
        }
        let steps = Steps {
            first: merged(steps.first),
            second: merged(steps.second),
        };
        if steps.first.is_empty() {
            Steps {
                first: steps.second,
                second: Vec::new(),
            }
        } else {
            steps
        }
    }

    /// Writes a part of one stripe.
    fn write_stripe(&self, row: u64, from: u64, until: u64, steps: &mut Steps) {
        let data = self.data_parts(from, until - from);
        let (low, high) = self.hull(row, &data);
        let parity = self.parity_parts(row, low, high - low);
        let modify: Vec<Part> = data.iter().chain(&parity).copied().collect();
        let reconstruct = self.rest_of_stripe(row, low, high, &data);
        let (of_modify, of_reconstruct) = (total(&modify), total(&reconstruct));
        let reads = if of_reconstruct <= of_modify {
            reconstruct
        } else {
            modify.clone()
        };
        steps.first.extend(ios(Action::Read, reads));
        steps.second.extend(ios(Action::Write, modify));
    }

    /// The part of the chunks' height that a write touches, on whichever drive.
    fn hull(&self, row: u64, data: &[Part]) -> (u64, u64) {
        let base = row * self.model.chunk_bytes;
        let low = data.iter().map(|part| part.offset_bytes).min().unwrap_or(base);
        let high = data
            .iter()
            .map(|part| part.offset_bytes + part.bytes)
            .max()
            .unwrap_or(base);
        (low, high)
    }

    fn parity_parts(&self, row: u64, offset_bytes: u64, bytes: u64) -> Vec<Part> {
        let drives = u64::from(self.model.drives);
        let parities = 0..drives - self.data_chunks();
        let drive = |number| ((self.parity_drive(row) + number) % drives) as u32;
        parities
            .map(|number| Part {
                drive: drive(number),
                offset_bytes,
                bytes,
            })
            .collect()
    }

    /// Parts of a stripe that a write leaves unchanged, within the height that it touches.
    fn rest_of_stripe(&self, row: u64, low: u64, high: u64, data: &[Part]) -> Vec<Part> {
        let mut rest = Vec::new();
        for column in 0..self.data_chunks() {
            let drive = self.data_drive(row, column);
            let (mut begin, mut end) = (high, high);
            if let Some(part) = data.iter().find(|part| part.drive == drive) {
                (begin, end) = (part.offset_bytes, part.offset_bytes + part.bytes);
            }
            let outside = [(low, begin), (end, high)];
            let parts = outside.into_iter().filter(|(from, to)| from < to);
            rest.extend(parts.map(|(from, to)| Part {
                drive,
                offset_bytes: from,
                bytes: to - from,
            }));
        }
        rest
    }
}

fn mirrored(operation: Action, part: Part, copies: u32, least_busy: &impl Fn(u32, u32) -> u32) -> Vec<MemberIo> {
    if operation == Action::Read {
        let drive = least_busy(part.drive, copies);
        return ios(operation, vec![Part { drive, ..part }]);
    }
    ios(
        operation,
        (part.drive..part.drive + copies)
            .map(|drive| Part { drive, ..part })
            .collect(),
    )
}

fn ios(operation: Action, parts: Vec<Part>) -> Vec<MemberIo> {
    let io = |Part {
                  drive,
                  offset_bytes,
                  bytes,
              }| MemberIo {
        drive,
        operation,
        offset_bytes,
        bytes,
    };
    parts.into_iter().map(io).collect()
}

fn total(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.bytes).sum()
}

/// Joins what is adjacent on a drive, as the host's block layer does.
fn merged(mut ios: Vec<MemberIo>) -> Vec<MemberIo> {
    if ios.len() < 2 {
        return ios;
    }
    ios.sort_by_key(|io| (io.drive, io.offset_bytes));
    let mut joined: Vec<MemberIo> = Vec::with_capacity(ios.len());
    for io in ios {
        match joined.last_mut() {
            Some(last) if last.drive == io.drive && last.offset_bytes + last.bytes == io.offset_bytes => {
                last.bytes += io.bytes;
            }
            _ => joined.push(io),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 64 << 10;

    fn array(level: RaidLevel, drives: u32) -> Array {
        let model = ArrayModel {
            level,
            drives,
            chunk_bytes: CHUNK,
            bytes_per_second: None,
            parity_bytes_per_second: None,
        };
        Array::new(model, 1 << 30)
    }

    fn divide(array: &Array, operation: Action, offset_bytes: u64, bytes: u64) -> Steps {
        array.divide(operation, offset_bytes, bytes, |first, _| first)
    }

    fn sum(ios: &[MemberIo], operation: Action) -> u64 {
        let ios = ios.iter().filter(|io| io.operation == operation);
        ios.map(|io| io.bytes).sum()
    }

    #[test]
    fn capacities_follow_the_published_models_and_large_ios_are_joined() {
        use RaidLevel::{Raid0, Raid1, Raid5, Raid6, Raid10};
        let gib = |level| array(level, 4).capacity_bytes() >> 30;
        assert_eq!([Raid0, Raid1, Raid10, Raid5, Raid6].map(gib), [4, 1, 2, 3, 2]);
        let steps = divide(&array(RaidLevel::Raid0, 3), Action::Read, 0, 6 * CHUNK);
        assert_eq!(steps.first.len(), 3);
        let mut ios = steps.first.iter();
        assert!(ios.all(|io| io.bytes == 2 * CHUNK && io.offset_bytes == 0));
        // Two of three chunks: read-modify-write would read three chunks, the rest of the stripe is one.
        let steps = divide(&array(RaidLevel::Raid5, 4), Action::Write, 0, 2 * CHUNK);
        assert_eq!(sum(&steps.first, Action::Read), CHUNK);
        assert_eq!(sum(&steps.second, Action::Write), 3 * CHUNK);
    }

    #[test]
    fn every_chunk_has_its_own_place_and_parity_rotates() {
        for (level, drives) in [(RaidLevel::Raid0, 3), (RaidLevel::Raid5, 5), (RaidLevel::Raid6, 6)] {
            let array = array(level, drives);
            let mut places = std::collections::BTreeSet::new();
            for chunk in 0..200 {
                let steps = divide(&array, Action::Read, chunk * CHUNK, CHUNK);
                assert!(places.insert((steps.first[0].drive, steps.first[0].offset_bytes)));
            }
            let used: std::collections::BTreeSet<u32> = places.iter().map(|(drive, _)| *drive).collect();
            assert_eq!(used.len() as u32, drives);
        }
    }
}
