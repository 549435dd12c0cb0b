/* Attention over packed rows for processors with AVX512-BF16: softmax(Q K^T * scale) V, forward and backward.
 *
 * One task is one head of one sequence. Nothing is padded in memory, no [T, S] map is kept: the backward pass computes
 * the weights again from two numbers per row (Dao et al., 2022), a block of query rows at a time, so that a task's
 * working set stays in the core's own cache. Products take bf16 pairs and add up in fp32.
 *
 * Layout: element (row n, head h, place d) of q is q[n * q_stride + h * dim + d]; dim is a multiple of 16.
 * "Pairs" are two bf16 numbers in 32 bits, as vdpbf16ps wants them.
 */
#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint16_t bf16;
typedef struct {
    const bf16 *q, *k, *v, *out, *grad; /* out and grad: backward only */
    bf16 *o, *dq, *dk, *dv;             /* o: forward; the others: backward */
    float *stats;                       /* [N, H, 2]: the highest score of a row, and 1 / sum of e^(score - highest) */
    int64_t q_stride, k_stride, v_stride, out_stride, grad_stride, dq_stride, dk_stride, dv_stride;
    const int64_t *q_starts, *q_lengths, *k_starts, *k_lengths; /* [B] */
    int64_t sequences, heads, dim, longest_q, longest_k;
    int32_t causal, threads;
    float scale;
} Job;

typedef struct {
    Job *job;
    atomic_long *next;
    int backward, failed;
} Worker;

/* Rows of a register tile; query rows of a backward block (even, a multiple of ROWS); heads that a thread takes at a time,
 * because they lie side by side in memory. */
enum { ROWS = 6, BLOCK = 48, HEADS = 4 };

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8") /* or the sums of a tile would not stay in registers */
#define UNROLL16 _Pragma("GCC unroll 16")
#define ROUND(n, m) (((n) + (m) - 1) / (m) * (m))

INLINE __mmask16 inside(int64_t left) { return left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1); }

INLINE __m512 wide(const bf16 *x) { /* 16 bf16 -> fp32 */
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x)), 16));
}

INLINE void narrow(bf16 *to, __m512 x) {
    _mm256_storeu_si256((void *)to, (__m256i)_mm512_cvtneps_pbh(x));
}

/* e^x for x <= 0 (Cody-Waite reduction, polynomial of degree 6): within 2 units in the last place of fp32. */
INLINE __m512 exponential(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x); /* in this order NaN stays NaN */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.3981999507e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_scalef_ps(p, n);
}

/* C[i][16 j ...] (=|+=) sum over p of A[i][p] . B[p][16 j ...], all A and B as pairs: the one product of this file. */
INLINE void tile(int rows, int vecs, const uint32_t *a, int64_t a_row, int64_t a_step, const uint32_t *b,
                 int64_t b_row, int64_t pairs, float *c, int64_t c_row, int add) {
    __m512 acc[ROWS][4];
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < vecs; j++) acc[i][j] = add ? _mm512_loadu_ps(c + i * c_row + 16 * j) : _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++) {
        __m512bh right[4];
        UNROLL for (int j = 0; j < vecs; j++) right[j] = (__m512bh)_mm512_loadu_si512(b + p * b_row + 16 * j);
        UNROLL for (int i = 0; i < rows; i++) {
            __m512bh left = (__m512bh)_mm512_set1_epi32((int)a[i * a_row + p * a_step]);
            UNROLL for (int j = 0; j < vecs; j++) acc[i][j] = _mm512_dpbf16_ps(acc[i][j], left, right[j]);
        }
    }
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < vecs; j++) _mm512_storeu_ps(c + i * c_row + 16 * j, acc[i][j]);
}

#define TILES(R)                                                                                     \
    for (; j + 4 <= vecs; j += 4) tile(R, 4, a, a_row, a_step, b + 16 * j, b_row, pairs, c + 16 * j, c_row, add); \
    for (; j + 2 <= vecs; j += 2) tile(R, 2, a, a_row, a_step, b + 16 * j, b_row, pairs, c + 16 * j, c_row, add); \
    for (; j < vecs; j++) tile(R, 1, a, a_row, a_step, b + 16 * j, b_row, pairs, c + 16 * j, c_row, add);

