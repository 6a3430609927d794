/*
 * profile.h - a cost profile: constants of the cost model as lines of text.
 *
 *     # comment
 *     local.latency_ns = 3600
 *     remote.byte_ns = 0.85
 *
 * A constant that is not named keeps its default. Pure: the text is read elsewhere.
 */
#ifndef DDL_BACKEND_PROFILE_H
#define DDL_BACKEND_PROFILE_H

#include "backend/choice.h"
#include "base/bytes.h"

/* More than any profile needs. */
enum { DDL_PROFILE_LIMIT = 64 * 1024 };

/*
 * Set in *model what text names; on failure it is left as it was. path is for messages only.
 * DDL_ECONFIG: a line that is no setting, an unknown name, one given twice, a value that is no decimal number
 * or out of range; names path and line, and says what is accepted.
 */
DDL_MUST_USE ddl_status ddl_profile_parse(const char *path, ddl_view text, ddl_cost_model *model,
                                          ddl_error *err);

#endif
