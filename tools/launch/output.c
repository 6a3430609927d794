/* output.c - cutting a stream into lines. */
#include "output.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/size.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const uint8_t *last_newline(const uint8_t *text, size_t bytes)
{
    while (bytes > 0)
        if (text[--bytes] == '\n')
            return text + bytes;
    return NULL;
}

static void tail_add(launch_tail *tail, const uint8_t *text, size_t bytes)
{
    if (bytes >= sizeof tail->text) {
        tail->cut = tail->cut || tail->bytes > 0 || bytes > sizeof tail->text;
        memcpy(tail->text, text + bytes - sizeof tail->text, sizeof tail->text);
        tail->bytes = sizeof tail->text;
        return;
    }
    if (tail->bytes + bytes > sizeof tail->text) {
        size_t kept = sizeof tail->text - bytes;
        memmove(tail->text, tail->text + tail->bytes - kept, kept);
        tail->bytes = kept;
        tail->cut = true;
    }
    memcpy(tail->text + tail->bytes, text, bytes);
    tail->bytes += bytes;
}

int launch_tail_lines(const launch_tail *tail, ddl_view *lines, int most)
{
    const char *end = tail->text + tail->bytes;
    int count = 0;
    while (end > tail->text && count < most) {
        const char *start = end[-1] == '\n' ? end - 1 : end;
        const char *text_end = start;
        while (start > tail->text && start[-1] != '\n')
            start--;
        if (start == tail->text && tail->cut && count > 0)
            break; /* the rest of a line is shown only if there is nothing else */
        lines[count++] = (ddl_view){ start, (size_t)(text_end - start) };
        end = start;
    }
    for (int i = 0; i < count / 2; i++) {
        ddl_view other = lines[i];
        lines[i] = lines[count - 1 - i];
        lines[count - 1 - i] = other;
    }
    return count;
}

/* What the rank's other stream left in the middle of a line is ended. */
static void tail_note(launch_output *output, const uint8_t *text, size_t bytes)
{
    launch_tail *tail = output->tail;
    if (bytes == 0)
        return;
    if (tail->author != output && tail->bytes > 0 && tail->text[tail->bytes - 1] != '\n')
        tail_add(tail, (const uint8_t *)"\n", 1);
    tail_add(tail, text, bytes);
    tail->author = output;
}

/* Write to the log file; it is closed at the first failure, which is told at the end of the job. */
static void log_add(launch_output *output, const uint8_t *text, size_t bytes)
{
    while (output->log_fd >= 0 && bytes > 0) {
        ssize_t written = DDL_FAILPOINT_OS("launch.log", ENOSPC) ? -1 : write(output->log_fd, text, bytes);
        if (written >= 0) {
            text += written;
            bytes -= (size_t)written;
        } else if (errno != EINTR) {
            output->log_error = errno;
            close(output->log_fd);
            output->log_fd = -1;
        }
    }
}

/* A part of this line was passed on, and ended by what others wrote: here begins another. */
static bool was_interrupted(const launch_output *output)
{
    return output->begun && !launch_sink_awaits(output->sink, output);
}

/* Append lines to lines, each with the prefix unless it goes on with one; the last may lack its end. */
static bool add_lines(launch_output *output, const uint8_t *text, size_t bytes, ddl_bytes *lines)
{
    size_t prefix_bytes = strlen(output->prefix);
    bool goes_on = output->begun && !was_interrupted(output);
    tail_note(output, text, bytes);
    if (bytes > 0 && text[0] == '\n' && was_interrupted(output)) { /* its end was written for it */
        text++;
        bytes--;
    }
    output->begun = false;
    if (prefix_bytes == 0)
        return ddl_bytes_append(lines, text, bytes);
    while (bytes > 0) {
        const uint8_t *newline = memchr(text, '\n', bytes);
        size_t line = newline != NULL ? (size_t)(newline - text) + 1 : bytes;
        if ((!goes_on && !ddl_bytes_append(lines, output->prefix, prefix_bytes)) ||
            !ddl_bytes_append(lines, text, line))
            return false;
        goes_on = false;
        text += line;
        bytes -= line;
    }
    return true;
}

/* Append what is held, a line or the beginning of one. */
static bool add_held(launch_output *output, ddl_bytes *lines)
{
    bool added = add_lines(output, output->held.data, output->held.bytes, lines);
    output->held.bytes = 0;
    if (output->held.capacity > LAUNCH_READ_BYTES)
        ddl_bytes_fini(&output->held);
    return added;
}

