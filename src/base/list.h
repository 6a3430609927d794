/*
 * list.h - an intrusive doubly linked list with a head; no allocation.
 *
 * A ddl_link is embedded in the object; a zeroed link is in no list.
 */
#ifndef DDL_BASE_LIST_H
#define DDL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ddl_link {
    struct ddl_link *next, *previous;
} ddl_link;

typedef struct ddl_list {
    ddl_link head;
} ddl_list;

#define DDL_CONTAINER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

static inline void ddl_list_init(ddl_list *list)
{
    list->head.next = list->head.previous = &list->head;
}

static inline bool ddl_list_empty(const ddl_list *list)
{
    return list->head.next == &list->head;
}

static inline bool ddl_link_linked(const ddl_link *link)
{
    return link->next != NULL;
}

/* place: a link in a list, or the head of one. */
static inline void ddl_link_insert_before(ddl_link *place, ddl_link *link)
{
    link->previous = place->previous;
    link->next = place;
    link->previous->next = link;
    place->previous = link;
}

static inline void ddl_list_append(ddl_list *list, ddl_link *link)
{
    ddl_link_insert_before(&list->head, link);
}

/* Before all others. */
static inline void ddl_list_prepend(ddl_list *list, ddl_link *link)
{
    link->next = list->head.next;
    link->previous = &list->head;
    link->next->previous = link;
    list->head.next = link;
}

static inline void ddl_list_remove(ddl_link *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
    link->next = link->previous = NULL;
}

/* The first link, or NULL. */
static inline ddl_link *ddl_list_first(const ddl_list *list)
{
    return ddl_list_empty(list) ? NULL : list->head.next;
}

/* Remove and return the first link, or NULL. */
static inline ddl_link *ddl_list_take_first(ddl_list *list)
{
    ddl_link *link = ddl_list_first(list);
    if (link != NULL)
        ddl_list_remove(link);
    return link;
}

/* All of from, in its order, become to, which is set up by this. */
static inline void ddl_list_take_all(ddl_list *from, ddl_list *to)
{
    ddl_list_init(to);
    if (ddl_list_empty(from))
        return;
    to->head = from->head;
    to->head.next->previous = to->head.previous->next = &to->head;
    ddl_list_init(from);
}

/* The body may remove the current link. */
#define DDL_LIST_FOR_EACH(link, list)                                                          \
    for (ddl_link *link = (list)->head.next, *link##_next = link->next; link != &(list)->head; \
         link = link##_next, link##_next = link->next)

#endif
