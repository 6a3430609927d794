/*
 * loaded.h - which shared objects this process has loaded: whether there are new ones, and one by its name.
 *
 * A library that a program may bring or not, such as a driver, is only of interest once it is there. Asking
 * whether anything at all was loaded since takes about 15 ns, and waits for nobody's constructors. Thread:
 * any.
 */
#ifndef DDL_IO_LOADED_H
#define DDL_IO_LOADED_H

#include <stdbool.h>
#include <stdint.h>

/* How much was ever loaded, to be remembered. */
uint64_t ddl_loaded_count(void);

/* Whether more is loaded than was remembered; true before anything was, and where that cannot be told. */
bool ddl_loaded_is_news(void);

/* The same, but for what was loaded since: whether what is remembered is nothing. Takes no time. */
bool ddl_loaded_may_be_there(void);

/* From now on only what was loaded after that count is news. */
void ddl_loaded_remember(uint64_t count);

/* Everything is news again, for good. */
void ddl_loaded_forget(void);

/* A handle of the library if it is loaded, by the name that it has for the loader ("libcuda.so.1"); NULL: it
 * is not. The handle stays valid. */
void *ddl_loaded_find(const char *name);

/* The folder of the file that this code was loaded from, with a slash at its end; "" if that is not known. */
void ddl_loaded_own_folder(char *folder, unsigned capacity);

#endif
