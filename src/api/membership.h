/*
 * membership.h - which secret this process proves itself with, so that all ranks of a job pick the same one.
 *
 * The first of these that is there:
 *     DDL_SECRET_FD     a note left by ddl-launch (io/note.h); then no other may be given
 *     DDL_SECRET_FILE   a file
 *     DDL_SECRET        the secret itself, for those who cannot do otherwise; not for long in the environment
 *     mem://            one that only this process has
 *     tcp://LOOPBACK    that of this user on this host; loopback has no ranks on others
 *     anything else     that of this user's home, which hosts may share
 * The last three follow from the meeting place as it is written, not from what a name stands for on some
 * host.
 */
#ifndef DDL_API_MEMBERSHIP_H
#define DDL_API_MEMBERSHIP_H

#include "api/config.h"
#include "protocol/prover.h"
#include "rendezvous/encryption.h"

/*
 * *prover is NULL where nobody has to prove anything: a world of one, or level off. What came by an inherited
 * descriptor or the environment is taken out of them in any case, and kept for later worlds of this process.
 * *encryption is how connections are encrypted, NULL below level tls; *prover must outlive it, and is the
 * caller's where that is what fails, too. DDL_ECONFIG: no secret, in words that name the ways, or wrong
 * files. DDL_EUNSUPPORTED: a build without TLS. DDL_ETIMEDOUT: a file has not been read by
 * config->start_until. Thread: any.
 */
DDL_MUST_USE ddl_status ddl_membership_find(const ddl_config *config, ddl_prover **prover,
                                            ddl_encryption **encryption, ddl_error *err);

#endif