/* The same for any number of rows up to ROWS, and any number of 16-wide columns. */
static void product(int rows, int64_t vecs, const uint32_t *a, int64_t a_row, int64_t a_step, const uint32_t *b,
                    int64_t b_row, int64_t pairs, float *c, int64_t c_row, int add) {
    int64_t j = 0;
    switch (rows) {
        case 6: TILES(6) break;
        case 5: TILES(5) break;
        case 4: TILES(4) break;
        case 3: TILES(3) break;
        case 2: TILES(2) break;
        default: TILES(1)
    }
}

/* Ask for a head's rows ahead of their use: they lie a whole row of the packed matrix apart, where no cache looks. */
static void fetch(const bf16 *x, int64_t stride, int64_t n, int64_t dim) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < dim; d += 32) _mm_prefetch((const char *)(x + i * stride + d), _MM_HINT_T0);
}

/* 16 rows of 16 numbers of 32 bits, transposed in registers. */
INLINE void transpose(__m512i r[16]) {
    __m512i t[16];
    UNROLL16 for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    UNROLL16 for (int i = 0; i < 4; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    UNROLL16 for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
    }
    UNROLL16 for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
        r[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
        r[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

/* Rows [n][dim] -> pairs of places, transposed: [dim / 2][width]; columns from n on are 0. */
static void pair_places(const bf16 *x, int64_t stride, int64_t n, int64_t dim, int64_t width, uint32_t *to) {
    for (int64_t i = 0; i < width; i += 16)
        for (int64_t p = 0; p < dim / 2; p += 16) {
            __mmask16 pairs = inside(dim / 2 - p);
            __m512i r[16];
            UNROLL16 for (int k = 0; k < 16; k++)
                r[k] = i + k < n ? _mm512_maskz_loadu_epi32(pairs, x + (i + k) * stride + 2 * p) : _mm512_setzero_si512();
            transpose(r);
            for (int k = 0; k < 16 && p + k < dim / 2; k++) _mm512_storeu_si512(to + (p + k) * width + i, r[k]);
        }
}

/* Rows [n][dim] -> pairs of rows: [ceil(n / 2)][dim]; a last row without a partner is paired with 0. */
static void pair_rows(const bf16 *x, int64_t stride, int64_t n, int64_t dim, uint32_t *to) {
    for (int64_t i = 0; i < n; i += 2)
        for (int64_t d = 0; d < dim; d += 16) {
            __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(x + i * stride + d)));
            __m512i high = _mm512_setzero_si512();
            if (i + 1 < n) high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(x + (i + 1) * stride + d)));
            _mm512_storeu_si512(to + i / 2 * dim + d, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
}

/* How many keys row i may attend: all, or up to its own place when the last rows meet the last keys. */
INLINE int64_t visible(const Job *job, int64_t i, int64_t t, int64_t s) {
    if (!job->causal) return s;
    int64_t n = i + 1 + s - t;
    return n < 0 ? 0 : n > s ? s : n;
}

/* e^(score - highest) of ROWS rows at a time, so that no row waits for its own sums; scores past the last row are junk. */
static void softmax(const Job *job, const float *scores, int64_t width, int64_t i, int64_t t, int64_t s, float *stats,
                    uint32_t *weights) {
    const __m512 scale = _mm512_set1_ps(job->scale);
    __m512 top[ROWS], sum[ROWS];
    int64_t seen[ROWS], j;
    UNROLL for (int r = 0; r < ROWS; r++) {
        seen[r] = visible(job, i + r, t, s);
        top[r] = _mm512_set1_ps(-INFINITY);
        sum[r] = _mm512_setzero_ps();
    }
    const int64_t whole = seen[0] / 16 * 16; /* the first row sees the least */
    for (j = 0; j < whole; j += 16)
        UNROLL for (int r = 0; r < ROWS; r++)
            top[r] = _mm512_max_ps(top[r], _mm512_mul_ps(_mm512_loadu_ps(scores + r * width + j), scale));
    for (; j < width; j += 16)
        for (int r = 0; r < ROWS; r++)
            top[r] = _mm512_mask_max_ps(top[r], inside(seen[r] - j), top[r],
                                        _mm512_mul_ps(_mm512_loadu_ps(scores + r * width + j), scale));
    UNROLL for (int r = 0; r < ROWS; r++) {
        stats[2 * r] = seen[r] ? _mm512_reduce_max_ps(top[r]) : 0.0f;
        top[r] = _mm512_set1_ps(stats[2 * r]);
    }
    for (j = 0; j < whole; j += 16)
        UNROLL for (int r = 0; r < ROWS; r++) {
            __m512 e = exponential(_mm512_fmsub_ps(_mm512_loadu_ps(scores + r * width + j), scale, top[r]));
            sum[r] = _mm512_add_ps(sum[r], e);
            narrow((bf16 *)weights + r * width + j, e);
        }
    for (; j < width; j += 16)
        for (int r = 0; r < ROWS; r++) {
            __m512 e = exponential(_mm512_fmsub_ps(_mm512_loadu_ps(scores + r * width + j), scale, top[r]));
            e = _mm512_maskz_mov_ps(inside(seen[r] - j), e);
            sum[r] = _mm512_add_ps(sum[r], e);
            narrow((bf16 *)weights + r * width + j, e);
        }
    UNROLL for (int r = 0; r < ROWS; r++) {
        float total = _mm512_reduce_add_ps(sum[r]);
        stats[2 * r + 1] = total == 0 ? 0.0f : 1.0f / total; /* a row that sees nothing is 0 */
    }
}

static size_t forward_scratch(const Job *job) {
    int64_t width = ROUND(job->longest_k, 16), dim = job->dim;
    return 4 * (dim / 2 * width + width / 2 * dim + ROWS * width + ROWS * width / 2 + ROWS * dim) + 64 * 8;
}

static void forward_task(const Job *job, int64_t b, int64_t h, char *scratch) {
    const int64_t t = job->q_lengths[b], s = job->k_lengths[b], dim = job->dim, width = ROUND(s, 16);
    const bf16 *q = job->q + job->q_starts[b] * job->q_stride + h * dim;
    const bf16 *k = job->k + job->k_starts[b] * job->k_stride + h * dim;
    const bf16 *v = job->v + job->k_starts[b] * job->v_stride + h * dim;
    uint32_t *keys = (uint32_t *)scratch, *values = keys + dim / 2 * width;
    float *scores = (float *)(values + width / 2 * dim);
    uint32_t *weights = (uint32_t *)(scores + ROWS * width);
    float *sums = (float *)(weights + ROWS * width / 2);
    fetch(k, job->k_stride, s, dim);
    fetch(v, job->v_stride, s, dim);
    fetch(q, job->q_stride, t, dim);
    pair_places(k, job->k_stride, s, dim, width, keys);
    memset(values + s / 2 * dim, 0, 4 * (width / 2 - s / 2) * dim);
    pair_rows(v, job->v_stride, s, dim, values);
    for (int64_t i = 0; i < t; i += ROWS) {
        int rows = t - i < ROWS ? (int)(t - i) : ROWS;
        float stats[2 * ROWS];
        product(rows, width / 16, (const uint32_t *)(q + i * job->q_stride), job->q_stride / 2, 1, keys, width, dim / 2,
                scores, width, 0);
        softmax(job, scores, width, i, t, s, stats, weights);
        product(rows, dim / 16, weights, width / 2, 1, values, dim, (s + 1) / 2, sums, dim, 0);
        for (int r = 0; r < rows; r++) {
            int64_t row = job->q_starts[b] + i + r;
            bf16 *o = job->o + row * job->out_stride + h * dim;
            for (int64_t d = 0; d < dim; d += 16)
                narrow(o + d, _mm512_mul_ps(_mm512_loadu_ps(sums + r * dim + d), _mm512_set1_ps(stats[2 * r + 1])));
            if (job->stats) memcpy(job->stats + 2 * (row * job->heads + h), stats + 2 * r, 2 * sizeof(float));
        }
    }
}

static size_t backward_scratch(const Job *job) {
    int64_t width = ROUND(job->longest_k, 16), dim = job->dim;
    return 4 * (2 * (dim / 2 * width) + width / 2 * dim + 2 * width * dim + 2 * ROWS * width + 2 * BLOCK * width / 2 +
                2 * (BLOCK / 2) * width + 2 * (BLOCK / 2) * dim + ROWS * dim) + 64 * 16;
}

/* Two rows of bf16 -> one row of pairs. */
INLINE void interleave(const bf16 *even, const bf16 *odd, int64_t width, uint32_t *to) {
    for (int64_t j = 0; j < width; j += 16) {
        __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(even + j)));
        __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(odd + j)));
        _mm512_storeu_si512(to + j, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

static void backward_task(const Job *job, int64_t b, int64_t h, char *scratch) {
    const int64_t t = job->q_lengths[b], s = job->k_lengths[b], dim = job->dim, width = ROUND(s, 16);
    const int64_t q0 = job->q_starts[b], k0 = job->k_starts[b];
    const bf16 *q = job->q + q0 * job->q_stride + h * dim, *k = job->k + k0 * job->k_stride + h * dim;
    const bf16 *v = job->v + k0 * job->v_stride + h * dim, *out = job->out + q0 * job->out_stride + h * dim;
    const bf16 *grad = job->grad + q0 * job->grad_stride + h * dim;
    uint32_t *keys = (uint32_t *)scratch, *values = keys + dim / 2 * width, *key_rows = values + dim / 2 * width;
    float *dk = (float *)(key_rows + width / 2 * dim), *dv = dk + width * dim;
    float *scores = dv + width * dim, *dots = scores + ROWS * width;
    bf16 *p = (bf16 *)(dots + ROWS * width), *ds = p + BLOCK * width; /* [BLOCK][width] */
    uint32_t *p_pairs = (uint32_t *)(ds + BLOCK * width), *ds_pairs = p_pairs + BLOCK / 2 * width;
    uint32_t *grad_rows = ds_pairs + BLOCK / 2 * width, *q_rows = grad_rows + BLOCK / 2 * dim;
    float *sums = (float *)(q_rows + BLOCK / 2 * dim);
    const __m512 scale = _mm512_set1_ps(job->scale);
    fetch(k, job->k_stride, s, dim);
    fetch(v, job->v_stride, s, dim);
    fetch(q, job->q_stride, t, dim);
    fetch(grad, job->grad_stride, t, dim);
    fetch(out, job->out_stride, t, dim);
    pair_places(k, job->k_stride, s, dim, width, keys);
    pair_places(v, job->v_stride, s, dim, width, values);
    memset(key_rows + s / 2 * dim, 0, 4 * (width / 2 - s / 2) * dim);
    pair_rows(k, job->k_stride, s, dim, key_rows);
    memset(dk, 0, sizeof(float) * 2 * width * dim);
    for (int64_t begin = 0; begin < t; begin += BLOCK) {
        int64_t block = t - begin < BLOCK ? t - begin : BLOCK, pairs = (block + 1) / 2;
        for (int64_t i = begin; i < begin + block; i += ROWS) {
            int rows = begin + block - i < ROWS ? (int)(begin + block - i) : ROWS;
            product(rows, width / 16, (const uint32_t *)(q + i * job->q_stride), job->q_stride / 2, 1, keys, width, dim / 2,
                    scores, width, 0);
            product(rows, width / 16, (const uint32_t *)(grad + i * job->grad_stride), job->grad_stride / 2, 1, values, width,
                    dim / 2, dots, width, 0);
            for (int r = 0; r < rows; r++) {
                const bf16 *o = out + (i + r) * job->out_stride, *g = grad + (i + r) * job->grad_stride;
                __m512 both = _mm512_setzero_ps();
                for (int64_t d = 0; d < dim; d += 16) both = _mm512_fmadd_ps(wide(o + d), wide(g + d), both);
                __m512 delta = _mm512_set1_ps(_mm512_reduce_add_ps(both));
                const float *stats = job->stats + 2 * ((q0 + i + r) * job->heads + h);
                const __m512 top = _mm512_set1_ps(stats[0]), inverse = _mm512_set1_ps(stats[1]);
                int64_t seen = visible(job, i + r, t, s);
                bf16 *p_row = p + (i - begin + r) * width, *ds_row = ds + (i - begin + r) * width;
                for (int64_t j = 0; j < width; j += 16) {
                    __m512 e = exponential(_mm512_fmsub_ps(_mm512_loadu_ps(scores + r * width + j), scale, top));
                    e = _mm512_maskz_mul_ps(inside(seen - j), e, inverse);
                    __m512 difference = _mm512_sub_ps(_mm512_loadu_ps(dots + r * width + j), delta);
                    narrow(p_row + j, e);
                    narrow(ds_row + j, _mm512_mul_ps(_mm512_mul_ps(e, scale), difference));
                }
            }
            product(rows, dim / 16, (const uint32_t *)(ds + (i - begin) * width), width / 2, 1, key_rows, dim, (s + 1) / 2, sums,
                    dim, 0);
            for (int r = 0; r < rows; r++)
                for (int64_t d = 0; d < dim; d += 16)
                    narrow(job->dq + (q0 + i + r) * job->dq_stride + h * dim + d, _mm512_loadu_ps(sums + r * dim + d));
        }
        if (block % 2) {
            memset(p + block * width, 0, 2 * width);
            memset(ds + block * width, 0, 2 * width);
        }
        for (int64_t i = 0; i < pairs; i++) {
            interleave(p + 2 * i * width, p + (2 * i + 1) * width, width, p_pairs + i * width);
            interleave(ds + 2 * i * width, ds + (2 * i + 1) * width, width, ds_pairs + i * width);
        }
        pair_rows(grad + begin * job->grad_stride, job->grad_stride, block, dim, grad_rows);
        pair_rows(q + begin * job->q_stride, job->q_stride, block, dim, q_rows);
        for (int64_t j = 0; j < s; j += ROWS) {
            int rows = s - j < ROWS ? (int)(s - j) : ROWS;
            product(rows, dim / 16, p_pairs + j, 1, width, grad_rows, dim, pairs, dv + j * dim, dim, 1);
            product(rows, dim / 16, ds_pairs + j, 1, width, q_rows, dim, pairs, dk + j * dim, dim, 1);
        }
    }
    for (int64_t j = 0; j < s; j++)
        for (int64_t d = 0; d < dim; d += 16) {
            narrow(job->dk + (k0 + j) * job->dk_stride + h * dim + d, _mm512_loadu_ps(dk + j * dim + d));
            narrow(job->dv + (k0 + j) * job->dv_stride + h * dim + d, _mm512_loadu_ps(dv + j * dim + d));
        }
}

static void *work(void *argument) {
    Worker *worker = argument;
    const Job *job = worker->job;
    char *scratch = aligned_alloc(64, ROUND(worker->backward ? backward_scratch(job) : forward_scratch(job), 64));
    if (!scratch) {
        worker->failed = 1;
        return NULL;
    }
    const long shares = (job->heads + HEADS - 1) / HEADS;
    for (long share; (share = atomic_fetch_add(worker->next, 1)) < job->sequences * shares;)
        for (long h = share % shares * HEADS; h < job->heads && h < (share % shares + 1) * HEADS; h++)
            (worker->backward ? backward_task : forward_task)(job, share / shares, h, scratch);
    free(scratch);
    return NULL;
}

/* 0: done; 1: no memory. A thread that cannot be started leaves its share to the others. */
int run(Job *job, int backward) {
    atomic_long next = 0;
    int threads = job->threads < 1 ? 1 : job->threads > 256 ? 256 : job->threads, started = 1, failed;
    pthread_t ids[256];
    Worker workers[256];
    for (int i = 0; i < threads; i++) workers[i] = (Worker){job, &next, backward, 0};
    while (started < threads && pthread_create(&ids[started], NULL, work, &workers[started]) == 0) started++;
    work(&workers[0]);
    for (int i = 1; i < started; i++) pthread_join(ids[i], NULL);
    failed = 1;
    for (int i = 0; i < started; i++) failed &= workers[i].failed;
    return failed;
}
