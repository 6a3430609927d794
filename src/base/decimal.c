/* decimal.c - decimal numbers and times in text. */
#include "base/decimal.h"

#include <string.h>

size_t ddl_decimal_parse(const char *text, size_t bytes, double *number)
{
    double digits = 0, unit = 1;
    bool any = false, fraction = false;
    size_t at = 0;
    for (; at < bytes; at++) {
        const char c = text[at];
        if (c == '.' && !fraction) {
            fraction = true;
        } else if (c >= '0' && c <= '9') {
            any = true;
            digits = digits * 10 + (c - '0');
            unit *= fraction ? 10 : 1;
        } else {
            break;
        }
    }
    *number = digits / unit;
    return any ? at : 0;
}

bool ddl_duration_parse(const char *text, int64_t *ms)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = { { "", 1000 }, { "s", 1000 }, { "ms", 1 }, { "min", 60e3 }, { "h", 3600e3 } };
    static const double century_ms = 100 * 365.25 * 24 * 3600e3;
    double number;
    const size_t used = ddl_decimal_parse(text, strlen(text), &number);
    for (size_t i = 0; used > 0 && i < sizeof units / sizeof units[0]; i++)
        if (strcmp(text + used, units[i].name) == 0 && number * units[i].ms <= century_ms) {
            *ms = (int64_t)(number * units[i].ms + 0.5);
            return true;
        }
    return false;
}
