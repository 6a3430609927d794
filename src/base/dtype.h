/* dtype.h - names of element types and operators, and which pairs make sense. */
#ifndef DDL_BASE_DTYPE_H
#define DDL_BASE_DTYPE_H

#include <ddl/ddl.h>

enum { DDL_DTYPE_COUNT = DDL_FLOAT64 + 1, DDL_OP_COUNT = DDL_BXOR + 1 };

/* "float32"; "?" if there is no such type. */
const char *ddl_dtype_name(ddl_dtype dtype);

/* "sum"; "?" if there is no such operator. */
const char *ddl_op_name(ddl_op op);

/* Whether op is defined on dtype: all but bitwise operators on floats. */
bool ddl_op_takes(ddl_op op, ddl_dtype dtype);

#endif
