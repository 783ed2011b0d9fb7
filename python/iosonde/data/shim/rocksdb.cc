// What RocksDB's C interface lacks: the persistent read cache, and reads into a reused `PinnableSlice`.
//
// iosonde compiles this file against the installed headers (`features/key_value_stores/shim.py`), and the engine loads
// the result beside the shared library (`crates/kv/src/rocksdb/shim.rs`). The objects of `rocksdb/c.h` are
// structures whose first member is the C++ object (`db/c.cc`). Errors are texts allocated with `malloc`, as in
// `rocksdb/c.h`.

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/persistent_cache.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace {

struct Reader {
  rocksdb::DB* database;
  rocksdb::ColumnFamilyHandle* family;
  rocksdb::ReadOptions options;
  rocksdb::PinnableSlice value;
};

[[gnu::cold, gnu::noinline]] void report(char** error, const std::string& text) { *error = strdup(text.c_str()); }

}  // namespace

extern "C" {

// Version of the headers, `major.minor.patch`.
void iosonde_headers_version(char* text, std::size_t bytes) {
  snprintf(text, bytes, "%d.%d.%d", ROCKSDB_MAJOR, ROCKSDB_MINOR, ROCKSDB_PATCH);
}

// Version of the library that this file is bound to.
void iosonde_library_version(char* text, std::size_t bytes) {
  snprintf(text, bytes, "%s", rocksdb::GetRocksVersionAsString(true).c_str());
}

// An address in that library.
void* iosonde_library_address() { return reinterpret_cast<void*>(&rocksdb::NewPersistentCache); }

// Attaches a persistent read cache to the options of a database that is not open yet (`rocksdb_options_t`).
void iosonde_attach_read_cache(void* options, const char* path, std::uint64_t bytes, unsigned char direct_writes,
                               char** error) {
  auto* own = static_cast<rocksdb::Options*>(options);
  const auto* table =
      own->table_factory ? own->table_factory->GetOptions<rocksdb::BlockBasedTableOptions>() : nullptr;
  if (table == nullptr) {
    report(error, "only block-based tables have a read cache");
    return;
  }
  std::shared_ptr<rocksdb::PersistentCache> cache;
  const rocksdb::Status status =
      rocksdb::NewPersistentCache(own->env, path, bytes, own->info_log, direct_writes != 0, &cache);
  if (!status.ok()) {
    report(error, status.ToString());
    return;
  }
  rocksdb::BlockBasedTableOptions changed = *table;
  changed.persistent_cache = cache;
  own->table_factory.reset(rocksdb::NewBlockBasedTableFactory(changed));
}

// A reader of one thread, with copies of the options of a `rocksdb_readoptions_t`.
void* iosonde_reader_create(void* database, const void* options) {
  auto* opened = *static_cast<rocksdb::DB**>(database);
  return new Reader{
      opened, opened->DefaultColumnFamily(), *static_cast<const rocksdb::ReadOptions*>(options), {}};
}

void iosonde_reader_destroy(void* reader) { delete static_cast<Reader*>(reader); }

// The value of a key, valid until the next call with the reader; null if there is none, or with an error.
const char* iosonde_reader_get(void* reader, const char* key, std::size_t key_bytes, std::size_t* value_bytes,
                               char** error) {
  auto* own = static_cast<Reader*>(reader);
  own->value.Reset();
  const rocksdb::Slice slice(key, key_bytes);
#if ROCKSDB_MAJOR > 7 || (ROCKSDB_MAJOR == 7 && ROCKSDB_MINOR >= 8)
  // What db_bench calls: without a place for the timestamp, RocksDB calls this function itself. Older databases that are
  // open read-only do not override it.
  const rocksdb::Status status = own->database->Get(own->options, own->family, slice, &own->value, nullptr);
#else
  const rocksdb::Status status = own->database->Get(own->options, own->family, slice, &own->value);
#endif
  if (status.ok()) {
    *value_bytes = own->value.size();
    return own->value.data();
  }
  if (!status.IsNotFound()) {
    report(error, status.ToString());
  }
  return nullptr;
}
}
