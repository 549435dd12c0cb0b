/* The product of attention_fp32.c. Sums stay in registers: 6 rows of 4 vectors with AVX512 (32 registers), of 2 with AVX2 (16). */
#include "vectors.h"

enum { ROWS = 6, ACROSS = LANES == 16 ? 4 : 2 };

INLINE void tile(int rows, int vecs, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t b_row, int64_t steps,
                 float *c, int64_t c_row, int adds) {
    vec sums[ROWS][ACROSS];
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < vecs; j++) sums[i][j] = adds ? load(c + i * c_row + LANES * j) : zero();
    for (int64_t p = 0; p < steps; p++) {
        vec right[ACROSS];
        UNROLL for (int j = 0; j < vecs; j++) right[j] = load(b + p * b_row + LANES * j);
        UNROLL for (int i = 0; i < rows; i++) {
            const vec left = all(a[i * a_row + p * a_step]);
            UNROLL for (int j = 0; j < vecs; j++) sums[i][j] = fma_(left, right[j], sums[i][j]);
        }
    }
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < vecs; j++) store(c + i * c_row + LANES * j, sums[i][j]);
}

#define TILES(R, V)                                                                                           \
    for (; j + V <= vecs; j += V)                                                                             \
        tile(R, V, a, a_row, a_step, b + LANES * j, b_row, steps, c + LANES * j, c_row, adds)
#if defined(__AVX512F__)
#define ROW_OF_TILES(R) TILES(R, 4); TILES(R, 2); TILES(R, 1)
#else
#define ROW_OF_TILES(R) TILES(R, 2)
#endif

INLINE void products(int64_t rows, int64_t vecs, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t b_row,
                     int64_t steps, float *c, int64_t c_row, int adds) {
    for (; rows > 0; rows -= ROWS, a += ROWS * a_row, c += ROWS * c_row) {
        int64_t j = 0;
        switch (rows) {
            case 5: ROW_OF_TILES(5); break;
            case 4: ROW_OF_TILES(4); break;
            case 3: ROW_OF_TILES(3); break;
            case 2: ROW_OF_TILES(2); break;
            case 1: ROW_OF_TILES(1); break;
            default: ROW_OF_TILES(6);
        }
    }
}

/* C[i][j] = sum over p of A[i][p] B[p][j]; any number of rows and steps, columns a multiple of 16. */
static void product(int64_t rows, int64_t columns, const float *a, int64_t a_row, const float *b, int64_t b_row, int64_t steps,
                    float *c, int64_t c_row) {
    products(rows, columns / LANES, a, a_row, 1, b, b_row, steps, c, c_row, 0);
}

/* C[i][j] += sum over p of A[p][i] B[p][j]. */
static void product_turned(int64_t rows, int64_t columns, const float *a, int64_t a_step, const float *b, int64_t b_row,
                           int64_t steps, float *c, int64_t c_row) {
    products(rows, columns / LANES, a, 1, a_step, b, b_row, steps, c, c_row, 1);
}
