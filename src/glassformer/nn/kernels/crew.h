/* Threads that take shares of a job: those of the OpenMP library that torch computes with (`Parallel` of jobs.h), because
 * they wait for their next work by spinning, and threads of our own would have to share the cores with them. Where torch has
 * no such library beside it, threads are started for the one job. */
#ifndef CREW_H
#define CREW_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "words.h"

typedef void (*Work)(void *);
typedef struct {
    Work work;
    void *crew;
} Hand;

static void *work_in_thread(void *hand) {
    ((Hand *)hand)->work(((Hand *)hand)->crew);
    return NULL;
}

/* Let so many threads work at once, this one among them; one that cannot be started leaves its shares to the others. */
static void together(Work work, void *crew, int threads, Parallel parallel) {
    Hand hand = {work, crew};
    pthread_t ids[256];
    int started = 0;
    threads = threads < 1 ? 1 : threads > 256 ? 256 : threads;
    if (parallel && threads > 1) {
        parallel(work, crew, (unsigned)threads, 0);
        return;
    }
    while (started < threads - 1 && pthread_create(&ids[started], NULL, work_in_thread, &hand) == 0) started++;
    work(crew);
    for (int i = 0; i < started; i++) pthread_join(ids[i], NULL);
}
#endif
