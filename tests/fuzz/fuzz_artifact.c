/* SPDX-License-Identifier: Apache-2.0
 * artifact.json beside sound files: any text either is refused with a message or opens the
 * artifact. The text's own checksum is made right, as a fuzzer would never find it. */
#include "../unit/ir/handmade.h"
#include "ir/artifact.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void remove_folder(void)
{
    (void)!tg_path_remove(folder, NULL);
}

static void save(const char *name, tg_str bytes)
{
    tg_buf path = {0};
    if (tg_file_save(tg_path_join(&path, folder, name), bytes, NULL) != TG_OK) abort();
    tg_buf_deinit(&path);
}

static void make_folder(void)
{
    handmade h;
    tg_buf block = {0}, weights = {0};
    strcpy(folder, "/dev/shm/tg_fuzz_XXXXXX");
    if (!mkdtemp(folder)) {
        strcpy(folder, "/tmp/tg_fuzz_XXXXXX");
        if (!mkdtemp(folder)) abort();
    }
    atexit(remove_folder);
    hand_make(&h);
    if (tg_program_print_block(&h.program, &block, NULL) != TG_OK) abort();
    for (int64_t i = 0; i < h.program.weights_bytes; i++)
        tg_buf_add_byte(&weights, 'w');
    save("program.bin", tg_buf_str(&block));
    save("weights.0.bin", tg_buf_str(&weights));
    save("defaults.json", TG_STR("{}"));
    save("template.jinja", TG_STR("{{ messages }}"));
    tg_buf_deinit(&block);
    tg_buf_deinit(&weights);
}

/* The text as the export would have written it, when it is an object; else as it is. */
static void print_signed(tg_str text, tg_buf *out)
{
    json_t *json = NULL;
    char hex[33];
    if (tg_json_parse(&json, text, "fuzz", NULL) != TG_OK || !json_is_object(json)) {
        tg_buf_add_str(out, text);
        json_decref(json);
        return;
    }
    json_object_del(json, "checksum");
    if (tg_json_print(out, json, 2, NULL) != TG_OK) abort();
    XXH128_hash_t sum = XXH3_128bits(out->ptr, out->len);
    snprintf(hex, sizeof hex, "%016llx%016llx", (unsigned long long)sum.high64,
             (unsigned long long)sum.low64);
    json_object_set_new(json, "checksum", json_string(hex));
    tg_buf_clear(out);
    if (tg_json_print(out, json, 2, NULL) != TG_OK) abort();
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_artifact *a;
    tg_err e = {0};
    tg_buf text = {0};
    if (folder[0] == 0) make_folder();
    print_signed((tg_str){(const char *)data, size}, &text);
    save("artifact.json", tg_buf_str(&text));
    tg_buf_deinit(&text);
    if (tg_artifact_open(&a, folder, &e) == TG_OK) {
        if (a->program.n_vocab != 39 || !json_is_object(a->json)) abort();
        (void)!tg_artifact_verify(a, NULL);
        tg_artifact_close(a);
    } else if (e.msg[0] == 0) {
        abort(); /* never without a word */
    }
    if (tg_mem_n_alive() != 0) abort();
    return 0;
}
