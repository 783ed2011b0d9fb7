//! RocksDB's options by its own names, validated by RocksDB itself.
//!
//! Options of the database and of its column family are passed as text (`rocksdb_get_options_from_string`), so any option of
//! any version can be named. Options of the block-based table are nested in one of them; they are named like the others in a
//! study, and moved there by the list below. A few options of `ReadOptions` and `WriteOptions` have their own functions. The
//! lists are also used for suggestions; RocksDB decides whether an option exists.

use std::collections::BTreeMap;
use std::ffi::CString;

use crate::options::{self, Choice, Given};
use iosonde_harness::RunError;

use crate::rocksdb::library::{Handle, NAME, RocksDb};

/// Of `BlockBasedTableOptions`, RocksDB 7.8.
const TABLE: &[&str] = &[
    "block_align",
    "block_cache",
    "block_restart_interval",
    "block_size",
    "block_size_deviation",
    "cache_index_and_filter_blocks",
    "cache_index_and_filter_blocks_with_high_priority",
    "checksum",
    "data_block_hash_table_util_ratio",
    "data_block_index_type",
    "detect_filter_construct_corruption",
    "enable_index_compression",
    "filter_policy",
    "flush_block_policy_factory",
    "format_version",
    "index_block_restart_interval",
    "index_shortening",
    "index_type",
    "initial_auto_readahead_size",
    "max_auto_readahead_size",
    "metadata_block_size",
    "metadata_cache_options",
    "no_block_cache",
    "num_file_reads_for_auto_readahead",
    "optimize_filters_for_memory",
    "partition_filters",
    "pin_l0_filter_and_index_blocks_in_cache",
    "pin_top_level_index_and_filter",
    "prepopulate_block_cache",
    "read_amp_bytes_per_bit",
    "verify_compression",
    "whole_key_filtering",
];

/// Of `DBOptions` and `ColumnFamilyOptions`, RocksDB 7.8; for suggestions only.
const DATABASE: &[&str] = &[
    "WAL_size_limit_MB",
    "WAL_ttl_seconds",
    "access_hint_on_compaction_start",
    "advise_random_on_open",
    "allow_concurrent_memtable_write",
    "allow_data_in_errors",
    "allow_fallocate",
    "allow_mmap_reads",
    "allow_mmap_writes",
    "arena_block_size",
    "atomic_flush",
    "avoid_flush_during_recovery",
    "avoid_flush_during_shutdown",
    "avoid_unnecessary_blocking_io",
    "best_efforts_recovery",
    "block_based_table_factory",
    "bloom_locality",
    "blob_compression_type",
    "blob_file_size",
    "blob_file_starting_level",
    "blob_garbage_collection_age_cutoff",
    "bottommost_compression",
    "bottommost_compression_opts",
    "bytes_per_sync",
    "compaction_options_fifo",
    "compaction_options_universal",
    "compaction_pri",
    "compaction_readahead_size",
    "compaction_style",
    "compression",
    "compression_opts",
    "db_write_buffer_size",
    "delayed_write_rate",
    "delete_obsolete_files_period_micros",
    "disable_auto_compactions",
    "dump_malloc_stats",
    "enable_blob_files",
    "enable_blob_garbage_collection",
    "enable_pipelined_write",
    "enable_thread_tracking",
    "enable_write_thread_adaptive_yield",
    "force_consistency_checks",
    "hard_pending_compaction_bytes_limit",
    "info_log_level",
    "inplace_update_num_locks",
    "inplace_update_support",
    "keep_log_file_num",
    "level0_file_num_compaction_trigger",
    "level0_slowdown_writes_trigger",
    "level0_stop_writes_trigger",
    "level_compaction_dynamic_level_bytes",
    "log_file_time_to_roll",
    "manual_wal_flush",
    "max_background_compactions",
    "max_background_flushes",
    "max_background_jobs",
    "max_bytes_for_level_base",
    "max_bytes_for_level_multiplier",
    "max_bytes_for_level_multiplier_additional",
    "max_compaction_bytes",
    "max_file_opening_threads",
    "max_log_file_size",
    "max_manifest_file_size",
    "max_open_files",
    "max_sequential_skip_in_iterations",
    "max_subcompactions",
    "max_successive_merges",
    "max_total_wal_size",
    "max_write_batch_group_size_bytes",
    "max_write_buffer_number",
    "max_write_buffer_number_to_maintain",
    "max_write_buffer_size_to_maintain",
    "memtable_factory",
    "memtable_huge_page_size",
    "memtable_prefix_bloom_size_ratio",
    "memtable_protection_bytes_per_key",
    "memtable_whole_key_filtering",
    "min_blob_size",
    "min_write_buffer_number_to_merge",
    "num_levels",
    "optimize_filters_for_hits",
    "paranoid_checks",
    "paranoid_file_checks",
    "periodic_compaction_seconds",
    "persist_stats_to_disk",
    "prefix_extractor",
    "random_access_max_buffer_size",
    "recycle_log_file_num",
    "report_bg_io_stats",
    "sample_for_compression",
    "skip_stats_update_on_db_open",
    "soft_pending_compaction_bytes_limit",
    "stats_dump_period_sec",
    "stats_history_buffer_size",
    "stats_persist_period_sec",
    "strict_bytes_per_sync",
    "table_cache_numshardbits",
    "target_file_size_base",
    "target_file_size_multiplier",
    "track_and_verify_wals_in_manifest",
    "ttl",
    "two_write_queues",
    "unordered_write",
    "use_adaptive_mutex",
    "use_direct_io_for_flush_and_compaction",
    "use_direct_reads",
    "use_fsync",
    "wal_bytes_per_sync",
    "wal_compression",
    "wal_recovery_mode",
    "writable_file_max_buffer_size",
    "write_buffer_size",
    "write_dbid_to_manifest",
    "write_thread_max_yield_usec",
    "write_thread_slow_yield_usec",
];

