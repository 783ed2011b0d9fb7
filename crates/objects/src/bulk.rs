//! Operations on every object in order, not measured: loading before the load, deleting after it.

use crate::store::{Done, Session};

/// Most operations in flight.
const DEPTH: u64 = 64;
/// Most memory of their buffers.
const BUFFERS: u64 = 128 << 20;
const WAIT_NS: u64 = 100_000_000;

/// Number of operations in flight.
pub(crate) fn depth(object_bytes: u64, objects: u64) -> u32 {
    (BUFFERS / object_bytes).clamp(1, DEPTH).min(objects) as u32
}

/// Starts an operation on each object and waits for all of them. `turn` is called with the number completed, and returns false
/// to stop. An error is the object's number with the error number; objects that are missing are passed over.
pub(crate) fn each_object(
    session: &mut dyn Session,
    objects: u64,
    depth: u32,
    mut start: impl FnMut(&mut dyn Session, u32, u64) -> Result<(), i32>,
    mut turn: impl FnMut(u64) -> bool,
) -> Result<u64, (u64, i32)> {
    let mut free: Vec<u32> = (0..depth).rev().collect();
    let mut in_slot = vec![0; depth as usize];
    let mut done: Vec<Done> = Vec::with_capacity(depth as usize);
    let (mut next, mut completed, mut failed, mut stopped) = (0, 0, None, false);
    loop {
        while next < objects && failed.is_none() && !stopped {
            let Some(slot) = free.pop() else { break };
            in_slot[slot as usize] = next;
            if let Err(error) = start(session, slot, next) {
                failed = Some((next, error));
                free.push(slot);
            }
            next += 1;
        }
        if free.len() == depth as usize {
            return failed.map_or(Ok(completed), Err);
        }
        session.wait(WAIT_NS);
        done.clear();
        session.reap(&mut done);
        for each in &done {
            free.push(each.slot);
            if each.result < 0 && each.result != -libc::ENOENT {
                failed.get_or_insert((in_slot[each.slot as usize], each.result));
            } else {
                completed += u64::from(each.result >= 0);
            }
        }
        stopped |= !turn(completed);
    }
}
