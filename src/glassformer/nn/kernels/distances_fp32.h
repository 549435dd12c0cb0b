/* Disentangled attention in fp32, for attention_fp32.c: like distances.h, which explains the terms. */
#ifndef DISTANCES_FP32_H
#define DISTANCES_FP32_H
#include "heads.h"

enum { KEYS = 16, DISTANT = 40 * ROWS }; /* number of keys in a slice, and of queries in key_scores */

/* The part of the workspace for distance terms; pointers of a missing term are not set. */
typedef struct {
    float *keys, *queries;        /* transposed: [dim][columns], distance d in column s - 1 + d, 0 from column 2 s - 1 on */
    float *key_rows, *query_rows; /* [2 s - 1][dim] */
    float *rows;                  /* [KEYS][dim] */
    float *slice;                 /* [KEYS][slice_width] */
    float *key_scores;            /* [DISTANT][width]: the distance term of keys for a block of queries */
    float *ds, *ds_keys;          /* [t][width], [BLOCK][ROUND(t, 16)]: gradients of all scores, of a block of keys */
    float *skewed;                /* [BLOCK][slice_width]: gradients of a block of rows, in the layout of a slice */
    int64_t columns, slice_width;
} Distances;

INLINE int has_distances(const AttentionJob *job) { return job->distance_k || job->distance_q; }

/* Number of distances between s positions, plus padding, because products read whole vectors. */
INLINE int64_t table_columns(int64_t s) { return ROUND(2 * s + 16, 16); }

static size_t carve_distances(Distances *far, char *memory, const AttentionJob *job, int backward) {
    const int64_t longest = job->longest_k, dim = job->dim, width = ROUND(longest, 16);
    size_t used = 0;
    if (!has_distances(job)) return 0;
    far->columns = table_columns(longest);
    far->slice_width = ROUND((longest > DISTANT ? longest : DISTANT) + BLOCK + 16, 16);
#define TAKE(name, count) (far->name = (void *)(memory + used), used += ROUND((count) * sizeof(float), 64))
    if (job->distance_k) TAKE(keys, dim * far->columns);
    if (job->distance_q) TAKE(queries, dim * far->columns);
    TAKE(rows, KEYS * dim);
    TAKE(slice, KEYS * far->slice_width);
    if (job->distance_q) TAKE(key_scores, DISTANT * width);
    if (!backward) return used;
    if (job->distance_k) TAKE(key_rows, far->columns * dim);
    if (job->distance_q) TAKE(query_rows, far->columns * dim);
    if (job->distance_q) TAKE(ds, (longest + BLOCK) * width);
    TAKE(ds_keys, BLOCK * width);
    TAKE(skewed, BLOCK * far->slice_width);
#undef TAKE
    return used;
}

static void lay_out_table(const AttentionJob *job, const float *table, int64_t h, int64_t s, int64_t columns, float *to, float *rows) {
    if (!table) return;
    table += h * job->dim - (s - 1) * job->distance_stride;
    turn(table, job->distance_stride, 2 * s - 1, job->dim, columns, to, columns);
    if (rows) copy_rows(table, job->distance_stride, 2 * s - 1, job->dim, rows, job->dim);
}

static void lay_out_distances(const AttentionJob *job, int64_t h, int64_t s, int backward, Distances *far) {
    far->columns = table_columns(s);
    lay_out_table(job, job->distance_k, h, s, far->columns, far->keys, backward ? far->key_rows : NULL);
    lay_out_table(job, job->distance_q, h, s, far->columns, far->queries, backward ? far->query_rows : NULL);
}

/* Compute the slice of n rows from row i on, for positions `from` to from + count. */
INLINE void make_slice(const Distances *far, const float *x, int64_t dim, int64_t n, int64_t i, int64_t from, int64_t count, int64_t s,
                       const float *table) {
    product(n, ROUND(count + n - 1, 16), x, dim, table + s + from - i - n, far->columns, dim, far->slice, far->slice_width);
}

