/* tls_aes.c - a provider for OpenSSL (provider(7)) of one cipher, which is computed by libIPSec_MB. */
#include "io/tls_aes.h"

#include "base/bytes.h"

#define NO_COMPAT_IMB_API_053 /* the library's names of earlier days, some of which are OpenSSL's too */
#include <dlfcn.h>
#include <intel-ipsec-mb.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if IMB_VERSION_NUM >= IMB_VERSION(2, 0, 0)
static const char library_name[] = "libIPSec_MB.so.2";
#else
static const char library_name[] = "libIPSec_MB.so.1";
#endif

static const char provider_name[] = "ddl-aes", its_properties[] = "provider=ddl-aes";
static const char wanted_properties[] = "?provider=ddl-aes"; /* and of OpenSSL's whatever it has not */
static const char cipher_name[] = "AES-128-GCM";
static const char no_instructions[] = "OpenSSL, as the processor has no VAES with AVX-512";

enum {
    ALIGNMENT = 64, /* of what the library computes with */
    KEY_BYTES = 16,
    IV_BYTES = 12,
    TAG_BYTES = 16,
    MOST_AUTHENTICATED = 64, /* beside the text; the header of a record is 5 bytes */
    MOST_BYTES = 1 << 30,    /* of a text; GCM allows for 64 GiB */
    RECORD_BYTES = 1000      /* to compare with OpenSSL */
};

/* The library's; any thread may call them. */
static struct {
    aes_gcm_pre_t expand_key;
    aes_gcm_init_t begin;
    aes_gcm_enc_dec_update_t encrypt, decrypt;
    aes_gcm_enc_dec_finalize_t end_encrypting, end_decrypting;
} gcm;

/* ---- the cipher, as providers have one: 1 is success ---- */

static atomic_uint uses;

struct cipher {
    _Alignas(ALIGNMENT) struct gcm_key_data key; /* expanded */
    struct gcm_context_data run;
    uint8_t iv[IV_BYTES], tag[TAG_BYTES], authenticated[MOST_AUTHENTICATED];
    size_t authenticated_bytes, text_bytes;
    bool encrypts;
    bool has_key, has_iv; /* an iv serves once */
    bool has_begun;       /* with the text */
    bool has_tag;         /* computed, or to be compared with */
};

static void *cipher_new(void *provider)
{
    (void)provider;
    struct cipher *cipher = aligned_alloc(ALIGNMENT, sizeof *cipher);
    if (cipher != NULL)
        memset(cipher, 0, sizeof *cipher);
    atomic_fetch_add(&uses, 1);
    return cipher;
}

static void cipher_free(void *arg)
{
    if (arg != NULL)
        ddl_clear(arg, sizeof(struct cipher));
    free(arg);
}

static int cipher_set(void *arg, const OSSL_PARAM params[]);

/* Either of key and iv may stay as it is. */
static int start(struct cipher *cipher, bool encrypts, const unsigned char *key, size_t key_bytes,
                 const unsigned char *iv, size_t iv_bytes, const OSSL_PARAM params[])
{
    if ((key != NULL && key_bytes != KEY_BYTES) || (iv != NULL && iv_bytes != IV_BYTES))
        return 0;
    cipher->encrypts = encrypts;
    cipher->has_begun = cipher->has_tag = false;
    cipher->authenticated_bytes = cipher->text_bytes = 0;
    if (key != NULL) {
        gcm.expand_key(key, &cipher->key);
        cipher->has_key = true;
    }
    if (iv != NULL) {
        memcpy(cipher->iv, iv, IV_BYTES);
        cipher->has_iv = true;
    }
    return cipher_set(cipher, params);
}

static int start_encrypting(void *arg, const unsigned char *key, size_t key_bytes, const unsigned char *iv,
                            size_t iv_bytes, const OSSL_PARAM params[])
{
    return start(arg, true, key, key_bytes, iv, iv_bytes, params);
}

static int start_decrypting(void *arg, const unsigned char *key, size_t key_bytes, const unsigned char *iv,
                            size_t iv_bytes, const OSSL_PARAM params[])
{
    return start(arg, false, key, key_bytes, iv, iv_bytes, params);
}

static bool begin_text(struct cipher *cipher)
{
    if (!cipher->has_key || !cipher->has_iv)
        return false;
    gcm.begin(&cipher->key, &cipher->run, cipher->iv, cipher->authenticated, cipher->authenticated_bytes);
    cipher->has_iv = false;
    cipher->has_begun = true;
    return true;
}

