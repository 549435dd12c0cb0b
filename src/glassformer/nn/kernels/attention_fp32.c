/* Attention over packed sequences in fp32, with AVX512 or AVX2: softmax(Q K^T * scale) V, forward and backward.
 *
 * Like attention.c (bf16): a task computes one head of one sequence, sequences are not padded, and the backward pass
 * recomputes the weights from two numbers per query (Dao et al., 2022). Only keys and values are copied to another
 * layout. With a causal mask, products skip masked keys. With a window, each chunk of queries has its own keys, so time
 * is linear in the length.
 *
 * Layout: feature d of head h of token n of q is q[n * q_stride + h * dim + d]; dim is a multiple of 16. A row is the
 * vector of one token.
 */
#define NUMBER float
#include "heads.h"
#include "product_fp32.h"

enum { BLOCK = 4 * ROWS }; /* number of queries of a backward block; its weights fit into the L1 cache */
#include "distances_fp32.h"

/* The workspace of a task, in one block of memory; carve() with memory = NULL returns its size. */
typedef struct {
    float *keys, *values;         /* transposed: [dim][width] */
    float *key_rows, *value_rows; /* [s][dim] */
    float *q, *grad;              /* [BLOCK][dim] */
    float *p, *ds;                /* [BLOCK][width]: weights and gradients of scores; before that, scores and dots */
    float *dk, *dv;               /* [s][dim] */
} Workspace;

static size_t carve(Workspace *space, char *memory, int64_t dim, int64_t keys, int64_t longest, int backward) {
    const int64_t width = ROUND(keys, 16);
    size_t used = 0;
#define TAKE(name, count) (space->name = (void *)(memory + used), used += ROUND((count) * sizeof(float), 64))
    TAKE(keys, dim * width);
    TAKE(p, (backward ? BLOCK : ROWS) * width);
    TAKE(q, BLOCK * dim);
    if (!backward) {
        TAKE(value_rows, width * dim);
        return used;
    }
    TAKE(values, dim * width);
    TAKE(key_rows, width * dim);
    TAKE(ds, BLOCK * width);
    TAKE(grad, BLOCK * dim);
    TAKE(dk, longest * dim);
    TAKE(dv, longest * dim);
#undef TAKE
    return used;
}

/* Replace scores by e^(score - highest) for keys from `low` to `seen`, by 0 for other keys up to `reach`. Write the highest
 * score times log2 e, and 1 / the sum, to stats. */
static void softmax(float scale, float *scores, int64_t low, int64_t seen, int64_t reach, float *stats) {
    const vec binary = all(scale * LOG2_E), lowest = all(-INFINITY);
    vec top[2] = {lowest, lowest}, sum = zero();
    int64_t j = low / LANES * LANES;
    for (; j < low && j < seen; j += LANES)
        top[0] = larger(top[0], pick(between(low - j, seen - j), mul(load(scores + j), binary), lowest));
    for (; j + 2 * LANES <= seen; j += 2 * LANES)
        UNROLL for (int k = 0; k < 2; k++) top[k] = larger(top[k], mul(load(scores + j + k * LANES), binary));
    for (; j < seen; j += LANES) top[0] = larger(top[0], pick(first(seen - j), mul(load(scores + j), binary), lowest));
    stats[0] = seen > low ? largest_of(larger(top[0], top[1])) : 0.0f;
    top[0] = all(stats[0]);
    for (j = 0; j < reach; j += LANES) {
        vec e = power_of_2(fms(load(scores + j), binary, top[0]));
        if (j < low || j + LANES > seen) e = pick(between(low - j, seen - j), e, zero());
        sum = add(sum, e);
        store(scores + j, e);
    }
    const float total = sum_of(sum);
    stats[1] = total == 0 ? 0.0f : 1.0f / total; /* the output is 0 if all keys are masked */
}