/* Compute the distance term of the s keys k for queries i to i + n. */
static void score_keys(const AttentionJob *job, const Distances *far, const float *k, int64_t i, int64_t n, int64_t s, int64_t width) {
    if (!job->distance_q) return;
    for (int64_t j = 0; j < s; j += KEYS) {
        const int64_t keys = s - j < KEYS ? s - j : KEYS;
        copy_rows(k + j * job->k_stride, job->k_stride, keys, job->dim, far->rows, job->dim);
        make_slice(far, far->rows, job->dim, keys, j, i, n, s, far->queries);
        turn(far->slice + keys - 1, far->slice_width - 1, keys, n, KEYS, far->key_scores + j, width);
    }
}

/* Initialize the scores of `rows` queries q from i on with both distance terms; query i is row `at` of key_scores. */
static void begin_scores(const AttentionJob *job, const Distances *far, const float *q, int64_t i, int64_t rows, int64_t at, int64_t s,
                         int64_t width, float *scores) {
    if (job->distance_k) make_slice(far, q, job->dim, rows, i, 0, s, s, far->keys);
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict by_query = far->slice + rows - 1 + r * (far->slice_width - 1);
        const float *restrict by_key = far->key_scores + (at + r) * width;
        float *restrict row = scores + r * width;
        if (!job->distance_q) memcpy(row, by_query, sizeof *row * s);
        else if (!job->distance_k) memcpy(row, by_key, sizeof *row * s);
        else for (int64_t j = 0; j < s; j++) row[j] = by_query[j] + by_key[j];
    }
}

/* From the gradients ds of the scores of n rows x from row i on, with `count` columns: add the gradients of the rows to dx, and
 * those of the table to dtable, whose column 0 is distance 1 - s. */
static void slice_gradients(const AttentionJob *job, const Distances *far, const float *ds, int64_t stride, const float *x,
                            int64_t x_stride, int64_t n, int64_t i, int64_t count, int64_t s, const float *table_rows, float *dx,
                            int64_t dx_stride, float *dtable) {
    const int64_t dim = job->dim, width = far->slice_width;
    for (int64_t r = 0; r < n; r++) {
        float *row = far->skewed + r * width;
        const int64_t before = n - 1 - r;
        memset(row, 0, sizeof *ds * before);
        memcpy(row + before, ds + r * stride, sizeof *ds * count);
        memset(row + before + count, 0, sizeof *ds * (width - before - count));
    }
    for (int64_t r = 0; r < n; r += ROWS) {
        const int64_t rows = n - r < ROWS ? n - r : ROWS, from = n - r - rows;
        products(rows, dim / LANES, far->skewed + r * width + from, width, 1, table_rows + (s - i - n + from) * dim, dim,
                 count + rows - 1, dx + r * dx_stride, dx_stride, 1);
    }
    product_turned(dim, ROUND(n - 1 + count, 16), x, x_stride, far->skewed, width, n, dtable + s - i - n, job->ddistance_stride);
}

/* Add the gradients of the distance term of keys, for the keys to dk [s][dim], and for the table. */
static void key_gradients(const AttentionJob *job, const Distances *far, const float *k, int64_t b, int64_t h, int64_t t, int64_t s,
                          int64_t width, float *dk) {
    const int64_t row = ROUND(t, 16), dim = job->dim;
    float *dtable = distance_gradients_of(job, job->ddistance_q, b, h) - (s - 1);
    for (int64_t j = 0; j < s; j += BLOCK) {
        const int64_t n = s - j < BLOCK ? s - j : BLOCK;
        turn(far->ds + j, width, t, ROUND(n, 8), row, far->ds_keys, row);
        slice_gradients(job, far, far->ds_keys, row, k + j * job->k_stride, job->k_stride, n, j, t, s, far->query_rows, dk + j * dim, dim,
                        dtable);
    }
}
#endif