/* Without a place for what comes out: bytes that are authenticated beside the text, all of them before it. */
static int cipher_update(void *arg, unsigned char *out, size_t *out_bytes, size_t room,
                         const unsigned char *in, size_t bytes)
{
    struct cipher *cipher = arg;
    *out_bytes = 0;
    if (bytes == 0)
        return 1;
    if (out == NULL) {
        if (cipher->has_begun || bytes > MOST_AUTHENTICATED - cipher->authenticated_bytes)
            return 0;
        memcpy(cipher->authenticated + cipher->authenticated_bytes, in, bytes);
        cipher->authenticated_bytes += bytes;
        *out_bytes = bytes;
        return 1;
    }
    if (room < bytes || bytes > MOST_BYTES - cipher->text_bytes ||
        (!cipher->has_begun && !begin_text(cipher)))
        return 0;
    (cipher->encrypts ? gcm.encrypt : gcm.decrypt)(&cipher->key, &cipher->run, out, in, bytes);
    cipher->text_bytes += bytes;
    *out_bytes = bytes;
    return 1;
}

static int cipher_final(void *arg, unsigned char *out, size_t *out_bytes, size_t room)
{
    struct cipher *cipher = arg;
    uint8_t tag[TAG_BYTES];
    (void)out, (void)room;
    *out_bytes = 0;
    if ((!cipher->has_begun && !begin_text(cipher)) || (!cipher->encrypts && !cipher->has_tag))
        return 0;
    cipher->has_begun = false;
    if (cipher->encrypts) {
        gcm.end_encrypting(&cipher->key, &cipher->run, cipher->tag, TAG_BYTES);
        cipher->has_tag = true;
        return 1;
    }
    gcm.end_decrypting(&cipher->key, &cipher->run, tag, TAG_BYTES);
    cipher->has_tag = false;
    return CRYPTO_memcmp(tag, cipher->tag, TAG_BYTES) == 0;
}

/* ---- its parameters ---- */

static int tell(OSSL_PARAM params[], const char *name, size_t value)
{
    OSSL_PARAM *param = OSSL_PARAM_locate(params, name);
    return param == NULL || OSSL_PARAM_set_size_t(param, value) == 1;
}

static int tell_flag(OSSL_PARAM params[], const char *name)
{
    OSSL_PARAM *param = OSSL_PARAM_locate(params, name);
    return param == NULL || OSSL_PARAM_set_int(param, 1) == 1;
}

static int tell_constants(OSSL_PARAM params[])
{
    OSSL_PARAM *mode = OSSL_PARAM_locate(params, OSSL_CIPHER_PARAM_MODE);
    return (mode == NULL || OSSL_PARAM_set_uint(mode, EVP_CIPH_GCM_MODE) == 1) &&
           tell(params, OSSL_CIPHER_PARAM_BLOCK_SIZE, 1) &&
           tell(params, OSSL_CIPHER_PARAM_KEYLEN, KEY_BYTES) &&
           tell(params, OSSL_CIPHER_PARAM_IVLEN, IV_BYTES) && tell_flag(params, OSSL_CIPHER_PARAM_AEAD) &&
           tell_flag(params, OSSL_CIPHER_PARAM_CUSTOM_IV);
}

static int cipher_get(void *arg, OSSL_PARAM params[])
{
    const struct cipher *cipher = arg;
    OSSL_PARAM *tag = OSSL_PARAM_locate(params, OSSL_CIPHER_PARAM_AEAD_TAG);
    if (tag != NULL && (!cipher->encrypts || !cipher->has_tag || tag->data_size > TAG_BYTES ||
                        OSSL_PARAM_set_octet_string(tag, cipher->tag, tag->data_size) != 1))
        return 0;
    return tell(params, OSSL_CIPHER_PARAM_KEYLEN, KEY_BYTES) &&
           tell(params, OSSL_CIPHER_PARAM_IVLEN, IV_BYTES) &&
           tell(params, OSSL_CIPHER_PARAM_AEAD_TAGLEN, TAG_BYTES);
}

static int cipher_set(void *arg, const OSSL_PARAM params[])
{
    struct cipher *cipher = arg;
    if (params == NULL)
        return 1;
    const OSSL_PARAM *param = OSSL_PARAM_locate_const(params, OSSL_CIPHER_PARAM_AEAD_TAG);
    if (param != NULL && param->data != NULL) {
        if (cipher->encrypts || param->data_size != TAG_BYTES)
            return 0;
        memcpy(cipher->tag, param->data, TAG_BYTES);
        cipher->has_tag = true;
    }
    size_t bytes;
    param = OSSL_PARAM_locate_const(params, OSSL_CIPHER_PARAM_AEAD_IVLEN);
    return param == NULL || (OSSL_PARAM_get_size_t(param, &bytes) == 1 && bytes == IV_BYTES);
}

