/* config.c - options and environment to one ddl_config. */
#include "api/config_parts.h"

#include "api/settings.h"
#include "base/assert.h"
#include "base/decimal.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_TIMEOUT_MS = 300 * 1000,
    LEAST_PATIENCE_MS = 1000,
    DEFAULT_UNREACH_MS = 15 * 1000,
    DEFAULT_UNRESP_MS = 30 * 1000,
    DEFAULT_WARN_MS = 10 * 1000
};

/* Up to so many ranks all pairs are connected at the start: that takes a second for 128 ranks on two cores,
 * and grows with the square. */
enum { EAGER_RANKS = 128 };

const char *ddl_config_env(const char *name)
{
    DDL_ASSERT(strncmp(name, "DDL_", 4) != 0 || ddl_setting_is_known(name));
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

ddl_status ddl_config_parse_int(const char *name, const char *value, long least, long most, int *result,
                                ddl_error *err)
{
    char *end;
    errno = 0;
    long number = strtol(value, &end, 10);
    if (!(isdigit((unsigned char)value[0]) || value[0] == '-') || *end != '\0' || errno != 0 ||
        number < least || number > most)
        return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: a whole number from %ld to %ld is needed", name, value,
                        least, most);
    *result = (int)number;
    return DDL_OK;
}

/* Changes nothing where it fails. */
static ddl_status parse_duration(const char *name, const char *value, int64_t *result_ms, ddl_error *err)
{
    int64_t ms;
    if (ddl_duration_parse(value, &ms) && ms > 0) {
        *result_ms = ms;
        return DDL_OK;
    }
    return DDL_FAIL(
        err, DDL_ECONFIG,
        "%s=%s: a time is needed, in seconds or as 500ms, 30s, 5min, 2h; 1ms at least, and 100 years "
        "at most",
        name, value);
}

/* Of a setting of ddl_options, where it was given there. */
#define GIVEN_AS(options, field, variable) ((options)->field != NULL ? "ddl_options." #field : (variable))

static ddl_status one_of(const char *name, const char *value, const char *const accepted[], ddl_error *err)
{
    char list[256] = "";
    for (int i = 0; accepted[i] != NULL; i++) {
        if (strcmp(value, accepted[i]) == 0)
            return DDL_OK;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", accepted[i]);
    }
    return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: accepted are %s", name, value, list);
}

/* ---- where to meet ---- */

static bool has_control_characters(const char *text)
{
    while (*text != '\0' && (unsigned char)*text >= ' ' && *text != 0x7f)
        text++;
    return *text != '\0';
}

/* They belong around all of an IPv6 address, or around none; a port may follow. */
static bool has_stray_brackets(const char *address)
{
    if (address[0] != '[')
        return strpbrk(address, "[]") != NULL;
    const char *end = address + 1 + strcspn(address + 1, "[]");
    return end == address + 1 || *end != ']' || (end[1] != '\0' && end[1] != ':');
}

static ddl_status check_master_address(const char *address, ddl_error *err)
{
    if (strchr(address, '@') != NULL) /* it may be a password, which no text repeats */
        return DDL_FAIL(err, DDL_ECONFIG, "MASTER_ADDR: an address has no @ in it; set the host alone");
    const char *bracket = strchr(address, ']'); /* of IPv6, which has more colons */
    const char *colon = strchr(bracket != NULL ? bracket : address, ':');
    if (has_control_characters(address))
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "MASTER_ADDR='%.200s': there is a control character or a line's end in it, perhaps from a "
            "file with other line ends",
            address);
    const char *scheme = strstr(address, "://");
    if (scheme != NULL)
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "MASTER_ADDR=%.200s is a URL; set MASTER_ADDR=%.*s, and the port as MASTER_PORT", address,
            (int)(scheme[3] == '[' ? strcspn(scheme + 3, "]") + 1 : strcspn(scheme + 3, ":/")), scheme + 3);
    if (has_stray_brackets(address))
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "MASTER_ADDR=%.200s: brackets belong around an IPv6 address, as in [::1], or are left "
            "out",
            address);
    if (colon != NULL && strchr(colon + 1, ':') == NULL)
        return DDL_FAIL(err, DDL_ECONFIG,
                        "MASTER_ADDR=%.200s has a port in it; set MASTER_ADDR=%.*s and MASTER_PORT=%.10s",
                        address, (int)(colon - address), address, colon + 1);
    return DDL_OK;
}

