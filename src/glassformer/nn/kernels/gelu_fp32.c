/* GELU with the tanh approximation in fp32, and its gradient. torch's takes several times as long; its exact GELU does not. */
#define NUMBER float
#include "crew.h"
#include "gelu.h"

typedef struct {
    const GeluJob *job;
    atomic_long next;
} GeluCrew;

enum { NUMBERS = 16384 }; /* count of numbers that a thread computes at a time */

INLINE vec slope(vec x) {
    const vec s = gate(x), inner = fma_(mul(x, x), all(2.0f * 0.7978845608f * 3.0f * 0.044715f), all(2.0f * 0.7978845608f));
    return fma_(mul(mul(x, inner), s), sub(all(1.0f), s), s);
}

static void gelu_work(void *argument) {
    GeluCrew *crew = argument;
    const GeluJob *job = crew->job;
    for (long share; (share = atomic_fetch_add(&crew->next, 1)) * NUMBERS < job->count;) {
        const int64_t end = (share + 1) * NUMBERS < job->count ? (share + 1) * NUMBERS : job->count;
        for (int64_t i = share * NUMBERS; i < end; i += LANES) {
            const vec x = load(job->x + i);
            store(job->out + i, job->grad ? mul(load(job->grad + i), slope(x)) : mul(x, gate(x)));
        }
    }
}

void gelu_tanh_fp32(GeluJob *job, Parallel parallel) {
    GeluCrew crew = {.job = job};
    together(gelu_work, &crew, job->threads, parallel);
}
