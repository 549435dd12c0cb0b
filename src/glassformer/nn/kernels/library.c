/* Which structures, sources and instructions a library is of, for Python to compare before the first call. */
#include "jobs.h"
#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>
enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 }; /* of arch_prctl: Linux saves tiles for processes that ask */
#endif

int abi(void) { return ABI; }

/* Read, not called: a library of another level may have instructions that the processor has not. */
const char made_of[] = MADE_OF;

int64_t structure_size(int which) {
    const int64_t sizes[] = {
        sizeof(AttentionJob), sizeof(LinearJob), sizeof(GeluJob), sizeof(NormJob), sizeof(Int8Job),
        sizeof(SkipGramJob),
    };
    return which < 0 || which >= (int)(sizeof sizes / sizeof *sizes) ? -1 : sizes[which];
}

/* Once before the first run; 0: this process may compute with these instructions. */
int prepare(void) {
#ifdef __AMX_BF16__
    return syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) != 0;
#else
    return 0;
#endif
}
