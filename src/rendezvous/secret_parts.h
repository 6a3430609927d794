/*
 * secret_parts.h - a secret as the files about it share it. What its users need is in secret.h.
 */
#ifndef DDL_RENDEZVOUS_SECRET_PARTS_H
#define DDL_RENDEZVOUS_SECRET_PARTS_H

#include "rendezvous/secret.h"

struct ddl_secret {
    char source[DDL_SECRET_SOURCE];
    size_t bytes;
    uint8_t data[DDL_SECRET_MOST + 3]; /* and room for a line end, and to see that there is more */
};

/* ---- secret.c ---- */

/* NULL: there is no memory, as *err says. */
ddl_secret *ddl_secret_allocate(const char *source, ddl_error *err);

/* What was taken in is a secret only now. Takes it: on failure it is destroyed. */
DDL_MUST_USE ddl_status ddl_secret_settle(ddl_secret *secret, ddl_secret **out, ddl_error *err);

/* ---- secret_file.c ---- */

/* The file "secret" in a folder that is ours; *secret is NULL if there is none and none may be made. path is
 * that file's, for the text. */
DDL_MUST_USE ddl_status ddl_secret_read_in_folder(int folder, const char *path, bool may_make, bool *made,
                                                  ddl_secret **secret, ddl_error *err);

#endif
