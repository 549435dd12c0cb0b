/* Attention over packed sequences in bf16: softmax(Q K^T * scale) V, forward and backward.
 *
 * A task computes one head of one sequence. Sequences are not padded, and no [T, S] attention weights are stored: the
 * backward pass recomputes the weights from two numbers per query (Dao et al., 2022), for one block of queries at a
 * time. So the workspace of a task fits into the core's own cache. Products multiply bf16 pairs and sum in fp32. Only
 * the function product() differs between AMX and AVX512-BF16. With a window, each chunk of queries has its own keys, so
 * time is linear in the length.
 *
 * Layout: feature d of head h of token n of q is q[n * q_stride + h * dim + d]; dim is a multiple of 16. A row is the
 * vector of one token. In comments, t and s are the numbers of queries and keys of a sequence.
 */
#ifdef __AVX512BF16__
#include "heads.h"
#ifdef __AMX_BF16__
#include "product_amx.h"
#else
#include "product_avx512.h"
#endif

/* BLOCK: number of queries of a backward block, a multiple of ROWS. FULL, WIDE: sums over features and over rows are
 * zero-padded to a multiple of these numbers. */
enum { BLOCK = PAIRS > 1 ? 64 : 48, FULL = 2 * PAIRS, WIDE = PAIRS > 8 ? 2 * PAIRS : 16 };
enum { BLOCK_PAIRS = ROUND(BLOCK / 2, 16) }; /* number of pairs in a row of pair_rows_transposed, for a block */
#include "distances.h"

/* e^(score - highest) of the queries i to i + TOGETHER - 1, interleaved, so that the processor never waits for a sum.
 * Results of queries past the last one are undefined. Column 0 of scores and weights is key `near`. */
static void softmax(const AttentionJob *job, const float *scores, int64_t width, int64_t i, int64_t t, int64_t s, int64_t near,
                    int64_t columns, float *stats, bf16 *weights) {
    const __m512 scale = _mm512_set1_ps(job->scale * LOG2_E);
    __m512 top[TOGETHER], sum[TOGETHER];
    int64_t low[TOGETHER], seen[TOGETHER], j;
    UNROLL for (int r = 0; r < TOGETHER; r++) {
        low[r] = first_key(job, i + r, t, s) - near;
        seen[r] = end_key(job, i + r, t, s) - near;
        top[r] = _mm512_set1_ps(-INFINITY);
        sum[r] = _mm512_setzero_ps();
    }
    const int64_t begin = low[TOGETHER - 1], whole = seen[0] / 16 * 16; /* from begin to whole, no row masks a key */
    for (j = 0; j < columns; j += 16)
        if (j >= begin && j < whole) {
            UNROLL for (int r = 0; r < TOGETHER; r++)
                top[r] = _mm512_max_ps(top[r], _mm512_mul_ps(_mm512_loadu_ps(scores + r * width + j), scale));
        } else {
            UNROLL for (int r = 0; r < TOGETHER; r++)
                top[r] = _mm512_mask_max_ps(top[r], inside(seen[r] - j) & ~inside(low[r] - j), top[r],
                                            _mm512_mul_ps(_mm512_loadu_ps(scores + r * width + j), scale));
        }
    UNROLL for (int r = 0; r < TOGETHER; r++) {
        stats[2 * r] = seen[r] > low[r] ? _mm512_reduce_max_ps(top[r]) : 0.0f;
        top[r] = _mm512_set1_ps(stats[2 * r]);
    }
    for (j = 0; j < columns; j += 16)
        UNROLL for (int r = 0; r < TOGETHER; r++) {
            __m512 e = power_of_2(_mm512_fmsub_ps(_mm512_loadu_ps(scores + r * width + j), scale, top[r]));
            if (j < begin || j >= whole) e = _mm512_maskz_mov_ps(inside(seen[r] - j) & ~inside(low[r] - j), e);
            sum[r] = _mm512_add_ps(sum[r], e);
            narrow(weights + r * width + j, e);
        }
    UNROLL for (int r = 0; r < TOGETHER; r++) {
        float total = _mm512_reduce_add_ps(sum[r]);
        stats[2 * r + 1] = total == 0 ? 0.0f : 1.0f / total; /* the output is 0 if all keys are masked */
    }
}

/* The workspace of a task, in one block of memory; carve() with memory = NULL returns its size. */
typedef struct {
    bf16 *q, *grad, *p, *ds;                              /* [ROWS][places], [ROWS][places], 2 x [BLOCK][width] */
    uint32_t *keys, *values, *value_rows, *key_rows;      /* [places / 2][width] twice, [width / 2][dim] twice */
    uint32_t *p_pairs, *ds_pairs, *grad_columns, *q_columns; /* 2 x [BLOCK / 2][width], 2 x [dim][BLOCK_PAIRS] */
    float *scores, *dots, *sums, *dk, *dv;                /* 2 x [ROWS][width], [ROWS][dim], 2 x [dim][gradient_width] */
} Room;

