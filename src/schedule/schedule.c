/* schedule.c - the end of a schedule. */
#include "schedule/schedule.h"

#include "base/bytes.h"

void ddl_schedule_destroy(ddl_schedule *schedule)
{
    ddl_free(schedule); /* its arrays are part of the same allocation */
}
