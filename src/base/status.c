/* status.c - names and meanings of status codes. */
#include "base/status.h"

const char *ddl_status_name(ddl_status status)
{
    switch (status) {
#define NAME(code, meaning) \
    case code:              \
        return #code;
        DDL_STATUS_TABLE(NAME)
#undef NAME
    }
    return "DDL_UNKNOWN";
}

const char *ddl_status_text(ddl_status status)
{
    switch (status) {
#define TEXT(code, meaning) \
    case code:              \
        return meaning;
        DDL_STATUS_TABLE(TEXT)
#undef TEXT
    }
    return "not a status of ddl";
}
