/* The gradients of a linear layer's weight and bias with AMX: dW = G^T X [out, in], db = the sum of the rows of G.
 *
 * The product sums over rows, but AMX multiplies pairs of adjacent summands. So both matrices need another layout: their rows
 * become pairs, and G is transposed. This is done for CHUNK rows at a time, in the core's own cache. Sums stay in fp32 until
 * the last row. A task is one block of dW. Every number is summed in the order of the rows, for any number of threads.
 */
#ifdef __AMX_BF16__
#include "crew.h"
#include "product_amx.h"

typedef struct {
    LinearJob *job;
    atomic_long next, finished;
    int64_t across, tall, wide; /* number of blocks along `in`; numbers of rows and columns of a block of dW */
} LinearCrew;

/* CHUNK: rows that are copied to the new layout at a time. LARGEST: longest side of a block. PANEL: adjacent columns of X. */
enum { CHUNK = 256, LARGEST = 384, PANEL = 32 };

typedef struct {
    float weight[LARGEST * LARGEST], bias[LARGEST];
    uint32_t grad[LARGEST * CHUNK / 2], x[LARGEST * CHUNK / 2]; /* transposed pairs; panels of pairs */
} LinearRoom;

/* Rows [n][tall] of G -> transposed pairs [tall][pairs]; adds the sum of the rows to bias unless it is NULL. The next rows are
 * prefetched meanwhile, because reading a matrix along columns is much slower than along rows. */
static void lay_out_grad(const bf16 *grad, int64_t stride, int64_t n, int64_t tall, int64_t pairs, uint32_t *to, float *bias) {
    for (int64_t r = 0; r < n && r < 32; r++) fetch(grad + r * stride, tall);
    for (int64_t p = 0; p < pairs; p += 16) {
        const int64_t first = 2 * p, left = n - first < 32 ? n - first : 32;
        for (int64_t r = first + 32; r < first + 64 && r < n; r++) fetch(grad + r * stride, tall);
        for (int64_t d = 0; d < tall; d += 16) {
            __m512i r[16];
            UNROLL16 for (int k = 0; k < 16; k++) r[k] = two_rows(grad + d, stride, first + 2 * k, n);
            transpose(r);
            UNROLL16 for (int k = 0; k < 16; k++) _mm512_storeu_si512(to + (d + k) * pairs + p, r[k]);
            if (!bias) continue;
            __m512 sum = _mm512_loadu_ps(bias + d);
            for (int64_t k = 0; k < left; k++) sum = _mm512_add_ps(sum, wide(grad + (first + k) * stride + d));
            _mm512_storeu_ps(bias + d, sum);
        }
    }
}

/* Rows [n][broad] of X -> panels of pairs, [broad / PANEL][pairs][PANEL]; the last panel may be half as wide. */
static void lay_out_x(const bf16 *x, int64_t stride, int64_t n, int64_t broad, int64_t pairs, uint32_t *to) {
    for (int64_t p = 0; p < pairs; p++)
        for (int64_t d = 0; d < broad; d += 16) {
            const int64_t panel = d / PANEL * PANEL, width = broad - panel < PANEL ? broad - panel : PANEL;
            _mm512_storeu_si512(to + panel * pairs + p * width + d - panel, two_rows(x + d, stride, 2 * p, n));
        }
}

static void block_task(const LinearJob *job, int64_t o, int64_t tall, int64_t i, int64_t broad, LinearRoom *room) {
    float *bias = job->bias && i == 0 ? room->bias : NULL;
    memset(room->bias, 0, sizeof room->bias);
    for (int64_t begin = 0; begin < job->rows; begin += CHUNK) {
        const int64_t n = job->rows - begin < CHUNK ? job->rows - begin : CHUNK, pairs = ROUND(n, 2 * PAIRS) / 2;
        lay_out_grad(job->grad + begin * job->grad_stride + o, job->grad_stride, n, tall, pairs, room->grad, bias);
        lay_out_x(job->x + begin * job->x_stride + i, job->x_stride, n, broad, pairs, room->x);
        for (int64_t d = 0; d < broad; d += PANEL) {
            const int64_t width = broad - d < PANEL ? broad - d : PANEL;
            product(tall, width / 16, room->grad, pairs, room->x + d * pairs, width, pairs, room->weight + d, broad, begin > 0);
        }
    }
    for (int64_t r = 0; r < tall; r++)
        for (int64_t d = 0; d < broad; d += 16)
            narrow(job->weight + (o + r) * job->in + i + d, _mm512_loadu_ps(room->weight + r * broad + d));
    for (int64_t d = 0; bias && d < tall; d += 16) narrow(job->bias + o + d, _mm512_loadu_ps(bias + d));
}

static void linear_work(void *argument) {
    LinearCrew *crew = argument;
    const LinearJob *job = crew->job;
    LinearRoom *room = aligned_alloc(64, ROUND(sizeof *room, 64));
    if (!room) return;
    const int64_t down = (job->out + crew->tall - 1) / crew->tall;
    product_begin();
    for (long task; (task = atomic_fetch_add(&crew->next, 1)) < down * crew->across;) {
        const int64_t o = task / crew->across * crew->tall, i = task % crew->across * crew->wide;
        const int64_t tall = job->out - o < crew->tall ? job->out - o : crew->tall;
        block_task(job, o, tall, i, job->in - i < crew->wide ? job->in - i : crew->wide, room);
    }
    product_end();
    free(room);
    atomic_fetch_add(&crew->finished, 1);
}

/* 0: done; 1: no memory. */
int weight_gradient(LinearJob *job, Parallel parallel) {
    LinearCrew crew = {.job = job, .across = (job->in + LARGEST - 1) / LARGEST};
    crew.wide = ROUND((job->in + crew.across - 1) / crew.across, PANEL);
    int64_t down = (job->out + LARGEST - 1) / LARGEST; /* more blocks, until all threads are busy or blocks are small */
    while (down * crew.across % job->threads && job->out / (down + 1) >= 64) down++;
    crew.tall = ROUND((job->out + down - 1) / down, PANEL);
    together(linear_work, &crew, job->threads, parallel);
    return crew.finished == 0;
}
#endif
