/* Disentangled attention in bf16: the distance terms of the scores of one head, and their gradients.
 *
 *     score[t][s] = q_t k_s + q_t distance_k[s - t] + k_s distance_q[t - s]
 *
 * Both distance terms are products of rows (queries or keys) with a table indexed by distance, of which row i needs the
 * distances from -i on. A slice is this product for n rows. Its column 0 is the lowest distance of the last row, so the
 * entries of row r begin at column n - 1 - r. They are read as a matrix whose stride is smaller by one. The slices of keys
 * are then transposed. A sequence has t queries and s keys, t at most s.
 */
#ifndef DISTANCES_H
#define DISTANCES_H
#include "heads.h"

enum { KEYS = 16, DISTANT = PAIRS > 1 ? 192 : 240 }; /* number of keys in a slice, and of queries in key_scores */

/* The part of the workspace for distance terms; pointers of a missing term are not set. */
typedef struct {
    uint32_t *keys, *queries;         /* [places / 2][columns]: distance d in column s - 1 + d, 0 from column 2 s - 1 on */
    uint32_t *key_rows, *query_rows;  /* the same as rows: [columns / 2][dim] */
    bf16 *rows;                       /* [KEYS][places] */
    float *slice;                     /* [ROWS or KEYS][slice_width] */
    float *key_scores;                /* [DISTANT][width]: the distance term of keys for a block of queries */
    bf16 *ds, *ds_keys;               /* [t][width], [BLOCK][ROUND(t, 32)]: gradients of all scores, of a block of keys */
    bf16 *skewed;                     /* [BLOCK][slice_width]: gradients of a block of rows, in the layout of a slice */
    uint32_t *skewed_pairs;           /* [BLOCK / 2][slice_width] */
    float *sums;                      /* [BLOCK][dim] */
    int64_t columns, slice_width;
} Distances;

INLINE int has_distances(const AttentionJob *job) { return job->distance_k || job->distance_q; }

/* Number of distances between s positions, plus padding, because products read whole vectors. */
INLINE int64_t table_columns(int64_t s) { return ROUND(2 * s + 16 + FULL, 32); }

static size_t carve_distances(Distances *far, char *memory, const AttentionJob *job, int backward) {
    const int64_t longest = job->longest_k, dim = job->dim, width = ROUND(longest, WIDE), places = ROUND(dim, FULL);
    size_t used = 0;
    if (!has_distances(job)) return 0;
    far->columns = table_columns(longest);
    far->slice_width = ROUND((longest > DISTANT ? longest : DISTANT) + BLOCK + 16 + FULL, 32);
#define TAKE(name, count) (far->name = (void *)(memory + used), used += ROUND((count) * sizeof *far->name, 64))
    if (job->distance_k) TAKE(keys, places / 2 * far->columns);
    if (job->distance_q) TAKE(queries, places / 2 * far->columns);
    TAKE(rows, ROUND(KEYS, ROWS) * places);
    TAKE(slice, ROUND(KEYS, ROWS) * far->slice_width);
    if (job->distance_q) TAKE(key_scores, DISTANT * width);
    if (!backward) return used;
    if (job->distance_k) TAKE(key_rows, far->columns / 2 * dim);
    if (job->distance_q) TAKE(query_rows, far->columns / 2 * dim);
    if (job->distance_q) TAKE(ds, (longest + BLOCK) * width);
    TAKE(ds_keys, BLOCK * ROUND(longest, 32));
    TAKE(skewed, BLOCK * far->slice_width);
    TAKE(skewed_pairs, BLOCK / 2 * far->slice_width);
    TAKE(sums, ROUND(BLOCK, ROWS) * dim);
#undef TAKE
    return used;
}

static void lay_out_table(const AttentionJob *job, const bf16 *table, int64_t h, int64_t s, int64_t columns, uint32_t *to,
                          uint32_t *rows) {
    if (!table) return;
    table += h * job->dim - (s - 1) * job->distance_stride;
    pair_places(table, job->distance_stride, 2 * s - 1, job->dim, ROUND(job->dim, FULL) / 2, columns, to);
    if (rows) pair_rows(table, job->distance_stride, 2 * s - 1, job->dim, columns / 2, rows);
}

static void lay_out_distances(const AttentionJob *job, int64_t h, int64_t s, int backward, Distances *far) {
    far->columns = table_columns(s);
    lay_out_table(job, job->distance_k, h, s, far->columns, far->keys, backward ? far->key_rows : NULL);
    lay_out_table(job, job->distance_q, h, s, far->columns, far->queries, backward ? far->query_rows : NULL);
}

/* Compute the slice of n rows from row i on, for positions `from` to from + count. */
INLINE void make_slice(const Distances *far, const bf16 *x, int64_t places, int64_t n, int64_t i, int64_t from, int64_t count,
                       int64_t s, const uint32_t *table) {
    product(n, ROUND(count + n - 1, 16) / 16, (const uint32_t *)x, places / 2, table + s + from - i - n, far->columns, places / 2,
            far->slice, far->slice_width, 0);
}

/* Add the transpose of x [n][columns] to `to`, or overwrite `to`; n is zero-padded to a multiple of 16. */
static void transpose_into(const float *x, int64_t stride, int64_t n, int64_t columns, float *to, int64_t width, int adds) {
    for (int64_t i = 0; i < n; i += 16)
        for (int64_t j = 0; j < columns; j += 16) {
            __m512i r[16];
            UNROLL16 for (int k = 0; k < 16; k++)
                r[k] = i + k < n ? _mm512_loadu_si512(x + (i + k) * stride + j) : _mm512_setzero_si512();
            transpose(r);
            for (int k = 0; k < 16 && j + k < columns; k++) {
                float *row = to + (j + k) * width + i;
                __m512 sum = _mm512_castsi512_ps(r[k]);
                if (adds) sum = _mm512_add_ps(sum, _mm512_loadu_ps(row));
                _mm512_storeu_ps(row, sum);
            }
        }
}

