/* Shared functions of the bf16 kernels: conversion to fp32, 2^x, and the layout in pairs.
 *
 * A "pair" is two bf16 numbers in 32 bits, which are adjacent on the axis that a product sums over.
 */
#ifndef NUMBERS_H
#define NUMBERS_H
#include "words.h"

INLINE __mmask16 inside(int64_t left) { return left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1); }

INLINE __m512 wide(const bf16 *x) { /* 16 bf16 -> fp32 */
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x)), 16));
}

INLINE void narrow(bf16 *to, __m512 x) {
    _mm256_storeu_si256((void *)to, (__m256i)_mm512_cvtneps_pbh(x));
}

/* 2^x for x <= 0, within 3e-6: a polynomial of degree 4 on [-1/2, 1/2]. The result is then rounded to bf16 (4e-3). */
INLINE __m512 power_of_2(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-150.0f), x); /* in this order NaN stays NaN */
    __m512 n = _mm512_roundscale_ps(x, 8), r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(9.5701006e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.5917860e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.4024745e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.9312181e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.9999926e-1f));
    return _mm512_scalef_ps(p, n);
}

/* Transpose 16 rows of 16 32-bit numbers in registers. */
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

/* Copy rows [n][dim] to contiguous rows [n][width], zero-padded. */
static void copy_rows(const bf16 *x, int64_t stride, int64_t n, int64_t dim, int64_t width, bf16 *to) {
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * width, x + i * stride, 2 * dim);
        memset(to + i * width + dim, 0, 2 * (width - dim));
    }
}

/* Rows [n][dim] -> pairs of features, transposed: [places][width]; rows from dim / 2 and columns from n on are 0. */
static void pair_places(const bf16 *x, int64_t stride, int64_t n, int64_t dim, int64_t places, int64_t width,
                        uint32_t *to) {
    for (int64_t i = 0; i < width; i += 16)
        for (int64_t p = 0; p < places; p += 16) {
            __mmask16 pairs = inside(dim / 2 - p);
            __m512i r[16];
            UNROLL16 for (int k = 0; k < 16; k++)
                r[k] = i + k < n ? _mm512_maskz_loadu_epi32(pairs, x + (i + k) * stride + 2 * p) : _mm512_setzero_si512();
            transpose(r);
            for (int k = 0; k < 16 && p + k < places; k++) _mm512_storeu_si512(to + (p + k) * width + i, r[k]);
        }
}

/* 16 features of rows i and i + 1 -> 16 pairs; rows from n on are 0. */
INLINE __m512i two_rows(const bf16 *x, int64_t stride, int64_t i, int64_t n) {
    if (i >= n) return _mm512_setzero_si512();
    __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(x + i * stride)));
    if (i + 1 >= n) return low;
    __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(x + (i + 1) * stride)));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* Rows [n][dim] -> pairs of rows: [pairs][dim]; rows from n on are 0. */
static void pair_rows(const bf16 *x, int64_t stride, int64_t n, int64_t dim, int64_t pairs, uint32_t *to) {
    for (int64_t p = 0; p < pairs; p++)
        for (int64_t d = 0; d < dim; d += 16) _mm512_storeu_si512(to + p * dim + d, two_rows(x + d, stride, 2 * p, n));
}

/* Rows [n][dim] -> pairs of rows, transposed: [dim][width]; rows from n on are 0. */
static void pair_rows_transposed(const bf16 *x, int64_t stride, int64_t n, int64_t dim, int64_t width, uint32_t *to) {
    for (int64_t p = 0; p < width; p += 16) /* this order reads adjacent rows while they are in the cache */
        for (int64_t d = 0; d < dim; d += 16) {
            __m512i r[16];
            UNROLL16 for (int k = 0; k < 16; k++) r[k] = two_rows(x + d, stride, 2 * (p + k), n);
            transpose(r);
            UNROLL16 for (int k = 0; k < 16; k++) _mm512_storeu_si512(to + (d + k) * width + p, r[k]);
        }
}

/* Transpose fp32 [dim][width] to bf16 rows [n][dim]. */
static void store_transposed(const float *x, int64_t width, int64_t n, int64_t dim, bf16 *to, int64_t stride) {
    for (int64_t i = 0; i < n; i += 16)
        for (int64_t d = 0; d < dim; d += 16) {
            __m512i r[16];
            UNROLL16 for (int k = 0; k < 16; k++) r[k] = _mm512_loadu_si512(x + (d + k) * width + i);
            transpose(r);
            for (int k = 0; k < 16 && i + k < n; k++) narrow(to + (i + k) * stride + d, _mm512_castsi512_ps(r[k]));
        }
}
#endif
