/* SPDX-License-Identifier: Apache-2.0
 * driver.c - runs a fuzz target over files without libFuzzer: every argument is an input.
 *
 * So the same targets run with any compiler, over the seeds and old crashes. Each input is given in
 * a block of exactly its size, so that a sanitizer or valgrind sees a read beyond it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = NULL;
    size_t n = 0, size = 0, got;
    if (!f) {
        perror(path);
        return 1;
    }
    do {
        size += 65536;
        bytes = realloc(bytes, size);
        if (!bytes) {
            perror(path);
            fclose(f);
            return 1;
        }
        got = fread(bytes + n, 1, size - n, f);
        n += got;
    } while (n == size);
    fclose(f);

    uint8_t *exact = realloc(bytes, n ? n : 1);
    LLVMFuzzerTestOneInput(exact ? exact : bytes, n);
    free(exact ? exact : bytes);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++)
        failed |= run_file(argv[i]);
    return failed;
}
