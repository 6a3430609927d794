/* board.c - posting, and looking who has posted. */
#include "executor/board.h"

#include "base/assert.h"

#include <string.h>

void ddl_board_post(ddl_board *board, uint64_t number, const ddl_signature *signature, const void *bytes,
                    size_t count)
{
    DDL_ASSERT(count <= DDL_SHEET_BYTES);
    board->posts++;
    board->number = number;
    board->seen = 0;
    ddl_sheet *sheet = &board->sheets[board->rank][board->posts & 1];
    if (count > 0)
        memcpy(sheet->bytes, bytes, count);
    sheet->signature = *signature;
    atomic_store_explicit(&sheet->number, number, memory_order_release);
}

bool ddl_board_has_posted(const ddl_board *board, int rank)
{
    const ddl_sheet *sheet = ddl_board_sheet(board, rank);
    __builtin_prefetch((const char *)sheet + 64); /* comes with the number, if it comes */
    return atomic_load_explicit(&sheet->number, memory_order_acquire) == board->number;
}

int ddl_board_next(ddl_board *board)
{
    if (board->seen == board->rank)
        board->seen++;
    if (board->seen == board->nranks)
        return board->nranks;
    return ddl_board_has_posted(board, board->seen) ? board->seen++ : -1;
}
