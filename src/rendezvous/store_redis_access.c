/* store_redis_access.c - reads aside, by deadline, what a rank needs to be let in at a Redis server. */
#include "rendezvous/store_redis_access.h"

#include "base/aside.h"
#include "base/bytes.h"

#include <stdio.h>

struct reading {
    ddl_redis_url url;
    ddl_redis_access *access;
};

static const char *given(const char *path)
{
    return path[0] != '\0' ? path : NULL;
}

static ddl_status read_password(void *state, ddl_error *err)
{
    struct reading *reading = state;
    return ddl_redis_password_read(reading->url.password_file, reading->access->password, err);
}

static ddl_status read_certificates(void *state, ddl_error *err)
{
    struct reading *reading = state;
    const ddl_redis_url *url = &reading->url;
    const ddl_tls_options options = { .ca_file = given(url->ca_file),
                                      .cert_file = given(url->cert_file),
                                      .key_file = given(url->key_file) };
    return ddl_tls_party_create(&options, &reading->access->tls, err);
}

static void release(void *state)
{
    struct reading *reading = state;
    ddl_redis_access_destroy(reading->access);
    ddl_free(reading);
}

/* After *lost the reading is no longer the caller's. */
static ddl_status read_all(struct reading *reading, ddl_deadline deadline, bool *lost, ddl_error *err)
{
    const ddl_redis_url *url = &reading->url;
    char what[256];
    ddl_aside aside = { read_password, release, reading, what };
    if (given(url->password_file)) {
        snprintf(what, sizeof what, "reading the password file %.200s", url->password_file);
        DDL_TRY(ddl_aside_run(&aside, deadline, lost, err));
    }
    if (!url->is_tls)
        return DDL_OK;
    const char *file = given(url->ca_file) ? url->ca_file : url->cert_file;
    snprintf(what, sizeof what, "reading what TLS to Redis needs%s%.200s", given(file) ? ", from " : "",
             file);
    aside.act = read_certificates;
    return ddl_aside_run(&aside, deadline, lost, err);
}

ddl_status ddl_redis_access_read(const ddl_redis_url *url, ddl_deadline deadline, ddl_redis_access **access,
                                 ddl_error *err)
{
    bool lost = false;
    struct reading *reading = ddl_alloc(sizeof *reading);
    if (reading == NULL)
        return DDL_FAIL(err, DDL_ENOMEM, "no memory for what Redis asks of a rank");
    reading->url = *url;
    reading->access = ddl_alloc(sizeof *reading->access);
    ddl_status status = reading->access != NULL
                            ? read_all(reading, deadline, &lost, err)
                            : DDL_FAIL(err, DDL_ENOMEM, "no memory for what Redis asks of a rank");
    if (lost)
        return status;
    if (status == DDL_OK) {
        *access = reading->access;
        reading->access = NULL;
    }
    release(reading);
    return status;
}

void ddl_redis_access_destroy(ddl_redis_access *access)
{
    if (access == NULL)
        return;
    ddl_tls_party_destroy(access->tls);
    ddl_clear(access->password, sizeof access->password);
    ddl_free(access);
}
