/* SPDX-License-Identifier: Apache-2.0 expected.h - what transformers computed on a tiny checkpoint:
 * tests/tiny/NAME/expected{.json,.npy}. */
#ifndef TG_TESTS_EXPECTED_H
#define TG_TESTS_EXPECTED_H

#include "base/file.h"
#include "base/json.h"
#include "check.h"

#include <stdio.h>

enum { EXPECTED_MAX_IDS = 2048 };

typedef struct expected {
    int32_t ids[EXPECTED_MAX_IDS];
    int32_t n_ids, n_vocab;
    const float *logits; /* [n_ids][n_vocab], in the mapping */
    tg_file_map map;
} expected;

/* `which` is "expected", or "expected_long" where there is one. Tests run from the repository's
 * root. */
static inline void expected_open(expected *x, const char *variant, const char *which)
{
    char path[256];
    tg_err e = {0};
    json_t *root = NULL, *id;
    size_t i;
    *x = (expected){0};
    snprintf(path, sizeof path, "tests/tiny/%s/%s.json", variant, which);
    if (tg_json_load(&root, path, &e) != TG_OK) fail_msg("%s", e.msg);
    json_array_foreach(json_object_get(root, "ids"), i, id)
    {
        assert_true(i < EXPECTED_MAX_IDS);
        x->ids[x->n_ids++] = (int32_t)json_integer_value(id);
    }
    json_decref(root);

    /* NumPy's format 1.0: magic, version, 2 bytes of header length, a header that names the
     * shape. */
    snprintf(path, sizeof path, "tests/tiny/%s/%s.npy", variant, which);
    if (tg_file_map_open(&x->map, path, &e) != TG_OK) fail_msg("%s", e.msg);
    const uint8_t *p = x->map.data;
    assert_true(x->map.n_bytes > 128 && memcmp(p, "\x93NUMPY\x01\x00", 8) == 0);
    size_t at = 10 + (size_t)(p[8] | p[9] << 8);
    assert_non_null(strstr((const char *)p + 10, "'<f4'"));
    size_t n_floats = (x->map.n_bytes - at) / sizeof(float);
    assert_true(at % 4 == 0 && x->n_ids > 0 && n_floats % (size_t)x->n_ids == 0);
    x->n_vocab = (int32_t)(n_floats / (size_t)x->n_ids);
    x->logits = (const float *)(const void *)(p + at);
}

static inline void expected_close(expected *x)
{
    tg_file_map_close(&x->map);
}

#endif