static ddl_status read_store(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    if (config->nranks == 1)
        return DDL_OK;
    const char *address = ddl_config_env("MASTER_ADDR"), *port_text = ddl_config_env("MASTER_PORT");
    const char *store = options->store != NULL ? options->store : ddl_config_env("DDL_STORE");
    /* Who meets elsewhere needs neither, whoever has set them for whatever. */
    int port = 0;
    ddl_status sound =
        port_text != NULL ? ddl_config_parse_int("MASTER_PORT", port_text, 1, 65535, &port, err) : DDL_OK;
    if (store == NULL)
        DDL_TRY(sound);
    if (store == NULL && address != NULL)
        DDL_TRY(check_master_address(address, err));
    if (address != NULL && check_master_address(address, NULL) == DDL_OK && port > 0) {
        /* An IPv6 address goes into brackets, as in any URL. */
        bool is_ipv6 = strchr(address, ':') != NULL && address[0] != '[';
        int used = snprintf(config->master, sizeof config->master, is_ipv6 ? "[%s]:%s" : "%s:%s", address,
                            port_text);
        if (used < 0 || (size_t)used >= sizeof config->master)
            return DDL_FAIL(err, DDL_ECONFIG, "MASTER_ADDR is longer than %zu characters",
                            sizeof config->master - 16);
    }
    if (store != NULL) {
        if (strlen(store) >= sizeof config->store)
            return DDL_FAIL(err, DDL_ECONFIG, "%s: the URL is longer than %zu characters",
                            GIVEN_AS(options, store, "DDL_STORE"), sizeof config->store - 1);
        snprintf(config->store, sizeof config->store, "%s", store);
        return DDL_OK;
    }
    if (address == NULL || port_text == NULL)
        return DDL_FAIL(
            err, DDL_ECONFIG,
            "rank %d of %d has nowhere to meet the others: set MASTER_ADDR and MASTER_PORT (%s not set), or "
            "DDL_STORE; ddl-launch sets them",
            config->rank, config->nranks, address == NULL ? "MASTER_ADDR is" : "MASTER_PORT is");
    snprintf(config->store, sizeof config->store, "tcp://%s", config->master);
    return DDL_OK;
}

/* ---- the rest ---- */

static ddl_status read_time(const char *name, int64_t default_ms, int64_t *ms, ddl_error *err)
{
    const char *value = ddl_config_env(name);
    *ms = default_ms;
    return value != NULL ? parse_duration(name, value, ms, err) : DDL_OK;
}

/* What the options have is not looked for in the environment. */
static ddl_status read_timeout(const char *name, int64_t option_ms, int64_t *ms, ddl_error *err)
{
    *ms = option_ms;
    return option_ms > 0 ? DDL_OK : read_time(name, DEFAULT_TIMEOUT_MS, ms, err);
}

/* A rank answers within a second, and a packet that is lost is sent again within one. */
static ddl_status read_patience(const char *name, int64_t default_ms, int64_t *ms, ddl_error *err)
{
    DDL_TRY(read_time(name, default_ms, ms, err));
    if (*ms < LEAST_PATIENCE_MS)
        return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: at least 1 s is needed", name, ddl_config_env(name));
    return DDL_OK;
}

