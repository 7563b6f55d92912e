#include <stdint.h>

/* y = max(0, min(1, alpha * x + beta)) of `count` numbers. */
void hard_sigmoid(const float *x, float *y, int32_t count, float alpha, float beta);
