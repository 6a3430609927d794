/*
 * bytes.h - views of bytes, growing byte buffers, and little-endian fields.
 */
#ifndef DDL_BASE_BYTES_H
#define DDL_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ddl_view { /* bytes that somebody else owns */
    const void *data;
    size_t bytes;
} ddl_view;

typedef struct ddl_bytes { /* bytes owned here; all zero is empty */
    uint8_t *data;
    size_t bytes, capacity;
} ddl_bytes;

/* Zeroed memory, or NULL; counted by failpoints in test builds. Release with ddl_free. */
void *ddl_alloc(size_t bytes);
void *ddl_alloc_array(size_t count, size_t element_bytes);
void ddl_free(void *memory);

/* The same in pages of its own, which cost nothing until they are touched; released they are the system's
 * again. */
void *ddl_pages_alloc(size_t bytes);
void ddl_pages_free(void *memory, size_t bytes);

/* Zero memory that held a secret; no compiler leaves it out. */
void ddl_clear(void *memory, size_t bytes);

/* A copy of text, or NULL when out of memory. */
char *ddl_text_copy(const char *text);

/* Append; false when out of memory, and then nothing was appended. */
bool ddl_bytes_append(ddl_bytes *bytes, const void *data, size_t count);
void ddl_bytes_fini(ddl_bytes *bytes);

static inline ddl_view ddl_bytes_view(const ddl_bytes *bytes)
{
    return (ddl_view){ bytes->data, bytes->bytes };
}

/* Little-endian fields at any alignment. */
static inline void ddl_put_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static inline void ddl_put_u32(uint8_t *at, uint32_t value)
{
    ddl_put_u16(at, (uint16_t)value);
    ddl_put_u16(at + 2, (uint16_t)(value >> 16));
}

static inline void ddl_put_u64(uint8_t *at, uint64_t value)
{
    ddl_put_u32(at, (uint32_t)value);
    ddl_put_u32(at + 4, (uint32_t)(value >> 32));
}

static inline uint16_t ddl_get_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t ddl_get_u32(const uint8_t *at)
{
    return ddl_get_u16(at) | (uint32_t)ddl_get_u16(at + 2) << 16;
}

static inline uint64_t ddl_get_u64(const uint8_t *at)
{
    return ddl_get_u32(at) | (uint64_t)ddl_get_u32(at + 4) << 32;
}

#endif
