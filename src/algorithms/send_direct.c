/* A send to one peer: one message. The other half is recv_direct.c. */
#include "algorithms/builders.h"

void ddl_send_direct(ddl_builder *b, const ddl_shape *shape)
{
    ddl_step_send(b, shape->root, ddl_in_vector(shape));
}
