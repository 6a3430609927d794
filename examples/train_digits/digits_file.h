/* digits_file.h - a file of handwritten digits: a line for each, of its pixels and of what it shows. */
#ifndef TRAIN_DIGITS_DIGITS_FILE_H
#define TRAIN_DIGITS_DIGITS_FILE_H

#include <stdint.h>

/* A line is 64 greys of 0 to 16, row by row, and the digit; here a byte each. */
enum { EDGE = 8, PIXELS = EDGE * EDGE, GREYS = 16, CLASSES = 10, LINE_BYTES = PIXELS + 1 };

/* The last lines of a file are for testing; it has more than these. */
enum { TEST_DIGITS = 297 };

/* All lines of a file, compressed by gzip or not; the caller frees them. NULL after saying why. */
uint8_t *digits_file_load(const char *path, int64_t *lines);

#endif
