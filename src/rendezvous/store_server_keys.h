/*
 * store_server_keys.h - the keys of one run, as the store's server holds them.
 *
 * A key has a place from when it is set or waited for. Thread: one at a time.
 */
#ifndef DDL_RENDEZVOUS_STORE_SERVER_KEYS_H
#define DDL_RENDEZVOUS_STORE_SERVER_KEYS_H

#include "base/bytes.h"
#include "base/list.h"
#include "protocol/store_wire.h"

enum { DDL_STORE_KEYS_MORE = 1024 /* than ranks need */ };

/* A key, or the place of one that is waited for. */
typedef struct ddl_store_entry {
    struct ddl_store_entry *next; /* in its bucket */
    ddl_link in_owner;            /* linked while whoever set it is still connected */
    ddl_list waits;               /* of whoever uses this */
    bool is_set;
    ddl_bytes value;
    size_t key_bytes;
    uint8_t key[DDL_STORE_KEY_LIMIT];
} ddl_store_entry;

typedef struct ddl_store_keys {
    ddl_store_entry **buckets;
    size_t bucket_count, count, limit;
} ddl_store_keys;

/* For a run of so many ranks. False: no memory. */
bool ddl_store_keys_init(ddl_store_keys *keys, int nranks);
void ddl_store_keys_fini(ddl_store_keys *keys);

ddl_store_entry *ddl_store_keys_find(const ddl_store_keys *keys, ddl_view key);

/* The key of this kind that a rank has set; NULL: it has not. */
ddl_store_entry *ddl_store_keys_find_of_rank(const ddl_store_keys *keys, const char *kind, int rank);

/* Find it, or make a place for it. NULL: over the limit, or out of memory. */
ddl_store_entry *ddl_store_keys_add(ddl_store_keys *keys, ddl_view key);

/* Drop an entry that nobody has set and nobody waits for any more. */
void ddl_store_keys_tidy(ddl_store_keys *keys, ddl_store_entry *entry);

#endif