static const OSSL_PARAM *list_constants(void *provider)
{
    static const OSSL_PARAM list[] = { OSSL_PARAM_uint(OSSL_CIPHER_PARAM_MODE, NULL),
                                       OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_BLOCK_SIZE, NULL),
                                       OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_KEYLEN, NULL),
                                       OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_IVLEN, NULL),
                                       OSSL_PARAM_int(OSSL_CIPHER_PARAM_AEAD, NULL),
                                       OSSL_PARAM_int(OSSL_CIPHER_PARAM_CUSTOM_IV, NULL),
                                       OSSL_PARAM_END };
    (void)provider;
    return list;
}

static const OSSL_PARAM *list_gettable(void *arg, void *provider)
{
    static const OSSL_PARAM list[] = { OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_KEYLEN, NULL),
                                       OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_IVLEN, NULL),
                                       OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_AEAD_TAGLEN, NULL),
                                       OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, NULL, 0),
                                       OSSL_PARAM_END };
    (void)arg, (void)provider;
    return list;
}

static const OSSL_PARAM *list_settable(void *arg, void *provider)
{
    static const OSSL_PARAM list[] = { OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_AEAD_IVLEN, NULL),
                                       OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, NULL, 0),
                                       OSSL_PARAM_END };
    (void)arg, (void)provider;
    return list;
}

/* ---- the provider ---- */

static const OSSL_ALGORITHM *query(void *provider, int operation, int *is_not_to_be_kept)
{
    static const OSSL_DISPATCH functions[] = {
        { OSSL_FUNC_CIPHER_NEWCTX, (void (*)(void))cipher_new },
        { OSSL_FUNC_CIPHER_FREECTX, (void (*)(void))cipher_free },
        { OSSL_FUNC_CIPHER_ENCRYPT_INIT, (void (*)(void))start_encrypting },
        { OSSL_FUNC_CIPHER_DECRYPT_INIT, (void (*)(void))start_decrypting },
        { OSSL_FUNC_CIPHER_UPDATE, (void (*)(void))cipher_update },
        { OSSL_FUNC_CIPHER_FINAL, (void (*)(void))cipher_final },
        { OSSL_FUNC_CIPHER_GET_PARAMS, (void (*)(void))tell_constants },
        { OSSL_FUNC_CIPHER_GET_CTX_PARAMS, (void (*)(void))cipher_get },
        { OSSL_FUNC_CIPHER_SET_CTX_PARAMS, (void (*)(void))cipher_set },
        { OSSL_FUNC_CIPHER_GETTABLE_PARAMS, (void (*)(void))list_constants },
        { OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS, (void (*)(void))list_gettable },
        { OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, (void (*)(void))list_settable },
        { 0, NULL },
    };
    static const OSSL_ALGORITHM ciphers[] = {
        { "AES-128-GCM:id-aes128-GCM:2.16.840.1.101.3.4.1.6", its_properties, functions, "libIPSec_MB" },
        { NULL, NULL, NULL, NULL },
    };
    (void)provider;
    *is_not_to_be_kept = 0;
    return operation == OSSL_OP_CIPHER ? ciphers : NULL;
}

static int set_up_provider(const OSSL_CORE_HANDLE *core, const OSSL_DISPATCH *offered,
                           const OSSL_DISPATCH **functions, void **provider)
{
    static const OSSL_DISPATCH own[] = { { OSSL_FUNC_PROVIDER_QUERY_OPERATION, (void (*)(void))query },
                                         { 0, NULL } };
    (void)core, (void)offered;
    *provider = &gcm; /* something */
    *functions = own;
    return 1;
}

/* ---- whether it is to be used ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ddl_tls_aes chosen;

/* What the library's VAES code needs, as far as a compiler asks for it; also that the system saves the
 * registers of AVX-512, which the library does not ask before it uses them. */
static bool has_instructions(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("gfni") && __builtin_cpu_supports("vpclmulqdq");
}

static int is_default(OSSL_PROVIDER *provider, void *all_are)
{
    if (strcmp(OSSL_PROVIDER_get0_name(provider), "default") != 0)
        *(bool *)all_are = false;
    return 1;
}

/* Otherwise somebody has decided who is to compute what, as for FIPS. */
static bool openssl_is_as_it_comes(void)
{
    bool all_are = true;
    EVP_CIPHER *aes = EVP_CIPHER_fetch(NULL, cipher_name, NULL); /* has providers loaded */
    EVP_CIPHER_free(aes);
    return aes != NULL && OSSL_PROVIDER_do_all(NULL, is_default, &all_are) == 1 && all_are;
}