static ddl_status read_timeouts(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    const ddl_status status =
        read_timeout("DDL_START_TIMEOUT", options->start_timeout_ms, &config->start_timeout_ms, err);
    config->start_until = ddl_deadline_in_ms(config->start_timeout_ms);
    DDL_TRY(status);
    DDL_TRY(read_timeout("DDL_TIMEOUT", options->timeout_ms, &config->timeout_ms, err));
    config->timeout_is_given = options->timeout_ms != 0;
    DDL_TRY(read_patience("DDL_UNREACH_TIMEOUT", DEFAULT_UNREACH_MS, &config->unreachable_ms, err));
    DDL_TRY(read_patience("DDL_UNRESP_TIMEOUT", DEFAULT_UNRESP_MS, &config->unresponsive_ms, err));
    return read_time("DDL_WARN_AFTER", DEFAULT_WARN_MS, &config->warn_ms, err);
}

static ddl_status read_algorithms(ddl_config *config, ddl_error *err)
{
    for (int collective = 0; collective < DDL_COLLECTIVE_COUNT; collective++) {
        char variable[DDL_SETTING_NAME];
        ddl_setting_of((ddl_collective)collective, variable);
        const char *value = ddl_config_env(variable);
        if (value == NULL)
            continue;
        const ddl_algorithm *found = ddl_catalogue_find((ddl_collective)collective, value);
        if (found != NULL && found->takes != NULL && !found->takes(config->nranks)) {
            config->may_be_tried = true;
            return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: that algorithm does not work for %d ranks", variable,
                            value, config->nranks);
        }
        if (found == NULL) {
            char list[256] = "";
            size_t count;
            const ddl_algorithm *rows = ddl_catalogue(&count);
            for (size_t i = 0; i < count; i++)
                if ((int)rows[i].collective == collective) {
                    size_t used = strlen(list);
                    snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "", rows[i].name);
                }
            return DDL_FAIL(err, DDL_ECONFIG, "%s=%s: there is no such algorithm; accepted are %s", variable,
                            value, list);
        }
        config->forced[collective] = found;
    }
    return DDL_OK;
}

static ddl_status read_text(const char *variable, char *text, size_t text_bytes, ddl_error *err)
{
    const char *value = ddl_config_env(variable);
    if (value == NULL)
        return DDL_OK;
    if (strlen(value) >= text_bytes)
        return DDL_FAIL(err, DDL_ECONFIG, "%s is longer than %zu characters", variable, text_bytes - 1);
    memcpy(text, value, strlen(value) + 1);
    return DDL_OK;
}

static ddl_status read_certificates(ddl_config *config, ddl_error *err)
{
    DDL_TRY(read_text("DDL_TLS_CA", config->tls_ca, sizeof config->tls_ca, err));
    DDL_TRY(read_text("DDL_TLS_CERT", config->tls_cert, sizeof config->tls_cert, err));
    DDL_TRY(read_text("DDL_TLS_KEY", config->tls_key, sizeof config->tls_key, err));
    return read_text("DDL_TLS_JOB", config->tls_job, sizeof config->tls_job, err);
}

/* Who has set certificates takes the job for encrypted. */
static ddl_status refuse_unused_certificates(ddl_error *err)
{
    static const char *const variables[] = { "DDL_TLS_CERT", "DDL_TLS_KEY", "DDL_TLS_CA", "DDL_TLS_JOB" };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (ddl_config_env(variables[i]) != NULL)
            return DDL_FAIL(
                err, DDL_ECONFIG,
                "%s is set, but nothing would be encrypted, as DDL_SECURITY is not set; set it to tls, "
                "or, if that is meant, to auth",
                variables[i]);
    return DDL_OK;
}

