/*
 * choice.h - which algorithm a call runs: the cheapest by a cost model, or the one that a user forced.
 *
 * Pure arithmetic on numbers that all ranks share, so every rank chooses the same.
 */
#ifndef DDL_BACKEND_CHOICE_H
#define DDL_BACKEND_CHOICE_H

#include "algorithms/catalogue.h"

typedef struct ddl_cost_model {
    double latency_ns; /* a message from one waiting rank to another */
    double message_ns; /* CPU per message, both ends together */
    double byte_ns;    /* CPU and wire per byte sent */
    double reduce_ns;  /* per byte reduced */
    double crowding;   /* ranks per usable CPU on the fullest host, at least 1: all CPU costs times this */
} ddl_cost_model;

/* Fixed defaults for TCP; nothing is measured at start-up, so the same job chooses the same in every run. */
ddl_cost_model ddl_cost_model_default(double crowding);

/* Modelled time of one call over total_bytes (the vector, or nranks blocks). */
double ddl_cost_ns(const ddl_cost_model *model, const ddl_algorithm *algorithm, int nranks,
                   double total_bytes);

/* The cheapest that works for nranks. Never NULL: every collective has an algorithm that takes any number. */
const ddl_algorithm *ddl_choose(const ddl_cost_model *model, ddl_collective collective, int nranks,
                                double total_bytes);

#endif