/* Number of columns of dk and dv: the last vectors of a chunk may exceed the last key. */
INLINE int64_t gradient_width(int64_t longest) { return ROUND(longest, WIDE) + WIDE; }

static size_t carve(Room *room, char *memory, int64_t dim, int64_t keys, int64_t longest, int backward) {
    const int64_t width = ROUND(keys, WIDE), places = ROUND(dim, FULL);
    size_t used = 0;
#define TAKE(name, count) (room->name = (void *)(memory + used), used += ROUND((count) * sizeof *room->name, 64))
    TAKE(q, ROWS * places);
    TAKE(keys, places / 2 * width);
    TAKE(scores, ROWS * width);
    TAKE(sums, ROWS * dim);
    TAKE(p, (backward ? BLOCK : ROWS) * width);
    if (!backward) {
        TAKE(value_rows, width / 2 * dim);
        return used;
    }
    TAKE(grad, ROWS * places);
    TAKE(values, places / 2 * width);
    TAKE(key_rows, width / 2 * dim);
    TAKE(dots, ROWS * width);
    TAKE(ds, BLOCK * width);
    TAKE(p_pairs, BLOCK / 2 * width);
    TAKE(ds_pairs, BLOCK / 2 * width);
    TAKE(grad_columns, dim * BLOCK_PAIRS);
    TAKE(q_columns, dim * BLOCK_PAIRS);
    TAKE(dk, dim * gradient_width(longest));
    TAKE(dv, dim * gradient_width(longest));
#undef TAKE
    return used;
}

/* Number of columns of a chunk, which starts at key `from`, before the first key of row i, rounded down to a multiple
 * of WIDE. The products of a block skip them. */
INLINE int64_t columns_skipped(const AttentionJob *job, int64_t i, int64_t t, int64_t s, int64_t from) {
    return (first_key(job, i, t, s) - from) / WIDE * WIDE;
}

static void forward_task(const AttentionJob *job, int64_t b, int64_t h, char *memory) {
    const int64_t t = job->q_lengths[b], s = job->k_lengths[b], dim = job->dim, places = ROUND(dim, FULL);
    const int64_t chunk = chunk_rows(job, t, BLOCK);
    const bf16 *q = job->q + job->q_starts[b] * job->q_stride + h * dim;
    const int distant = has_distances(job);
    Room room;
    Distances far;
    carve_distances(&far, memory + carve(&room, memory, dim, chunk_keys(job, BLOCK), job->longest_k, 0), job, 0);
    if (distant) lay_out_distances(job, h, s, 0, &far);
    for (int64_t start = 0; start < t; start += chunk) {
        const int64_t end = start + chunk < t ? start + chunk : t;
        const int64_t from = first_key(job, start, t, s), keys = end_key(job, end - 1, t, s) - from;
        const int64_t width = ROUND(keys, WIDE), key_pairs = ROUND(keys, FULL) / 2, k0 = job->k_starts[b] + from;
        pair_places(job->k + k0 * job->k_stride + h * dim, job->k_stride, keys, dim, places / 2, width, room.keys);
        pair_rows(job->v + k0 * job->v_stride + h * dim, job->v_stride, keys, dim, key_pairs, room.value_rows);
        for (int64_t i = start; i < end; i += ROWS) {
            const int64_t rows = end - i < ROWS ? end - i : ROWS, skip = columns_skipped(job, i, t, s, from), near = from + skip;
            const int64_t seen = end_key(job, i + rows - 1, t, s) - near, columns = ROUND(seen, WIDE);
            const int64_t at = (i - start) % DISTANT, block = end - i < DISTANT ? end - i : DISTANT;
            float stats[2 * ROUND(ROWS, TOGETHER)];
            copy_rows(q + i * job->q_stride, job->q_stride, rows, dim, places, room.q);
            if (distant && at == 0) score_keys(job, &far, job->k + k0 * job->k_stride + h * dim, i, block, s, width);
            if (distant) begin_scores(job, &far, room.q, i, rows, at, s, width, room.scores);
            product(rows, columns / 16, (uint32_t *)room.q, places / 2, room.keys + skip, width, places / 2, room.scores, width,
                    distant);
            add_bias(job, h, i, rows, seen, room.scores, width);
            for (int64_t r = 0; r < rows; r += TOGETHER)
                softmax(job, room.scores + r * width, width, i + r, t, s, near, columns, stats + 2 * r, room.p + r * width);
            product(rows, dim / 16, (uint32_t *)room.p, width / 2, room.value_rows + skip / 2 * dim, dim, ROUND(seen, FULL) / 2,
                    room.sums, dim, 0);
            for (int64_t r = 0; r < rows; r++) {
                const int64_t row = job->q_starts[b] + i + r;
                bf16 *o = job->o + row * job->out_stride + h * dim;
                for (int64_t d = 0; d < dim; d += 16)
                    narrow(o + d, _mm512_mul_ps(_mm512_loadu_ps(room.sums + r * dim + d), _mm512_set1_ps(stats[2 * r + 1])));
                if (job->stats) memcpy(job->stats + 2 * (row * job->heads + h), stats + 2 * r, 2 * sizeof(float));
            }
        }
    }
}

