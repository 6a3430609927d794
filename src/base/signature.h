/*
 * signature.h - what an operation is, sent with each of its messages and compared by whoever hears it.
 */
#ifndef DDL_BASE_SIGNATURE_H
#define DDL_BASE_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct ddl_signature {
    uint8_t collective; /* ddl_collective, or what the library does by itself */
    uint8_t dtype, op;  /* 0xff where the operation has none */
    uint8_t algorithm;  /* index in the catalogue; 0xff for send and recv */
    int32_t root;       /* -1 where it has none */
    uint64_t count;     /* elements, as in the public call */
} ddl_signature;
_Static_assert(sizeof(ddl_signature) == 4 * sizeof(uint8_t) + sizeof(int32_t) + sizeof(uint64_t),
               "all bytes are compared, so there are none between the fields");

/* Then the sizes of messages are the same at both ends, or one of the ends is broken. */
static inline bool ddl_signature_same(const ddl_signature *a, const ddl_signature *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

#endif
