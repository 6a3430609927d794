/* fuzz_environment.c - what a world is made of, from any environment. Input: lines NAME=VALUE. */
#include "api/config.h"

#include "base/assert.h"
#include "base/log.h"
#include "io/interface.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { LINES = 32, TEXT_BYTES = 2048 };

/* Names that are read; DDL_PROFILE is not among them, as it names a file (see fuzz_profile.c). */
static bool is_ours(const char *line)
{
    static const char *const begins[] = {
        "DDL_", "MASTER_", "RANK=", "WORLD_SIZE=", "OMPI_", "PMI_", "SLURM_"
    };
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(line, begins[i], strlen(begins[i])) == 0)
            return strncmp(line, "DDL_PROFILE=", 12) != 0;
    return false;
}

static void check(const ddl_config *config)
{
    DDL_ASSERT(config->nranks > 0);
    DDL_ASSERT(config->rank >= 0);
    DDL_ASSERT(config->rank < config->nranks);
    DDL_ASSERT(config->start_timeout_ms > 0);
    DDL_ASSERT(config->timeout_ms > 0);
    DDL_ASSERT(memchr(config->store, '\0', sizeof config->store) != NULL);
    DDL_ASSERT(memchr(config->master, '\0', sizeof config->master) != NULL);
    DDL_ASSERT(memchr(config->network.iface, '\0', sizeof config->network.iface) != NULL);
    DDL_ASSERT(config->nranks == 1 || config->store[0] != '\0');
    for (int i = 0; i < DDL_COLLECTIVE_COUNT; i++)
        DDL_ASSERT(config->forced[i] == NULL || (int)config->forced[i]->collective == i);
}

/* The list in DDL_IFACE is taken apart when a rank looks for its address. */
static void check_iface(const char *iface)
{
    ddl_address address;
    ddl_error error;
    ddl_status status = ddl_interface_choose(iface, NULL, &address, &error);
    DDL_ASSERT(status == DDL_OK || status == DDL_ECONFIG || status == DDL_ENETWORK);
    DDL_ASSERT(status != DDL_OK || address.bytes > 0);
    DDL_ASSERT(status == DDL_OK || error.text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char text[TEXT_BYTES];
    char *lines[LINES + 1];
    int count = 0;
    ddl_config config;
    ddl_error error;
    if (bytes >= sizeof text)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    for (char *line = text, *end; count < LINES && line != NULL; line = end) {
        end = strchr(line, '\n');
        if (end != NULL)
            *end++ = '\0';
        if (is_ours(line) && strchr(line, '=') != NULL)
            lines[count++] = line;
    }
    lines[count] = NULL;
    char **const usual = environ;
    environ = lines;
    ddl_status status = ddl_config_read(NULL, &config, &error);
    environ = usual;
    ddl_log_set_level(DDL_LOG_ERROR);
    DDL_ASSERT(status == DDL_OK || status == DDL_ECONFIG || status == DDL_EUNSUPPORTED);
    if (status == DDL_OK)
        check(&config);
    else
        DDL_ASSERT(error.text[0] != '\0');
    if (status == DDL_OK && config.network.iface[0] != '\0')
        check_iface(config.network.iface);
    return 0;
}
