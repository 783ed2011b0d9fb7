// WiredTiger behind functions of a fixed layout.
//
// WiredTiger's interface is structures of function pointers, whose layout changes between versions. iosonde compiles this
// file against the installed header (`features/key_value_stores/shim.py`), and the engine loads the result beside the
// shared library (`crates/kv/src/wiredtiger/shim.rs`), to which it is bound by addresses: the engine refuses a
// library whose version is not that of the header. Functions return 0 or an error code of WiredTiger; `iosonde_message`
// has the text.

#include <wiredtiger.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "table:records"

// A write is repeated so often at most when it conflicts with another transaction.
#define ATTEMPTS_MAX 10000

typedef int (*open_function)(const char *, WT_EVENT_HANDLER *, const char *, WT_CONNECTION **);
typedef int (*validate_function)(WT_SESSION *, WT_EVENT_HANDLER *, const char *, const char *);
typedef const char *(*strerror_function)(int);
typedef void (*panic_function)(const char *);

static open_function open_connection;
static validate_function validate;
static strerror_function describe;
static panic_function on_panic;

struct database {
  WT_EVENT_HANDLER handler;  // First: WiredTiger passes its address to the handlers.
  pthread_mutex_t lock;
  char message[512];  // The first error since the last call of `iosonde_message`.
  WT_CONNECTION *connection;
  WT_SESSION *session;  // Keeps the table's file open.
  WT_CURSOR *cursor;
};

struct session {
  struct database *database;
  WT_SESSION *session;
  WT_CURSOR *reader;
  WT_CURSOR *writer;
  WT_CURSOR *iterator;
  int is_fresh;  // The iterator is on the next record.
  int is_ended;
};

struct change {
  const void *key;
  size_t key_bytes;
  const void *value;  // NULL: the record is removed.
  size_t value_bytes;
};

// Version of the header.
void iosonde_header_version(int *major, int *minor, int *patch) {
  *major = WIREDTIGER_VERSION_MAJOR;
  *minor = WIREDTIGER_VERSION_MINOR;
  *patch = WIREDTIGER_VERSION_PATCH;
}

// Addresses of `wiredtiger_open`, `wiredtiger_config_validate` and `wiredtiger_strerror` in the library, and a function that
// ends the process after a panic: other threads may then wait for the failed one forever.
void iosonde_bind(void *opening, void *validating, void *describing, panic_function panicked) {
  open_connection = (open_function)opening;
  validate = (validate_function)validating;
  describe = (strerror_function)describing;
  on_panic = panicked;
}

static int on_error(WT_EVENT_HANDLER *handler, WT_SESSION *session, int code, const char *message) {
  struct database *database = (struct database *)handler;
  const char *words = strstr(message, "], ");  // After time, process and thread.
  (void)session;
  pthread_mutex_lock(&database->lock);
  if (database->message[0] == '\0') {
    snprintf(database->message, sizeof database->message, "%s", words == NULL ? message : words + 3);
  }
  pthread_mutex_unlock(&database->lock);
  if (code == WT_PANIC) {
    on_panic(database->message);
  }
  return 0;
}

// By default WiredTiger writes messages to standard output, which belongs to the engine.
static int on_message(WT_EVENT_HANDLER *handler, WT_SESSION *session, const char *message) {
  (void)handler;
  (void)session;
  (void)message;
  return 0;
}

struct database *iosonde_create(void) {
  struct database *database = calloc(1, sizeof *database);
  if (database != NULL) {
    database->handler.handle_error = on_error;
    database->handler.handle_message = on_message;
    pthread_mutex_init(&database->lock, NULL);
  }
  return database;
}

// After `iosonde_close`, or if `iosonde_open` was not called.
void iosonde_destroy(struct database *database) {
  pthread_mutex_destroy(&database->lock);
  free(database);
}

// The text of an error, and forgets it.
void iosonde_message(struct database *database, int code, char *text, size_t bytes) {
  const char *description = describe(code);
  pthread_mutex_lock(&database->lock);
  if (strstr(database->message, description) != NULL) {
    snprintf(text, bytes, "%s", database->message);
  } else {
    snprintf(text, bytes, "%s%s%s", database->message, database->message[0] ? ": " : "", description);
  }
  database->message[0] = '\0';
  pthread_mutex_unlock(&database->lock);
}

