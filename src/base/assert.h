/* assert.h - invariants of ours; they stay on in release builds. A wrong argument or network is a status. */
#ifndef DDL_BASE_ASSERT_H
#define DDL_BASE_ASSERT_H

/* Print where and what, then abort. */
_Noreturn void ddl_assert_fail(const char *file, int line, const char *text);

#define DDL_ASSERT(condition) ((condition) ? (void)0 : ddl_assert_fail(__FILE__, __LINE__, #condition))

#endif
