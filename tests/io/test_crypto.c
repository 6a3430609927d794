/* test_crypto.c - the vectors of RFC 4231 and RFC 5869; secrets are compared whole, and cleared. */
#include "io/crypto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_BYTES = 160 };

struct octets {
    uint8_t data[MOST_BYTES];
    size_t bytes;
};

static struct octets from_hex(const char *hex)
{
    struct octets octets = { .bytes = strlen(hex) / 2 };
    assert_true(octets.bytes <= MOST_BYTES);
    for (size_t i = 0; i < octets.bytes; i++) {
        unsigned value;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &value), 1);
        octets.data[i] = (uint8_t)value;
    }
    return octets;
}

static struct octets repeated(uint8_t value, size_t bytes)
{
    struct octets octets = { .bytes = bytes };
    memset(octets.data, value, bytes);
    return octets;
}

static struct octets counting(uint8_t first, size_t bytes)
{
    struct octets octets = { .bytes = bytes };
    for (size_t i = 0; i < bytes; i++)
        octets.data[i] = (uint8_t)(first + i);
    return octets;
}

static struct octets text(const char *text_bytes)
{
    struct octets octets = { .bytes = strlen(text_bytes) };
    assert_true(octets.bytes <= MOST_BYTES);
    memcpy(octets.data, text_bytes, octets.bytes);
    return octets;
}

static ddl_view view(const struct octets *octets)
{
    return (ddl_view){ octets->data, octets->bytes };
}

static void hmac_is_that_of_rfc_4231(void **state)
{
    const struct {
        struct octets key, data;
        const char *mac;
        size_t mac_bytes;
    } cases[] = {
        { repeated(0x0b, 20), text("Hi There"),
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7", 32 },
        { text("Jefe"), text("what do ya want for nothing?"),
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", 32 },
        { repeated(0xaa, 20), repeated(0xdd, 50),
          "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe", 32 },
        { counting(1, 25), repeated(0xcd, 50),
          "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b", 32 },
        { repeated(0x0c, 20), text("Test With Truncation"), "a3b6167473100ee06e0c796c2955552b", 16 },
        { repeated(0xaa, 131), text("Test Using Larger Than Block-Size Key - Hash Key First"),
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54", 32 },
        { repeated(0xaa, 131),
          text("This is a test using a larger than block-size key and a larger than block-size data. The key "
               "needs to be hashed before being used by the HMAC algorithm."),
          "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2", 32 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* In one piece, and cut anywhere. */
        for (size_t cut = 0; cut <= cases[i].data.bytes; cut++) {
            uint8_t mac[DDL_HASH_BYTES];
            ddl_view parts[] = { { cases[i].data.data, cut },
                                 { cases[i].data.data + cut, cases[i].data.bytes - cut } };
            ddl_hmac(view(&cases[i].key), parts, 2, mac);
            struct octets expected = from_hex(cases[i].mac);
            assert_int_equal(expected.bytes, cases[i].mac_bytes);
            assert_memory_equal(mac, expected.data, expected.bytes);
        }
    }
}

static void hkdf_is_that_of_rfc_5869(void **state)
{
    const struct {
        struct octets secret, salt, purpose;
        const char *key, *out;
    } cases[] = {
        { repeated(0x0b, 22), counting(0, 13), counting(0xf0, 10),
          "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
          "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865" },
        { counting(0, 80), counting(0x60, 80), counting(0xb0, 80),
          "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
          "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da"
          "3"
          "275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87" },
        { repeated(0x0b, 22), repeated(0, 0), repeated(0, 0),
          "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
          "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t key[DDL_HASH_BYTES], out[MOST_BYTES];
        struct octets expected = from_hex(cases[i].out);
        ddl_hkdf_extract(view(&cases[i].salt), view(&cases[i].secret), key);
        assert_memory_equal(key, from_hex(cases[i].key).data, sizeof key);
        for (size_t bytes = 0; bytes <= expected.bytes; bytes++) {
            memset(out, 0, sizeof out);
            ddl_hkdf_expand(key, view(&cases[i].purpose), out, bytes);
            assert_memory_equal(out, expected.data, bytes);
            assert_int_equal(out[bytes], 0);
        }
    }
}

static void secrets_are_the_same_only_if_every_byte_is(void **state)
{
    uint8_t a[DDL_HASH_BYTES] = { 1, 2, 3 }, b[DDL_HASH_BYTES] = { 1, 2, 3 };
    (void)state;
    assert_true(ddl_same_secret(a, b, sizeof a));
    for (size_t at = 0; at < sizeof a; at++) {
        b[at] ^= 0x80;
        assert_false(ddl_same_secret(a, b, sizeof a));
        b[at] ^= 0x80;
    }
}

static void cleared_memory_is_zero(void **state)
{
    uint8_t memory[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    (void)state;
    ddl_clear(memory + 1, 6);
    assert_memory_equal(memory, ((uint8_t[8]){ 1, 0, 0, 0, 0, 0, 0, 8 }), 8);
    ddl_clear(memory, 0);
    assert_int_equal(memory[0], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hmac_is_that_of_rfc_4231),
        cmocka_unit_test(hkdf_is_that_of_rfc_5869),
        cmocka_unit_test(secrets_are_the_same_only_if_every_byte_is),
        cmocka_unit_test(cleared_memory_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
