/* wire.c - one or the other. */
#include "io/wire.h"

#include "io/socket.h"

ssize_t ddl_wire_read(ddl_wire *wire, void *data, size_t bytes)
{
    return wire->tls != NULL ? ddl_tls_socket_read(wire->tls, data, bytes)
                             : ddl_socket_read(wire->fd, data, bytes);
}

ssize_t ddl_wire_write(ddl_wire *wire, const void *data, size_t bytes)
{
    return wire->tls != NULL ? ddl_tls_socket_write(wire->tls, data, bytes, false)
                             : ddl_socket_write(wire->fd, data, bytes);
}

bool ddl_wire_flush(ddl_wire *wire)
{
    return wire->tls == NULL || ddl_tls_socket_write(wire->tls, NULL, 0, false) == 0;
}

bool ddl_wire_has_unsent(const ddl_wire *wire)
{
    return wire->tls != NULL && ddl_tls_socket_has_unsent(wire->tls);
}

bool ddl_wire_has_unread(const ddl_wire *wire)
{
    return wire->tls != NULL && ddl_tls_socket_has_unread(wire->tls);
}

const char *ddl_wire_problem(const ddl_wire *wire)
{
    return wire->tls != NULL ? ddl_tls_socket_problem(wire->tls) : "";
}

void ddl_wire_close(ddl_wire *wire)
{
    ddl_tls_socket_destroy(wire->tls);
    wire->tls = NULL;
    ddl_socket_close(&wire->fd);
}
