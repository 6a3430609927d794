/*
 * config_parts.h - what the files of config share. What their user needs is in config.h.
 *
 * Each function fills in what it names in *config.
 */
#ifndef DDL_API_CONFIG_PARTS_H
#define DDL_API_CONFIG_PARTS_H

#include "api/config.h"

/* NULL: it is unset, or empty, which is the same. */
const char *ddl_config_env(const char *name);

/* DDL_ECONFIG: value is no whole number, or not from least to most. */
DDL_MUST_USE ddl_status ddl_config_parse_int(const char *name, const char *value, long least, long most,
                                             int *result, ddl_error *err);

/* ---- config_ranks.c ---- */

/* rank, nranks and local_rank. */
DDL_MUST_USE ddl_status ddl_config_read_ranks(const ddl_options *options, ddl_config *config, ddl_error *err);

/* Whether launchers say that the ranks are on one host, or on several. */
ddl_spread ddl_config_find_spread(int nranks);

/* ---- config_costs.c ---- */

/* costs: everybody has the defaults; rank 0's constants, which the profile may change, then go to all. */
DDL_MUST_USE ddl_status ddl_config_read_costs(ddl_config *config, ddl_error *err);

#endif
