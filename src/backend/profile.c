/* profile.c - lines of `name = value` to constants of the cost model. */
#include "backend/profile.h"

#include "base/decimal.h"

#include <stdio.h>
#include <string.h>

/* A line, or a part of it, as it stands in the text. */
typedef struct ddl_span {
    const char *at;
    size_t bytes;
} ddl_span;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static ddl_span trimmed(ddl_span span)
{
    while (span.bytes > 0 && is_blank(span.at[0])) {
        span.at++;
        span.bytes--;
    }
    while (span.bytes > 0 && is_blank(span.at[span.bytes - 1]))
        span.bytes--;
    return span;
}

/* What is before the first `mark`, or all of it. */
static ddl_span until(ddl_span span, char mark)
{
    const char *found = span.bytes > 0 ? memchr(span.at, mark, span.bytes) : NULL;
    if (found != NULL)
        span.bytes = (size_t)(found - span.at);
    return span;
}

/* What is shown of a span in a message: short, and printable whatever the file holds. */
static const char *shown(ddl_span span, char text[64])
{
    size_t bytes = span.bytes < 48 ? span.bytes : 48;
    for (size_t i = 0; i < bytes; i++)
        text[i] = span.at[i];
    for (size_t i = 0; i < bytes; i++)
        if (text[i] < ' ' || text[i] > '~')
            text[i] = '?';
    snprintf(text + bytes, 64 - bytes, "%s", span.bytes > bytes ? "..." : "");
    return text;
}

static int find_name(ddl_span name)
{
    for (int i = 0; i < DDL_COST_CONSTANTS; i++)
        if (strlen(ddl_cost_names[i]) == name.bytes && memcmp(ddl_cost_names[i], name.at, name.bytes) == 0)
            return i;
    return -1;
}

static const char *list_names(char list[256])
{
    size_t used = 0;
    for (int i = 0; i < DDL_COST_CONSTANTS && used < 256; i++)
        used += (size_t)snprintf(list + used, 256 - used, "%s%s", i > 0 ? ", " : "", ddl_cost_names[i]);
    return list;
}

static ddl_status parse_line(const char *path, int line_number, ddl_span line, double constants[],
                             bool given[], ddl_error *err)
{
    char text[64], list[256];
    ddl_span name = trimmed(until(line, '='));
    ddl_span left = trimmed(line);
    if (left.bytes == 0)
        return DDL_OK;
    if (until(line, '=').bytes == line.bytes)
        return DDL_FAIL(err, DDL_ECONFIG, "%s:%d: '%s': a line is NAME = VALUE, or a comment after #", path,
                        line_number, shown(left, text));
    int index = find_name(name);
    if (index < 0)
        return DDL_FAIL(err, DDL_ECONFIG, "%s:%d: there is no constant '%s'; accepted are %s", path,
                        line_number, shown(name, text), list_names(list));
    if (given[index])
        return DDL_FAIL(err, DDL_ECONFIG, "%s:%d: %s is given twice; once is accepted", path, line_number,
                        ddl_cost_names[index]);
    size_t value_at = until(line, '=').bytes + 1;
    ddl_span value = trimmed((ddl_span){ line.at + value_at, line.bytes - value_at });
    double number;
    if (ddl_decimal_parse(value.at, value.bytes, &number) != value.bytes ||
        !(number > 0 && number < DDL_COST_LIMIT))
        return DDL_FAIL(err, DDL_ECONFIG,
                        "%s:%d: %s = '%s': accepted is a decimal number such as 0.33, greater than 0 and "
                        "less than %g",
                        path, line_number, ddl_cost_names[index], shown(value, text), DDL_COST_LIMIT);
    given[index] = true;
    constants[index] = number;
    return DDL_OK;
}

ddl_status ddl_profile_parse(const char *path, ddl_view text, ddl_cost_model *model, ddl_error *err)
{
    double constants[DDL_COST_CONSTANTS];
    bool given[DDL_COST_CONSTANTS] = { false };
    ddl_span rest = { text.data, text.bytes };
    ddl_cost_model_pack(model, constants);
    for (int line_number = 1; rest.bytes > 0; line_number++) {
        ddl_span line = until(rest, '\n');
        size_t used = line.bytes < rest.bytes ? line.bytes + 1 : line.bytes;
        DDL_TRY(parse_line(path, line_number, until(line, '#'), constants, given, err));
        rest.at += used;
        rest.bytes -= used;
    }
    return ddl_cost_model_unpack(constants, DDL_COST_CONSTANTS, model->crowding, model, err);
}
