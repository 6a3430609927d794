/* check_measure.c - facts by allgather; clocks, latency and bandwidth by messages between two ranks at a
 * time. */
#include "check_measure.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

enum {
    CLOCK_ROUNDS = 8,
    WARM_ROUNDS = 10,
    LATENCY_ROUNDS = 60,
    FIRST_BYTES = 64 << 10,
    MOST_BYTES = 8 << 20,
    BANDWIDTH_ROUNDS = 4
};

/* So long the messages of one direction may take, about. */
static const double bandwidth_s = 0.05;

static double seconds(void)
{
    return (double)ddl_now_ns() / 1e9;
}

/* Only differences between hosts are looked at. */
static double wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static ddl_status send_to(const void *data, size_t bytes, int peer, ddl_comm *world)
{
    return ddl_send(data, bytes, DDL_UINT8, peer, world, NULL);
}

static ddl_status recv_from(void *data, size_t bytes, int peer, ddl_comm *world)
{
    return ddl_recv(data, bytes, DDL_UINT8, peer, world, NULL);
}

/* ---- clocks ---- */

/* Rank 0 asks for the time; of several answers, the quickest is the best. */
static ddl_status ask_clock(ddl_comm *world, int peer, double *offset_ms)
{
    double best = -1;
    for (int i = 0; i < CLOCK_ROUNDS; i++) {
        double theirs, asked = wall_ms(), start = seconds();
        DDL_TRY(send_to(&asked, sizeof asked, peer, world));
        DDL_TRY(recv_from(&theirs, sizeof theirs, peer, world));
        double trip_ms = (seconds() - start) * 1e3;
        if (best >= 0 && trip_ms >= best)
            continue;
        best = trip_ms;
        *offset_ms = theirs - (asked + trip_ms / 2);
    }
    return DDL_OK;
}

static ddl_status tell_clock(ddl_comm *world)
{
    for (int i = 0; i < CLOCK_ROUNDS; i++) {
        double asked, now;
        DDL_TRY(recv_from(&asked, sizeof asked, 0, world));
        now = wall_ms();
        DDL_TRY(send_to(&now, sizeof now, 0, world));
    }
    return DDL_OK;
}

static ddl_status gather_facts(ddl_comm *world, check_measured *measured)
{
    const int rank = ddl_rank(world), nranks = ddl_size(world);
    check_facts own = { .node = ddl_node_rank(world) };
    struct utsname system;
    snprintf(own.version, sizeof own.version, "%s", ddl_version());
    if (uname(&system) == 0)
        snprintf(own.system, sizeof own.system, "%.30s %.40s %.20s", system.sysname, system.release,
                 system.machine);
    DDL_TRY(ddl_allgather(&own, measured->facts, sizeof own, DDL_UINT8, world, NULL));
    for (int peer = 1; peer < nranks && (rank == 0 || peer <= rank); peer++) {
        if (rank == 0)
            DDL_TRY(ask_clock(world, peer, &measured->facts[peer].clock_ms));
        else if (rank == peer)
            DDL_TRY(tell_clock(world));
    }
    return DDL_OK;
}

/* ---- links ---- */

static void choose_points(ddl_comm *world, check_measured *measured)
{
    const int nranks = ddl_size(world);
    int last_node = -1;
    measured->by_host = ddl_node_count(world) > 1;
    for (int rank = 0; rank < nranks && measured->npoints < CHECK_POINTS_MAX; rank++) {
        /* Hosts are numbered by their lowest ranks. */
        if (measured->by_host && measured->facts[rank].node <= last_node)
            continue;
        last_node = measured->facts[rank].node;
        measured->points[measured->npoints++] = rank;
    }
}

static ddl_status bounce(ddl_comm *world, int peer, bool begins, double *latency_us)
{
    uint64_t word = 0;
    double start = 0;
    for (int i = 0; i < WARM_ROUNDS + LATENCY_ROUNDS; i++) {
        if (i == WARM_ROUNDS)
            start = seconds();
        if (begins)
            DDL_TRY(send_to(&word, sizeof word, peer, world));
        DDL_TRY(recv_from(&word, sizeof word, peer, world));
        if (!begins)
            DDL_TRY(send_to(&word, sizeof word, peer, world));
    }
    *latency_us = (seconds() - start) / LATENCY_ROUNDS / 2 * 1e6;
    return DDL_OK;
}

/* Send so many messages; the time until the last has been answered, for all bytes of them. */
static ddl_status pour(ddl_comm *world, int peer, bool sends, void *buffer, size_t bytes, int times,
                       double *taken_s)
{
    uint64_t word = 0;
    double start = seconds();
    for (int i = 0; i < times; i++)
        DDL_TRY(sends ? send_to(buffer, bytes, peer, world) : recv_from(buffer, bytes, peer, world));
    DDL_TRY(sends ? recv_from(&word, sizeof word, peer, world) : send_to(&word, sizeof word, peer, world));
    *taken_s = seconds() - start;
    return DDL_OK;
}

