/* seal.c - a proof before each value. */
#include "rendezvous/seal.h"

#include <string.h>

static const uint8_t label[DDL_LABEL_BYTES] = "ddl stored value";

enum { PARTS = 4 };

/* The label, rank and bytes of the name, the name, the value. */
static void parts_of(const uint8_t head[8], const char *name, ddl_view value, ddl_view parts[PARTS])
{
    parts[0] = (ddl_view){ label, sizeof label };
    parts[1] = (ddl_view){ head, 8 };
    parts[2] = (ddl_view){ name, strlen(name) };
    parts[3] = value;
}

bool ddl_seal_put(const ddl_seal *seal, int rank, const char *name, ddl_view value, ddl_bytes *out)
{
    uint8_t head[8], mac[DDL_MAC_BYTES];
    ddl_view parts[PARTS];
    size_t before = out->bytes;
    if (seal->prover == NULL)
        return ddl_bytes_append(out, value.data, value.bytes);
    ddl_put_u32(head, (uint32_t)rank);
    ddl_put_u32(head + 4, (uint32_t)strlen(name));
    parts_of(head, name, value, parts);
    seal->prover->prove(seal->prover, seal->run_id, parts, PARTS, mac);
    if (ddl_bytes_append(out, head, 4) && ddl_bytes_append(out, mac, sizeof mac) &&
        ddl_bytes_append(out, value.data, value.bytes))
        return true;
    out->bytes = before;
    return false;
}

bool ddl_seal_get(const ddl_seal *seal, const char *name, ddl_view sealed, ddl_view *value)
{
    const uint8_t *at = sealed.data;
    uint8_t head[8];
    ddl_view parts[PARTS];
    if (seal->prover == NULL) {
        *value = sealed;
        return true;
    }
    if (sealed.bytes < DDL_SEAL_BYTES)
        return false;
    ddl_view inner = { at + DDL_SEAL_BYTES, sealed.bytes - DDL_SEAL_BYTES };
    memcpy(head, at, 4);
    ddl_put_u32(head + 4, (uint32_t)strlen(name));
    parts_of(head, name, inner, parts);
    if (!seal->prover->check(seal->prover, seal->run_id, parts, PARTS, at + 4))
        return false;
    *value = inner;
    return true;
}

ddl_status ddl_seal_fail(const char *name, const char *place, ddl_error *err)
{
    return DDL_FAIL(
        err, DDL_EAUTH,
        "%s in %s was not written by a rank of this job; who else can write there? Does every rank "
        "have the same secret?",
        name, place);
}
