/* fuzz_profile.c - a cost profile that anybody may have written. Input: the text. */
#include "backend/profile.h"

#include "base/assert.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const ddl_cost_model before = ddl_cost_model_default(4);
    ddl_cost_model model = before;
    double constants[DDL_COST_CONSTANTS];
    ddl_error error;
    ddl_status status = ddl_profile_parse("a profile", (ddl_view){ data, bytes }, &model, &error);
    DDL_ASSERT(status == DDL_OK || status == DDL_ECONFIG);
    DDL_ASSERT(status == DDL_OK || memcmp(&model, &before, sizeof model) == 0);
    ddl_cost_model_pack(&model, constants);
    for (int i = 0; i < DDL_COST_CONSTANTS; i++)
        DDL_ASSERT(constants[i] > 0 && constants[i] <= DDL_COST_LIMIT);
    return 0;
}