/* Compute the distance term of the s keys k for queries i to i + n. */
static void score_keys(const AttentionJob *job, const Distances *far, const bf16 *k, int64_t i, int64_t n, int64_t s, int64_t width) {
    const int64_t places = ROUND(job->dim, FULL);
    if (!job->distance_q) return;
    for (int64_t j = 0; j < s; j += KEYS) {
        const int64_t keys = s - j < KEYS ? s - j : KEYS;
        copy_rows(k + j * job->k_stride, job->k_stride, keys, job->dim, places, far->rows);
        make_slice(far, far->rows, places, keys, j, i, n, s, far->queries);
        transpose_into(far->slice + keys - 1, far->slice_width - 1, keys, n, far->key_scores + j, width, 0);
    }
}

/* Initialize the scores of `rows` queries q from i on with both distance terms; query i is row `at` of key_scores. */
static void begin_scores(const AttentionJob *job, const Distances *far, const bf16 *q, int64_t i, int64_t rows, int64_t at, int64_t s,
                         int64_t width, float *scores) {
    if (job->distance_k) make_slice(far, q, ROUND(job->dim, FULL), rows, i, 0, s, s, far->keys);
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict by_query = far->slice + rows - 1 + r * (far->slice_width - 1);
        const float *restrict by_key = far->key_scores + (at + r) * width;
        float *restrict row = scores + r * width;
        if (!job->distance_q) memcpy(row, by_query, sizeof(float) * s);
        else if (!job->distance_k) memcpy(row, by_key, sizeof(float) * s);
        else for (int64_t j = 0; j < s; j++) row[j] = by_query[j] + by_key[j];
    }
}

/* Copy the gradients of the scores of n rows from row i on, with `count` columns, to the layout of a slice. Its column 0 is
 * the even column *first of the table, *lead columns before that of an ordinary slice. */
static void skew(const Distances *far, const bf16 *ds, int64_t stride, int64_t n, int64_t i, int64_t count, int64_t s, int64_t *first,
                 int64_t *lead) {
    *lead = (s - i - n) & 1;
    *first = s - i - n - *lead;
    for (int64_t r = 0; r < n; r++) {
        bf16 *row = far->skewed + r * far->slice_width;
        const int64_t before = *lead + n - 1 - r;
        memset(row, 0, sizeof *ds * before);
        memcpy(row + before, ds + r * stride, sizeof *ds * count);
        memset(row + before + count, 0, sizeof *ds * (far->slice_width - before - count));
    }
}

/* From the gradients ds of the scores of n rows from row i on: write the gradients of the rows to far->sums, and add those of
 * the table to dtable, whose column 0 is distance 1 - s. `columns` are the transposed rows, in pairs. */
static void slice_gradients(const AttentionJob *job, const Distances *far, const bf16 *ds, int64_t stride, const uint32_t *columns,
                            int64_t n, int64_t i, int64_t count, int64_t s, const uint32_t *table_rows, float *dtable) {
    const int64_t dim = job->dim, width = far->slice_width;
    int64_t first, lead;
    skew(far, ds, stride, n, i, count, s, &first, &lead);
    for (int64_t r = 0; r < n; r += ROWS) {
        const int64_t rows = n - r < ROWS ? n - r : ROWS;
        const int64_t from = (lead + n - r - rows) / FULL * FULL, end = lead + n - 1 - r + count;
        product(rows, dim / 16, (const uint32_t *)(far->skewed + r * width + from), width / 2, table_rows + (first + from) / 2 * dim,
                dim, ROUND(end - from, FULL) / 2, far->sums + r * dim, dim, 0);
    }
    const int64_t pairs = ROUND(n, FULL) / 2, used = ROUND(lead + n - 1 + count, 16);
    pair_rows(far->skewed, width, n, used, pairs, far->skewed_pairs);
    product(dim, used / 16, columns, BLOCK_PAIRS, far->skewed_pairs, used, pairs, dtable + first, job->ddistance_stride, 1);
}

/* Add the gradients of the distance term of keys, for the keys to dk [dim][total], and for the table. */
static void key_gradients(const AttentionJob *job, const Distances *far, const bf16 *k, int64_t b, int64_t h, int64_t t, int64_t s, int64_t width,
                          uint32_t *columns, float *dk, int64_t total) {
    const int64_t row = ROUND(t, 32);
    float *dtable = distance_gradients_of(job, job->ddistance_q, b, h) - (s - 1);
    for (int64_t j = 0; j < s; j += BLOCK) {
        const int64_t n = s - j < BLOCK ? s - j : BLOCK;
        pair_rows_transposed(far->ds + j, width, t, ROUND(n, 16), row / 2, (uint32_t *)far->ds_keys);
        pair_rows_transposed(k + j * job->k_stride, job->k_stride, n, job->dim, BLOCK_PAIRS, columns);
        slice_gradients(job, far, far->ds_keys, row, columns, n, j, t, s, far->query_rows, dtable);
        transpose_into(far->sums, job->dim, n, job->dim, dk + j, total, 1);
    }
}
#endif
