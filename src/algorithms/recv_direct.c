/* A receive from one peer: one message. The other half is send_direct.c. */
#include "algorithms/builders.h"

void ddl_recv_direct(ddl_builder *b, const ddl_shape *shape)
{
    ddl_step_recv(b, shape->root, ddl_out_vector(shape));
}
