//! Arithmetic of readings that consist of counters. It never underflows: the kernel lets idle and I/O-wait time go back a little now
//! and then.

use crate::{CpuTime, DeviceUsage, KvCacheResult, MediaUsage, OltpCounters, TransactionResult, Usage};

/// Differences and sums of the fields that count; others are those of the first reading.
macro_rules! counters {
    ($reading:ident: $($counter:ident)*) => {
        impl $reading {
            /// What was counted since an earlier reading.
            #[must_use]
            pub fn since(&self, earlier: &$reading) -> $reading {
                let mut change = self.to_owned();
                $(change.$counter = change.$counter.saturating_sub(earlier.$counter);)*
                change
            }

            /// Adds what another has counted.
            pub fn include(&mut self, other: &$reading) {
                $(self.$counter += other.$counter;)*
            }
        }
    };
}

counters!(Usage: wall_ns user_ns system_ns voluntary_switches involuntary_switches minor_faults major_faults fs_inputs
    fs_outputs);
counters!(DeviceUsage: reads read_merges read_bytes read_wait_ns writes write_merges write_bytes write_wait_ns busy_ns
    discards discard_bytes flushes);
counters!(MediaUsage: media_read_bytes media_write_bytes copied_bytes padded_bytes erases buffer_read_hits
    buffer_write_hits);
counters!(CpuTime: user_ns system_ns idle_ns io_wait_ns interrupt_ns steal_ns);
counters!(OltpCounters: statements round_trips sent_bytes received_bytes aborted_attempts failed_transactions);
counters!(TransactionResult: completed rolled_back failed serialization_failures deadlocks lock_timeouts
    skipped_districts);
counters!(KvCacheResult: arrived requests finished loaded_requests load_ns loaded_blocks unfinished lookups dram_hits storage_hits
    common_hits late_hits stores evictions read_blocks written_blocks removed_blocks trace_ns);
