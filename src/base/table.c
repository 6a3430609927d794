/* table.c - see table.h. */
#include "base/table.h"

#include "base/bytes.h"

static ddl_list *make_rows(size_t nrows)
{
    ddl_list *rows = ddl_alloc_array(nrows, sizeof *rows);
    for (size_t i = 0; rows != NULL && i < nrows; i++)
        ddl_list_init(&rows[i]);
    return rows;
}

bool ddl_table_init(ddl_table *table, size_t nrows)
{
    *table = (ddl_table){ make_rows(nrows), nrows, 0 };
    return table->rows != NULL;
}

void ddl_table_fini(ddl_table *table)
{
    ddl_free(table->rows);
    *table = (ddl_table){ 0 };
}

void ddl_table_grow(ddl_table *table)
{
    ddl_table more = { make_rows(2 * table->nrows), 2 * table->nrows, table->nobjects };
    if (more.rows == NULL)
        return;
    for (size_t i = 0; i < table->nrows; i++) {
        ddl_link *link;
        while ((link = ddl_list_take_first(&table->rows[i])) != NULL) {
            const ddl_hashed *object = DDL_CONTAINER(link, ddl_hashed, link);
            ddl_list_append(ddl_table_row(&more, object->hash), link);
        }
    }
    ddl_free(table->rows);
    *table = more;
}
