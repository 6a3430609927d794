/* dtype.c - the tables of element types and operators. */
#include "base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
    bool is_float;
} dtypes[DDL_DTYPE_COUNT] = {
    [DDL_INT8] = { "int8", 1, false },      [DDL_UINT8] = { "uint8", 1, false },
    [DDL_INT16] = { "int16", 2, false },    [DDL_UINT16] = { "uint16", 2, false },
    [DDL_INT32] = { "int32", 4, false },    [DDL_UINT32] = { "uint32", 4, false },
    [DDL_INT64] = { "int64", 8, false },    [DDL_UINT64] = { "uint64", 8, false },
    [DDL_FLOAT16] = { "float16", 2, true }, [DDL_BFLOAT16] = { "bfloat16", 2, true },
    [DDL_FLOAT32] = { "float32", 4, true }, [DDL_FLOAT64] = { "float64", 8, true },
};

static const char *const ops[DDL_OP_COUNT] = {
    [DDL_SUM] = "sum", [DDL_PROD] = "prod", [DDL_MIN] = "min", [DDL_MAX] = "max",
    [DDL_AVG] = "avg", [DDL_BAND] = "band", [DDL_BOR] = "bor", [DDL_BXOR] = "bxor",
};

static bool is_dtype(ddl_dtype dtype)
{
    return (unsigned)dtype < DDL_DTYPE_COUNT;
}

size_t ddl_dtype_bytes(ddl_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].bytes : 0;
}

const char *ddl_dtype_name(ddl_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

const char *ddl_op_name(ddl_op op)
{
    return (unsigned)op < DDL_OP_COUNT ? ops[op] : "?";
}

bool ddl_op_takes(ddl_op op, ddl_dtype dtype)
{
    bool bitwise = op == DDL_BAND || op == DDL_BOR || op == DDL_BXOR;
    return (unsigned)op < DDL_OP_COUNT && is_dtype(dtype) && !(bitwise && dtypes[dtype].is_float);
}
