/* The product of attention.c with AMX: tiles of 16 x 16 sums over 16 pairs, 16 times as many multiplications as with a vector. */
#include "numbers.h"

/* Number of queries at a time; of rows whose softmax is interleaved; of pairs that a product multiplies at a time. */
enum { ROWS = 32, TOGETHER = 4, PAIRS = 16 };

INLINE void product_begin(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.row_bytes[i] = 64, config.rows[i] = 16;
    _tile_loadconfig(&config);
}

INLINE void product_end(void) { _tile_release(); }

/* Tiles 0 to 3 are 2 x 2 tiles of sums, 4 and 5 of A, 6 and 7 of B; the tile number is part of an instruction. */
INLINE void tiles(int down, int across, const uint32_t *a, int64_t a_row, const uint32_t *b, int64_t b_row,
                  int64_t pairs, float *c, int64_t c_row, int add) {
    float *below = c + 16 * c_row;
    __asm__ volatile("" ::: "memory"); /* a barrier: some compilers do not know that loading a tile reads memory */
    if (add) {
        _tile_loadd(0, c, 4 * c_row);
        if (across) _tile_loadd(1, c + 16, 4 * c_row);
        if (down) _tile_loadd(2, below, 4 * c_row);
        if (down && across) _tile_loadd(3, below + 16, 4 * c_row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t p = 0; p < pairs; p += PAIRS) {
        _tile_loadd(6, b + p * b_row, 4 * b_row);
        _tile_loadd(4, a + p, 4 * a_row);
        _tile_dpbf16ps(0, 4, 6);
        if (across) {
            _tile_loadd(7, b + p * b_row + 16, 4 * b_row);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (down) {
            _tile_loadd(5, a + 16 * a_row + p, 4 * a_row);
            _tile_dpbf16ps(2, 5, 6);
            if (across) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, 4 * c_row);
    if (across) _tile_stored(1, c + 16, 4 * c_row);
    if (down) _tile_stored(2, below, 4 * c_row);
    if (down && across) _tile_stored(3, below + 16, 4 * c_row);
}

/* C[i][16 j ...] (=|+=) sum over p of A[i][p] . B[p][16 j ...], A and B as pairs, their number a multiple of PAIRS.
 * Rows are computed 16 at a time: A and C must have a multiple of 16 rows; the surplus rows are arbitrary. */
static void product(int64_t rows, int64_t vecs, const uint32_t *a, int64_t a_row, const uint32_t *b, int64_t b_row,
                    int64_t pairs, float *c, int64_t c_row, int add) {
    for (; rows > 0; rows -= 32, a += 32 * a_row, c += 32 * c_row)
        for (int64_t j = 0; j < vecs; j += 2) {
            const uint32_t *right = b + 16 * j;
            float *to = c + 16 * j;
            if (rows > 16 && j + 1 < vecs) tiles(1, 1, a, a_row, right, b_row, pairs, to, c_row, add);
            else if (rows > 16) tiles(1, 0, a, a_row, right, b_row, pairs, to, c_row, add);
            else if (j + 1 < vecs) tiles(0, 1, a, a_row, right, b_row, pairs, to, c_row, add);
            else tiles(0, 0, a, a_row, right, b_row, pairs, to, c_row, add);
        }
}