/* Recompute the weights p of a row, and the gradient of its scores, ds = p * (dot - out . grad) * scale; add it to dbias. */
INLINE void row_gradients(const AttentionJob *job, const float *scores, const float *dots, const bf16 *out, const bf16 *grad,
                          const float *stats, int64_t low, int64_t seen, int64_t columns, bf16 *p, bf16 *ds, float *dbias) {
    __m512 both = _mm512_setzero_ps();
    for (int64_t d = 0; d < job->dim; d += 16) both = _mm512_fmadd_ps(wide(out + d), wide(grad + d), both);
    const __m512 scale = _mm512_set1_ps(job->scale), binary = _mm512_set1_ps(job->scale * LOG2_E);
    const __m512 top = _mm512_set1_ps(stats[0]), inverse = _mm512_set1_ps(stats[1]);
    const __m512 delta = _mm512_set1_ps(job->scale * _mm512_reduce_add_ps(both));
    for (int64_t j = 0; j < columns; j += 16) {
        __m512 e = power_of_2(_mm512_fmsub_ps(_mm512_loadu_ps(scores + j), binary, top));
        e = _mm512_maskz_mul_ps(inside(seen - j) & ~inside(low - j), e, inverse);
        narrow(p + j, e);
        const __m512 d = _mm512_mul_ps(e, _mm512_fmsub_ps(_mm512_loadu_ps(dots + j), scale, delta));
        narrow(ds + j, d);
        if (dbias) _mm512_storeu_ps(dbias + j, _mm512_add_ps(_mm512_loadu_ps(dbias + j), d)); /* 0 from `seen` on */
    }
}

