/* AMX's tiles in plain C, so that what is written for them runs on other processors. Included before the sources. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#define __AMX_BF16__ 1
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) ((void)(config))
#define _tile_release() ((void)0)
#define _tile_zero(t) memset(emulated[t], 0, sizeof emulated[t])
#define _tile_loadd(t, from, stride) emulated_load(t, from, stride)
#define _tile_stored(t, to, stride) emulated_store(t, to, stride)
#define _tile_dpbf16ps(c, a, b) emulated_product(c, a, b)
#define syscall(...) 0

static _Thread_local uint32_t emulated[8][16][16];

static void emulated_load(int t, const void *from, int64_t stride) {
    for (int i = 0; i < 16; i++) memcpy(emulated[t][i], (const char *)from + i * stride, 64);
}

static void emulated_store(int t, void *to, int64_t stride) {
    for (int i = 0; i < 16; i++) memcpy((char *)to + i * stride, emulated[t][i], 64);
}

static float emulated_half(uint32_t pair, int high) {
    uint32_t bits = high ? pair & 0xffff0000u : pair << 16;
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

static void emulated_product(int c, int a, int b) {
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 16; n++) {
                float sum;
                memcpy(&sum, &emulated[c][m][n], 4);
                for (int high = 0; high < 2; high++)
                    sum += emulated_half(emulated[a][m][k], high) * emulated_half(emulated[b][k][n], high);
                memcpy(&emulated[c][m][n], &sum, 4);
            }
}