/* False: the library has none of that name. */
static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* NULL, or why it is not to be used. It stays loaded. */
static const char *load_library(void)
{
    size_t (*table_bytes)(void);
    IMB_MGR *(*lay_out)(void *, uint64_t, unsigned);
    void (*set_up)(IMB_MGR *, IMB_ARCH *);
    unsigned (*version)(void);
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return "OpenSSL, as libIPSec_MB is not installed";
    if (!find(library, "imb_get_mb_mgr_size", &table_bytes) ||
        !find(library, "imb_set_pointers_mb_mgr", &lay_out) || !find(library, "init_mb_mgr_auto", &set_up) ||
        !find(library, "imb_get_version", &version) || version() >> 8 != IMB_VERSION_NUM >> 8)
        return "OpenSSL, as libIPSec_MB is of another version than the one with which ddl was built";
    const size_t bytes = table_bytes();
    void *room = ddl_pages_alloc(bytes);
    if (room == NULL)
        return "OpenSSL, as there was no memory for libIPSec_MB";
    IMB_MGR *table = lay_out(room, 0, 1);
    set_up(table, NULL);
    const bool is_fast = (table->features & IMB_CPUFLAGS_AVX512_T2) == IMB_CPUFLAGS_AVX512_T2;
    gcm.expand_key = table->gcm128_pre;
    gcm.begin = table->gcm128_init;
    gcm.encrypt = table->gcm128_enc_update;
    gcm.decrypt = table->gcm128_dec_update;
    gcm.end_encrypting = table->gcm128_enc_finalize;
    gcm.end_decrypting = table->gcm128_dec_finalize;
    ddl_pages_free(room, bytes);
    return is_fast ? NULL : no_instructions;
}

/* A record, and the tag behind it. */
static bool encrypt(OSSL_LIB_CTX *context, const char *properties, uint8_t record[])
{
    static const uint8_t key[KEY_BYTES] = { 1, 2, 3 }, iv[IV_BYTES] = { 4, 5, 6 };
    int bytes;
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(context, cipher_name, properties);
    EVP_CIPHER_CTX *run = EVP_CIPHER_CTX_new();
    const bool done = cipher != NULL && run != NULL && EVP_EncryptInit_ex2(run, cipher, key, iv, NULL) == 1 &&
                      EVP_EncryptUpdate(run, NULL, &bytes, key, 5) == 1 &&
                      EVP_EncryptUpdate(run, record, &bytes, record, RECORD_BYTES) == 1 &&
                      EVP_EncryptFinal_ex(run, record + RECORD_BYTES, &bytes) == 1 &&
                      EVP_CIPHER_CTX_ctrl(run, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, record + RECORD_BYTES) == 1;
    EVP_CIPHER_CTX_free(run);
    EVP_CIPHER_free(cipher);
    return done;
}

static bool does_as_openssl_does(OSSL_LIB_CTX *context)
{
    uint8_t ours[RECORD_BYTES + TAG_BYTES] = { 7, 8, 9 }, theirs[RECORD_BYTES + TAG_BYTES] = { 7, 8, 9 };
    return encrypt(context, wanted_properties, ours) && encrypt(NULL, NULL, theirs) &&
           memcmp(ours, theirs, sizeof ours) == 0;
}

static const char *make_context(void)
{
    enum { MINOR_WITH_VAES = 1 };
    if (OPENSSL_version_major() > 3 || OPENSSL_version_minor() >= MINOR_WITH_VAES)
        return "OpenSSL, as it is as fast from 3.1 on";
    if (!has_instructions())
        return no_instructions;
    if (!openssl_is_as_it_comes())
        return "OpenSSL, as it is configured to use other providers than its own";
    const char *why = load_library();
    if (why != NULL)
        return why;
    OSSL_LIB_CTX *context = OSSL_LIB_CTX_new();
    if (context == NULL || OSSL_PROVIDER_add_builtin(context, provider_name, set_up_provider) != 1 ||
        OSSL_PROVIDER_load(context, provider_name) == NULL ||
        OSSL_PROVIDER_load(context, "default") == NULL || !does_as_openssl_does(context)) {
        OSSL_LIB_CTX_free(context);
        return "OpenSSL, as libIPSec_MB does not do as it does";
    }
    chosen.context = context;
    chosen.properties = wanted_properties;
    return "libIPSec_MB";
}

static void choose(void)
{
    chosen.why = make_context();
}

ddl_tls_aes ddl_tls_aes_choose(void)
{
    (void)pthread_once(&once, choose);
    return chosen;
}

unsigned ddl_tls_aes_uses(void)
{
    return atomic_load(&uses);
}
