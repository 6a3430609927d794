/*
 * secret.h - the job's secret: made fresh, or read from a file that is its user's alone.
 *
 * Any bytes will do, also those of a person's own file; a line end at their end does not count. A secret
 * stays in memory that is not dumped nor inherited by forked children, and is cleared when it is destroyed.
 * Nothing here logs it or puts it into an error. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_SECRET_H
#define DDL_RENDEZVOUS_SECRET_H

#include "base/bytes.h"
#include "base/error.h"

enum {
    DDL_SECRET_LEAST = 16,
    DDL_SECRET_MOST = 4000,  /* a note has room for it */
    DDL_SECRET_TEXT = 64,    /* of one made here: 32 random bytes in hex */
    DDL_SECRET_SOURCE = 160, /* a longer one is cut off */
    DDL_SECRET_PATH = 1024,
    DDL_SECRET_COPY_COMMAND = 2 * DDL_SECRET_PATH + 400
};

typedef struct ddl_secret ddl_secret;

/* From these bytes. source says where they came from, as it is to be read in messages: "read from the file
 * /home/x/.ddl/secret". DDL_ECONFIG: too short or too long. */
DDL_MUST_USE ddl_status ddl_secret_create(ddl_view content, const char *source, ddl_secret **secret,
                                          ddl_error *err);

/* A fresh one. */
DDL_MUST_USE ddl_status ddl_secret_make(const char *source, ddl_secret **secret, ddl_error *err);

/* From a regular file of ours that nobody else may read or write; no link. DDL_ECONFIG: path is none, in
 * words. */
DDL_MUST_USE ddl_status ddl_secret_read(const char *path, ddl_secret **secret, ddl_error *err);

/*
 * From .ddl/secret in the home directory of this user. If it is not there: with may_make it is made, so that
 * of all who do that at a time everybody reads the same; without, *secret is NULL. One that is all but empty
 * is waited for, for a second: somebody may be writing it. *made (may be NULL): this call made it. path is
 * set in any case but a missing home, which is DDL_ECONFIG.
 */
DDL_MUST_USE ddl_status ddl_secret_of_home(bool may_make, char path[DDL_SECRET_PATH], bool *made,
                                           ddl_secret **secret, ddl_error *err);

/* Whether a secret of this source is that of the home directory, and where that is; path is "" if the source
 * was cut off in the name of that directory, so that it may be another one there. */
bool ddl_secret_is_of_home(const char *source, char path[DDL_SECRET_PATH]);

/*
 * What a person runs on a host that does not share the home directory, to have the secret that host keeps in
 * path: "(umask 077; mkdir -p ~/.ddl && scp 10.0.0.1:/home/x/.ddl/secret ~/.ddl/secret)".
 * host: how others reach this one; if that is loopback, which leads them nowhere, its name is told instead.
 */
void ddl_secret_copy_command(const char *host, const char *path, char command[DDL_SECRET_COPY_COMMAND]);

/*
 * Jobs of one user may have one secret and meet at one address, and are then told apart by their names alone:
 * put the job's behind the secret. NULL: it has none. On failure *secret is NULL.
 */
DDL_MUST_USE ddl_status ddl_secret_name_job(ddl_secret **secret, const char *job, ddl_error *err);

/*
 * From a file in the directory of this user on this host ($XDG_RUNTIME_DIR, /run/user/UID, or else a private
 * one below /tmp), made if it is not there, so that of all who do that at a time everybody reads the same.
 */
DDL_MUST_USE ddl_status ddl_secret_of_host(ddl_secret **secret, ddl_error *err);

/* NULL is fine. */
void ddl_secret_destroy(ddl_secret *secret);

ddl_view ddl_secret_view(const ddl_secret *secret);
const char *ddl_secret_source(const ddl_secret *secret);

#endif
