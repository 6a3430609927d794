/* check_report.c - tables on stdout. */
#include "check_report.h"

#include "io/address.h"
#include "rendezvous/network_own.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOLD_MOST = 8, MATRIX_MOST = 32 };

/* A clock that is so far off spoils what is read from logs, and the dates of certificates. */
static const double clock_limit_ms = 1000;

enum { HOST_LEAST = 16, LABEL_LEAST = 12, ADDRESS_LEAST = 24, ADDRESS_BYTES = DDL_ADDRESS_TEXT + 16 };

/* Of the names' ends, as much as is one domain of all hosts; names that differ do so without it, too. */
static size_t common_domain_bytes(const ddl_roster *roster)
{
    const char *domain = strchr(roster->members[0].host, '.');
    int rank = 0;
    while (domain != NULL && rank < roster->nranks) {
        const char *host = roster->members[rank].host;
        size_t bytes = strlen(domain), all = strlen(host);
        if (all > bytes && strcmp(host + all - bytes, domain) == 0)
            rank++;
        else
            domain = strchr(domain + 1, '.');
    }
    return domain != NULL ? strlen(domain) : 0;
}

static int host_bytes(const ddl_roster *roster, int rank, size_t domain_bytes)
{
    return (int)(strlen(roster->members[rank].host) - domain_bytes);
}

/* Of a column for the hosts' names without a domain of so many bytes. */
static int host_width(const ddl_roster *roster, int least, size_t domain_bytes)
{
    int width = least;
    for (int rank = 0; rank < roster->nranks; rank++) {
        int bytes = host_bytes(roster, rank, domain_bytes);
        width = bytes > width ? bytes : width;
    }
    return width;
}

static int write_address(const ddl_member *member, char text[ADDRESS_BYTES])
{
    bool v6 = strchr(member->address, ':') != NULL;
    return snprintf(text, ADDRESS_BYTES, v6 ? "[%s]:%u" : "%s:%u", member->address, member->port);
}

void check_report_ranks(const ddl_config *config, const check_survey *survey)
{
    const ddl_roster *roster = survey->roster;
    const int width = host_width(roster, HOST_LEAST, 0);
    int address_width = ADDRESS_LEAST;
    char address[ADDRESS_BYTES];
    printf("%d ranks on %d host%s; met at %s (a request takes %.2f ms at most); security %s%s%s\n\n",
           roster->nranks, roster->node_count, roster->node_count == 1 ? "" : "s", config->store,
           survey->store_ms, survey->security, survey->proves[0] != '\0' ? ", secret: " : "", survey->proves);
    for (int rank = 0; rank < roster->nranks; rank++) {
        int bytes = write_address(&roster->members[rank], address);
        address_width = bytes > address_width ? bytes : address_width;
    }
    printf("rank  %-*s  %-*s  CPUs\n", width, "host", address_width, "listens at, for others");
    for (int rank = 0; rank < roster->nranks; rank++) {
        const ddl_member *member = &roster->members[rank];
        (void)write_address(member, address);
        printf("%4d  %-*s  %-*s  %4u", rank, width, member->host, address_width, address,
               (unsigned)member->cpus);
        if (member->other[0] != '\0')
            printf("  %s %s, port %u", member->is_inner ? "behind it:" : "also:", member->other,
                   member->other_port);
        printf("\n");
    }
}

static uint32_t result_of(const check_survey *survey, int from, int to)
{
    return survey->results[(size_t)from * (size_t)survey->roster->nranks + (size_t)to];
}

static void print_matrix(const check_survey *survey)
{
    const int nranks = survey->roster->nranks;
    printf("\nwho (row) can connect to whom (column): + yes, X no, o no, and no job needs it\n    ");
    for (int to = 0; to < nranks; to++)
        printf(" %2d", to);
    for (int from = 0; from < nranks; from++) {
        printf("\n%4d", from);
        for (int to = 0; to < nranks; to++)
            printf("  %c", from == to                         ? '.'
                           : result_of(survey, from, to) == 0 ? '+'
                           : check_survey_needs(from, to)     ? 'X'
                                                              : 'o');
    }
    printf("\n");
}

/* "FAIL: rank 1 on hostB (10.0.0.2) cannot connect to rank 0 on hostA at 10.0.0.1:40000: Connection refused;
 * ..." */
static void print_failure(const check_survey *survey, int from, int to)
{
    const ddl_roster *roster = survey->roster;
    const ddl_member *self = &roster->members[from], *peer = &roster->members[to];
    bool is_neighbour = roster->node_of[from] == roster->node_of[to], needed = check_survey_needs(from, to);
    ddl_address addresses[DDL_NETWORK_CALL_MAX];
    char where[2 * DDL_ADDRESS_FULL_TEXT + 8] = "?", text[DDL_ADDRESS_FULL_TEXT];
    int count = ddl_network_call(self, peer, is_neighbour, addresses);
    for (int i = 0; i < count; i++) {
        size_t used = i > 0 ? strlen(where) : 0;
        ddl_address_text(&addresses[i], text);
        snprintf(where + used, sizeof where - used, "%s%s", i > 0 ? " or " : "", text);
    }
    printf("%s: rank %d on %s (%s) cannot connect to rank %d on %s at %s: %s", needed ? "FAIL" : "note", from,
           self->host, self->address, to, peer->host, where, strerror((int)result_of(survey, from, to)));
    if (needed)
        printf("; let that port through the firewall of %s (DDL_PORT_RANGE makes the ports few and known), "
               "choose "
               "another network (DDL_IFACE), or say where a NAT shows it (DDL_ADVERTISE)",
               peer->host);
    printf("\n");
}