static ddl_status read_gpu(ddl_config *config, ddl_error *err)
{
    static const char *const accepted[] = { "auto", "nccl", "staged", NULL }; /* as ddl_gpu_use */
    const char *use = ddl_config_env("DDL_GPU");
    if (use == NULL)
        return DDL_OK;
    DDL_TRY(one_of("DDL_GPU", use, accepted, err));
#ifdef DDL_WITHOUT_NCCL
    config->may_be_tried = strcmp(use, "nccl") == 0;
    if (config->may_be_tried)
        return DDL_FAIL(err, DDL_EUNSUPPORTED,
                        "DDL_GPU=nccl: this ddl was built without NCCL (" DDL_WITHOUT_NCCL
                        "); build it with -Dcuda=enabled -Dnccl=enabled, or set DDL_GPU=staged");
#endif
    for (int i = 0; accepted[i] != NULL; i++)
        if (strcmp(use, accepted[i]) == 0)
            config->gpu = (ddl_gpu_use)i;
    return DDL_OK;
}

static ddl_status read_aes(ddl_config *config, ddl_error *err)
{
    static const char *const accepted[] = { "auto", "openssl", NULL };
    const char *aes = ddl_config_env("DDL_TLS_AES");
    if (aes == NULL || config->security != DDL_SECURITY_TLS)
        return DDL_OK;
    config->openssl_aes = strcmp(aes, "openssl") == 0;
    return one_of("DDL_TLS_AES", aes, accepted, err);
}

static ddl_status read_security(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    static const char *const levels[] = { "auth", "tls", "off", NULL };
    const char *security = options->security != NULL ? options->security : ddl_config_env("DDL_SECURITY");
    config->security = DDL_SECURITY_AUTH;
    if (security == NULL)
        return config->nranks > 1 ? refuse_unused_certificates(err) : DDL_OK;
    DDL_TRY(one_of(GIVEN_AS(options, security, "DDL_SECURITY"), security, levels, err));
    if (strcmp(security, "tls") == 0) {
        config->security = DDL_SECURITY_TLS;
        DDL_TRY(read_certificates(config, err));
    }
    if (strcmp(security, "off") == 0)
        config->security = DDL_SECURITY_OFF;
    return DDL_OK;
}

static ddl_status read_transport(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    static const char *const accepted[] = { "auto", "tcp", "shm", NULL }; /* as ddl_local_transport */
    const char *transport = options->transport != NULL ? options->transport : ddl_config_env("DDL_TRANSPORT");
    if (transport == NULL)
        return DDL_OK;
    DDL_TRY(one_of(GIVEN_AS(options, transport, "DDL_TRANSPORT"), transport, accepted, err));
    for (int i = 0; accepted[i] != NULL; i++)
        if (strcmp(transport, accepted[i]) == 0)
            config->local_transport = (ddl_local_transport)i;
    return DDL_OK;
}

/* Takes effect at once. */
static ddl_status read_log_level(ddl_error *err)
{
    const char *level = ddl_config_env("DDL_LOG");
    const int parsed = level != NULL ? ddl_log_parse_level(level) : 0;
    if (parsed < 0)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_LOG=%s: accepted are error, warning, info, debug, trace",
                        level);
    if (level != NULL)
        ddl_log_set_level((ddl_log_level)parsed);
    return DDL_OK;
}

static ddl_status read_gpu_policy(ddl_config *config, ddl_error *err)
{
    static const char *const accepted[] = { "local_rank", "exclusive", "none", NULL }; /* as of ddl-launch */
    const char *policy = ddl_config_env("DDL_GPU_POLICY");
    if (policy != NULL)
        DDL_TRY(one_of("DDL_GPU_POLICY", policy, accepted, err));
    config->has_gpu = policy == NULL || strcmp(policy, "none") != 0;
    return DDL_OK;
}