/// Of `WriteOptions` and `ReadOptions`, and whether RocksDB keeps statistics.
const CALLS: [&str; 5] = [
    "disableWAL",
    "verify_checksums",
    "fill_cache",
    "readahead_size",
    "statistics",
];

/// Options that the engine sets, and the parameter of a spec to use instead. RocksDB writes only to the paths of the target.
const OURS: [(&str, &str); 9] = [
    ("wal_dir", "name the log's directory in `target.log_path`"),
    ("db_log_dir", "leave it out: messages of RocksDB are in the target"),
    ("db_paths", "leave it out: tables are in the target"),
    ("cf_paths", "leave it out: tables are in the target"),
    ("env", "leave it out: files are those of the operating system"),
    ("file_system", "leave it out: files are those of the operating system"),
    ("sync", "use `sync` of the stream"),
    ("create_if_missing", "use `database`"),
    ("error_if_exists", "use `database`"),
];

/// Options with which RocksDB is opened and called.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Options of the database, the column family and the table, as RocksDB parses them.
    pub text: String,
    /// Options that RocksDB does not write to its own list, as they were given.
    pub beside: BTreeMap<String, String>,
    pub disable_wal: bool,
    pub verify_checksums: bool,
    pub fill_cache: bool,
    pub readahead_size: u64,
    pub statistics: bool,
    /// No automatic compactions.
    pub no_auto_compactions: bool,
    /// The log is buffered in the process.
    pub manual_wal_flush: bool,
}

