/* board.c - posting, and looking who has posted. */
#include "executor/board.h"

#include "base/assert.h"
#include "base/size.h"

#include <string.h>

ddl_board ddl_board_of(int rank, int nranks)
{
    const ddl_board_ranks all =
        nranks < DDL_BOARD_RANKS ? ((ddl_board_ranks)1 << nranks) - 1 : ~(ddl_board_ranks)0;
    const unsigned ahead = nranks <= DDL_BOARD_FEW ? DDL_AHEAD : 1;
    return (ddl_board){ .rank = rank,
                        .nranks = nranks,
                        .ahead = ahead,
                        .nsheets = 2 * ahead,
                        .others = all & ~((ddl_board_ranks)1 << rank) };
}

void ddl_board_begin(ddl_board *board, bool is_new)
{
    for (int i = 0; i < DDL_SHEETS && !is_new; i++) /* the one before may have used more */
        atomic_store_explicit(&board->pads[board->rank]->sheets[i].number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    board->outlet.until_timed = 2 * DDL_POST_BYTES; /* both pages may be new */
}

/* Where bytes of that many are, other than the head of what is on a sheet. */
static void copy_parts(ddl_board *board, uint8_t *to, const void *buffer, const ddl_slice parts[], int nparts,
                       size_t head)
{
    size_t at = 0;
    for (int i = 0; i < nparts; i++) {
        const uint8_t *from = (const uint8_t *)buffer + parts[i].offset;
        if (parts[i].bytes > head)
            ddl_outlet_copy(&board->outlet, to + at + head, from + head, parts[i].bytes - head);
        at += parts[i].bytes;
        head = 0;
    }
}

void ddl_board_post(ddl_board *board, uint64_t number, uint64_t sequence, const ddl_signature *signature,
                    const void *buffer, const ddl_slice parts[], int nparts, size_t bytes)
{
    DDL_ASSERT(bytes <= DDL_POST_BYTES && ddl_board_may_post(board, bytes));
    board->posts++;
    const uint64_t full = number | ((board->posts & board->nsheets) != 0);
    board->posted[board->posts % DDL_AHEAD] = (ddl_posted){ full, sequence, *signature };
    board->unseen[board->posts % DDL_AHEAD] = board->others;
    board->said_bytes = bytes;
    ddl_pad *pad = board->pads[board->rank];
    ddl_sheet *sheet = &pad->sheets[board->posts & (board->nsheets - 1)];
    /* The line of the number last, and all at once: who waits for the number fetches that line again and
     * again, and each time it has to be fetched back. */
    if (bytes > DDL_SHEET_BYTES) {
        copy_parts(board, pad->pages[board->posts % 2], buffer, parts, nparts, 0);
    } else if (bytes > 0) {
        const size_t head = ddl_size_min(parts[0].bytes, DDL_HEAD_BYTES);
        if (bytes > head)
            copy_parts(board, sheet->bytes, buffer, parts, nparts, head);
        memcpy(sheet->bytes, (const uint8_t *)buffer + parts[0].offset, head);
    }
    uint64_t words[DDL_SIGNATURE_WORDS];
    memcpy(words, signature, sizeof words);
    for (int i = 0; i < DDL_SIGNATURE_WORDS; i++)
        atomic_store_explicit(&sheet->signature[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&sheet->number, full, memory_order_release);
}

void ddl_board_tell(ddl_board *board, ddl_told told)
{
    ddl_sheet *next = &board->pads[board->rank]->sheets[(board->posts + 1) & (board->nsheets - 1)];
    atomic_store_explicit(&next->tells, told, memory_order_relaxed);
}

void ddl_board_withdraw(ddl_board *board)
{
    for (unsigned i = 0; i < board->nsheets; i++)
        atomic_store_explicit(&board->pads[board->rank]->sheets[i].tells, DDL_TOLD_WITHDRAWN,
                              memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

bool ddl_board_tells_place(const ddl_board *board, int rank, ddl_board_place *place)
{
    const ddl_sheet *sheet = ddl_board_sheet(board, board->posts, rank);
    if (atomic_load_explicit(&sheet->tells, memory_order_relaxed) == DDL_TOLD_BYTES)
        return false;
    memcpy(place, sheet->bytes, sizeof *place);
    return true;
}

bool ddl_board_still_tells(const ddl_board *board, int rank)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&ddl_board_sheet(board, board->posts, rank)->tells, memory_order_relaxed) ==
           DDL_TOLD_PLACE;
}