/* Cut text into what can be passed on, to lines, and what is to be held. */
static bool cut(launch_output *output, const uint8_t *text, size_t bytes, ddl_bytes *lines)
{
    if (output->held.bytes > 0) {
        const uint8_t *newline = memchr(text, '\n', bytes);
        size_t room = LAUNCH_LONGEST_LINE - output->held.bytes;
        size_t line = newline != NULL ? (size_t)(newline - text) + 1 : bytes;
        size_t taken =
            ddl_size_min(line, room + (newline != NULL && line == room + 1)); /* the newline is extra */
        if (!ddl_bytes_append(&output->held, text, taken))
            return false;
        bool whole = newline != NULL && taken == line;
        if (!whole && output->held.bytes < LAUNCH_LONGEST_LINE)
            return true; /* taken is all there was */
        if (!whole && taken == bytes)
            return true; /* exactly the longest line: perhaps its newline comes next */
        if ((!whole && !ddl_bytes_append(&output->held, "\n", 1)) || !add_held(output, lines))
            return false;
        text += taken;
        bytes -= taken;
    }
    const uint8_t *newline = last_newline(text, bytes);
    if (newline != NULL) {
        size_t whole = (size_t)(newline - text) + 1;
        if (!add_lines(output, text, whole, lines))
            return false;
        text += whole;
        bytes -= whole;
    }
    /* What is left is shorter than a chunk, and nothing is held. */
    return bytes == 0 || ddl_bytes_append(&output->held, text, bytes);
}

int64_t launch_output_due(const launch_output *output, int64_t any_ns)
{
    if (output->held.bytes == 0)
        return DDL_DEADLINE_NEVER;
    int64_t last_ns = output->more_ns > any_ns ? output->more_ns : any_ns;
    int64_t quiet_ns = last_ns + LAUNCH_HELD_MS * DDL_NS_PER_MS;
    int64_t longest_ns = output->held_ns + LAUNCH_HELD_LONGEST_MS * DDL_NS_PER_MS;
    return quiet_ns < longest_ns ? quiet_ns : longest_ns;
}

void launch_output_defer(launch_output *output, int64_t now_ns)
{
    output->held_ns = output->more_ns = now_ns;
}

void launch_output_pass(launch_output *output, launch_scratch *scratch)
{
    if (output->held.bytes == 0)
        return;
    scratch->lines.bytes = 0;
    bool enough_memory = add_held(output, &scratch->lines);
    launch_sink_put(output->sink, output, ddl_bytes_view(&scratch->lines));
    output->begun = true;
    if (!enough_memory)
        launch_output_close(output, scratch);
}

bool launch_output_read(launch_output *output, launch_scratch *scratch, int64_t now_ns)
{
    DDL_ASSERT(output->fd >= 0);
    ssize_t bytes = read(output->fd, scratch->chunk, sizeof scratch->chunk);
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    if (bytes <= 0) {
        launch_output_close(output, scratch);
        return false;
    }
    log_add(output, scratch->chunk, (size_t)bytes);
    if (output->raw) {
        tail_add(output->tail, scratch->chunk, (size_t)bytes);
        launch_sink_put(output->sink, output->tail, (ddl_view){ scratch->chunk, (size_t)bytes });
        return true;
    }
    scratch->lines.bytes = 0;
    bool held_before = output->held.bytes > 0;
    bool enough_memory = cut(output, scratch->chunk, (size_t)bytes, &scratch->lines);
    launch_sink_put(output->sink, output, ddl_bytes_view(&scratch->lines));
    if (!enough_memory) {
        launch_output_close(output, scratch);
        return false;
    }
    output->more_ns = now_ns;
    if (!held_before || scratch->lines.bytes > 0)
        output->held_ns = now_ns;
    if (output->begun && !was_interrupted(output)) /* the line is not whole any more, so why wait */
        launch_output_pass(output, scratch);
    return true;
}

void launch_output_close(launch_output *output, launch_scratch *scratch)
{
    bool in_line = output->held.bytes > 0 || (output->begun && !was_interrupted(output));
    if (in_line) {
        scratch->lines.bytes = 0;
        if (ddl_bytes_append(&output->held, "\n", 1) && add_held(output, &scratch->lines))
            launch_sink_put(output->sink, output, ddl_bytes_view(&scratch->lines));
    }
    output->begun = false;
    ddl_bytes_fini(&output->held);
    if (output->fd >= 0)
        close(output->fd);
    if (output->log_fd >= 0 && close(output->log_fd) != 0) /* as where a quota is seen late */
        output->log_error = errno;
    output->fd = output->log_fd = -1;
}

void launch_scratch_destroy(launch_scratch *scratch)
{
    if (scratch != NULL)
        ddl_bytes_fini(&scratch->lines);
    ddl_free(scratch);
}
