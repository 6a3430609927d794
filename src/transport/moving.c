/* moving.c - from parts, past the hole, and on to who would rather take the bytes where they are. */
#include "transport/moving.h"

#include "base/copy.h"
#include "base/size.h"

#include <string.h>

int ddl_moving_parts_between(const ddl_xfer *xfer, size_t from, size_t to, struct iovec *iov, int count)
{
    size_t before = 0; /* bytes in earlier parts */
    for (int i = 0; i < 2; i++) {
        size_t begin = ddl_size_max(from, before), end = ddl_size_min(to, before + xfer->part[i].bytes);
        if (begin < end)
            iov[count++] = (struct iovec){ (char *)xfer->part[i].data + (begin - before), end - begin };
        before += xfer->part[i].bytes;
    }
    return count;
}

int ddl_moving_parts_left(const ddl_xfer *xfer, struct iovec *iov, int count)
{
    size_t after_hole = xfer->hole_at + xfer->hole_bytes;
    if (xfer->moved < xfer->hole_at)
        count = ddl_moving_parts_between(xfer, xfer->moved, xfer->hole_at, iov, count);
    return ddl_moving_parts_between(xfer, ddl_size_max(xfer->moved, after_hole), xfer->bytes, iov, count);
}

/* What lies in the hole moves by itself. */
static void pass_hole(ddl_xfer *xfer)
{
    if (xfer->moved != xfer->hole_at)
        return;
    xfer->moved += xfer->hole_bytes;
    if (xfer->take != NULL)
        xfer->taken += xfer->hole_bytes;
}

void ddl_moving_advance(ddl_xfer *xfer, size_t bytes)
{
    size_t before = xfer->moved < xfer->hole_at ? ddl_size_min(bytes, xfer->hole_at - xfer->moved) : 0;
    xfer->moved += before;
    pass_hole(xfer);
    xfer->moved += bytes - before;
}

void ddl_moving_pass_part(ddl_xfer *xfer)
{
    size_t whole = (xfer->moved - xfer->taken) / xfer->unit_bytes * xfer->unit_bytes;
    if (whole > 0)
        xfer->take(xfer, xfer->taken, (const char *)xfer->part[0].data + xfer->taken, whole);
    xfer->taken += whole;
}

/* Pass on what can be where it lies, and put the rest into the part first: what begins or ends within a unit,
 * or is not aligned. */
static void pass_on(ddl_xfer *xfer, const uint8_t *bytes, size_t count)
{
    size_t whole = count / xfer->unit_bytes * xfer->unit_bytes;
    if (xfer->taken == xfer->moved && whole > 0 && ((uintptr_t)bytes & (xfer->unit_bytes - 1u)) == 0) {
        xfer->take(xfer, xfer->taken, bytes, whole);
        xfer->taken = xfer->moved += whole;
        bytes += whole;
        count -= whole;
    }
    memcpy((char *)xfer->part[0].data + xfer->moved, bytes, count);
    xfer->moved += count;
    ddl_moving_pass_part(xfer);
}

void ddl_moving_copy_in(const ddl_xfer *xfer, size_t at, const uint8_t *bytes, size_t count)
{
    struct iovec parts[2];
    int nparts = ddl_moving_parts_between(xfer, at, at + count, parts, 0);
    for (int i = 0; i < nparts; bytes += parts[i++].iov_len)
        ddl_copy(parts[i].iov_base, bytes, parts[i].iov_len, xfer->past_caches);
}

void ddl_moving_copy_out(const ddl_xfer *xfer, size_t at, uint8_t *bytes, size_t count)
{
    struct iovec parts[2];
    int nparts = ddl_moving_parts_between(xfer, at, at + count, parts, 0);
    for (int i = 0; i < nparts; bytes += parts[i++].iov_len)
        ddl_copy(bytes, parts[i].iov_base, parts[i].iov_len, xfer->past_caches);
}

void ddl_moving_fill(ddl_xfer *xfer, const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        size_t here = xfer->moved < xfer->hole_at ? ddl_size_min(count, xfer->hole_at - xfer->moved) : count;
        if (xfer->take != NULL) {
            pass_on(xfer, bytes, here);
        } else {
            ddl_moving_copy_in(xfer, xfer->moved, bytes, here);
            xfer->moved += here;
        }
        pass_hole(xfer);
        bytes += here;
        count -= here;
    }
}
