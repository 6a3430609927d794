/*
 * check_door.h - accepts whoever connects to a rank of the check, while the rank itself does something else.
 *
 * Nothing is said on these connections; they are closed at once. Without it callers would wait in the
 * system's queue, whose length is limited (net.core.somaxconn), and the rest would not be connected.
 */
#ifndef DDL_LAUNCH_CHECK_DOOR_H
#define DDL_LAUNCH_CHECK_DOOR_H

#include "base/error.h"
#include "io/service.h"

typedef struct check_door check_door;

/* From now on until it is closed; the listeners stay the caller's, and outlive the door. */
DDL_MUST_USE ddl_status check_door_open(ddl_service *service, const int listeners[], int count,
                                        ddl_deadline deadline, check_door **door, ddl_error *err);

/* NULL is fine. */
void check_door_close(check_door *door);

#endif