static void forward_task(const AttentionJob *job, int64_t b, int64_t h, char *memory) {
    const int64_t t = job->q_lengths[b], s = job->k_lengths[b], dim = job->dim, chunk = chunk_rows(job, t, BLOCK);
    const int64_t q0 = job->q_starts[b];
    const int distant = has_distances(job);
    Workspace space;
    Distances far;
    carve_distances(&far, memory + carve(&space, memory, dim, chunk_keys(job, BLOCK), job->longest_k, 0), job, 0);
    if (distant) lay_out_distances(job, h, s, 0, &far);
    for (int64_t begin = 0; begin < t; begin += chunk) {
        const int64_t end = begin + chunk < t ? begin + chunk : t;
        const int64_t from = first_key(job, begin, t, s), keys = end_key(job, end - 1, t, s) - from, width = ROUND(keys, 16);
        const int64_t k0 = job->k_starts[b] + from;
        turn(job->k + k0 * job->k_stride + h * dim, job->k_stride, keys, dim, width, space.keys, width);
        copy_rows(job->v + k0 * job->v_stride + h * dim, job->v_stride, keys, dim, space.value_rows, dim);
        for (int64_t i = begin; i < end; i += ROWS) {
            const int64_t rows = end - i < ROWS ? end - i : ROWS;
            const int64_t skip = (first_key(job, i, t, s) - from) / 16 * 16, near = from + skip;
            const int64_t seen = end_key(job, i + rows - 1, t, s) - near, reach = ROUND(seen, 16);
            const int64_t at = (i - begin) % DISTANT, block = end - i < DISTANT ? end - i : DISTANT;
            float *out = job->o + (q0 + i) * job->out_stride + h * dim, stats[2 * ROWS];
            copy_rows(job->q + (q0 + i) * job->q_stride + h * dim, job->q_stride, rows, dim, space.q, dim);
            if (distant && at == 0) score_keys(job, &far, job->k + k0 * job->k_stride + h * dim, i, block, s, width);
            if (distant) begin_scores(job, &far, space.q, i, rows, at, s, width, space.p);
            products(rows, reach / LANES, space.q, dim, 1, space.keys + skip, width, dim, space.p, width, distant);
            add_bias(job, h, i, rows, seen, space.p, width);
            for (int64_t r = 0; r < rows; r++)
                softmax(job->scale, space.p + r * width, first_key(job, i + r, t, s) - near, end_key(job, i + r, t, s) - near,
                        reach, stats + 2 * r);
            product(rows, dim, space.p, width, space.value_rows + skip * dim, dim, seen, out, job->out_stride);
            for (int64_t r = 0; r < rows; r++) {
                float *row = out + r * job->out_stride;
                for (int64_t d = 0; d < dim; d += LANES) store(row + d, mul(load(row + d), all(stats[2 * r + 1])));
                if (job->stats) memcpy(job->stats + 2 * ((q0 + i + r) * job->heads + h), stats + 2 * r, 2 * sizeof(float));
            }
        }
    }
}

/* Recompute the weights p of a row from its scores, and the gradient of these, ds = p * (dot - out . grad) * scale; add it
 * to dbias. */
INLINE void row_gradients(const AttentionJob *job, const float *out, const float *grad, const float *stats, int64_t low,
                          int64_t seen, int64_t reach, float *p, float *ds, float *dbias) {
    vec both = zero();
    for (int64_t d = 0; d < job->dim; d += LANES) both = fma_(load(out + d), load(grad + d), both);
    const vec scale = all(job->scale), binary = all(job->scale * LOG2_E), top = all(stats[0]), inverse = all(stats[1]);
    const vec delta = all(job->scale * sum_of(both));
    for (int64_t j = 0; j < reach; j += LANES) {
        vec e = mul(power_of_2(fms(load(p + j), binary, top)), inverse);
        if (j < low || j + LANES > seen) e = pick(between(low - j, seen - j), e, zero());
        store(p + j, e);
        const vec d = mul(e, fms(load(ds + j), scale, delta));
        store(ds + j, d);
        if (dbias) store(dbias + j, add(load(dbias + j), d)); /* 0 from `seen` on */
    }
}

