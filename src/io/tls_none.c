/* tls_none.c - a build without OpenSSL: every call but the first is never made. */
#include "io/tls.h"

#include "base/assert.h"

ddl_status ddl_tls_party_create(const ddl_tls_options *options, ddl_tls_party **party, ddl_error *err)
{
    (void)options;
    (void)party;
    return DDL_FAIL(err, DDL_EUNSUPPORTED,
                    "this ddl was built without TLS; install OpenSSL 3 (libssl-dev) and build it again");
}

void ddl_tls_party_destroy(ddl_tls_party *party)
{
    DDL_ASSERT(party == NULL);
}

ddl_status ddl_tls_create(ddl_tls_party *party, const char *peer_name, const char *where, ddl_tls **tls,
                          ddl_error *err)
{
    (void)peer_name;
    (void)tls;
    DDL_ASSERT(party == NULL);
    return DDL_FAIL(err, DDL_EUNSUPPORTED, "%s: no TLS in this build", where);
}

void ddl_tls_destroy(ddl_tls *tls)
{
    DDL_ASSERT(tls == NULL);
}

ddl_status ddl_tls_feed(ddl_tls *tls, const void *data, size_t bytes, ddl_error *err)
{
    (void)tls;
    (void)data;
    (void)bytes;
    return DDL_FAIL(err, DDL_EUNSUPPORTED, "no TLS in this build");
}

size_t ddl_tls_output(ddl_tls *tls, void *data, size_t bytes)
{
    (void)tls;
    (void)data;
    (void)bytes;
    return 0;
}

ddl_status ddl_tls_shake(ddl_tls *tls, bool *done, ddl_error *err)
{
    *done = false;
    return ddl_tls_feed(tls, NULL, 0, err);
}

ddl_status ddl_tls_write(ddl_tls *tls, const void *data, size_t bytes, ddl_error *err)
{
    return ddl_tls_feed(tls, data, bytes, err);
}

ddl_status ddl_tls_read(ddl_tls *tls, void *data, size_t bytes, size_t *count, bool *ended, ddl_error *err)
{
    *count = 0;
    *ended = true;
    return ddl_tls_feed(tls, data, bytes, err);
}

void ddl_tls_end(ddl_tls *tls)
{
    DDL_ASSERT(tls == NULL);
}
