/*
 * neighbours_talk.h - what two ranks of a host say to each other over their connection, before it carries
 * frames, and over a Unix socket.
 *
 * Blocks at most until the deadline. Thread: any.
 */
#ifndef DDL_RENDEZVOUS_NEIGHBOURS_TALK_H
#define DDL_RENDEZVOUS_NEIGHBOURS_TALK_H

#include "rendezvous/neighbours.h"

/* The errors, which blame the rank. os_errno: as the connection's last read or write left it; 0: it ended. */
ddl_status ddl_neighbour_lost(const ddl_roster *roster, const ddl_wire wires[], int rank, int os_errno,
                              ddl_error *err);
ddl_status ddl_neighbour_late(const ddl_roster *roster, int rank, ddl_error *err);
ddl_status ddl_neighbour_foreign(int rank, ddl_error *err);

/* Send, and hear, exactly so many bytes, few enough for the buffers of a fresh connection. */
DDL_MUST_USE ddl_status ddl_neighbour_tell(const ddl_roster *roster, ddl_wire wires[], int rank,
                                           const void *data, size_t bytes, ddl_error *err);
DDL_MUST_USE ddl_status ddl_neighbour_hear(const ddl_roster *roster, ddl_wire wires[], int rank, void *data,
                                           size_t bytes, ddl_deadline deadline, ddl_error *err);

/* The note, and the memory and the bell, that come through a Unix socket. DDL_ETIMEDOUT: none did. */
DDL_MUST_USE ddl_status ddl_neighbour_take(int fd, void *note, size_t bytes, ddl_deadline deadline,
                                           ddl_neighbour *other, ddl_error *err);

#endif
