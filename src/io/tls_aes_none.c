/* tls_aes_none.c - OpenSSL's AES: the header of another library was not there when this was built. */
#include "io/tls_aes.h"

#include <stddef.h>

ddl_tls_aes ddl_tls_aes_choose(void)
{
    return (ddl_tls_aes){ NULL, NULL, "OpenSSL, as ddl was built without libIPSec_MB" };
}

unsigned ddl_tls_aes_uses(void)
{
    return 0;
}
