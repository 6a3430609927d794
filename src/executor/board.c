/* board.c - posting, and looking who has posted. */
#include "executor/board.h"

#include "base/assert.h"

#include <string.h>

void ddl_board_begin(ddl_board *board)
{
    for (int i = 0; i < 2; i++)
        atomic_store_explicit(&board->sheets[board->rank][i].number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    board->outlet.until_timed = 2 * DDL_SHEET_BYTES; /* both may be new */
}

void ddl_board_post(ddl_board *board, uint64_t number, const ddl_signature *signature, const void *buffer,
                    const ddl_slice parts[], int nparts)
{
    DDL_ASSERT(board->unseen == 0);
    board->posts++;
    board->number = number | (board->posts >> 1 & 1);
    board->unseen = ddl_board_others(board);
    ddl_sheet *own = board->sheets[board->rank], *sheet = &own[board->posts & 1];
    board->next = &own[~board->posts & 1];
    /* The line of the number last, and all at once: who waits for the number fetches that line again and
     * again, and each time it has to be fetched back. */
    const uint8_t *first = nparts > 0 ? (const uint8_t *)buffer + parts[0].offset : NULL;
    size_t at = nparts > 0 ? parts[0].bytes : 0;
    const size_t head = at < DDL_HEAD_BYTES ? at : DDL_HEAD_BYTES;
    DDL_ASSERT(at <= DDL_SHEET_BYTES);
    if (at > head)
        ddl_outlet_copy(&board->outlet, sheet->bytes + head, first + head, at - head);
    for (int i = 1; i < nparts; i++) {
        DDL_ASSERT(parts[i].bytes <= DDL_SHEET_BYTES - at);
        ddl_outlet_copy(&board->outlet, sheet->bytes + at, (const uint8_t *)buffer + parts[i].offset,
                        parts[i].bytes);
        at += parts[i].bytes;
    }
    board->said_bytes = at;
    if (head > 0)
        memcpy(sheet->bytes, first, head);
    uint64_t words[DDL_SIGNATURE_WORDS];
    memcpy(words, signature, sizeof words);
    for (int i = 0; i < DDL_SIGNATURE_WORDS; i++)
        atomic_store_explicit(&sheet->signature[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&sheet->number, board->number, memory_order_release);
}

void ddl_board_tell(ddl_board *board, ddl_told told)
{
    ddl_sheet *next = &board->sheets[board->rank][(board->posts + 1) & 1];
    atomic_store_explicit(&next->tells, told, memory_order_relaxed);
}

void ddl_board_withdraw(ddl_board *board)
{
    for (int i = 0; i < 2; i++)
        atomic_store_explicit(&board->sheets[board->rank][i].tells, DDL_TOLD_WITHDRAWN, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

bool ddl_board_tells_place(const ddl_board *board, int rank, ddl_board_place *place)
{
    const ddl_sheet *sheet = ddl_board_sheet(board, rank);
    if (atomic_load_explicit(&sheet->tells, memory_order_relaxed) == DDL_TOLD_BYTES)
        return false;
    memcpy(place, sheet->bytes, sizeof *place);
    return true;
}

bool ddl_board_still_tells(const ddl_board *board, int rank)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&ddl_board_sheet(board, rank)->tells, memory_order_relaxed) == DDL_TOLD_PLACE;
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
