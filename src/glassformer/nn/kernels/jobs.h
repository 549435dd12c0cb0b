/* Arguments of the kernels: the same structures as in jobs.py, field by field. Every change of a structure or a function
 * signature must increase ABI here and in levels.py; Python does not use a library with another ABI. */
#ifndef JOBS_H
#define JOBS_H
#include <stdint.h>

enum { ABI = 7 };

typedef uint16_t bf16;
#ifndef NUMBER
#define NUMBER bf16 /* type of the elements of tensors; fp32 sources define it as float before they include this file */
#endif

/* GOMP_parallel of torch's OpenMP library, or NULL. */
typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);

typedef struct {
    const NUMBER *q, *k, *v, *out, *grad; /* out and grad: backward only */
    NUMBER *o, *dq, *dk, *dv;             /* o: output of the forward pass; the others: of the backward pass */
    float *stats; /* [N, H, 2]: the highest score of a query times log2 e, and 1 / sum of e^(score - highest) */
    /* bias: NULL, or a term that is added to Q K^T before scaling, [H, bias_stride]. The pointer is at distance 0 (key minus
     * query), and a whole vector after the largest distance is readable. dbias: its gradient per sequence, [B, H, bias_stride],
     * initially 0. */
    const float *bias;
    float *dbias;
    /* Terms that are added to Q K^T before scaling: q_t distance_k[s - t] + k_s distance_q[t - s]. Each may be NULL. The pointers
     * are at distance 0, with [H, dim] per distance. Query i has position i, and there are at least as many keys as queries. Their
     * gradients, [parts, H, dim, ddistance_stride], are initially 0, and a whole vector after the largest distance is readable. */
    const NUMBER *distance_k, *distance_q;
    float *ddistance_k, *ddistance_q;
    int64_t q_stride, k_stride, v_stride, out_stride, grad_stride, dq_stride, dk_stride, dv_stride, bias_stride,
        distance_stride, ddistance_stride;
    const int64_t *q_starts, *q_lengths, *k_starts, *k_lengths; /* [B] */
    int64_t sequences, heads, dim, longest_q, longest_k;
    int64_t parts; /* number of parts of the batch: a thread takes some heads of all sequences of a part */
    int64_t window; /* maximum distance of a key on either side; below 0: unlimited. A window and a bias cannot be combined. */
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
    const bf16 *x, *plus, *weight, *bias; /* plus: NULL, or the residual, which is added to x */
    bf16 *sum, *out;                      /* [rows, width]: x + plus, if there is a residual, and its norm */
    float *stats;                         /* [rows, 2]: mean, and 1 / sqrt(variance + eps) */
    const bf16 *grad;                     /* gradient of out; NULL in the forward pass */
    bf16 *dx, *dweight, *dbias;
    float *partial; /* [shares, 2, width]: the sums of each share for dweight and dbias */
    int64_t rows, width; /* width: a multiple of 16 */
    int32_t threads;
    float eps;
} NormJob;

typedef struct {
    const void *x;        /* [rows, in] */
    void *out;            /* [rows, columns]; x and out are in bf16 if half is 1, else in fp32 */
    const int8_t *weight; /* in the layout of linear_int8.c */
    const float *scale, *bias; /* per column, like start; padded to a multiple of 16 */
    const int32_t *start;      /* initial value of the sum of a column */
    int64_t x_stride, out_stride, rows, in, columns;
    int32_t half, activation, threads; /* activation: index in ACTIVATIONS of int8.py */
} Int8Job;

typedef struct {
    float *centres, *contexts; /* [V, width], width a multiple of 16 */
    const int32_t *ids;        /* [N]: sentence i is ids[starts[i]] to ids[starts[i + 1]], exclusive */
    const int64_t *starts;
    const uint64_t *keep, *probability; /* [V]; with alias, the Sampler of train/negative_sampling.py */
    const int32_t *alias;
    int64_t first, last, width, size, window, negative;
    uint64_t state;
    double rate, fall;      /* the learning rate, and its decrease per word */
    int64_t pairs, judged;  /* results: number of pairs, number of pairs whose loss is computed, and the sum of these losses */
    double loss;
} SkipGramJob;
#endif
