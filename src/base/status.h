/*
 * status.h - the one table of status codes: name, meaning, what a person can do.
 *
 * The codes themselves are declared in <ddl/ddl.h>; status.c checks that table and header agree.
 */
#ifndef DDL_BASE_STATUS_H
#define DDL_BASE_STATUS_H

#include <ddl/ddl.h>

/* X(code, meaning) */
#define DDL_STATUS_TABLE(X)                                                                                 \
    X(DDL_OK, "success")                                                                                    \
    X(DDL_EINVAL, "an argument makes no sense; nothing was done")                                           \
    X(DDL_ETIMEDOUT, "a deadline passed; look at the rank named as late, or raise DDL_TIMEOUT")             \
    X(DDL_EPEERLOST, "a peer process ended or its connection broke; look at that rank's output")            \
    X(DDL_EUNREACHABLE, "a peer's host stopped answering; check the network and that host")                 \
    X(DDL_EUNRESPONSIVE, "a peer's host answers but its process does not; is it stopped or in a debugger?") \
    X(DDL_EMISMATCH, "ranks called different operations, counts or types; compare the two calls named")     \
    X(DDL_EABORTED, "this communicator was aborted earlier; free it")                                       \
    X(DDL_ECONFIG, "environment or options are wrong, or in conflict between ranks")                        \
    X(DDL_EAUTH, "a peer could not prove that it belongs to this job")                                      \
    X(DDL_ESTORE, "the rendezvous store failed")                                                            \
    X(DDL_ENETWORK, "cannot listen, resolve or connect")                                                    \
    X(DDL_EPROTO, "malformed or unexpected bytes, or another version of ddl")                               \
    X(DDL_ENOMEM, "out of memory")                                                                          \
    X(DDL_ERESOURCE, "out of descriptors, shared memory or threads; check ulimit -n, -u and -v")            \
    X(DDL_EUNSUPPORTED, "not possible here, or not in this build")                                          \
    X(DDL_EDEVICE, "CUDA or NCCL failed")                                                                   \
    X(DDL_EINTERNAL, "a defect of ddl; please report it")

#endif
