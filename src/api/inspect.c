/* SPDX-License-Identifier: Apache-2.0
 * inspect.c - what is inside an artifact or a checkpoint, for people and as JSON. */
#include "api/api.h"

#include <string.h>

/* ---- artifacts */

/* Their names, or "none". */
static tg_status print_templates(tg_buf *out, const tg_artifact *a, tg_err *e)
{
    tg_chat *chat;
    TG_TRY(tg_artifact_open_chat(&chat, a, e));
    int32_t n = tg_chat_n_templates(chat);
    for (int32_t i = 0; i < n; i++)
        tg_buf_printf(out, "%s%s", i ? ", " : "", tg_chat_get_name(chat, i));
    tg_buf_printf(out, "%s\n\n", n ? "" : "none");
    tg_chat_free(chat);
    return TG_OK;
}

static tg_status inspect_artifact(tg_buf *out, const char *path, bool is_json, tg_err *e)
{
    tg_artifact *a;
    TG_TRY(tg_artifact_open(&a, path, e));
    tg_status s = TG_OK;
    if (is_json) {
        s = tg_json_print(out, a->json, 2, e);
        tg_buf_add_byte(out, '\n');
    } else {
        const json_t *source = json_object_get(a->json, "source");
        tg_buf_printf(
            out, "artifact      %s\narchitecture  %s\nmade from     %s (%s)\ncompiler      %s\n",
            path, json_string_value(json_object_get(a->json, "architecture")),
            json_string_value(json_object_get(source, "name")),
            json_string_value(json_object_get(source, "kind")),
            json_string_value(json_object_get(a->json, "compiler")));
        tg_buf_printf(out, "tokenizer     %s\nchat template ",
                      a->tokenizer_map.n_bytes ? "yes" : "none");
        s = print_templates(out, a, e);
        tg_program_print(&a->program, out);
    }
    tg_artifact_close(a);
    return s;
}

/* ---- checkpoints */

typedef struct type_count {
    int32_t n;
    int64_t n_bytes;
} type_count;

static void count_types(type_count counts[TG_DTYPE_COUNT], const tg_checkpoint *c)
{
    for (int32_t i = 0; i < tg_checkpoint_n_tensors(c); i++) {
        const tg_tensor *t = tg_checkpoint_get_tensor(c, i);
        counts[t->dtype].n++;
        counts[t->dtype].n_bytes += (int64_t)t->n_bytes;
    }
}

static json_t *describe_checkpoint(const tg_checkpoint *c, const tg_blueprint *b,
                                   const tg_err *obstacle)
{
    type_count counts[TG_DTYPE_COUNT] = {0};
    count_types(counts, c);
    json_t *types = json_object();
    for (int32_t i = 0; i < TG_DTYPE_COUNT; i++)
        if (counts[i].n)
            json_object_set_new(types, tg_dtype_get_name((tg_dtype)i),
                                json_pack("{s:i, s:I}", "tensors", counts[i].n, "bytes",
                                          (json_int_t)counts[i].n_bytes));
    json_t *o =
        json_pack("{s:s, s:s, s:i, s:o, s:b}", "path", tg_checkpoint_get_path(c), "kind",
                  tg_checkpoint_get_kind(c) == TG_CHECKPOINT_GGUF ? "gguf" : "huggingface",
                  "n_tensors", tg_checkpoint_n_tensors(c), "types", types, "runs", b != NULL);
    if (!b) {
        json_object_set_new(o, "obstacle", json_string(obstacle->msg));
        return o;
    }
    const tg_hparams *h = tg_blueprint_hparams(b);
    json_object_set_new(o, "architecture", json_string(tg_blueprint_arch(b)->name));
    json_object_set_new(o, "model",
                        json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "n_layers",
                                  h->n_layers, "width", h->width, "n_heads", h->n_heads,
                                  "n_kv_heads", h->n_kv_heads, "head_dim", h->head_dim, "ffn",
                                  h->ffn, "n_vocab", h->n_vocab, "max_positions",
                                  h->max_positions));
    return o;
}

/* Nested objects indented, scalars as "name  value". */
static void print_object(tg_buf *out, const json_t *o, int indent)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, name, v)
    {
        tg_buf_printf(out, "%*s%-*s", indent, "", 16 - indent, name);
        if (json_is_object(v)) {
            tg_buf_add_byte(out, '\n');
            print_object(out, v, indent + 2);
            continue;
        }
        if (json_is_string(v))
            tg_buf_add_escaped(out, (tg_str){json_string_value(v), json_string_length(v)});
        else
            (void)!tg_json_print(out, v, 0, NULL); /* a refusal is kept by the buffer */
        tg_buf_add_byte(out, '\n');
    }
}

static tg_status inspect_checkpoint(tg_buf *out, const char *path, bool is_json, tg_err *e)
{
    tg_checkpoint *c;
    tg_blueprint *b = NULL;
    tg_err obstacle = {0};
    TG_TRY(tg_checkpoint_open(&c, path, e));
    if (tg_blueprint_open(&b, c, &obstacle) != TG_OK) b = NULL;
    json_t *o = describe_checkpoint(c, b, &obstacle);
    tg_status s = o ? TG_OK : tg_fail_nomem(e, sizeof o, "a description");
    if (s == TG_OK && is_json) {
        s = tg_json_print(out, o, 2, e);
        tg_buf_add_byte(out, '\n');
    } else if (s == TG_OK) {
        print_object(out, o, 0);
    }
    json_decref(o);
    tg_blueprint_free(b);
    tg_checkpoint_close(c);
    return s;
}

tg_status tg_inspect(char **out, const char *path, bool is_json, tg_err *e)
{
    tg_buf text = {0};
    *out = NULL;
    tg_status s = tg_artifact_is_at(path) ? inspect_artifact(&text, path, is_json, e)
                                          : inspect_checkpoint(&text, path, is_json, e);
    if (s == TG_OK) s = tg_buf_check(&text, e);
    if (s == TG_OK) s = tg_give_text(out, tg_buf_str(&text), e);
    tg_buf_deinit(&text);
    return s;
}

tg_status tg_verify(const char *dir, tg_err *e)
{
    tg_artifact *a;
    TG_TRY(tg_artifact_open(&a, dir, e));
    tg_status s = tg_artifact_verify(a, e);
    tg_artifact_close(a);
    return s;
}