/* The sender finds out what fits the time, and says so. */
static ddl_status measure_bandwidth(ddl_comm *world, int peer, bool sends, void *buffer, double *mb_per_s)
{
    double taken_s;
    uint64_t bytes = FIRST_BYTES;
    DDL_TRY(pour(world, peer, sends, buffer, bytes, 1, &taken_s)); /* connections have to become fast */
    DDL_TRY(pour(world, peer, sends, buffer, bytes, 1, &taken_s));
    if (sends) {
        double fitting = FIRST_BYTES * bandwidth_s / BANDWIDTH_ROUNDS / (taken_s > 1e-9 ? taken_s : 1e-9);
        bytes = fitting > MOST_BYTES ? MOST_BYTES : fitting < FIRST_BYTES ? FIRST_BYTES : (uint64_t)fitting;
        DDL_TRY(send_to(&bytes, sizeof bytes, peer, world));
    } else {
        DDL_TRY(recv_from(&bytes, sizeof bytes, peer, world));
        if (bytes > MOST_BYTES)
            bytes = MOST_BYTES;
    }
    DDL_TRY(pour(world, peer, sends, buffer, bytes, 1, &taken_s)); /* what is used for the first time */
    DDL_TRY(pour(world, peer, sends, buffer, bytes, BANDWIDTH_ROUNDS, &taken_s));
    *mb_per_s = (double)bytes * BANDWIDTH_ROUNDS / taken_s / 1e6;
    return DDL_OK;
}

/* One pair at a time, while all others wait. */
static ddl_status measure_pair(ddl_comm *world, check_measured *measured, int i, int j, void *buffer)
{
    const int rank = ddl_rank(world), low = measured->points[i], high = measured->points[j];
    if (rank == low || rank == high) {
        int peer = rank == low ? high : low;
        DDL_TRY(bounce(world, peer, rank == low, &measured->latency_us[i][j]));
        measured->latency_us[j][i] = measured->latency_us[i][j];
        DDL_TRY(measure_bandwidth(world, peer, rank == low, buffer, &measured->mb_per_s[i][j]));
        DDL_TRY(measure_bandwidth(world, peer, rank == high, buffer, &measured->mb_per_s[j][i]));
    }
    return ddl_barrier(world, NULL);
}

/* The lower rank of each pair has its figures; rank 0 is to have all. */
static ddl_status gather_links(ddl_comm *world, check_measured *measured)
{
    double own[3][CHECK_POINTS_MAX] = { { 0 } };
    const int rank = ddl_rank(world), nranks = ddl_size(world);
    double(*all)[3][CHECK_POINTS_MAX] = rank == 0 ? ddl_alloc_array((size_t)nranks, sizeof *all) : NULL;
    if (rank == 0 && all == NULL)
        return DDL_ENOMEM;
    for (int i = 0; i < measured->npoints; i++)
        for (int j = i + 1; measured->points[i] == rank && j < measured->npoints; j++) {
            own[0][j] = measured->latency_us[i][j];
            own[1][j] = measured->mb_per_s[i][j];
            own[2][j] = measured->mb_per_s[j][i];
        }
    ddl_status status = ddl_gather(own, all, sizeof own / sizeof(double), DDL_FLOAT64, 0, world, NULL);
    for (int i = 0; i < measured->npoints && rank == 0 && status == DDL_OK; i++)
        for (int j = i + 1; j < measured->npoints; j++) {
            measured->latency_us[i][j] = measured->latency_us[j][i] = all[measured->points[i]][0][j];
            measured->mb_per_s[i][j] = all[measured->points[i]][1][j];
            measured->mb_per_s[j][i] = all[measured->points[i]][2][j];
        }
    ddl_free(all);
    return status;
}

ddl_status check_measure(ddl_comm *world, check_measured *measured)
{
    memset(measured, 0, sizeof *measured);
    measured->facts = ddl_alloc_array((size_t)ddl_size(world), sizeof *measured->facts);
    void *buffer = ddl_alloc(MOST_BYTES);
    ddl_status status = measured->facts == NULL || buffer == NULL ? DDL_ENOMEM : DDL_OK;
    if (status == DDL_OK)
        memset(buffer, 1, MOST_BYTES); /* or a link would be as fast as memory is found for it */
    if (status == DDL_OK)
        status = gather_facts(world, measured);
    if (status == DDL_OK)
        choose_points(world, measured);
    for (int i = 0; i < measured->npoints && status == DDL_OK; i++)
        for (int j = i + 1; j < measured->npoints && status == DDL_OK; j++)
            status = measure_pair(world, measured, i, j, buffer);
    if (status == DDL_OK)
        status = gather_links(world, measured);
    ddl_free(buffer);
    return status;
}

void check_measured_fini(check_measured *measured)
{
    ddl_free(measured->facts);
    measured->facts = NULL;
}