static void backward_task(const AttentionJob *job, int64_t b, int64_t h, char *memory) {
    const int64_t t = job->q_lengths[b], s = job->k_lengths[b], dim = job->dim, chunk = chunk_rows(job, t, BLOCK);
    const int64_t q0 = job->q_starts[b], k0 = job->k_starts[b];
    const int distant = has_distances(job);
    Workspace space;
    Distances far;
    carve_distances(&far, memory + carve(&space, memory, dim, chunk_keys(job, BLOCK), job->longest_k, 1), job, 1);
    if (distant) lay_out_distances(job, h, s, 1, &far);
    memset(space.dk, 0, sizeof(float) * s * dim);
    memset(space.dv, 0, sizeof(float) * s * dim);
    for (int64_t start = 0; start < t; start += chunk) {
        const int64_t end = start + chunk < t ? start + chunk : t;
        const int64_t from = first_key(job, start, t, s), keys = end_key(job, end - 1, t, s) - from, width = ROUND(keys, 16);
        const float *k = job->k + (k0 + from) * job->k_stride + h * dim, *v = job->v + (k0 + from) * job->v_stride + h * dim;
        turn(k, job->k_stride, keys, dim, width, space.keys, width);
        turn(v, job->v_stride, keys, dim, width, space.values, width);
        copy_rows(k, job->k_stride, keys, dim, space.key_rows, dim);
        for (int64_t begin = start; begin < end; begin += BLOCK) {
            const int64_t block = end - begin < BLOCK ? end - begin : BLOCK, at = q0 + begin;
            const int64_t skip = (first_key(job, begin, t, s) - from) / 16 * 16, near = from + skip;
            const int64_t seen = end_key(job, begin + block - 1, t, s) - near, reach = ROUND(seen, 16);
            const float *out = job->out + at * job->out_stride + h * dim;
            float *ds = job->distance_q ? far.ds + begin * width : space.ds, *dq = job->dq + at * job->dq_stride + h * dim;
            copy_rows(job->q + at * job->q_stride + h * dim, job->q_stride, block, dim, space.q, dim);
            copy_rows(job->grad + at * job->grad_stride + h * dim, job->grad_stride, block, dim, space.grad, dim);
            if (distant) {
                const int64_t from_block = (begin - start) % DISTANT, queries = end - begin < DISTANT ? end - begin : DISTANT;
                if (from_block == 0) score_keys(job, &far, k, begin, queries, s, width);
                for (int64_t r = 0; r < block; r += ROWS)
                    begin_scores(job, &far, space.q + r * dim, begin + r, block - r < ROWS ? block - r : ROWS, from_block + r, s, width,
                                 space.p + r * width);
            }
            products(block, reach / LANES, space.q, dim, 1, space.keys + skip, width, dim, space.p, width, distant);
            product(block, reach, space.grad, dim, space.values + skip, width, dim, ds, width);
            add_bias(job, h, begin, block, seen, space.p, width);
            for (int64_t r = 0; r < block; r++)
                row_gradients(job, out + r * job->out_stride, space.grad + r * dim, job->stats + 2 * ((at + r) * job->heads + h),
                              first_key(job, begin + r, t, s) - near, end_key(job, begin + r, t, s) - near, reach,
                              space.p + r * width, ds + r * width, bias_gradient(job, b, h, begin + r));
            product(block, dim, ds, width, space.key_rows + skip * dim, dim, seen, dq, job->dq_stride);
            if (job->distance_k)
                slice_gradients(job, &far, ds, width, space.q, dim, block, begin, s, s, far.key_rows, dq, job->dq_stride,
                                distance_gradients_of(job, job->ddistance_k, b, h) - (s - 1));
            product_turned(seen, dim, space.p, width, space.grad, dim, block, space.dv + near * dim, dim);
            product_turned(seen, dim, ds, width, space.q, dim, block, space.dk + near * dim, dim);
        }
    }
    if (job->distance_q) key_gradients(job, &far, job->k + k0 * job->k_stride + h * dim, b, h, t, s, ROUND(s, 16), space.dk);
    copy_rows(space.dk, dim, s, dim, job->dk + k0 * job->dk_stride + h * dim, job->dk_stride);
    copy_rows(space.dv, dim, s, dim, job->dv + k0 * job->dv_stride + h * dim, job->dv_stride);
}

static void work(void *argument) {
    Crew *crew = argument;
    const AttentionJob *job = crew->job;
    Workspace space;
    Distances far;
    const size_t size = carve(&space, NULL, job->dim, chunk_keys(job, BLOCK), job->longest_k, crew->backward);
    char *memory = aligned_alloc(64, size + carve_distances(&far, NULL, job, crew->backward) + 64);
    if (!memory) return;
    take_shares(crew, crew->backward ? backward_task : forward_task, memory);
    free(memory);
    atomic_fetch_add(&crew->finished, 1);
}

/* 0: done; 1: no memory. */
int attention_fp32(AttentionJob *job, int backward, Parallel parallel) {
    Crew crew = {.job = job, .backward = backward};
    together(work, &crew, job->threads, parallel);
    return crew.finished == 0;
}
