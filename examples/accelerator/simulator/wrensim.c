/* The Wren's simulator on a computer: wrensim MODEL.bin INPUT.bin... OUTPUT.bin...
 *
 *     cc -std=c99 -O2 -I../driver wrensim.c ../driver/wren.c ../driver/wren_device.c -o wrensim */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "wren.h"

enum { MOST = 64, HEAD_BYTES = 24 };

static uint8_t *read_file(const char *path, long *bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (*bytes = ftell(file)) >= 0) {
        rewind(file);
        data = malloc((size_t)*bytes + 1);
        if (data != NULL && fread(data, 1, (size_t)*bytes, file) != (size_t)*bytes)
            *bytes = -1;
    }
    if (file != NULL)
        fclose(file);
    if (data == NULL || *bytes < 0) {
        fprintf(stderr, "wrensim: can't read %s\n", path);
        exit(2);
    }
    return data;
}

static uint32_t word_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

int main(int count, char **arguments)
{
    const void *inputs[MOST];
    void *outputs[MOST];
    long bytes = 0;
    if (count < 2) {
        fputs("usage: wrensim MODEL.bin INPUT.bin... OUTPUT.bin...\n", stderr);
        return 2;
    }
    const uint8_t *binary = read_file(arguments[1], &bytes);
    if (bytes < HEAD_BYTES || word_at(binary + 20) != (uint32_t)bytes) {
        fprintf(stderr, "wrensim: %s is not a model binary of the Wren\n", arguments[1]);
        return 1;
    }
    const uint32_t input_count = word_at(binary + 12);
    const uint32_t output_count = word_at(binary + 16);
    if (input_count > MOST || output_count > MOST || (uint32_t)count != 2 + input_count + output_count) {
        fprintf(stderr, "wrensim: expected %u inputs and %u outputs\n", (unsigned)input_count, (unsigned)output_count);
        return 2;
    }
    const uint8_t *port = binary + HEAD_BYTES;
    for (uint32_t i = 0; i < input_count; ++i, port += 8) {
        inputs[i] = read_file(arguments[2 + i], &bytes);
        if ((uint32_t)bytes != word_at(port + 4)) {
            fprintf(stderr, "wrensim: %s has %ld bytes; expected %u\n", arguments[2 + i], bytes,
                    (unsigned)word_at(port + 4));
            return 2;
        }
    }
    for (uint32_t i = 0; i < output_count; ++i)
        outputs[i] = malloc(word_at(port + 8 * i + 4) + 1u);
    const int32_t status = wren_run(binary, inputs, outputs, NULL);
    if (status != WREN_OK) {
        fprintf(stderr, "wrensim: the device says %d\n", (int)status);
        return 1;
    }
    for (uint32_t i = 0; i < output_count; ++i, port += 8) {
        FILE *file = fopen(arguments[2 + input_count + i], "wb");
        if (file == NULL || fwrite(outputs[i], 1, word_at(port + 4), file) != word_at(port + 4) || fclose(file) != 0) {
            fprintf(stderr, "wrensim: can't write %s\n", arguments[2 + input_count + i]);
            return 2;
        }
    }
    return 0;
}
