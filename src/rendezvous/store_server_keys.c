/* store_server_keys.c - see store_server_keys.h. */
#include "rendezvous/store_server_keys.h"

#include "rendezvous/store.h"

#include <string.h>

enum { KEYS_PER_RANK = 16 };

bool ddl_store_keys_init(ddl_store_keys *keys, int nranks)
{
    keys->limit = (size_t)nranks * KEYS_PER_RANK + DDL_STORE_KEYS_MORE;
    keys->bucket_count = (size_t)nranks * 4 + 61;
    keys->buckets = ddl_alloc_array(keys->bucket_count, sizeof *keys->buckets);
    return keys->buckets != NULL;
}

void ddl_store_keys_fini(ddl_store_keys *keys)
{
    for (size_t i = 0; keys->buckets != NULL && i < keys->bucket_count; i++) {
        ddl_store_entry *entry;
        while ((entry = keys->buckets[i]) != NULL) {
            keys->buckets[i] = entry->next;
            ddl_bytes_fini(&entry->value);
            ddl_free(entry);
        }
    }
    ddl_free(keys->buckets);
}

static ddl_store_entry **bucket_of(const ddl_store_keys *keys, ddl_view key)
{
    const uint8_t *at = key.data;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < key.bytes; i++)
        hash = (hash ^ at[i]) * 16777619u;
    return &keys->buckets[hash % keys->bucket_count];
}

ddl_store_entry *ddl_store_keys_find(const ddl_store_keys *keys, ddl_view key)
{
    for (ddl_store_entry *entry = *bucket_of(keys, key); entry != NULL; entry = entry->next)
        if (entry->key_bytes == key.bytes && memcmp(entry->key, key.data, key.bytes) == 0)
            return entry;
    return NULL;
}

ddl_store_entry *ddl_store_keys_find_of_rank(const ddl_store_keys *keys, const char *kind, int rank)
{
    char key[DDL_STORE_NAME_BYTES];
    ddl_store_name(kind, rank, key);
    ddl_store_entry *entry = ddl_store_keys_find(keys, (ddl_view){ key, strlen(key) });
    return entry != NULL && entry->is_set ? entry : NULL;
}

ddl_store_entry *ddl_store_keys_add(ddl_store_keys *keys, ddl_view key)
{
    ddl_store_entry *entry = ddl_store_keys_find(keys, key);
    if (entry != NULL || keys->count >= keys->limit || (entry = ddl_alloc(sizeof *entry)) == NULL)
        return entry;
    ddl_store_entry **bucket = bucket_of(keys, key);
    ddl_list_init(&entry->waits);
    entry->key_bytes = key.bytes;
    memcpy(entry->key, key.data, key.bytes);
    entry->next = *bucket;
    *bucket = entry;
    keys->count++;
    return entry;
}

void ddl_store_keys_tidy(ddl_store_keys *keys, ddl_store_entry *entry)
{
    if (entry->is_set || !ddl_list_empty(&entry->waits))
        return;
    ddl_store_entry **at = bucket_of(keys, (ddl_view){ entry->key, entry->key_bytes });
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    keys->count--;
    ddl_bytes_fini(&entry->value);
    ddl_free(entry);
}
