/* Runs a job in several threads. They are the threads of torch's OpenMP library (`Parallel` of jobs.h), which spin while they
 * wait for work, so threads of our own would have to share the cores with them. If torch has no OpenMP library, threads are
 * started for each job. */
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

/* Call work(crew) in `threads` threads, including this one. If a thread cannot be started, the others do its work. */
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
