/*
 * table.h - objects that are found by a hash, in rows of which there are more the more objects there are.
 *
 * A ddl_hashed is embedded in the object; a zeroed one is in no table. Who looks goes through the row of a
 * hash, and tells by itself which object it is.
 */
#ifndef DDL_BASE_TABLE_H
#define DDL_BASE_TABLE_H

#include <stdint.h>

#include "base/list.h"

typedef struct ddl_hashed {
    ddl_link link;
    uint64_t hash;
} ddl_hashed;

typedef struct ddl_table {
    ddl_list *rows;
    size_t nrows; /* a power of two */
    size_t nobjects;
} ddl_table;

/* nrows: a power of two, to begin with. False: no memory. */
bool ddl_table_init(ddl_table *table, size_t nrows);
/* A zeroed table, too. What is in it may not be removed afterwards. */
void ddl_table_fini(ddl_table *table);

/* Twice as many rows; without memory they stay as they are. */
void ddl_table_grow(ddl_table *table);

static inline ddl_list *ddl_table_row(const ddl_table *table, uint64_t hash)
{
    return &table->rows[hash & (table->nrows - 1)];
}

/* After all others of its hash. */
static inline void ddl_table_add(ddl_table *table, ddl_hashed *object, uint64_t hash)
{
    object->hash = hash;
    ddl_list_append(ddl_table_row(table, hash), &object->link);
    if (++table->nobjects > 2 * table->nrows)
        ddl_table_grow(table);
}

static inline void ddl_table_remove(ddl_table *table, ddl_hashed *object)
{
    ddl_list_remove(&object->link);
    table->nobjects--;
}

#endif