static void backward_task(const AttentionJob *job, int64_t b, int64_t h, char *memory) {
    const int64_t t = job->q_lengths[b], s = job->k_lengths[b], dim = job->dim, places = ROUND(dim, FULL);
    const int64_t chunk = chunk_rows(job, t, BLOCK), total = gradient_width(s), q0 = job->q_starts[b], k0 = job->k_starts[b];
    const bf16 *q = job->q + q0 * job->q_stride + h * dim, *out = job->out + q0 * job->out_stride + h * dim;
    const bf16 *grad = job->grad + q0 * job->grad_stride + h * dim;
    const int distant = has_distances(job);
    Room room;
    Distances far;
    carve_distances(&far, memory + carve(&room, memory, dim, chunk_keys(job, BLOCK), job->longest_k, 1), job, 1);
    if (distant) lay_out_distances(job, h, s, 1, &far);
    memset(room.dk, 0, sizeof(float) * dim * total);
    memset(room.dv, 0, sizeof(float) * dim * total);
    for (int64_t start = 0; start < t; start += chunk) {
        const int64_t end = start + chunk < t ? start + chunk : t;
        const int64_t from = first_key(job, start, t, s), keys = end_key(job, end - 1, t, s) - from;
        const int64_t width = ROUND(keys, WIDE), key_pairs = ROUND(keys, FULL) / 2;
        const bf16 *k = job->k + (k0 + from) * job->k_stride + h * dim, *v = job->v + (k0 + from) * job->v_stride + h * dim;
        pair_places(k, job->k_stride, keys, dim, places / 2, width, room.keys);
        pair_places(v, job->v_stride, keys, dim, places / 2, width, room.values);
        pair_rows(k, job->k_stride, keys, dim, key_pairs, room.key_rows);
        for (int64_t begin = start; begin < end; begin += BLOCK) {
            const int64_t block = end - begin < BLOCK ? end - begin : BLOCK, pairs = ROUND(block, FULL) / 2;
            const int64_t skip = columns_skipped(job, begin, t, s, from), near = from + skip;
            const int64_t seen = end_key(job, begin + block - 1, t, s) - near, columns = ROUND(seen, WIDE);
            bf16 *block_ds = job->distance_q ? far.ds + begin * columns : room.ds;
            const int64_t at = (begin - start) % DISTANT, queries = end - begin < DISTANT ? end - begin : DISTANT;
            if (distant && at == 0) score_keys(job, &far, k, begin, queries, s, columns);
            for (int64_t i = begin; i < begin + block; i += ROWS) {
                const int64_t rows = begin + block - i < ROWS ? begin + block - i : ROWS;
                bf16 *p = room.p + (i - begin) * columns, *ds = block_ds + (i - begin) * columns;
                copy_rows(q + i * job->q_stride, job->q_stride, rows, dim, places, room.q);
                copy_rows(grad + i * job->grad_stride, job->grad_stride, rows, dim, places, room.grad);
                if (distant) begin_scores(job, &far, room.q, i, rows, at + i - begin, s, columns, room.scores);
                product(rows, columns / 16, (uint32_t *)room.q, places / 2, room.keys + skip, width, places / 2, room.scores, columns,
                        distant);
                product(rows, columns / 16, (uint32_t *)room.grad, places / 2, room.values + skip, width, places / 2, room.dots,
                        columns, 0);
                add_bias(job, h, i, rows, seen, room.scores, columns);
                for (int64_t r = 0; r < rows; r++)
                    row_gradients(job, room.scores + r * columns, room.dots + r * columns, out + (i + r) * job->out_stride,
                                  grad + (i + r) * job->grad_stride, job->stats + 2 * ((q0 + i + r) * job->heads + h),
                                  first_key(job, i + r, t, s) - near, end_key(job, i + r, t, s) - near, columns, p + r * columns,
                                  ds + r * columns, bias_gradient(job, b, h, i + r));
            }
            pair_rows_transposed(q + begin * job->q_stride, job->q_stride, block, dim, BLOCK_PAIRS, room.q_columns);
            if (job->distance_k)
                slice_gradients(job, &far, block_ds, columns, room.q_columns, block, begin, s, s, far.key_rows,
                                distance_gradients_of(job, job->ddistance_k, b, h) - (s - 1));
            for (int64_t i = 0; i < block; i += ROWS) {
                const int64_t rows = block - i < ROWS ? block - i : ROWS;
                float *sums = job->distance_k ? far.sums + i * dim : room.sums;
                product(rows, dim / 16, (uint32_t *)(block_ds + i * columns), columns / 2, room.key_rows + skip / 2 * dim, dim,
                        ROUND(seen, FULL) / 2, sums, dim, job->distance_k != NULL);
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t d = 0; d < dim; d += 16)
                        narrow(job->dq + (q0 + begin + i + r) * job->dq_stride + h * dim + d, _mm512_loadu_ps(sums + r * dim + d));
            }
            pair_rows(room.p, columns, block, columns, pairs, room.p_pairs);
            pair_rows(block_ds, columns, block, columns, pairs, room.ds_pairs);
            pair_rows_transposed(grad + begin * job->grad_stride, job->grad_stride, block, dim, BLOCK_PAIRS, room.grad_columns);
            product(dim, columns / 16, room.grad_columns, BLOCK_PAIRS, room.p_pairs, columns, pairs, room.dv + near, total, 1);
            product(dim, columns / 16, room.q_columns, BLOCK_PAIRS, room.ds_pairs, columns, pairs, room.dk + near, total, 1);
        }
    }
    if (job->distance_q)
        key_gradients(job, &far, job->k + k0 * job->k_stride + h * dim, b, h, t, s, ROUND(s, WIDE), room.q_columns, room.dk, total);
    store_transposed(room.dk, total, s, dim, job->dk + k0 * job->dk_stride + h * dim, job->dk_stride);
    store_transposed(room.dv, total, s, dim, job->dv + k0 * job->dv_stride + h * dim, job->dv_stride);
}

static void work(void *argument) {
    Crew *crew = argument;
    const AttentionJob *job = crew->job;
    Room room;
    Distances far;
    const size_t size = carve(&room, NULL, job->dim, chunk_keys(job, BLOCK), job->longest_k, crew->backward);
    char *memory = aligned_alloc(64, size + carve_distances(&far, NULL, job, crew->backward) + 64);
    if (!memory) return;
    product_begin();
    take_shares(crew, crew->backward ? backward_task : forward_task, memory);
    product_end();
    free(memory);
    atomic_fetch_add(&crew->finished, 1);
}

/* 0: done; 1: no memory. */
int attention(AttentionJob *job, int backward, Parallel parallel) {
    Crew crew = {.job = job, .backward = backward};
    together(work, &crew, job->threads, parallel);
    return crew.finished == 0;
}
#endif
