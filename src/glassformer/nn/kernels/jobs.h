/* What Python hands over: the structures of jobs.py, field by field. A change of one, or of a call, raises ABI here and in
 * levels.py; a library whose numbers are not those of the Python beside it is not used. */
#ifndef JOBS_H
#define JOBS_H
#include <stdint.h>

enum { ABI = 7 };

typedef uint16_t bf16;
#ifndef NUMBER
#define NUMBER bf16 /* what tensors hold; a source in fp32 says float before it includes this */
#endif

/* GOMP_parallel of the library that torch computes with, or NULL. */
typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);

typedef struct {
    const NUMBER *q, *k, *v, *out, *grad; /* out and grad: backward only */
    NUMBER *o, *dq, *dk, *dv;             /* o: forward; the others: backward */
    float *stats; /* [N, H, 2]: the highest score of a row times log2 e, and 1 / sum of e^(score - highest) */
    /* NULL, or what is added to Q K^T before the scale: [H, bias_stride], each row from distance 0 (key less query) on, with
     * room for a vector behind the furthest; and its gradient of each sequence, [B, H, bias_stride], which starts at 0. */
    const float *bias;
    float *dbias;
    /* NULL, or what is added to Q K^T before the scale, of which each may be NULL: q_t distance_k[s - t] + k_s distance_q[t - s].
     * Rows of [H, dim] by distance, from distance 0 on; query i has position i, and there are at least as many keys. Their gradients,
     * [parts, H, dim, ddistance_stride], start at 0 and have room for a vector behind the furthest distance. */
    const NUMBER *distance_k, *distance_q;
    float *ddistance_k, *ddistance_q;
    int64_t q_stride, k_stride, v_stride, out_stride, grad_stride, dq_stride, dk_stride, dv_stride, bias_stride,
        distance_stride, ddistance_stride;
    const int64_t *q_starts, *q_lengths, *k_starts, *k_lengths; /* [B] */
    int64_t sequences, heads, dim, longest_q, longest_k;
    int64_t parts; /* of the sequences, in order: a thread takes some heads of all sequences of a part */
    int64_t window; /* how far from its own position a row attends, either way; below 0: any distance. No bias with a window. */
    int32_t causal, threads;
    float scale;
} AttentionJob;

typedef struct {
    const bf16 *grad, *x; /* [rows, out], [rows, in] */
    bf16 *weight, *bias;  /* [out, in], and [out] or NULL */
    int64_t grad_stride, x_stride, rows, out, in; /* out and in are multiples of 16 */
    int32_t threads;
} LinearJob;

typedef struct {
    const NUMBER *x, *grad; /* grad: NULL in the forward pass */
    NUMBER *out;
    int64_t count; /* a multiple of 16 */
    int32_t threads;
} GeluJob;

typedef struct {
    const bf16 *x, *plus, *weight, *bias; /* plus: NULL, or what is added to x */
    bf16 *sum, *out;                      /* [rows, width]: the sum, where there is one, and its norm */
    float *stats;                         /* [rows, 2]: mean, and 1 over the root of variance + eps */
    const bf16 *grad;                     /* of out; NULL in the forward pass */
    bf16 *dx, *dweight, *dbias;
    float *partial; /* [shares, 2, width]: the sums of each share for dweight and dbias */
    int64_t rows, width; /* width: a multiple of 16 */
    int32_t threads;
    float eps;
} NormJob;

typedef struct {
    const void *x;        /* [rows, in] */
    void *out;            /* [rows, columns]; both in fp32, or in bf16 where half is 1 */
    const int8_t *weight; /* as linear_int8.c reads it */
    const float *scale, *bias; /* of each column; as start, up to a multiple of 16 */
    const int32_t *start;      /* what a column's sum begins with */
    int64_t x_stride, out_stride, rows, in, columns;
    int32_t half, activation, threads; /* activation: ACTIVATIONS of int8.py */
} Int8Job;

typedef struct {
    float *centres, *contexts; /* [V, width], width a multiple of 16 */
    const int32_t *ids;        /* [N]: sentence i is ids[starts[i]] up to ids[starts[i + 1]] */
    const int64_t *starts;
    const uint64_t *keep, *probability; /* [V]; as alias, a Sampler's of train/negative_sampling.py */
    const int32_t *alias;
    int64_t first, last, width, size, window, negative;
    uint64_t state;
    double rate, fall;      /* the learning rate, and by how much it falls a word */
    int64_t pairs, judged;  /* these three are told: pairs, those that were judged, and their summed loss */
    double loss;
} SkipGramJob;
#endif
