/* A linear layer in int8, for prediction: f(x W^T + b), where f is a GELU, a ReLU or the identity.
 *
 * Weights are integers from -127 to 127 with one scale per output column. Each row of x is quantized here with its own scale,
 * so its result does not depend on other rows. Sums are 32-bit integers, which are exact and the same at every level.
 *
 * VNNI sums the products of four unsigned and four signed bytes. So x is shifted by 128, and the sum of a column starts at -128
 * times the sum of its weights (`start`). Without VNNI, AVX2 multiplies pairs of 16-bit numbers, because its product of bytes
 * saturates.
 *
 * Layout of the weights: [columns / 16][in / GROUP][16][GROUP], with columns zero-padded to a multiple of 16 and `in` of 4.
 */
#if !defined(__AMX_BF16__) && (defined(__AVX512VNNI__) || !defined(__AVX512F__))
#define NUMBER float
#include "crew.h"
#include "gelu.h"

enum {
    PANEL = 16,                       /* number of columns that are stored together */
    ROWS = 6,                         /* number of rows of a tile */
    ACROSS = LANES == 16 ? 4 : 2,     /* number of vectors per row of a tile */
    BLOCK = 16 * ROWS,                /* maximum number of rows that a thread takes at a time */
    VECS = PANEL / LANES,             /* number of vectors per row of a panel */
    NONE = 0, RELU, GELU, GELU_TANH,  /* activations */
};

#if defined(__AVX512VNNI__)
typedef __m512i whole;
typedef uint8_t small;
enum { GROUP = 4 };
#define start_at(x) _mm512_loadu_si512(x)
#define put(to, x) _mm512_storeu_si512(to, x)
#define fours(x) _mm512_set1_epi32(x)
#define weights(x) _mm512_loadu_si512(x)
#define add_products(sum, left, right) _mm512_dpbusd_epi32(sum, left, right)
#define as_numbers(x) _mm512_cvtepi32_ps(x)
#define larger_whole(a, b) _mm512_max_epi32(a, b)
#define size_bits(x) _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff))
INLINE void narrow_row(small *to, vec x) {
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x));
    _mm_storeu_si128((void *)to, _mm_xor_si128(bytes, _mm_set1_epi8(-128)));
}
#else
typedef __m256i whole;
#define start_at(x) _mm256_loadu_si256((const void *)(x))
#define put(to, x) _mm256_storeu_si256((void *)(to), x)
#define fours(x) _mm256_set1_epi32(x)
#define as_numbers(x) _mm256_cvtepi32_ps(x)
#define larger_whole(a, b) _mm256_max_epi32(a, b)
#define size_bits(x) _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff))
INLINE __m128i sixteen_bits(vec x) {
    const __m256i n = _mm256_cvtps_epi32(x);
    return _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
}
#if defined(__AVXVNNI__)
typedef uint8_t small;
enum { GROUP = 4 };
#define weights(x) _mm256_loadu_si256((const void *)(x))
#define add_products(sum, left, right) _mm256_dpbusd_avx_epi32(sum, left, right)
INLINE void narrow_row(small *to, vec x) {
    const __m128i pairs = sixteen_bits(x);
    _mm_storel_epi64((void *)to, _mm_xor_si128(_mm_packs_epi16(pairs, pairs), _mm_set1_epi8(-128)));
}
#else
typedef int16_t small;
enum { GROUP = 2 };
#define weights(x) _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(x)))
#define add_products(sum, left, right) _mm256_add_epi32(sum, _mm256_madd_epi16(left, right))
INLINE void narrow_row(small *to, vec x) { _mm_storeu_si128((void *)to, sixteen_bits(x)); }
#endif
#endif

typedef struct {
    const Int8Job *job;
    int64_t share; /* number of rows that a thread takes at a time */
    atomic_long next, finished;
} Int8Crew;

typedef struct {
    small *rows;                         /* [BLOCK][stride] */
    float scales[BLOCK];
    int32_t sums[ROWS * ACROSS * LANES]; /* sums of a tile */
} Int8Space;

/* LANES numbers of a row from index d on, zero-padded after the end of the row. */
INLINE vec number(const Int8Job *job, const char *row, int64_t d) {
    if (job->half) {
        uint16_t some[LANES] = {0};
        const uint16_t *from = (const uint16_t *)row + d;
        if (d + LANES > job->in) from = memcpy(some, from, 2 * (job->in - d));
#ifdef __AVX512F__
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from)), 16));
#else
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)from)), 16));
#endif
    }
    float some[LANES] = {0};
    const float *from = (const float *)row + d;
    return load(d + LANES > job->in ? memcpy(some, from, 4 * (job->in - d)) : from);
}

/* Quantize a row and return its scale; the scale is NaN if the row contains an infinity or a NaN. */
static float lay_out(const Int8Job *job, const char *row, small *to) {
    whole most[2] = {size_bits(zero()), size_bits(zero())}; /* the bits of positive numbers have the same order as the numbers, with NaN above infinity */
    for (int64_t d = 0; d < job->in; d += 2 * LANES) {
        most[0] = larger_whole(most[0], size_bits(number(job, row, d)));
        if (d + LANES < job->in) most[1] = larger_whole(most[1], size_bits(number(job, row, d + LANES)));
    }
    int32_t bits[LANES], top = 0;
    put(bits, larger_whole(most[0], most[1]));
    for (int k = 0; k < LANES; k++) top = bits[k] > top ? bits[k] : top;
    float size;
    memcpy(&size, &top, sizeof size);
    const int finite = size < INFINITY;
    const vec times = all(finite && size > 1e-35f ? 127.0f / size : 0.0f); /* for smaller sizes, 127 / size may be infinite */
    for (int64_t d = 0; d < job->in; d += LANES) narrow_row(to + d, mul(number(job, row, d), times));
    return finite ? size > 1e-35f ? size / 127.0f : 0.0f : NAN;
}