impl Settings {
    /// Validates every option with RocksDB.
    pub(crate) fn read(library: &RocksDb, given: &Given) -> Result<Settings, RunError> {
        let mut settings = Settings {
            text: String::new(),
            beside: BTreeMap::new(),
            disable_wal: false,
            verify_checksums: true,
            fill_cache: true,
            readahead_size: 0,
            statistics: true,
            no_auto_compactions: false,
            manual_wal_flush: false,
        };
        let mut table = Vec::new();
        let mut parts = Vec::new();
        for option in options::each(NAME, given) {
            let name = option.name;
            if let Some((_, hint)) = OURS.iter().find(|(ours, _)| *ours == name) {
                return Err(option.reserved(hint));
            }
            if CALLS.contains(&name) {
                settings.set_call(option)?;
                continue;
            }
            let text = option.text()?;
            require_single(option, &text)?;
            let assignment = format!("{name}={text}");
            if TABLE.contains(&name) {
                judge(library, option, &nested(std::slice::from_ref(&assignment)))?;
                table.push(assignment);
            } else {
                judge(library, option, &assignment)?;
                settings.manual_wal_flush |= name == "manual_wal_flush" && text == "true";
                settings.no_auto_compactions |= name == "disable_auto_compactions" && text == "true";
                parts.push(assignment);
            }
        }
        if !table.is_empty() {
            parts.push(nested(&table));
        }
        settings.text = parts.join(";");
        Ok(settings)
    }

    fn set_call(&mut self, option: Choice<'_>) -> Result<(), RunError> {
        match option.name {
            "disableWAL" => self.disable_wal = option.flag()?,
            "verify_checksums" => self.verify_checksums = option.flag()?,
            "fill_cache" => self.fill_cache = option.flag()?,
            "readahead_size" => self.readahead_size = option.integer()?,
            _ => self.statistics = option.flag()?,
        }
        Ok(())
    }

    /// The options with their own functions, for the list of options in effect.
    pub(crate) fn calls(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("disableWAL".into(), self.disable_wal.to_string()),
            ("verify_checksums".into(), self.verify_checksums.to_string()),
            ("fill_cache".into(), self.fill_cache.to_string()),
            ("readahead_size".into(), self.readahead_size.to_string()),
            ("statistics".into(), self.statistics.to_string()),
            ("perf_level".into(), "kDisable".into()),
        ])
    }
}

/// Options of RocksDB, which free themselves.
pub(crate) struct Options<'a> {
    library: &'a RocksDb,
    pub(crate) handle: Handle,
}

impl<'a> Options<'a> {
    /// RocksDB's defaults, changed by a text.
    pub(crate) fn parse(library: &'a RocksDb, text: &str) -> Result<Options<'a>, String> {
        let text = CString::new(text).map_err(|_| "it has a zero byte".to_owned())?;
        // SAFETY: the objects were just made by this library; the text is a C string.
        unsafe {
            let defaults = Options {
                library,
                handle: (library.call.options_create)(),
            };
            let parsed = Options {
                library,
                handle: (library.call.options_create)(),
            };
            library.attempt(|error| {
                (library.call.get_options_from_string)(defaults.handle, text.as_ptr(), parsed.handle, error);
            })?;
            Ok(parsed)
        }
    }
}

impl Drop for Options<'_> {
    fn drop(&mut self) {
        // SAFETY: the object was made by this library and is not used again.
        unsafe { (self.library.call.options_destroy)(self.handle) };
    }
}

fn nested(table: &[String]) -> String {
    format!("block_based_table_factory={{{}}}", table.join(";"))
}

/// Requires that neither name nor value contains a further option: RocksDB splits its text at semicolons outside of braces.
fn require_single(option: Choice<'_>, text: &str) -> Result<(), RunError> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
    if option.name.is_empty() || !option.name.chars().all(plain) {
        return Err(option.unknown(names()));
    }
    let mut depth = 0_i64;
    for letter in text.chars() {
        depth += match letter {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        if depth < 0 || (depth == 0 && matches!(letter, ';' | '\n' | '\0')) {
            return Err(option.wrong("a single value"));
        }
    }
    match depth {
        0 => Ok(()),
        _ => Err(option.wrong("a value whose braces are closed")),
    }
}

/// Validates one option with RocksDB.
fn judge(library: &RocksDb, option: Choice<'_>, text: &str) -> Result<(), RunError> {
    let Err(words) = Options::parse(library, text) else {
        return Ok(());
    };
    match names().any(|known| known == option.name) {
        true => Err(option.wrong(&format!("another value; RocksDB reports: {words}"))),
        false => Err(option.unknown(names())),
    }
}

/// Names of the options of RocksDB 7.8.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().chain(DATABASE).copied().chain(CALLS)
}