// Checks the configuration of a function, such as `wiredtiger_open`.
int iosonde_validate(struct database *database, const char *function, const char *config) {
  return validate(NULL, &database->handler, function, config);
}

// Opens or creates a database with its table.
int iosonde_open(struct database *database, const char *home, const char *config, const char *table) {
  int code = open_connection(home, &database->handler, config, &database->connection);
  if (code != 0) {
    database->connection = NULL;
    return code;
  }
  code = database->connection->open_session(database->connection, NULL, NULL, &database->session);
  if (code == 0) {
    code = database->session->create(database->session, TABLE, table);
  }
  if (code == 0) {
    code = database->session->open_cursor(database->session, TABLE, NULL, NULL, &database->cursor);
  }
  return code;
}

// Writes a checkpoint, and closes the database.
int iosonde_close(struct database *database) {
  WT_CONNECTION *connection = database->connection;
  database->connection = NULL;
  return connection == NULL ? 0 : connection->close(connection, NULL);
}

int iosonde_checkpoint(struct database *database) {
  WT_SESSION *session;
  int code = database->connection->open_session(database->connection, NULL, NULL, &session);
  if (code == 0) {
    const int written = session->checkpoint(session, NULL);
    code = session->close(session, NULL);
    code = written != 0 ? written : code;
  }
  return code;
}

// Calls a function with the name and value of each statistic of the connection.
int iosonde_statistics(struct database *database, void (*visit)(void *, const char *, int64_t), void *context) {
  WT_SESSION *session;
  WT_CURSOR *cursor;
  int code = database->connection->open_session(database->connection, NULL, NULL, &session);
  if (code != 0) {
    return code;
  }
  code = session->open_cursor(session, "statistics:", NULL, NULL, &cursor);
  while (code == 0 && (code = cursor->next(cursor)) == 0) {
    const char *name, *printed;
    int64_t value;
    code = cursor->get_value(cursor, &name, &printed, &value);
    if (code == 0) {
      visit(context, name, value);
    }
  }
  session->close(session, NULL);
  return code == WT_NOTFOUND ? 0 : code;
}

// The configuration with which the table's file was created, cut off at so many bytes; empty if it is of another type.
int iosonde_table_config(struct database *database, const char *file, char *text, size_t bytes) {
  WT_SESSION *session;
  WT_CURSOR *cursor;
  int code = database->connection->open_session(database->connection, NULL, NULL, &session);
  text[0] = '\0';
  if (code != 0) {
    return code;
  }
  code = session->open_cursor(session, "metadata:", NULL, NULL, &cursor);
  if (code == 0) {
    const char *value;
    cursor->set_key(cursor, file);
    code = cursor->search(cursor);
    if (code == 0 && (code = cursor->get_value(cursor, &value)) == 0) {
      snprintf(text, bytes, "%s", value);
    }
  }
  session->close(session, NULL);
  return code == WT_NOTFOUND ? 0 : code;
}

int iosonde_session_open(struct database *database, struct session **opened) {
  struct session *session = calloc(1, sizeof *session);
  if (session == NULL) {
    return WT_ERROR;
  }
  session->database = database;
  session->is_ended = 1;
  int code = database->connection->open_session(database->connection, NULL, NULL, &session->session);
  if (code == 0) {
    code = session->session->open_cursor(session->session, TABLE, NULL, NULL, &session->reader);
  }
  if (code == 0) {
    code = session->session->open_cursor(session->session, TABLE, NULL, "overwrite=true", &session->writer);
  }
  if (code == 0) {
    code = session->session->open_cursor(session->session, TABLE, NULL, NULL, &session->iterator);
  }
  if (code != 0) {
    if (session->session != NULL) {
      session->session->close(session->session, NULL);
    }
    free(session);
    return code;
  }
  *opened = session;
  return 0;
}

void iosonde_session_close(struct session *session) {
  session->session->close(session->session, NULL);
  free(session);
}