/* With DDL_TRANSPORT=shm no pair of a host may be without shared memory, which is shared at the start. */
static ddl_status read_connect(ddl_config *config, ddl_error *err)
{
    static const char *const accepted[] = { "auto", "eager", "lazy", NULL };
    const char *connect = ddl_config_env("DDL_CONNECT");
    if (connect == NULL)
        connect = "auto";
    DDL_TRY(one_of("DDL_CONNECT", connect, accepted, err));
    bool lazy =
        strcmp(connect, "lazy") == 0 || (strcmp(connect, "auto") == 0 && config->nranks > EAGER_RANKS);
    ddl_connect how = config->local_transport == DDL_LOCAL_SHM ? DDL_CONNECT_LAZY_REMOTE : DDL_CONNECT_LAZY;
    config->connect = lazy ? how : DDL_CONNECT_EAGER;
    return DDL_OK;
}

/* One stream is the first connection itself. */
static ddl_status read_streams(ddl_config *config, ddl_error *err)
{
    const char *streams = ddl_config_env("DDL_STREAMS");
    int count;
    if (streams == NULL || strcmp(streams, "auto") == 0) {
        config->nstreams = -1;
        return DDL_OK;
    }
    if (ddl_config_parse_int("DDL_STREAMS", streams, 1, DDL_STREAMS_MAX, &count, NULL) != DDL_OK)
        return DDL_FAIL(err, DDL_ECONFIG, "DDL_STREAMS=%s: auto, or a whole number from 1 to %d is needed",
                        streams, DDL_STREAMS_MAX);
    config->nstreams = count > 1 ? count : 0;
    return DDL_OK;
}

/* As long as it is not right nothing of it counts. */
static ddl_status read_network(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    const char *iface = options->interface != NULL ? options->interface : ddl_config_env("DDL_IFACE");
    ddl_network network = { .spread = ddl_config_find_spread(config->nranks) };
    config->network = network;
    DDL_TRY(ddl_network_parse(iface, ddl_config_env("DDL_ADVERTISE"), ddl_config_env("DDL_PORT_RANGE"),
                              &network, err));
    config->network = network;
    return DDL_OK;
}

/* Without this nothing can be told to anybody. */
static ddl_status read_place(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    if (options->start_timeout_ms < 0 || options->timeout_ms < 0)
        return DDL_FAIL(err, DDL_EINVAL, "ddl_options.%s is negative",
                        options->start_timeout_ms < 0 ? "start_timeout_ms" : "timeout_ms");
    DDL_TRY(ddl_config_read_ranks(options, config, err));
    DDL_TRY(read_security(options, config, err));
    return read_store(options, config, err);
}

static ddl_status read_rest(const ddl_options *options, ddl_config *config, ddl_error *err)
{
    DDL_TRY(
        read_timeouts(options, config, err)); /* of the start first, by which others are told of the rest */
    DDL_TRY(read_network(options, config, err));
    DDL_TRY(read_log_level(err));
    DDL_TRY(read_aes(config, err));
    DDL_TRY(read_gpu(config, err));
    DDL_TRY(read_transport(options, config, err));
    DDL_TRY(read_connect(config, err));
    DDL_TRY(read_streams(config, err));
    DDL_TRY(read_gpu_policy(config, err));
    DDL_TRY(ddl_config_read_costs(config, err));
    return read_algorithms(config, err);
}

ddl_status ddl_config_read(const ddl_options *given, ddl_config *config, ddl_error *err)
{
    ddl_options options = DDL_OPTIONS_INIT;
    if (given != NULL) {
        /* An older program's struct is shorter: what it does not know stays as it is by default. */
        if (given->struct_size < offsetof(ddl_options, store) || given->struct_size > 4096)
            return DDL_FAIL(err, DDL_EINVAL, "ddl_options.struct_size is %zu; start from DDL_OPTIONS_INIT",
                            given->struct_size);
        memcpy(&options, given, given->struct_size < sizeof options ? given->struct_size : sizeof options);
    }
    memset(config, 0, sizeof *config);
    (void)!read_log_level(NULL); /* of what is told meanwhile; a wrong one is told below */
    DDL_TRY(read_place(&options, config, err));
    config->knows_place = true;
    return read_rest(&options, config, err);
}
