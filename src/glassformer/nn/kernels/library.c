/* Properties of a library that Python checks before the first call: ABI, structure sizes, level, fingerprint. */
#include "jobs.h"
#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>
enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 }; /* arch_prctl: a process must request AMX tiles from Linux */
#endif

int abi(void) { return ABI; }

/* A symbol to read without calling a function: code of another level may contain instructions that the CPU lacks. */
const char made_of[] = MADE_OF;

int64_t structure_size(int which) {
    const int64_t sizes[] = {
        sizeof(AttentionJob), sizeof(LinearJob), sizeof(GeluJob), sizeof(NormJob), sizeof(Int8Job),
        sizeof(SkipGramJob),
    };
    return which < 0 || which >= (int)(sizeof sizes / sizeof *sizes) ? -1 : sizes[which];
}

/* Called once before all other functions; 0 if this process may use the instructions. */
int prepare(void) {
#ifdef __AMX_BF16__
    return syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) != 0;
#else
    return 0;
#endif
}
