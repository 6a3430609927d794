/* test_tls_aes.c - AES-128-GCM of ddl's provider beside OpenSSL's: the same bytes, the same refusals. */
#include "io/tls_aes.h"
#include "vaes.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <openssl/rand.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEY_BYTES = 16, IV_BYTES = 12, TAG_BYTES = 16, MOST_BYTES = 20000 };

static EVP_CIPHER *own, *theirs;

/* One message. */
struct text {
    uint8_t iv[IV_BYTES], beside[64], tag[TAG_BYTES];
    size_t beside_bytes, bytes;
    uint8_t plain[MOST_BYTES], encrypted[MOST_BYTES];
};

static struct text *make_text(size_t bytes, size_t beside_bytes)
{
    struct text *text = malloc(sizeof *text);
    assert_non_null(text);
    assert_int_equal(RAND_bytes((unsigned char *)text, sizeof *text), 1);
    text->bytes = bytes;
    text->beside_bytes = beside_bytes;
    return text;
}

static EVP_CIPHER_CTX *start(EVP_CIPHER *cipher, const uint8_t *key, bool encrypts)
{
    EVP_CIPHER_CTX *run = EVP_CIPHER_CTX_new();
    assert_non_null(run);
    assert_int_equal(EVP_CipherInit_ex2(run, cipher, key, NULL, encrypts, NULL), 1);
    return run;
}

/* In parts of so many bytes. False: it is refused at the end. */
static bool pass(EVP_CIPHER_CTX *run, struct text *text, const uint8_t *in, uint8_t *out, size_t part)
{
    const bool encrypts = EVP_CIPHER_CTX_is_encrypting(run);
    int got = 0;
    uint8_t rest[16];
    assert_int_equal(EVP_CipherInit_ex2(run, NULL, NULL, text->iv, -1, NULL), 1);
    if (!encrypts)
        assert_int_equal(EVP_CIPHER_CTX_ctrl(run, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, text->tag), 1);
    assert_int_equal(EVP_CipherUpdate(run, NULL, &got, text->beside, (int)text->beside_bytes), 1);
    for (size_t at = 0; at < text->bytes; at += part) {
        size_t bytes = text->bytes - at < part ? text->bytes - at : part;
        assert_int_equal(EVP_CipherUpdate(run, out + at, &got, in + at, (int)bytes), 1);
        assert_int_equal(got, bytes);
    }
    bool good = EVP_CipherFinal_ex(run, rest, &got) == 1;
    assert_int_equal(got, 0);
    if (good && encrypts)
        assert_int_equal(EVP_CIPHER_CTX_ctrl(run, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, text->tag), 1);
    return good;
}

static void each_writes_what_the_other_reads(size_t bytes, size_t beside_bytes, size_t part)
{
    struct text *text = make_text(bytes, beside_bytes);
    uint8_t *out = malloc(MOST_BYTES), tag[TAG_BYTES], key[KEY_BYTES];
    assert_non_null(out);
    RAND_bytes(key, sizeof key);
    EVP_CIPHER_CTX *writer = start(own, key, true), *other_writer = start(theirs, key, true);
    EVP_CIPHER_CTX *reader = start(own, key, false), *other_reader = start(theirs, key, false);
    assert_true(pass(other_writer, text, text->plain, text->encrypted, MOST_BYTES));
    memcpy(tag, text->tag, sizeof tag);
    assert_true(pass(writer, text, text->plain, out, part));
    assert_memory_equal(out, text->encrypted, bytes);
    assert_memory_equal(tag, text->tag, sizeof tag);
    assert_true(pass(reader, text, text->encrypted, out, part));
    assert_memory_equal(out, text->plain, bytes);
    /* In place, as TLS does it, and by the contexts that are there already. */
    memcpy(out, text->plain, bytes);
    RAND_bytes(text->iv, IV_BYTES);
    assert_true(pass(writer, text, out, out, part));
    assert_true(pass(other_reader, text, out, out, MOST_BYTES));
    assert_memory_equal(out, text->plain, bytes);
    EVP_CIPHER_CTX_free(writer);
    EVP_CIPHER_CTX_free(other_writer);
    EVP_CIPHER_CTX_free(reader);
    EVP_CIPHER_CTX_free(other_reader);
    free(out);
    free(text);
}