// The value of a key, or NULL; valid until the session is used again.
int iosonde_get(struct session *session, const void *key, size_t key_bytes, const void **value, size_t *value_bytes) {
  WT_CURSOR *cursor = session->reader;
  WT_ITEM item = {.data = key, .size = key_bytes};
  *value = NULL;
  cursor->set_key(cursor, &item);
  int code = cursor->search(cursor);
  if (code == WT_NOTFOUND) {
    return 0;
  }
  if (code == 0 && (code = cursor->get_value(cursor, &item)) == 0) {
    *value = item.size == 0 ? "" : item.data;
    *value_bytes = item.size;
  }
  return code;
}

static int apply(struct session *session, const struct change *changes, size_t count) {
  WT_CURSOR *cursor = session->writer;
  for (size_t place = 0; place < count; place++) {
    WT_ITEM key = {.data = changes[place].key, .size = changes[place].key_bytes};
    int code;
    cursor->set_key(cursor, &key);
    if (changes[place].value != NULL) {
      WT_ITEM value = {.data = changes[place].value, .size = changes[place].value_bytes};
      cursor->set_value(cursor, &value);
      code = cursor->insert(cursor);
    } else {
      code = cursor->remove(cursor);
      code = code == WT_NOTFOUND ? 0 : code;
    }
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

// Writes changes in one transaction, again if it conflicts with another one. Without `sync`, `flush` writes the log to its
// file, but does not sync it.
int iosonde_write(struct session *session, const struct change *changes, size_t count, int sync, int flush) {
  WT_SESSION *own = session->session;
  int code = 0;
  for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    code = own->begin_transaction(own, NULL);
    if (code != 0) {
      return code;
    }
    code = apply(session, changes, count);
    if (code == 0) {
      code = own->commit_transaction(own, sync ? "sync=on" : "sync=off");  // A failed commit rolls back.
    } else {
      own->rollback_transaction(own, NULL);
    }
    session->writer->reset(session->writer);
    if (code != WT_ROLLBACK) {
      break;
    }
  }
  if (code == 0 && !sync && flush) {
    code = own->log_flush(own, "sync=off");
  }
  return code;
}

// Positions the iterator so that `iosonde_next` returns the first record at or after the key in that direction.
int iosonde_seek(struct session *session, const void *key, size_t key_bytes, int reverse) {
  WT_CURSOR *cursor = session->iterator;
  session->is_fresh = 0;
  session->is_ended = 0;
  if (key == NULL) {
    return cursor->reset(cursor);
  }
  WT_ITEM item = {.data = key, .size = key_bytes};
  int order = 0;
  cursor->set_key(cursor, &item);
  const int code = cursor->search_near(cursor, &order);
  if (code == WT_NOTFOUND) {
    session->is_ended = 1;
    return 0;
  }
  session->is_fresh = reverse ? order <= 0 : order >= 0;
  return code;
}

// The iterator's next record, or a key of NULL at the end; valid until the session is used again.
int iosonde_next(struct session *session, int reverse, const void **key, size_t *key_bytes, const void **value,
                 size_t *value_bytes) {
  WT_CURSOR *cursor = session->iterator;
  WT_ITEM found_key, found_value;
  int code = 0;
  *key = NULL;
  if (session->is_ended) {
    return 0;
  }
  if (!session->is_fresh) {
    code = reverse ? cursor->prev(cursor) : cursor->next(cursor);
  }
  session->is_fresh = 0;
  if (code == WT_NOTFOUND) {
    session->is_ended = 1;
    return 0;
  }
  if (code == 0 && (code = cursor->get_key(cursor, &found_key)) == 0 &&
      (code = cursor->get_value(cursor, &found_value)) == 0) {
    *key = found_key.size == 0 ? "" : found_key.data;
    *key_bytes = found_key.size;
    *value = found_value.data;
    *value_bytes = found_value.size;
  }
  return code;
}

// Releases lent values and closes the iterator.
void iosonde_release(struct session *session) {
  session->reader->reset(session->reader);
  if (!session->is_ended) {
    session->iterator->reset(session->iterator);
    session->is_ended = 1;
  }
}
