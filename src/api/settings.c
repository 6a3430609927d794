/* settings.c - one table of names, and which of them a name is near. */
#include "api/settings.h"

#include "base/spelling.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { LISTED = 5, PREFIX_BYTES = 4, ITEM_BYTES = 2 * DDL_SETTING_NAME + 8 };

static const char *const settings[] = { "DDL_ADVERTISE",       "DDL_CONNECT",        "DDL_GPU",
                                        "DDL_GPU_POLICY",      "DDL_IFACE",          "DDL_LOG",
                                        "DDL_PORT_RANGE",      "DDL_PROFILE",        "DDL_REDIS_CACERT",
                                        "DDL_REDIS_CERT",      "DDL_REDIS_KEY",      "DDL_SECRET",
                                        "DDL_SECRET_FILE",     "DDL_SECURITY",       "DDL_START_TIMEOUT",
                                        "DDL_STORE",           "DDL_STREAMS",        "DDL_TIMEOUT",
                                        "DDL_TLS_AES",         "DDL_TLS_CA",         "DDL_TLS_CERT",
                                        "DDL_TLS_JOB",         "DDL_TLS_KEY",        "DDL_TRANSPORT",
                                        "DDL_UNREACH_TIMEOUT", "DDL_UNRESP_TIMEOUT", "DDL_WARN_AFTER" };

/* By ddl-launch, and by tests: nobody is to be led to these. */
static const char *const handed_over[] = { "DDL_LAUNCH", "DDL_SECRET_FD", "DDL_FAILPOINTS" };

enum { NSETTINGS = sizeof settings / sizeof *settings, NHANDED = sizeof handed_over / sizeof *handed_over };

void ddl_setting_of(ddl_collective collective, char name[DDL_SETTING_NAME])
{
    snprintf(name, DDL_SETTING_NAME, "DDL_%s", ddl_collective_name(collective));
    for (char *at = name; *at != '\0'; at++)
        *at = (char)toupper((unsigned char)*at);
}

/* Those that force algorithms come after the others; false: there are no more. */
static bool setting_at(int index, char name[DDL_SETTING_NAME])
{
    if (index >= NSETTINGS + DDL_COLLECTIVE_COUNT)
        return false;
    if (index < NSETTINGS)
        snprintf(name, DDL_SETTING_NAME, "%s", settings[index]);
    else
        ddl_setting_of((ddl_collective)(index - NSETTINGS), name);
    return true;
}

bool ddl_setting_is_known(const char *name)
{
    char setting[DDL_SETTING_NAME];
    for (int i = 0; i < NHANDED; i++)
        if (strcmp(name, handed_over[i]) == 0)
            return true;
    for (int i = 0; setting_at(i, setting); i++)
        if (strcmp(name, setting) == 0)
            return true;
    return strncmp(name, "DDL_TEST_", strlen("DDL_TEST_")) == 0;
}

static void leave_out_underscores(const char *name, char left[DDL_SETTING_NAME])
{
    size_t used = 0;
    for (const char *at = name; *at != '\0'; at++)
        if (*at != '_')
            left[used++] = (char)toupper((unsigned char)*at);
    left[used] = '\0';
}

/* Half of a short name is not near it. False: there is none. */
static bool find_near(const char *name, char near[DDL_SETTING_NAME])
{
    char setting[DDL_SETTING_NAME], bare[DDL_SETTING_NAME], bare_setting[DDL_SETTING_NAME];
    int least = INT_MAX, letters = (int)strlen(name) - PREFIX_BYTES;
    if (strlen(name) >= DDL_SETTING_NAME)
        return false;
    leave_out_underscores(name, bare);
    for (int i = 0; setting_at(i, setting); i++) {
        leave_out_underscores(setting, bare_setting);
        int away = strcmp(bare, bare_setting) == 0 ? 0 : ddl_spelling_distance(name, setting);
        if (away < least) {
            least = away;
            memcpy(near, setting, DDL_SETTING_NAME);
        }
    }
    return ddl_spelling_is_near(least, letters);
}

/* As much of the name as can be told, and nothing that a terminal would obey. */
static void describe(const char *name, char item[ITEM_BYTES])
{
    char near[DDL_SETTING_NAME], shown[DDL_SETTING_NAME];
    bool is_long = strlen(name) >= DDL_SETTING_NAME;
    bool has_near = find_near(name, near);
    snprintf(shown, sizeof shown, "%.*s", DDL_SETTING_NAME - 1, name);
    for (char *at = shown; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && *at != '_')
            *at = '?';
    snprintf(item, ITEM_BYTES, has_near ? "%s%s (%s?)" : "%s%s", shown, is_long ? "..." : "",
             has_near ? near : "");
}

void ddl_settings_unknown(char *const environment[], char *text, size_t text_bytes)
{
    size_t used = 0;
    int count = 0;
    text[0] = '\0';
    for (int i = 0; environment != NULL && environment[i] != NULL; i++) {
        const char *equals = strchr(environment[i], '=');
        char name[256], item[ITEM_BYTES];
        if (strncmp(environment[i], "DDL_", PREFIX_BYTES) != 0 || equals == NULL || equals[1] == '\0')
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(equals - environment[i]), environment[i]);
        if (ddl_setting_is_known(name) || ++count > LISTED)
            continue;
        describe(name, item);
        int added = snprintf(text + used, text_bytes - used, "%s%s", count > 1 ? ", " : "", item);
        used = (size_t)added < text_bytes - used ? used + (size_t)added : text_bytes - 1;
    }
    if (count > LISTED)
        snprintf(text + used, text_bytes - used, ", and %d more", count - LISTED);
}
