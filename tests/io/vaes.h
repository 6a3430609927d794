/* vaes.h - whether another AES than OpenSSL's is to be used here, as the system itself tells it. */
#ifndef DDL_TESTS_IO_VAES_H
#define DDL_TESTS_IO_VAES_H

#include <openssl/crypto.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* By a build that can. The library has to be installed: ./check sees to that. */
static inline bool another_aes_is_better(void)
{
    static const char *const needed[] = { " avx512f ",  " avx512bw ",   " avx512dq ",
                                          " avx512vl ", " avx512ifma ", " sha_ni ",
                                          " gfni ",     " vpclmulqdq ", " vaes " };
    static char line[16384];
    FILE *file = fopen("/proc/cpuinfo", "r");
    bool found = false, better = OPENSSL_version_major() == 3 && OPENSSL_version_minor() == 0;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, "flags", 5) == 0;
    if (file != NULL)
        fclose(file);
    line[strcspn(line, "\n")] = ' '; /* each has one behind it */
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        better = better && found && strstr(line, needed[i]) != NULL;
    return better;
}

#endif
