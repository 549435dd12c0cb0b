/* GELU in fp32: exact, and the factor of its tanh approximation. */
#ifndef GELU_H
#define GELU_H
#include "vectors.h"

/* (1 + tanh(u)) / 2 = 1 / (1 + e^(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3); the exponent is limited, so e^(-2 u) is finite. */
INLINE vec gate(vec x) {
    const vec one = all(1.0f), most = all(120.0f), twice = all(-2.0f * 0.7978845608f * LOG2_E);
    const vec power = mul(x, fma_(mul(x, x), mul(twice, all(0.044715f)), twice));
    return over(one, add(one, power_of_2(smaller(most, power))));
}

INLINE vec one_over(vec x) {
#ifdef __AVX512F__
    const vec t = _mm512_rcp14_ps(x); /* an approximation, refined by one Newton step */
    return mul(t, _mm512_fnmadd_ps(x, t, all(2.0f)));
#else
    return over(all(1.0f), x);
#endif
}

/* x Phi(x) = max(x, 0) - |x| (1 - Phi(|x|)); 1 - Phi is the polynomial of rows.c. */
INLINE vec gelu_exact(vec x) {
    /* for |x| > 12 the second term is negligible, and e^(-x^2 / 2) would be subnormal; NaN stays NaN */
    const vec size = smaller(all(12.0f), larger(sub(zero(), x), x)), t = one_over(fma_(all(0.31f), size, all(1.0f)));
    vec p = all(-0.07392885547545698f);
    p = fma_(p, t, all(0.18044878f));
    p = fma_(p, t, all(0.015747508804405286f));
    p = fma_(p, t, all(0.13342755290718197f));
    p = fma_(p, t, all(0.12044208088094788f));
    p = fma_(p, t, all(0.12386059665001938f));
    const vec beyond = mul(mul(p, t), power_of_2(mul(mul(size, size), all(-0.5f * LOG2_E))));
    return sub(larger(zero(), x), mul(size, beyond));
}
#endif
