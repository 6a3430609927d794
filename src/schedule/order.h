/*
 * order.h - which step must wait for which: derived from the bytes that steps read and write.
 *
 * Steps are declared one after the other; each says what it touches. A read waits for the last write of
 * the same bytes, a write for the last write and for all reads since. Addresses are (space, offset);
 * two buffers that share memory are given as one space. Used by the builder alone.
 */
#ifndef DDL_SCHEDULE_ORDER_H
#define DDL_SCHEDULE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDL_ORDER_SPACES = 3 };

typedef struct ddl_order ddl_order;

/* NULL: out of memory. */
ddl_order *ddl_order_create(void);
void ddl_order_destroy(ddl_order *order);

/* Declare the next step; its index is one more than the last one's, from 0. */
void ddl_order_begin(ddl_order *order);
void ddl_order_read(ddl_order *order, int space, size_t offset, size_t bytes);
void ddl_order_write(ddl_order *order, int space, size_t offset, size_t bytes);

/* The step waits for an earlier one, whatever the two touch. */
void ddl_order_after(ddl_order *order, uint32_t step);

/* End the step: drops predecessors that others of its predecessors imply, where that is cheap to see. */
void ddl_order_end(ddl_order *order);

/* Whether a step that writes these bytes would have to wait. */
bool ddl_order_busy(ddl_order *order, int space, size_t offset, size_t bytes);

/* Predecessors of a step that has ended, and how many all steps have together. */
const uint32_t *ddl_order_predecessors(const ddl_order *order, uint32_t step, uint32_t *count);
uint32_t ddl_order_edges(const ddl_order *order);

/* Memory ran out at some point: what the calls above say is incomplete. */
bool ddl_order_failed(const ddl_order *order);

#endif
