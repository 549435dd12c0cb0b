/* The product of attention.c with AVX512-BF16 (vdpbf16ps); sums stay in registers. */
#include "numbers.h"

/* Number of queries at a time; of rows whose softmax is interleaved; of pairs that a product multiplies at a time. */
enum { ROWS = 6, TOGETHER = 6, PAIRS = 1 };

INLINE void product_begin(void) {}
INLINE void product_end(void) {}

INLINE void tile(int rows, int vecs, const uint32_t *a, int64_t a_row, const uint32_t *b, int64_t b_row, int64_t pairs,
                 float *c, int64_t c_row, int add) {
    __m512 acc[ROWS][4];
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < vecs; j++) acc[i][j] = add ? _mm512_loadu_ps(c + i * c_row + 16 * j) : _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++) {
        __m512bh right[4];
        UNROLL for (int j = 0; j < vecs; j++) right[j] = (__m512bh)_mm512_loadu_si512(b + p * b_row + 16 * j);
        UNROLL for (int i = 0; i < rows; i++) {
            __m512bh left = (__m512bh)_mm512_set1_epi32((int)a[i * a_row + p]);
            UNROLL for (int j = 0; j < vecs; j++) acc[i][j] = _mm512_dpbf16_ps(acc[i][j], left, right[j]);
        }
    }
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < vecs; j++) _mm512_storeu_ps(c + i * c_row + 16 * j, acc[i][j]);
}

#define TILES(R)                                                                                     \
    for (; j + 4 <= vecs; j += 4) tile(R, 4, a, a_row, b + 16 * j, b_row, pairs, c + 16 * j, c_row, add); \
    for (; j + 2 <= vecs; j += 2) tile(R, 2, a, a_row, b + 16 * j, b_row, pairs, c + 16 * j, c_row, add); \
    for (; j < vecs; j++) tile(R, 1, a, a_row, b + 16 * j, b_row, pairs, c + 16 * j, c_row, add);

/* C[i][16 j ...] (=|+=) sum over p of A[i][p] . B[p][16 j ...], A and B as pairs; any number of rows, vecs of 16. */
static void product(int64_t rows, int64_t vecs, const uint32_t *a, int64_t a_row, const uint32_t *b, int64_t b_row,
                    int64_t pairs, float *c, int64_t c_row, int add) {
    for (; rows > 0; rows -= ROWS, a += ROWS * a_row, c += ROWS * c_row) {
        int64_t j = 0;
        switch (rows) {
            case 5: TILES(5) break;
            case 4: TILES(4) break;
            case 3: TILES(3) break;
            case 2: TILES(2) break;
            case 1: TILES(1) break;
            default: TILES(6)
        }
    }
}
