/* GELU, and layer norm of a sum, computed in fp32 on bf16 tensors.
 *
 * Each makes one pass over memory. torch needs two passes for the sum and its norm, and its GELU has a slower backward pass.
 */
#ifdef __AVX512BF16__
#include "crew.h"
#include "numbers.h"

typedef struct {
    void *job;
    atomic_long next;
} RowsCrew;

enum { NUMBERS = 16384, SHARE = 128 }; /* how many numbers (GELU) or rows (norm) a thread computes at a time */

/* The standard normal CDF of x, and e^(-x^2 / 2). The tail is e^(-x^2 / 2) times a polynomial in 1 / (1 + 0.31 |x|), fitted to
 * a relative error of 5e-6. */
INLINE __m512 normal_below(__m512 x, __m512 *power) {
    const __m512 one = _mm512_set1_ps(1.0f), d = _mm512_fmadd_ps(_mm512_set1_ps(0.31f), _mm512_abs_ps(x), one);
    __m512 t = _mm512_rcp14_ps(d), p = _mm512_set1_ps(-0.07392885547545698f);
    t = _mm512_mul_ps(t, _mm512_fnmadd_ps(d, t, _mm512_set1_ps(2.0f))); /* one Newton step for 1 / d */
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.18044878f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.015747508804405286f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.13342755290718197f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.12044208088094788f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.12386059665001938f));
    *power = power_of_2(_mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(-0.5f * LOG2_E)));
    const __m512 tail = _mm512_mul_ps(_mm512_mul_ps(p, t), *power);
    return _mm512_mask_blend_ps(_mm512_cmplt_ps_mask(x, _mm512_setzero_ps()), _mm512_sub_ps(one, tail), tail);
}

static void gelu_work(void *argument) {
    RowsCrew *crew = argument;
    const GeluJob *job = crew->job;
    for (long share; (share = atomic_fetch_add(&crew->next, 1)) * NUMBERS < job->count;) {
        const int64_t end = (share + 1) * NUMBERS < job->count ? (share + 1) * NUMBERS : job->count;
        for (int64_t i = share * NUMBERS; i < end; i += 16) {
            __m512 x = wide(job->x + i), power, below = normal_below(x, &power);
            if (!job->grad) {
                narrow(job->out + i, _mm512_mul_ps(x, below));
                continue;
            }
            const __m512 density = _mm512_mul_ps(power, _mm512_set1_ps(0.3989422804f));
            narrow(job->out + i, _mm512_mul_ps(wide(job->grad + i), _mm512_fmadd_ps(x, density, below)));
        }
    }
}

/* One row: x + plus, its mean and variance, and its norm. */
INLINE void norm_row(const NormJob *job, int64_t r) {
    const int64_t n = job->width, at = r * n;
    const bf16 *x = job->x + at;
    __m512 mean = _mm512_setzero_ps(), square = mean;
    if (job->plus) {
        for (int64_t d = 0; d < n; d += 16) narrow(job->sum + at + d, _mm512_add_ps(wide(x + d), wide(job->plus + at + d)));
        x = job->sum + at; /* rounded to bf16, like torch's sum */
    }
    for (int64_t d = 0; d < n; d += 16) mean = _mm512_add_ps(mean, wide(x + d));
    mean = _mm512_set1_ps(_mm512_reduce_add_ps(mean) / (float)n);
    for (int64_t d = 0; d < n; d += 16) {
        const __m512 off = _mm512_sub_ps(wide(x + d), mean);
        square = _mm512_fmadd_ps(off, off, square);
    }
    const __m512 scale = _mm512_set1_ps(1.0f / sqrtf(_mm512_reduce_add_ps(square) / (float)n + job->eps));
    for (int64_t d = 0; d < n; d += 16) {
        const __m512 off = _mm512_mul_ps(_mm512_sub_ps(wide(x + d), mean), scale);
        narrow(job->out + at + d, _mm512_fmadd_ps(off, wide(job->weight + d), wide(job->bias + d)));
    }
    job->stats[2 * r] = _mm512_cvtss_f32(mean), job->stats[2 * r + 1] = _mm512_cvtss_f32(scale);
}

/* The gradient of one row: (g - mean(g) - h mean(g h)) * scale; h is the normalized row, g the gradient times the weight. */
INLINE void norm_row_back(const NormJob *job, int64_t r, float *dweight, float *dbias) {
    const int64_t n = job->width, at = r * n;
    const __m512 mean = _mm512_set1_ps(job->stats[2 * r]), scale = _mm512_set1_ps(job->stats[2 * r + 1]);
    __m512 all = _mm512_setzero_ps(), along = all;
    for (int64_t d = 0; d < n; d += 16) {
        const __m512 h = _mm512_mul_ps(_mm512_sub_ps(wide(job->x + at + d), mean), scale), dy = wide(job->grad + at + d);
        const __m512 g = _mm512_mul_ps(dy, wide(job->weight + d));
        all = _mm512_add_ps(all, g), along = _mm512_fmadd_ps(g, h, along);
        _mm512_storeu_ps(dweight + d, _mm512_fmadd_ps(dy, h, _mm512_loadu_ps(dweight + d)));
        _mm512_storeu_ps(dbias + d, _mm512_add_ps(dy, _mm512_loadu_ps(dbias + d)));
    }
    all = _mm512_set1_ps(_mm512_reduce_add_ps(all) / (float)n), along = _mm512_set1_ps(_mm512_reduce_add_ps(along) / (float)n);
    for (int64_t d = 0; d < n; d += 16) {
        const __m512 h = _mm512_mul_ps(_mm512_sub_ps(wide(job->x + at + d), mean), scale);
        const __m512 g = _mm512_mul_ps(wide(job->grad + at + d), wide(job->weight + d));
        narrow(job->dx + at + d, _mm512_mul_ps(scale, _mm512_fnmadd_ps(h, along, _mm512_sub_ps(g, all))));
    }
}

static void norm_work(void *argument) {
    RowsCrew *crew = argument;
    const NormJob *job = crew->job;
    for (long share; (share = atomic_fetch_add(&crew->next, 1)) * SHARE < job->rows;) {
        const int64_t end = (share + 1) * SHARE < job->rows ? (share + 1) * SHARE : job->rows;
        float *sums = job->partial + share * 2 * job->width;
        if (job->grad) memset(sums, 0, 8 * job->width);
        for (int64_t r = share * SHARE; r < end; r++)
            if (job->grad) norm_row_back(job, r, sums, sums + job->width);
            else norm_row(job, r);
    }
}

void gelu(GeluJob *job, Parallel parallel) {
    RowsCrew crew = {.job = job};
    together(gelu_work, &crew, job->threads, parallel);
}

/* The sums of shares are added in a fixed order, so results do not depend on the number of threads. */
void layer_norm(NormJob *job, Parallel parallel) {
    RowsCrew crew = {.job = job};
    together(norm_work, &crew, job->threads, parallel);
    const int64_t shares = job->grad ? (job->rows + SHARE - 1) / SHARE : 0, n = job->width;
    for (int64_t d = 0; shares && d < 2 * n; d += 16) {
        __m512 sum = _mm512_loadu_ps(job->partial + d);
        for (int64_t s = 1; s < shares; s++) sum = _mm512_add_ps(sum, _mm512_loadu_ps(job->partial + s * 2 * n + d));
        narrow(d < n ? job->dweight + d : job->dbias + d - n, sum);
    }
}
#endif
