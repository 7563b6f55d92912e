extern const float toy_weights[4];

const float toy_weights[4] = {1.0f, 2.0f, 3.0f, 4.0f};