INLINE void tile(int rows, int vecs, const int32_t *a, int64_t a_row, const int8_t *b, int64_t panel, int64_t steps,
                 const int32_t *start, int32_t *out) {
    whole sums[ROWS][ACROSS];
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < vecs; j++) sums[i][j] = start_at(start + LANES * j);
    for (int64_t p = 0; p < steps; p++) {
        whole right[ACROSS];
        UNROLL for (int j = 0; j < vecs; j++)
            right[j] = weights(b + j / VECS * panel + (p * PANEL + j % VECS * LANES) * GROUP);
        UNROLL for (int i = 0; i < rows; i++) {
            const whole left = fours(a[i * a_row + p]);
            UNROLL for (int j = 0; j < vecs; j++) sums[i][j] = add_products(sums[i][j], left, right[j]);
        }
    }
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < vecs; j++) put(out + (i * vecs + j) * LANES, sums[i][j]);
}

INLINE vec activate(vec x, int which) {
    return which == GELU ? gelu_exact(x) : which == GELU_TANH ? mul(x, gate(x)) : which == RELU ? larger(zero(), x) : x;
}

INLINE void put_numbers(const Int8Job *job, char *row, int64_t n, vec x) {
    const int64_t left = job->columns - n;
    if (job->half) {
#ifdef __AVX512BF16__
        uint16_t some[LANES], *to = (uint16_t *)row + n;
        _mm256_storeu_si256((void *)(left < LANES ? some : to), (__m256i)_mm512_cvtneps_pbh(x));
        if (left < LANES) memcpy(to, some, 2 * left);
#endif
        return;
    }
    float some[LANES], *to = (float *)row + n;
    store(left < LANES ? some : to, x);
    if (left < LANES) memcpy(to, some, 4 * left);
}

/* Convert the sums of a tile to floating point, with bias and activation: rows from r on, columns from n on. */
static void finish(const Int8Job *job, const Int8Space *space, int64_t r, int rows, int vecs, int64_t n, const float *scales) {
    const int64_t size = job->half ? 2 : 4;
    for (int i = 0; i < rows; i++) {
        char *row = (char *)job->out + (r + i) * job->out_stride * size;
        const vec own = all(scales[i]);
        for (int j = 0; j < vecs && n + j * LANES < job->columns; j++) {
            const int64_t column = n + j * LANES;
            const vec sum = as_numbers(start_at(space->sums + (i * vecs + j) * LANES));
            const vec x = fma_(sum, mul(own, load(job->scale + column)), load(job->bias + column));
            put_numbers(job, row, column, activate(x, job->activation));
        }
    }
}

#define TILE(R, V)                                                                                                     \
    case R: tile(R, V, a, a_row, b, panel, steps, job->start + n, space->sums); break
#define TILES(V)                                                                                                       \
    switch (rows) { TILE(1, V); TILE(2, V); TILE(3, V); TILE(4, V); TILE(5, V); default: TILE(6, V); }

/* Compute rows `first` to `last` of the result. */
static void block_task(const Int8Job *job, int64_t first, int64_t last, Int8Space *space) {
    const int64_t size = job->half ? 2 : 4, stride = ROUND(job->in, PANEL), depth = ROUND(job->in, 4);
    const int64_t steps = depth / GROUP, panel = depth * PANEL, a_row = stride / GROUP, columns = ROUND(job->columns, PANEL);
    for (int64_t r = first; r < last; r++)
        space->scales[r - first] = lay_out(job, (const char *)job->x + r * job->x_stride * size, space->rows + (r - first) * stride);
    for (int64_t n = 0; n < columns;) {
        const int8_t *b = job->weight + n / PANEL * panel;
        const int vecs = columns - n >= ACROSS * LANES ? ACROSS : VECS;
        for (int64_t r = first; r < last; r += ROWS) {
            const int rows = last - r < ROWS ? (int)(last - r) : ROWS;
            const int32_t *a = (const int32_t *)(space->rows + (r - first) * stride);
            if (vecs == ACROSS) TILES(ACROSS)
            else TILES(VECS)
            finish(job, space, r, rows, vecs, n, space->scales + r - first);
        }
        n += vecs * LANES;
    }
}

static void int8_work(void *argument) {
    Int8Crew *crew = argument;
    const Int8Job *job = crew->job;
    Int8Space space = {.rows = aligned_alloc(64, ROUND(BLOCK * ROUND(job->in, PANEL) * sizeof(small), 64))};
    if (!space.rows) return;
    for (long share; (share = atomic_fetch_add(&crew->next, 1)) * crew->share < job->rows;) {
        const int64_t first = share * crew->share, last = first + crew->share;
        block_task(job, first, last < job->rows ? last : job->rows, &space);
    }
    free(space.rows);
    atomic_fetch_add(&crew->finished, 1);
}

/* 0: done; 1: no memory. */
int linear_int8(Int8Job *job, Parallel parallel) {
    Int8Crew crew = {.job = job, .share = ROUND((job->rows + job->threads - 1) / job->threads, ROWS)};
    if (crew.share > BLOCK) crew.share = BLOCK;
    if (job->rows > 0) together(int8_work, &crew, job->rows > crew.share ? job->threads : 1, parallel);
    return job->rows > 0 && crew.finished == 0;
}
#endif
