/* A kernel of your own: the hard sigmoid, two numbers at a time. */
#include "hard_sigmoid.h"

static float bounded(float value)
{
    return value < 0.0f ? 0.0f : value > 1.0f ? 1.0f : value;
}

void hard_sigmoid(const float *x, float *y, int32_t count, float alpha, float beta)
{
    int32_t i = 0;
    for (; i + 1 < count; i += 2) {
        y[i] = bounded(alpha * x[i] + beta);
        y[i + 1] = bounded(alpha * x[i + 1] + beta);
    }
    if (i < count)
        y[i] = bounded(alpha * x[i] + beta);
}
