/* secret.c - the bytes of a secret, and what messages say of it. */
#include "rendezvous/secret_parts.h"

#include "io/address.h"
#include "io/guarded.h"
#include "io/host.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { RANDOM_BYTES = DDL_SECRET_TEXT / 2 };

ddl_secret *ddl_secret_allocate(const char *source, ddl_error *err)
{
    ddl_secret *secret = ddl_guarded_alloc(sizeof *secret);
    if (secret == NULL) {
        (void)DDL_FAIL(err, DDL_ENOMEM, "no memory for a secret");
        return NULL;
    }
    ddl_guarded_forget_in_child(secret, sizeof *secret);
    snprintf(secret->source, sizeof secret->source, "%s", source);
    return secret;
}

void ddl_secret_destroy(ddl_secret *secret)
{
    ddl_guarded_free(secret, sizeof *secret);
}

ddl_view ddl_secret_view(const ddl_secret *secret)
{
    return (ddl_view){ secret->data, secret->bytes };
}

const char *ddl_secret_source(const ddl_secret *secret)
{
    return secret->source;
}

ddl_status ddl_secret_settle(ddl_secret *secret, ddl_secret **out, ddl_error *err)
{
    if (secret->bytes > 0 && secret->data[secret->bytes - 1] == '\n')
        secret->bytes--;
    if (secret->bytes > 0 && secret->data[secret->bytes - 1] == '\r')
        secret->bytes--;
    if (secret->bytes >= DDL_SECRET_LEAST && secret->bytes <= DDL_SECRET_MOST) {
        *out = secret;
        return DDL_OK;
    }
    ddl_status status = DDL_FAIL(
        err, DDL_ECONFIG, "the secret %s has %s than %d bytes; a good one is made by: openssl rand -hex 32",
        secret->source, secret->bytes < DDL_SECRET_LEAST ? "less" : "more",
        secret->bytes < DDL_SECRET_LEAST ? DDL_SECRET_LEAST : DDL_SECRET_MOST);
    ddl_secret_destroy(secret);
    return status;
}

ddl_status ddl_secret_create(ddl_view content, const char *source, ddl_secret **out, ddl_error *err)
{
    ddl_secret *secret = ddl_secret_allocate(source, err);
    if (secret == NULL)
        return DDL_ENOMEM;
    secret->bytes = content.bytes < sizeof secret->data ? content.bytes : sizeof secret->data;
    memcpy(secret->data, content.data, secret->bytes);
    return ddl_secret_settle(secret, out, err);
}

ddl_status ddl_secret_make(const char *source, ddl_secret **out, ddl_error *err)
{
    static const char digits[] = "0123456789abcdef";
    ddl_secret *secret = ddl_secret_allocate(source, err);
    if (secret == NULL)
        return DDL_ENOMEM;
    ddl_status status = ddl_host_random(secret->data, RANDOM_BYTES, err);
    if (status != DDL_OK) {
        ddl_secret_destroy(secret);
        return status;
    }
    for (int i = RANDOM_BYTES - 1; i >= 0; i--) {
        uint8_t value = secret->data[i];
        secret->data[2 * i] = (uint8_t)digits[value >> 4];
        secret->data[2 * i + 1] = (uint8_t)digits[value & 15];
    }
    secret->bytes = DDL_SECRET_TEXT;
    *out = secret;
    return DDL_OK;
}

/* The name is to be read whole, and so is what is said behind it of who handed the secret over. */
static void tell_job(const char *of, const char *job, char source[DDL_SECRET_SOURCE])
{
    enum { NAME = 64, BEHIND = 32 };
    char named[NAME + 32];
    snprintf(named, sizeof named, ", for --rdzv_id %.*s", NAME, job);
    snprintf(source, DDL_SECRET_SOURCE, "%.*s%s", DDL_SECRET_SOURCE - 1 - BEHIND - (int)strlen(named), of,
             named);
}

ddl_status ddl_secret_name_job(ddl_secret **secret, const char *job, ddl_error *err)
{
    static const char between[] = "\n--rdzv_id ";
    char source[DDL_SECRET_SOURCE];
    if (job == NULL)
        return DDL_OK;
    ddl_secret *plain = *secret;
    const size_t bytes = plain->bytes + sizeof between - 1 + strlen(job);
    uint8_t *named = ddl_guarded_alloc(bytes);
    ddl_status status = DDL_FAIL(err, DDL_ENOMEM, "no memory for a secret");
    *secret = NULL;
    if (named != NULL) {
        memcpy(named, plain->data, plain->bytes);
        memcpy(named + plain->bytes, between, sizeof between - 1);
        memcpy(named + plain->bytes + sizeof between - 1, job, strlen(job));
        tell_job(plain->source, job, source);
        status = ddl_secret_create((ddl_view){ named, bytes }, source, secret, err);
        ddl_guarded_free(named, bytes);
    }
    ddl_secret_destroy(plain);
    return status;
}

/* As a shell reads it as it was. */
static void put_in_words(const char *path, char *text)
{
    static const char special[] = " \t!\"#$&'()*;<=>?[\\]^`{|}~";
    for (; *path != '\0'; path++) {
        if (strchr(special, *path) != NULL)
            *text++ = '\\';
        *text++ = *path;
    }
    *text = '\0';
}

void ddl_secret_copy_command(const char *host, const char *path, char command[DDL_SECRET_COPY_COMMAND])
{
    char words[2 * DDL_SECRET_PATH], own[DDL_HOST_NAME_TEXT];
    ddl_address address;
    if (strcasecmp(host, "localhost") == 0 ||
        (ddl_address_parse(host, 0, &address) && ddl_address_is_loopback(&address))) {
        ddl_host_name(own);
        host = own;
    }
    bool v6 = strchr(host, ':') != NULL;
    put_in_words(path, words);
    snprintf(command, DDL_SECRET_COPY_COMMAND,
             "(umask 077; mkdir -p ~/.ddl && scp %s%.256s%s:%s ~/.ddl/secret)", v6 ? "[" : "", host,
             v6 ? "]" : "", words);
}
