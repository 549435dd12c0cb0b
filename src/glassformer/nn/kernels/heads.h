/* Shared code of attention in bf16 and fp32. A task is one head of one sequence; threads take HEADS heads at a time. */
#ifndef HEADS_H
#define HEADS_H
#include "crew.h"

typedef struct {
    AttentionJob *job;
    atomic_long next, finished; /* index of the next share; number of threads that had enough memory to work */
    int backward;
} Crew;

/* The forward or backward pass of head h of sequence b; each thread has its own memory. */
typedef void (*Task)(const AttentionJob *job, int64_t b, int64_t h, char *memory);

enum { HEADS = 4 }; /* number of heads that a thread takes at a time; they are adjacent in memory */

/* Query i of t has position i + s - t among its s keys: the last query is at the last key. It attends to the keys from
 * first_key to end_key, exclusive. */
INLINE int64_t within_keys(int64_t n, int64_t s) { return n < 0 ? 0 : n > s ? s : n; }
INLINE int64_t first_key(const AttentionJob *job, int64_t i, int64_t t, int64_t s) {
    return job->window < 0 ? 0 : within_keys(i + s - t - job->window, s);
}
INLINE int64_t end_key(const AttentionJob *job, int64_t i, int64_t t, int64_t s) {
    if (job->causal) return within_keys(i + s - t + 1, s);
    return job->window < 0 ? s : within_keys(i + s - t + job->window + 1, s);
}

/* Number of queries of a chunk, and maximum number of its keys; without a window, all. */
INLINE int64_t chunk_rows(const AttentionJob *job, int64_t t, int64_t block) { return job->window < 0 ? t : ROUND(128, block); }
INLINE int64_t chunk_keys(const AttentionJob *job, int64_t block) {
    const int64_t keys = ROUND(128, block) + 2 * job->window;
    return job->window < 0 || keys > job->longest_k ? job->longest_k : keys;
}

/* Pointers to the bias of query i and to its gradient, indexed by key j. */
INLINE const float *bias_of(const AttentionJob *job, int64_t h, int64_t i) {
    return job->bias ? job->bias + h * job->bias_stride - i : NULL;
}
INLINE float *bias_gradient(const AttentionJob *job, int64_t b, int64_t h, int64_t i) {
    return job->dbias ? job->dbias + (b * job->heads + h) * job->bias_stride - i : NULL;
}

/* Add the bias of rows i, i + 1, ... to their scores, up to key s. */
INLINE void add_bias(const AttentionJob *job, int64_t h, int64_t i, int64_t rows, int64_t s, float *scores, int64_t width) {
    if (!job->bias) return;
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict bias = bias_of(job, h, i + r);
        float *restrict row = scores + r * width;
        for (int64_t j = 0; j < s; j++) row[j] += bias[j];
    }
}

/* Prefetch the vectors of some heads in memory order: queries, keys and values of a token are adjacent, while the tokens of a
 * head are a page apart. Inline, because gcc removes calls of functions that only prefetch. */
INLINE void fetch_heads(const AttentionJob *job, int64_t b, int64_t first, int64_t last, int backward) {
    const int64_t from = first * job->dim, width = (last - first) * job->dim, t = job->q_lengths[b], s = job->k_lengths[b];
    for (int64_t i = 0; i < t || i < s; i++) {
        const int64_t query = job->q_starts[b] + i, key = job->k_starts[b] + i;
        if (i < t) fetch(job->q + query * job->q_stride + from, width);
        if (i < s) fetch(job->k + key * job->k_stride + from, width);
        if (i < s) fetch(job->v + key * job->v_stride + from, width);
        if (i < t && backward) fetch(job->out + query * job->out_stride + from, width);
        if (i < t && backward) fetch(job->grad + query * job->grad_stride + from, width);
    }
}

/* Pointer to the gradients of distances of sequence b and head h, from distance 0 on; sequences of a part share them. */
INLINE float *distance_gradients_of(const AttentionJob *job, float *gradients, int64_t b, int64_t h) {
    const int64_t part = ((b + 1) * job->parts - 1) / job->sequences;
    return gradients + (part * job->heads + h) * job->dim * job->ddistance_stride;
}

/* The loop of each thread: take shares until none is left. */
INLINE void take_shares(Crew *crew, Task task, char *memory) {
    const AttentionJob *job = crew->job;
    const long shares = (job->heads + HEADS - 1) / HEADS;
    for (long share; (share = atomic_fetch_add(&crew->next, 1)) < job->parts * shares;) {
        const int64_t part = share / shares, first = share % shares * HEADS;
        const int64_t last = first + HEADS < job->heads ? first + HEADS : job->heads;
        for (int64_t b = part * job->sequences / job->parts; b < (part + 1) * job->sequences / job->parts; b++) {
            fetch_heads(job, b, first, last, crew->backward);
            for (int64_t h = first; h < last; h++) task(job, b, h, memory);
        }
    }
}
#endif