static void both_write_the_same(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes <= 600; bytes++)
        each_writes_what_the_other_reads(bytes, bytes % 23, MOST_BYTES);
    for (size_t bytes = 16384 - 70; bytes <= 16384 + 70; bytes++)
        each_writes_what_the_other_reads(bytes, 5, MOST_BYTES);
    each_writes_what_the_other_reads(MOST_BYTES, 64, MOST_BYTES);
}

static void parts_are_as_good_as_the_whole(void **state)
{
    (void)state;
    for (size_t part = 1; part < 40; part++)
        each_writes_what_the_other_reads(777, 5, part);
    each_writes_what_the_other_reads(MOST_BYTES, 13, 333);
    each_writes_what_the_other_reads(MOST_BYTES, 13, 8192);
}

static void what_was_altered_is_refused(void **state)
{
    uint8_t key[KEY_BYTES], out[MOST_BYTES];
    (void)state;
    RAND_bytes(key, sizeof key);
    for (size_t bytes = 0; bytes < 400; bytes += 37) {
        struct text *text = make_text(bytes, 5);
        EVP_CIPHER_CTX *writer = start(own, key, true), *reader = start(own, key, false);
        assert_true(pass(writer, text, text->plain, text->encrypted, MOST_BYTES));
        for (size_t bit = 0; bit < 8 * TAG_BYTES; bit += 5) {
            text->tag[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_false(pass(reader, text, text->encrypted, out, MOST_BYTES));
            text->tag[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        for (size_t at = 0; at < bytes; at += 7) {
            text->encrypted[at] ^= 0x10;
            assert_false(pass(reader, text, text->encrypted, out, MOST_BYTES));
            text->encrypted[at] ^= 0x10;
        }
        text->beside[4] ^= 1;
        assert_false(pass(reader, text, text->encrypted, out, MOST_BYTES));
        text->beside[4] ^= 1;
        text->iv[11] ^= 1;
        assert_false(pass(reader, text, text->encrypted, out, MOST_BYTES));
        text->iv[11] ^= 1;
        assert_true(pass(reader, text, text->encrypted, out, MOST_BYTES)); /* and it goes on after all that */
        assert_memory_equal(out, text->plain, bytes);
        EVP_CIPHER_CTX_free(writer);
        EVP_CIPHER_CTX_free(reader);
        free(text);
    }
}

static void a_key_can_be_changed(void **state)
{
    uint8_t keys[2][KEY_BYTES], out[MOST_BYTES];
    (void)state;
    RAND_bytes(keys[0], sizeof keys);
    EVP_CIPHER_CTX *writer = start(own, keys[0], true), *reader = start(theirs, keys[1], false);
    struct text *text = make_text(1000, 5);
    assert_true(pass(writer, text, text->plain, text->encrypted, MOST_BYTES));
    assert_false(pass(reader, text, text->encrypted, out, MOST_BYTES));
    assert_int_equal(EVP_CipherInit_ex2(writer, NULL, keys[1], NULL, -1, NULL), 1);
    assert_true(pass(writer, text, text->plain, text->encrypted, MOST_BYTES));
    assert_true(pass(reader, text, text->encrypted, out, MOST_BYTES));
    assert_memory_equal(out, text->plain, 1000);
    EVP_CIPHER_CTX_free(writer);
    EVP_CIPHER_CTX_free(reader);
    free(text);
}

/* Nor more than there may be under one iv, in however many parts. */
static void what_is_too_long_is_refused(void **state)
{
    enum { PART = 1 << 20, PARTS = 1 << 10 };
    uint8_t key[KEY_BYTES] = { 1 }, iv[IV_BYTES] = { 2 }, *data = calloc(PART, 1);
    int got;
    (void)state;
    assert_non_null(data);
    EVP_CIPHER_CTX *run = start(own, key, true);
    assert_int_equal(EVP_CipherInit_ex2(run, NULL, NULL, iv, -1, NULL), 1);
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(EVP_CipherUpdate(run, data, &got, data, PART), 1);
    assert_int_not_equal(EVP_CipherUpdate(run, data, &got, data, 1), 1);
    EVP_CIPHER_CTX_free(run);
    free(data);
}

/* An iv that serves twice gives a key away. */
static void misuse_is_refused(void **state)
{
    uint8_t key[KEY_BYTES] = { 1 }, iv[IV_BYTES] = { 2 }, data[100] = { 3 }, tag[TAG_BYTES];
    int got;
    (void)state;
    EVP_CIPHER_CTX *run = start(own, key, true);
    assert_int_not_equal(EVP_CipherUpdate(run, data, &got, data, sizeof data), 1); /* no iv */
    assert_int_not_equal(EVP_CIPHER_CTX_ctrl(run, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, tag), 1);
    assert_int_not_equal(EVP_CIPHER_CTX_ctrl(run, EVP_CTRL_AEAD_SET_IVLEN, 16, NULL), 1);
    assert_int_equal(EVP_CIPHER_CTX_ctrl(run, EVP_CTRL_AEAD_SET_IVLEN, IV_BYTES, NULL), 1);
    assert_int_equal(EVP_CipherInit_ex2(run, NULL, NULL, iv, -1, NULL), 1);
    assert_int_equal(EVP_CipherUpdate(run, NULL, &got, data, 64), 1);
    assert_int_not_equal(EVP_CipherUpdate(run, NULL, &got, data, 1), 1); /* more than there is room for */
    assert_int_equal(EVP_CipherUpdate(run, data, &got, data, sizeof data), 1);
    assert_int_not_equal(EVP_CipherUpdate(run, NULL, &got, data, 1), 1); /* behind the text */
    assert_int_equal(EVP_CipherFinal_ex(run, data, &got), 1);
    assert_int_not_equal(EVP_CipherUpdate(run, data, &got, data, sizeof data), 1); /* the iv once more */
    EVP_CIPHER_CTX_free(run);
    run = start(own, key, false);
    assert_int_equal(EVP_CipherInit_ex2(run, NULL, NULL, iv, -1, NULL), 1);
    assert_int_equal(EVP_CipherUpdate(run, data, &got, data, sizeof data), 1);
    assert_int_not_equal(EVP_CipherFinal_ex(run, data, &got), 1); /* nothing to compare with */
    EVP_CIPHER_CTX_free(run);
}

/* The program's own OpenSSL knows nothing of it. */
static void nobody_else_has_it(void **state)
{
    (void)state;
    assert_ptr_not_equal(ddl_tls_aes_choose().context, OSSL_LIB_CTX_get0_global_default());
    assert_string_equal(OSSL_PROVIDER_get0_name(EVP_CIPHER_get0_provider(own)), "ddl-aes");
    assert_string_equal(OSSL_PROVIDER_get0_name(EVP_CIPHER_get0_provider(theirs)), "default");
    assert_int_equal(OSSL_PROVIDER_available(NULL, "ddl-aes"), 0);
    assert_null(EVP_CIPHER_fetch(NULL, "AES-128-GCM", "provider=ddl-aes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_write_the_same),         cmocka_unit_test(parts_are_as_good_as_the_whole),
        cmocka_unit_test(what_was_altered_is_refused), cmocka_unit_test(a_key_can_be_changed),
        cmocka_unit_test(what_is_too_long_is_refused), cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(nobody_else_has_it),
    };
    const ddl_tls_aes aes = ddl_tls_aes_choose();
    if (aes.context == NULL) {
        printf("AES is computed by %s\n", aes.why);
        return another_aes_is_better() ? 1 : 77; /* failed, or skipped */
    }
    own = EVP_CIPHER_fetch(aes.context, "AES-128-GCM", aes.properties);
    theirs = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
