/*
 * processor.h - kinds of processors that are treated in a way of their own.
 *
 * What is known of them, and how it was measured, is in docs/performance.md. Thread: any.
 */
#ifndef DDL_BASE_PROCESSOR_H
#define DDL_BASE_PROCESSOR_H

#include <stdbool.h>

/* Servers of Intel with AVX-512: their last cache does not hold what the cores' own do and is hardly quicker
 * than memory, and cores are far from each other. */
bool ddl_processor_is_intel_server(void);

/* AMD's family 25: EPYC of the third and fourth generation, and what is made of the same cores. */
bool ddl_processor_is_amd_25(void);

/* AMD's family 26: EPYC of the fifth generation. */
bool ddl_processor_is_amd_26(void);

/* EPYC of the third generation, and Threadripper of its cores. */
bool ddl_processor_is_epyc_3(void);

#endif
