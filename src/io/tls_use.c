/* tls_use.c - counts who is inside of OpenSSL, and closes it for good when OpenSSL is taken down. */
#include "io/tls_use.h"

#include "base/clock.h"

#include <openssl/crypto.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { LEAVE_MS = 1000, LOOK_MS = 1 };

/* Whoever comes counts itself in `inside` and then looks at `closed`; whoever closes looks at `inside`
 * afterwards. Both are sequentially consistent, so one of the two sees the other. */
static atomic_int inside;
static atomic_bool closed, used;
static pthread_t closer; /* stored before closed */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void close_for_good(void)
{
    const ddl_deadline deadline = ddl_deadline_in_ms(LEAVE_MS);
    closer = pthread_self();
    atomic_store(&closed, true);
    while (atomic_load(&inside) > 0 && !ddl_deadline_passed(deadline))
        (void)poll(NULL, 0, LOOK_MS);
}

/* Other threads of the parent may have been inside. */
static void after_fork_in_child(void)
{
    atomic_store(&inside, 0);
}

/* OpenSSL calls this before it takes anything down, and never if nobody asked it to before ddl did. */
static void set_up(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    (void)OPENSSL_atexit(close_for_good);
    pthread_atfork(NULL, NULL, after_fork_in_child);
    atomic_store(&used, true);
}

void ddl_tls_use_begin(void)
{
    (void)pthread_once(&once, set_up);
    atomic_fetch_add(&inside, 1);
    if (!atomic_load(&closed) || pthread_equal(closer, pthread_self()))
        return;
    atomic_fetch_sub(&inside, 1);
    for (;;)
        (void)poll(NULL, 0, -1);
}

void ddl_tls_use_end(void)
{
    atomic_fetch_sub(&inside, 1);
}

bool ddl_tls_used(void)
{
    return atomic_load(&used);
}
