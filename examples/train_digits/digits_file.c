/* digits_file.c - lines of numbers and commas, read through zlib, which takes plain text as well. */
#include "digits_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static bool parse_digit(const char *text, const char *path, int64_t line, uint8_t digit[LINE_BYTES])
{
    for (int i = 0; i < LINE_BYTES; i++) {
        char *end;
        long value = strtol(text, &end, 10);
        bool fits = end != text && value >= 0 && value <= (i < PIXELS ? GREYS : CLASSES - 1);
        if (!fits || (i < PIXELS ? *end != ',' : *end != '\n' && *end != '\r' && *end != '\0')) {
            fprintf(stderr, "train_digits: %s, line %" PRId64 ", field %d: expected %s\n", path, line, i + 1,
                    i < PIXELS ? "a grey of 0 to 16 and a comma" : "a digit and the end of the line");
            return false;
        }
        digit[i] = (uint8_t)value;
        text = end + 1;
    }
    return true;
}

uint8_t *digits_file_load(const char *path, int64_t *lines)
{
    char text[512];
    uint8_t *digits = NULL;
    int64_t count = 0, room = 0;
    int code = Z_OK;
    gzFile file = gzopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "train_digits: cannot read %s: %s\n", path, strerror(errno));
        return NULL;
    }
    const char *reason = NULL;
    while (gzgets(file, text, sizeof text) != NULL) {
        if ((reason = gzerror(file, &code)) != NULL && code < 0)
            break; /* what is in text may be half a line */
        if (count == room) {
            room = 2 * room + 1024;
            uint8_t *more = realloc(digits, (size_t)room * LINE_BYTES);
            if (more == NULL) {
                fprintf(stderr, "train_digits: out of memory\n");
                goto fail;
            }
            digits = more;
        }
        if (!parse_digit(text, path, count + 1, digits + count * LINE_BYTES))
            goto fail;
        count++;
    }
    if ((reason = gzerror(file, &code)) != NULL && code < 0) {
        fprintf(stderr, "train_digits: %s\n",
                code == Z_ERRNO ? strerror(errno) : reason); /* names the file */
        goto fail;
    }
    if (count <= TEST_DIGITS) {
        fprintf(stderr,
                "train_digits: %s has %" PRId64 " lines; the last %d are for testing, so it takes more\n",
                path, count, TEST_DIGITS);
        goto fail;
    }
    gzclose(file);
    *lines = count;
    return digits;
fail:
    gzclose(file);
    free(digits);
    return NULL;
}