static int count_failures(const check_survey *survey, bool needed)
{
    int count = 0;
    for (int from = 0; from < survey->roster->nranks; from++)
        for (int to = 0; to < survey->roster->nranks; to++)
            count += from != to && result_of(survey, from, to) != 0 && check_survey_needs(from, to) == needed;
    return count;
}

static void print_failures(const check_survey *survey, bool needed)
{
    const int nranks = survey->roster->nranks;
    int left = count_failures(survey, needed), told = 0;
    for (int from = 0; from < nranks && told < TOLD_MOST; from++)
        for (int to = 0; to < nranks && told < TOLD_MOST; to++) {
            if (from == to || result_of(survey, from, to) == 0 || check_survey_needs(from, to) != needed)
                continue;
            print_failure(survey, from, to);
            told++;
        }
    if (left > told)
        printf("%s: and %d more pair%s\n", needed ? "FAIL" : "note", left - told,
               left - told == 1 ? "" : "s");
}

int check_report_reach(const check_survey *survey)
{
    const int nranks = survey->roster->nranks;
    int failures = count_failures(survey, true), notes = count_failures(survey, false);
    if (failures + notes == 0) {
        printf("\nany two ranks can connect, in both directions\n");
        return 0;
    }
    if (nranks <= MATRIX_MOST)
        print_matrix(survey);
    printf("\n");
    print_failures(survey, true);
    print_failures(survey, false);
    return failures;
}

/* ---- what was measured ---- */

static int report_versions(const check_survey *survey, const check_measured *measured)
{
    int warnings = 0;
    const int width = host_width(survey->roster, HOST_LEAST, 0);
    printf("\n%-*s  ddl       clock, ms  system\n", width, "host");
    for (int rank = 0, last_node = -1; rank < survey->roster->nranks; rank++) {
        const check_facts *facts = &measured->facts[rank];
        if (facts->node <= last_node)
            continue;
        last_node = facts->node;
        printf("%-*s  %-8s  %+9.2f  %s\n", width, survey->roster->members[rank].host, facts->version,
               facts->clock_ms, facts->system);
    }
    for (int rank = 0; rank < survey->roster->nranks; rank++) {
        const check_facts *facts = &measured->facts[rank];
        const char *host = survey->roster->members[rank].host;
        if (strcmp(facts->version, measured->facts[0].version) != 0) {
            printf("warning: rank %d on %s has ddl %s, rank 0 has %s; install the same everywhere\n", rank,
                   host, facts->version, measured->facts[0].version);
            warnings++;
        }
        if (fabs(facts->clock_ms) > clock_limit_ms && survey->roster->local_rank_of[rank] == 0) {
            printf("warning: the clock of %s is %.1f s off that of rank 0: times in logs, and dates of "
                   "certificates, are compared wrongly\n",
                   host, facts->clock_ms / 1e3);
            warnings++;
        }
    }
    return warnings;
}

static void print_links(const check_survey *survey, const check_measured *measured, const char *title,
                        const double (*values)[CHECK_POINTS_MAX], int digits)
{
    const ddl_roster *roster = survey->roster;
    const size_t domain_bytes = common_domain_bytes(roster);
    const int width = host_width(roster, LABEL_LEAST, domain_bytes);
    printf("\n%s\n%*s  rank", title, width, "");
    for (int j = 0; j < measured->npoints; j++)
        printf(" %8d", measured->points[j]);
    for (int i = 0; i < measured->npoints; i++) {
        int rank = measured->points[i];
        printf("\n%-*.*s %5d", width, host_bytes(roster, rank, domain_bytes), roster->members[rank].host,
               rank);
        for (int j = 0; j < measured->npoints; j++)
            if (i == j)
                printf(" %8s", ".");
            else
                printf(" %8.*f", digits, values[i][j]);
    }
    printf("\n");
}

/* Others are in no table. */
static void tell_of_unmeasured(const check_survey *survey, const check_measured *measured)
{
    int all = measured->by_host ? survey->roster->node_count : survey->roster->nranks;
    if (measured->npoints < all)
        printf("\nof %d %s, the links between the first %d are measured\n", all,
               measured->by_host ? "hosts" : "ranks", measured->npoints);
}

/* A link that is far slower than the best of its kind. */
static int warn_of_slow(const check_survey *survey, const check_measured *measured)
{
    double best = 0;
    int warnings = 0;
    for (int i = 0; i < measured->npoints; i++)
        for (int j = 0; j < measured->npoints; j++)
            best = i != j && measured->mb_per_s[i][j] > best ? measured->mb_per_s[i][j] : best;
    for (int i = 0; i < measured->npoints && measured->by_host; i++)
        for (int j = 0; j < measured->npoints; j++) {
            if (i == j || measured->mb_per_s[i][j] > best / 4)
                continue;
            printf("warning: from %s to %s it is %.0f MB/s, elsewhere up to %.0f: is that the right network "
                   "(DDL_IFACE)?\n",
                   survey->roster->members[measured->points[i]].host,
                   survey->roster->members[measured->points[j]].host, measured->mb_per_s[i][j], best);
            warnings++;
        }
    return warnings;
}

int check_report_measured(const check_survey *survey, const check_measured *measured)
{
    int warnings = report_versions(survey, measured);
    tell_of_unmeasured(survey, measured);
    print_links(survey, measured, "latency, us (half of a round trip of 8 bytes)", measured->latency_us, 1);
    print_links(survey, measured, "bandwidth, MB/s (sent from row to column)", measured->mb_per_s, 0);
    return warnings + warn_of_slow(survey, measured);
}
