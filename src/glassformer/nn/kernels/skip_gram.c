/* Skip-gram with negative sampling (Mikolov et al., 2013): the loops of train/negative_sampling.py, with the same pairs and
 * draws, and sums in another order. Each window is drawn while the previous one is trained, so its vectors are prefetched. */
#define NUMBER float
#include <stdlib.h>
#include "vectors.h"

enum { LOSS_EVERY = 32 }; /* LOSS_EVERY of train/negative_sampling.py */

typedef struct {
    int64_t count, drawn;
    int32_t *around, *words; /* the neighbors; the middle word, then the negatives */
} Window;

INLINE uint64_t next(uint64_t *state) { return (*state = *state * 6364136223846793005u + 1442695040888963407u) >> 32; }

/* Draw the neighbors of sentence[i] and the negatives. */
static void draw(const SkipGramJob *job, const int32_t *sentence, int64_t n, int64_t i, uint64_t *state, Window *to) {
    const int64_t reach = 1 + (int64_t)((next(state) * (uint64_t)job->window) >> 32);
    const int64_t from = i > reach ? i - reach : 0, end = i + reach + 1 < n ? i + reach + 1 : n;
    to->count = 0;
    for (int64_t j = from; j < end; j++)
        if (j != i) to->around[to->count++] = sentence[j];
    to->words[0] = sentence[i];
    to->drawn = 1;
    for (int64_t k = 0; k < job->negative; k++) {
        const uint64_t column = (next(state) * (uint64_t)job->size) >> 32;
        const int32_t word = next(state) <= job->probability[column] ? (int32_t)column : job->alias[column];
        to->words[to->drawn] = word;
        to->drawn += word != sentence[i]; /* a draw of the middle word does not count */
    }
    for (int64_t k = 0; k < to->drawn; k++) fetch(job->contexts + to->words[k] * job->width, job->width);
    if (end - 1 > i) fetch(job->centres + (int64_t)sentence[end - 1] * job->width, job->width); /* other neighbors are already in the cache */
}

/* One step of gradient descent for each pair of a window; returns the loss if `judge` is 1, else 0. */
static double learn(const SkipGramJob *job, const Window *window, float rate, float *steps, int judge) {
    const int64_t width = job->width, drawn = window->drawn;
    double loss = 0.0;
    for (int64_t j = 0; j < window->count; j++) {
        float *v = job->centres + window->around[j] * width;
        for (int64_t k = 0; k < drawn; k++) {
            const float *u = job->contexts + window->words[k] * width;
            vec even = zero(), odd = zero();
            for (int64_t d = 0; d < width; d += 16) {
                even = fma_(load(v + d), load(u + d), even);
                if (LANES == 8) odd = fma_(load(v + d + 8), load(u + d + 8), odd);
            }
            steps[k] = sum_of(add(even, odd));
        }
        for (int64_t k = 0; k < drawn; k += LANES) /* rate * (y - sigmoid(f)); y is 1 for the middle word, else 0 */
            store(steps + k, smaller(all(20.0f), larger(all(-20.0f), load(steps + k))));
        if (judge)
            for (int64_t k = 0; k < drawn; k++) loss += log1p(exp(k ? steps[k] : -steps[k]));
        for (int64_t k = 0; k < drawn; k += LANES) {
            const vec power = power_of_2(mul(load(steps + k), all(-LOG2_E)));
            store(steps + k, over(all(-rate), add(all(1.0f), power)));
        }
        steps[0] += rate;
        for (int64_t d = 0; d < width; d += LANES) {
            const vec old = load(v + d);
            vec gradient = zero();
            for (int64_t k = 0; k < drawn; k++) { /* sequentially, because a negative may be drawn twice */
                float *u = job->contexts + window->words[k] * width + d;
                const vec step = all(steps[k]), was = load(u);
                gradient = fma_(step, was, gradient);
                store(u, fma_(step, old, was));
            }
            store(v + d, add(old, gradient));
        }
    }
    return loss;
}

/* Train on sentences first to last; returns 1 if there is not enough memory, else 0. */
int skip_gram(SkipGramJob *job) {
    int64_t longest = 1, done = 0, windows = 0;
    for (int64_t s = job->first; s < job->last; s++)
        if (job->starts[s + 1] - job->starts[s] > longest) longest = job->starts[s + 1] - job->starts[s];
    const int64_t around = 2 * job->window, words = 1 + job->negative;
    int32_t *sentence = malloc(sizeof *sentence * (longest + 2 * (around + words)));
    float *steps = calloc(ROUND(words, LANES), sizeof *steps);
    if (sentence == NULL || steps == NULL) return free(sentence), free(steps), 1;
    Window turn[2];
    for (int k = 0; k < 2; k++) {
        turn[k].around = sentence + longest + k * (around + words);
        turn[k].words = turn[k].around + around;
    }
    uint64_t state = job->state;
    job->pairs = job->judged = 0;
    job->loss = 0.0;
    for (int64_t s = job->first; s < job->last; s++) {
        int64_t n = 0;
        for (int64_t p = job->starts[s]; p < job->starts[s + 1]; p++)
            if (next(&state) <= job->keep[job->ids[p]]) sentence[n++] = job->ids[p];
        const float rate = (float)(job->rate - job->fall * (double)done);
        if (n) draw(job, sentence, n, 0, &state, turn);
        for (int64_t i = 0; i < n; i++, windows++) {
            if (i + 1 < n) draw(job, sentence, n, i + 1, &state, turn + (i + 1) % 2);
            const Window *now = turn + i % 2;
            const int judge = windows % LOSS_EVERY == 0;
            job->loss += learn(job, now, rate, steps, judge);
            job->pairs += now->count;
            job->judged += judge ? now->count : 0;
        }
        done += job->starts[s + 1] - job->starts[s];
    }
    return free(sentence), free(steps), 0;
}
