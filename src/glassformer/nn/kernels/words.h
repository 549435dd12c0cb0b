/* Macros and functions of all kernels. */
#ifndef WORDS_H
#define WORDS_H
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "jobs.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8") /* keeps the sums of a tile in registers */
#define UNROLL16 _Pragma("GCC unroll 16")
#define ROUND(n, m) (((n) + (m) - 1) / (m) * (m))
#define LOG2_E 1.44269504f

INLINE void fetch(const NUMBER *x, int64_t n) {
    for (int64_t d = 0; d < n; d += 64 / (int64_t)sizeof *x) _mm_prefetch((const char *)(x + d), _MM_HINT_T0);
}
#endif
