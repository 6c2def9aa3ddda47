/* SPDX-License-Identifier: Apache-2.0 */
#include "parity.h"

#include <stdio.h>

static char dir[] = "/tmp/tg-parity-XXXXXX";
static bool has_dir;

static void remove_dir(void)
{
    (void)!tg_path_remove(dir, NULL);
}

const char *parity_dir(void)
{
    if (!has_dir) {
        assert_non_null(mkdtemp(dir));
        has_dir = true;
        atexit(remove_dir);
    }
    return dir;
}

const char *parity_find_model(const char *name)
{
    static tg_buf path;
    const char *models = getenv("TG_MODELS");
    tg_path_join(&path, models ? models : "models", name);
    if (tg_path_is_file(path.ptr)) return path.ptr;
    print_message("%s is not here: run tools/models/fetch-models\n", path.ptr);
    assert_null(getenv("CI"));
    return NULL;
}

const char *parity_export(const char *source, const char *name, const tg_export_options *o)
{
    static tg_buf path;
    tg_err e = {0};
    tg_path_join(&path, parity_dir(), name);
    if (tg_artifact_is_at(path.ptr)) return path.ptr;
    if (tg_export(source, path.ptr, o, &e) != TG_OK) fail_msg("%s", e.msg);
    return path.ptr;
}

void parity_open(parity_run *r, const char *artifact, int32_t n_threads, const char *tier)
{
    tg_err e = {0};
    tg_cpu_options o = {.n_threads = n_threads, .tier = tier};
    *r = (parity_run){0};
    if (tg_artifact_open(&r->artifact, artifact, &e) != TG_OK) fail_msg("%s", e.msg);
    if (tg_exec_new(&r->exec, &r->artifact->program, r->artifact->weights_map.data,
                    &tg_cpu_device_ops, &o, &e) != TG_OK)
        fail_msg("%s", e.msg);
}

void parity_close(parity_run *r)
{
    tg_exec_free(r->exec);
    tg_artifact_close(r->artifact);
}

int32_t parity_load_ids(const char *path, int32_t *ids, int32_t most)
{
    FILE *f = fopen(path, "re");
    int32_t n = 0;
    assert_non_null(f);
    while (n < most && fscanf(f, "%d", &ids[n]) == 1)
        n++;
    fclose(f);
    return n;
}

int32_t parity_get_ids(const json_t *list, int32_t *ids, int32_t most)
{
    size_t i;
    const json_t *x;
    assert_true(json_is_array(list) && json_array_size(list) <= (size_t)most);
    json_array_foreach(list, i, x) ids[i] = (int32_t)json_integer_value(x);
    return (int32_t)json_array_size(list);
}

double parity_get_number(const json_t *list, int32_t i)
{
    const json_t *x = json_array_get(list, (size_t)i);
    assert_true(json_is_number(x));
    return json_number_value(x);
}

json_t *parity_load_json(const char *path)
{
    json_t *v;
    tg_err e = {0};
    if (tg_json_load(&v, path, &e) != TG_OK) fail_msg("%s", e.msg);
    return v;
}

const float *parity_load_npy(const char *path, int64_t *rows, int64_t *cols)
{
    tg_file_map m;
    tg_err e = {0};
    if (tg_file_map_open(&m, path, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_memory_equal(m.data, "\x93NUMPY\x01", 7);
    size_t header = (size_t)(m.data[8] | m.data[9] << 8);
    char text[512] = {0};
    memcpy(text, m.data + 10, TG_MIN(header, sizeof text - 1));
    const char *shape = strstr(text, "'shape': (");
    assert_non_null(strstr(text, "'<f4'"));
    assert_non_null(shape);
    assert_int_equal(sscanf(shape, "'shape': (%ld, %ld)", rows, cols), 2);
    assert_int_equal(m.n_bytes, 10 + header + (size_t)(*rows * *cols) * 4);
    return (const float *)(const void *)(m.data + 10 + header);
}
