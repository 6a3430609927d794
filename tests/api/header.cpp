// The public header from C++: it compiles without warnings, links, and the smallest program works.
#include <ddl/ddl.h>

#include <cstdio>

int main()
{
    ddl_comm *world = nullptr;
    ddl_options options = DDL_OPTIONS_INIT;
    double value = 2.5;

    if (ddl_init(&world, &options) != DDL_OK) {
        std::fprintf(stderr, "%s\n", ddl_last_error()->text);
        return 1;
    }
    if (ddl_allreduce(&value, &value, 1, DDL_FLOAT64, DDL_SUM, world, nullptr) != DDL_OK || value != 2.5)
        return 1;
    return ddl_comm_free(&world) == DDL_OK ? 0 : 1;
}
