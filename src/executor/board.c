/* board.c - posting, and looking who has posted. */
#include "executor/board.h"

#include "base/assert.h"

#include <stddef.h>
#include <string.h>

enum { LINE_BYTES = 64, HEAD_BYTES = LINE_BYTES - offsetof(ddl_sheet, bytes) }; /* bytes beside the number */

void ddl_board_post(ddl_board *board, uint64_t number, const ddl_signature *signature, const void *buffer,
                    const ddl_slice parts[], int nparts)
{
    DDL_ASSERT(board->unseen == 0);
    board->posts++;
    board->number = number;
    board->unseen = ddl_board_others(board);
    ddl_sheet *sheet = &board->sheets[board->rank][board->posts & 1];
    /* The line of the number last, and all at once: who waits for the number fetches that line again and
     * again, and each time it has to be fetched back. */
    size_t head = nparts > 0 && parts[0].bytes < HEAD_BYTES ? parts[0].bytes : HEAD_BYTES, at = head;
    for (int i = 0; i < nparts; i++) {
        const size_t done = i == 0 ? head : 0, count = parts[i].bytes - done;
        DDL_ASSERT(at + count <= DDL_SHEET_BYTES);
        if (count > 0)
            memcpy(sheet->bytes + at, (const uint8_t *)buffer + parts[i].offset + done, count);
        at += count;
    }
    if (nparts > 0)
        memcpy(sheet->bytes, (const uint8_t *)buffer + parts[0].offset, head);
    sheet->signature = *signature;
    atomic_store_explicit(&sheet->number, number, memory_order_release);
}

int ddl_board_next(ddl_board *board, ddl_board_ranks among)
{
    ddl_board_ranks left = board->unseen & among;
    if (left == 0)
        return board->nranks;
    int rank = __builtin_ctzll(left);
    if (!ddl_board_has_posted(board, rank))
        return -1;
    board->unseen &= ~((ddl_board_ranks)1 << rank);
    return rank;
}
