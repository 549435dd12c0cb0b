/* fp32 vectors: the same operations for AVX512 (16 numbers) and for AVX2 with FMA (8). */
#ifndef VECTORS_H
#define VECTORS_H
#include "words.h"

#ifdef __AVX512F__
typedef __m512 vec;
typedef __mmask16 mask;
enum { LANES = 16 };
#define load(x) _mm512_loadu_ps(x)
#define store(to, x) _mm512_storeu_ps(to, x)
#define all(x) _mm512_set1_ps(x)
#define zero() _mm512_setzero_ps()
#define add(a, b) _mm512_add_ps(a, b)
#define sub(a, b) _mm512_sub_ps(a, b)
#define mul(a, b) _mm512_mul_ps(a, b)
#define over(a, b) _mm512_div_ps(a, b)
#define fma_(a, b, c) _mm512_fmadd_ps(a, b, c)   /* a b + c */
#define fms(a, b, c) _mm512_fmsub_ps(a, b, c)    /* a b - c */
#define larger(a, b) _mm512_max_ps(a, b)         /* b if a or b is NaN; also in `smaller` */
#define smaller(a, b) _mm512_min_ps(a, b)
#define nearest(x) _mm512_roundscale_ps(x, 8)
#define times_power(x, n) _mm512_scalef_ps(x, n) /* x 2^n, n an integer */
#define pick(m, a, b) _mm512_mask_blend_ps(m, b, a) /* a where m is true, else b */
#define without(m, n) ((mask)((m) & ~(n)))
INLINE mask first(int64_t left) { return left >= 16 ? 0xffff : left <= 0 ? 0 : (mask)((1u << left) - 1); }
INLINE __m256 halves(vec x, int larger_one) {
    const __m256 low = _mm512_castps512_ps256(x), high = _mm512_extractf32x8_ps(x, 1);
    return larger_one ? _mm256_max_ps(low, high) : _mm256_add_ps(low, high);
}
#else
typedef __m256 vec, mask;
enum { LANES = 8 };
#define load(x) _mm256_loadu_ps(x)
#define store(to, x) _mm256_storeu_ps(to, x)
#define all(x) _mm256_set1_ps(x)
#define zero() _mm256_setzero_ps()
#define add(a, b) _mm256_add_ps(a, b)
#define sub(a, b) _mm256_sub_ps(a, b)
#define mul(a, b) _mm256_mul_ps(a, b)
#define over(a, b) _mm256_div_ps(a, b)
#define fma_(a, b, c) _mm256_fmadd_ps(a, b, c)
#define fms(a, b, c) _mm256_fmsub_ps(a, b, c)
#define larger(a, b) _mm256_max_ps(a, b)
#define smaller(a, b) _mm256_min_ps(a, b)
#define nearest(x) _mm256_round_ps(x, 8)
#define pick(m, a, b) _mm256_blendv_ps(b, a, m)
#define without(m, n) _mm256_andnot_ps(n, m)
INLINE vec times_power(vec x, vec n) { /* n at least -126 */
    return mul(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)));
}
INLINE mask first(int64_t left) {
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(left > 8 ? 8 : (int)left), places));
}
INLINE __m256 halves(vec x, int larger_one) { return (void)larger_one, x; }
#endif

/* Mask of the lanes from `low` to `end`, exclusive; both may be below 0 or above LANES. */
INLINE mask between(int64_t low, int64_t end) { return without(first(end), first(low)); }

/* The sum of a vector, in the same order for every compiler. */
INLINE float sum_of(vec x) {
    const __m256 half = halves(x, 0);
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

INLINE float largest_of(vec x) {
    const __m256 half = halves(x, 1);
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* 2^x for x <= 127, within 2e-7: a polynomial of degree 6 on [-1/2, 1/2]; smaller x give 2^-126. */
INLINE vec power_of_2(vec x) {
    x = larger(all(-126.0f), x); /* in this order NaN stays NaN */
    const vec n = nearest(x), r = sub(x, n);
    vec p = all(1.534581243e-4f);
    p = fma_(p, r, all(1.3399930904e-3f));
    p = fma_(p, r, all(9.618489072e-3f));
    p = fma_(p, r, all(5.5503286421e-2f));
    p = fma_(p, r, all(2.4022646248e-1f));
    p = fma_(p, r, all(6.9314718246e-1f));
    p = fma_(p, r, all(1.0f));
    return times_power(p, n);
}

/* Transpose rows [n][dim] to [dim][columns]; columns is a multiple of 8, dim is padded to one; columns from n on are 0. */
INLINE void turn(const float *x, int64_t stride, int64_t n, int64_t dim, int64_t columns, float *to, int64_t width) {
    for (int64_t i = 0; i < columns; i += 8)
        for (int64_t d = 0; d < dim; d += 8) {
            __m256 r[8], t[8];
            UNROLL for (int k = 0; k < 8; k++)
                r[k] = i + k < n ? _mm256_loadu_ps(x + (i + k) * stride + d) : _mm256_setzero_ps();
            UNROLL for (int k = 0; k < 4; k++) {
                t[2 * k] = _mm256_unpacklo_ps(r[2 * k], r[2 * k + 1]);
                t[2 * k + 1] = _mm256_unpackhi_ps(r[2 * k], r[2 * k + 1]);
            }
            UNROLL for (int k = 0; k < 2; k++) {
                r[4 * k] = _mm256_shuffle_ps(t[4 * k], t[4 * k + 2], 0x44);
                r[4 * k + 1] = _mm256_shuffle_ps(t[4 * k], t[4 * k + 2], 0xee);
                r[4 * k + 2] = _mm256_shuffle_ps(t[4 * k + 1], t[4 * k + 3], 0x44);
                r[4 * k + 3] = _mm256_shuffle_ps(t[4 * k + 1], t[4 * k + 3], 0xee);
            }
            UNROLL for (int k = 0; k < 4; k++) {
                _mm256_storeu_ps(to + (d + k) * width + i, _mm256_permute2f128_ps(r[k], r[4 + k], 0x20));
                _mm256_storeu_ps(to + (d + 4 + k) * width + i, _mm256_permute2f128_ps(r[k], r[4 + k], 0x31));
            }
        }
}

INLINE void copy_rows(const float *x, int64_t stride, int64_t n, int64_t dim, float *to, int64_t to_stride) {
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_stride, x + i * stride, sizeof *x * dim);
}
#endif
