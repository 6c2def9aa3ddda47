/* SPDX-License-Identifier: Apache-2.0
 * model.c - a loaded checkpoint: architecture, numbers, and a tensor for every weight.
 *
 * Nothing is guessed and nothing initialised: a tensor that the table of weights names and the file
 * lacks is an error, and so is one that the file has and no row knows, because a model that drops a
 * bias still talks, only worse. Both lists are shown together, as they explain each other. */
#include "base/log.h"
#include "format/prequantized.h"
#include "model/block.h"
#include "model/keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct tg_loaded_checkpoint {
    const tg_checkpoint *c; /* borrowed */
    const tg_arch *arch;
    const char *prefix; /* what stands for "model." in this checkpoint's names */
    tg_prequantized
        *prequantized; /* weights that are quantized in the folder's own way; NULL: none */
    tg_hparams h;
    tg_found_weight *found; /* [TG_W_COUNT][n_layers] */
    tg_arena arena;
};

static const tg_arch *const archs[] = {
#define TG_ARCH(name) &tg_arch_##name,
#include "model/archs.def"
#undef TG_ARCH
};

enum { NAME_BYTES = 160, SHOWN = 3 };

/* ---- which architecture */

static bool is_gguf(const tg_checkpoint *c)
{
    return tg_checkpoint_get_kind(c) == TG_CHECKPOINT_GGUF;
}

/* An unknown name, with those that would be known in that kind of file. */
static tg_status fail_arch(const tg_config *keys, tg_str name, tg_err *e)
{
    bool gguf = tg_config_get_kind(keys) == TG_CHECKPOINT_GGUF;
    tg_buf known = {0};
    for (size_t i = 0; i < TG_COUNT(archs); i++) {
        if (gguf) tg_buf_printf(&known, "%s%s", known.len ? ", " : "", archs[i]->gguf_arch);
        for (size_t j = 0; !gguf && j < TG_COUNT(archs[i]->hf_types) && archs[i]->hf_types[j]; j++)
            tg_buf_printf(&known, "%s%s", known.len ? ", " : "", archs[i]->hf_types[j]);
    }
    tg_status s = tg_fail(e, TG_E_UNSUPPORTED,
                          "%s: %s '%.*s' is not an architecture this build knows; it knows %s.",
                          tg_config_get_file(keys), gguf ? "general.architecture" : "model_type",
                          (int)TG_MIN(name.len, (size_t)60), name.ptr, tg_buf_cstr(&known));
    tg_buf_deinit(&known);
    return s;
}

static bool is_arch(const tg_arch *arch, tg_checkpoint_kind kind, tg_str name)
{
    if (kind == TG_CHECKPOINT_GGUF) return tg_str_is(name, arch->gguf_arch);
    for (size_t i = 0; i < TG_COUNT(arch->hf_types) && arch->hf_types[i]; i++)
        if (tg_str_is(name, arch->hf_types[i])) return true;
    return false;
}

static tg_status find_arch(const tg_arch **out, tg_config *keys, tg_err *e)
{
    tg_checkpoint_kind kind = tg_config_get_kind(keys);
    const char *key = kind == TG_CHECKPOINT_GGUF ? "general.architecture" : "/model_type";
    tg_str name = {0};
    TG_TRY(tg_config_get_str(keys, key, &name, NULL, e));
    for (size_t i = 0; i < TG_COUNT(archs); i++) {
        if (!is_arch(archs[i], kind, name)) continue;
        *out = archs[i];
        return TG_OK;
    }
    return fail_arch(keys, name, e);
}

/* Keys that nobody asked for may be harmless or may be the reason of wrong answers: say it once. */
static tg_status warn_unread(const tg_loaded_checkpoint *b, const tg_config *keys, tg_err *e)
{
    tg_arena a = {0};
    const char **list = NULL;
    int32_t n = 0;
    tg_status s = tg_config_unread(keys, &a, &list, &n, e);
    if (s == TG_OK && n > 0) {
        tg_buf text = {0};
        for (int32_t i = 0; i < n; i++)
            tg_buf_printf(&text, "%s%s", i ? ", " : "", list[i]);
        tg_log_warn("%s: %s does not know, and did not use: %s", tg_config_get_file(keys),
                    b->arch->name, tg_buf_cstr(&text));
        tg_buf_deinit(&text);
    }
    tg_arena_deinit(&a);
    return s;
}

/* ---- names: patterns with a place for the layer, and a prefix that checkpoints vary */

static const char model_prefix[] = "model.";

/* "model.layers.#.x" -> prefix "layers.7.x". A name outside "model." (the head) moves with a prefix
 * that has something before its own "model.". */
static const char *expand_name(char out[NAME_BYTES], const char *pattern, const char *prefix,
                               int32_t layer)
{
    size_t n = sizeof model_prefix - 1, n_prefix = strlen(prefix), at = 0;
    if (strncmp(pattern, model_prefix, n) == 0) {
        pattern += n;
    } else {
        bool is_inside = n_prefix > n && prefix[n_prefix - n - 1] == '.' &&
                         strcmp(prefix + n_prefix - n, model_prefix) == 0;
        n_prefix = is_inside ? n_prefix - n : 0;
    }
    TG_ASSERT(n_prefix + strlen(pattern) + 12 < NAME_BYTES);
    memcpy(out, prefix, n_prefix);
    at = n_prefix;
    for (const char *p = pattern; *p; p++) {
        if (*p == '#')
            at += (size_t)snprintf(out + at, NAME_BYTES - at, "%" PRId32, layer);
        else
            out[at++] = *p;
    }
    out[at] = 0;
    return out;
}

static const char *rule_pattern(const tg_loaded_checkpoint *b, const tg_weight_rule *r)
{
    return is_gguf(b->c) ? r->gguf : r->hf;
}

/* NULL when the format has no such tensor or the file lacks it. */
static const tg_tensor *find_tensor(const tg_loaded_checkpoint *b, const tg_weight_rule *r,
                                    int32_t layer)
{
    char name[NAME_BYTES];
    const char *pattern = rule_pattern(b, r);
    if (!pattern) return NULL;
    expand_name(name, pattern, b->prefix, layer);
    const tg_tensor *made =
        b->prequantized ? tg_prequantized_find(b->prequantized, tg_str_from_cstr(name)) : NULL;
    return made ? made : tg_checkpoint_find_tensor(b->c, tg_str_from_cstr(name));
}

/* The i-th rule of all lists; NULL behind the last. */
static const tg_weight_rule *get_rule(const tg_arch *arch, int32_t i)
{
    for (int32_t k = 0; k < TG_MAX_RULE_LISTS && arch->rules[k]; k++) {
        if (i < arch->rules[k]->n) return &arch->rules[k]->rules[i];
        i -= arch->rules[k]->n;
    }
    return NULL;
}

static const tg_weight_rule *find_rule(const tg_arch *arch, tg_weight_role role)
{
    const tg_weight_rule *r;
    for (int32_t i = 0; (r = get_rule(arch, i)) != NULL; i++)
        if (r->role == role) return r;
    return NULL;
}

/* Multimodal checkpoints keep the text model under a name of its own. The embedding decides; where
 * it is nowhere, the plain prefix makes the message about missing tensors readable. */
static void find_prefix(tg_loaded_checkpoint *b)
{
    const tg_weight_rule *embed = find_rule(b->arch, TG_W_EMBED);
    b->prefix = is_gguf(b->c) ? "" : model_prefix;
    if (is_gguf(b->c) || !b->arch->hf_prefixes) return;
    for (const char *const *p = b->arch->hf_prefixes; *p; p++) {
        b->prefix = *p;
        if (find_tensor(b, embed, 0)) return;
    }
    b->prefix = b->arch->hf_prefixes[0];
}

/* ---- shapes */

static int64_t find_size(const tg_hparams *h, tg_weight_dim s)
{
    switch (s) {
    case TG_DIM_1: return 1;
    case TG_DIM_D: return h->width;
    case TG_DIM_HD: return (int64_t)h->n_heads * h->head_dim;
    case TG_DIM_KD: return (int64_t)h->n_kv_heads * h->head_dim;
    case TG_DIM_HEAD: return h->head_dim;
    case TG_DIM_F: return h->ffn;
    case TG_DIM_V: return h->n_embed_rows;
    }
    TG_ASSERT(false && "no size");
    return 0;
}

/* A vector has one dimension in both formats; [n, 1] is somebody's mistake. */
static bool has_shape(const tg_tensor *t, int64_t rows, int64_t cols, bool is_vector)
{
    if (is_vector) return t->n_dims == 1 && t->dims[0] == rows;
    return t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == cols;
}

/* Orientation is decided by the family, so a square matrix is taken as it lies; one that would fit
 * turned gets a hint. */
static tg_status check_shape(const tg_tensor *t, int64_t rows, int64_t cols, bool is_vector,
                             tg_err *e)
{
    if (has_shape(t, rows, cols, is_vector)) return TG_OK;
    tg_buf is = {0}, want = {0};
    tg_tensor_print_dims(&is, t);
    tg_buf_printf(&want, is_vector ? "[%" PRId64 "]" : "[%" PRId64 ", %" PRId64 "]", rows, cols);
    bool is_turned = !is_vector && has_shape(t, cols, rows, false);
    tg_status s = tg_fail(
        e, TG_E_CORRUPT, "%s: tensor '%.*s' is %s, but the model's sizes ask for %s%s.", t->file,
        (int)TG_MIN(t->name.len, (size_t)NAME_BYTES), t->name.ptr, tg_buf_cstr(&is),
        tg_buf_cstr(&want), is_turned ? "; it is stored with inputs and outputs exchanged" : "");
    tg_buf_deinit(&is);
    tg_buf_deinit(&want);
    return s;
}

/* The embedding's rows rule memory: more than the vocabulary is padding, fewer is an error. */
static tg_status read_embed_rows(tg_loaded_checkpoint *b, tg_err *e)
{
    const tg_tensor *t = find_tensor(b, find_rule(b->arch, TG_W_EMBED), 0);
    b->h.n_embed_rows = b->h.n_vocab;
    if (!t || t->n_dims != 2) return TG_OK; /* missing or misshapen: said with the others */
    if (t->dims[0] > INT32_MAX / 2)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: tensor '%.*s' has %" PRId64 " rows; at most %d are supported.", t->file,
                       (int)TG_MIN(t->name.len, (size_t)NAME_BYTES), t->name.ptr, t->dims[0],
                       INT32_MAX / 2);
    if (b->h.n_vocab == 0) b->h.n_vocab = (int32_t)t->dims[0]; /* nothing says otherwise */
    if (t->dims[0] < b->h.n_vocab)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: the vocabulary has %d tokens, but tensor '%.*s' has only %" PRId64
                       " rows.",
                       t->file, b->h.n_vocab, (int)TG_MIN(t->name.len, (size_t)NAME_BYTES),
                       t->name.ptr, t->dims[0]);
    b->h.n_embed_rows = (int32_t)t->dims[0];
    return TG_OK;
}

/* ---- weights */

/* Names of tensors that are wrong in one way: how many, and the first few. */
typedef struct name_list {
    int32_t n;
    char shown[SHOWN][NAME_BYTES];
} name_list;

static void add_name(name_list *l, const char *name, size_t n)
{
    if (l->n < SHOWN) { /* cut between characters where it is longer; the rest is zero already */
        size_t most = NAME_BYTES - 1;
        for (; n > most && most > 0 && ((uint8_t)name[most] & 0xc0) == 0x80; most--) {
        }
        n = TG_MIN(n, most);
        memcpy(l->shown[l->n], name, n);
    }
    l->n++;
}

static void print_names(tg_buf *out, const name_list *l, const char *one, const char *many)
{
    tg_buf_printf(out, "%" PRId32 " tensor%s ", l->n, l->n == 1 ? one : many);
    for (int32_t i = 0; i < l->n && i < SHOWN; i++)
        tg_buf_printf(out, "%s'%s'", i ? ", " : "(", l->shown[i]);
    tg_buf_add_cstr(out, l->n > SHOWN ? ", ...)" : ")");
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* When one list is the other with something in front, say so: the commonest reason. */
static void print_prefix_hint(tg_buf *out, const name_list *missing, const name_list *surplus)
{
    for (int32_t i = 0; i < missing->n && i < SHOWN; i++)
        for (int32_t j = 0; j < surplus->n && j < SHOWN; j++) {
            const char *want = missing->shown[i], *is = surplus->shown[j];
            size_t n_want = strlen(want), n_is = strlen(is);
            if (ends_with(is, want)) {
                tg_buf_printf(out, "; the names have '%.*s' in front", (int)(n_is - n_want), is);
                return;
            }
            if (ends_with(want, is)) {
                tg_buf_printf(out, "; the names lack '%.*s' in front", (int)(n_want - n_is), want);
                return;
            }
        }
}

static tg_status fail_names(const tg_loaded_checkpoint *b, const name_list *missing,
                            const name_list *surplus, tg_err *e)
{
    tg_buf text = {0};
    if (missing->n) print_names(&text, missing, " is missing", "s are missing");
    if (missing->n && surplus->n) tg_buf_add_cstr(&text, " and ");
    if (surplus->n) print_names(&text, surplus, " is not known", "s are not known");
    print_prefix_hint(&text, missing, surplus);
    tg_status s = tg_fail(e, TG_E_CORRUPT, "%s: for %s, %s.", tg_checkpoint_get_path(b->c),
                          b->arch->name, tg_buf_cstr(&text));
    tg_buf_deinit(&text);
    return s;
}

static tg_found_weight *get_found(const tg_loaded_checkpoint *b, tg_weight_role role, int32_t layer)
{
    return &b->found[(int64_t)role * b->h.n_layers + layer];
}

static int32_t n_layers_of(const tg_loaded_checkpoint *b, tg_weight_role role)
{
    return tg_weight_role_is_per_layer(role) ? b->h.n_layers : 1;
}

/* An optional weight that some layers have is needed in all. */
static bool is_needed(const tg_loaded_checkpoint *b, const tg_weight_rule *r)
{
    if (r->role == TG_W_HEAD) return !b->h.is_tied;
    if (!r->is_optional) return true;
    for (int32_t l = 0; l < n_layers_of(b, r->role); l++)
        if (get_found(b, r->role, l)->tensor) return true;
    return false;
}

/* ---- one tensor for several weights */

static tg_weight_part part_of(const tg_loaded_checkpoint *b, const tg_weight_rule *r)
{
    return is_gguf(b->c) ? r->gguf_part : r->hf_part;
}

/* Rows of the whole tensor, and where the weight's own begin in it. */
static int64_t find_part(const tg_loaded_checkpoint *b, const tg_weight_rule *r, int64_t *first,
                         tg_row_order *order)
{
    const tg_hparams *h = &b->h;
    int64_t q = find_size(h, TG_DIM_HD), k = find_size(h, TG_DIM_KD);
    int32_t group = h->n_heads / h->n_kv_heads;
    tg_weight_part part = part_of(b, r);
    *first = 0;
    switch (part) {
    case TG_WEIGHT_PART_ALL: return find_size(h, r->rows);
    case TG_WEIGHT_PART_Q: return q + 2 * k;
    case TG_WEIGHT_PART_K: *first = q; return q + 2 * k;
    case TG_WEIGHT_PART_V: *first = q + k; return q + 2 * k;
    case TG_WEIGHT_PART_GROUP_Q:
    case TG_WEIGHT_PART_GROUP_K:
    case TG_WEIGHT_PART_GROUP_V:
        order->run = part == TG_WEIGHT_PART_GROUP_Q ? group * h->head_dim : h->head_dim;
        order->step = (group + 2) * h->head_dim;
        if (part == TG_WEIGHT_PART_GROUP_K) *first = (int64_t)group * h->head_dim;
        if (part == TG_WEIGHT_PART_GROUP_V) *first = (int64_t)(group + 1) * h->head_dim;
        return q + 2 * k;
    case TG_WEIGHT_PART_GATE: return 2 * find_size(h, TG_DIM_F);
    case TG_WEIGHT_PART_UP: *first = find_size(h, TG_DIM_F); return 2 * *first;
    }
    TG_ASSERT(false && "no part");
    return 0;
}

static bool is_rotated(tg_weight_role role)
{
    return role == TG_W_Q || role == TG_W_K || role == TG_W_Q_BIAS || role == TG_W_K_BIAS;
}

/* How this checkpoint's rows become the weight's. */
static tg_row_order order_of(const tg_loaded_checkpoint *b, const tg_weight_rule *r)
{
    bool has_pairs = is_gguf(b->c) ? b->arch->gguf_has_pairs : b->arch->hf_has_pairs;
    tg_row_order o = {.fix = is_gguf(b->c) ? r->gguf_fix : r->hf_fix,
                      .head_dim = b->h.head_dim,
                      .rotary_dim = b->h.ropes[0].rotary_dim};
    if (has_pairs && is_rotated(r->role)) {
        bool is_q = r->role == TG_W_Q || r->role == TG_W_Q_BIAS;
        o.fix = is_q ? TG_WEIGHT_FIX_UNPERMUTE_Q : TG_WEIGHT_FIX_UNPERMUTE_K;
    }
    return o;
}

/* Checks a tensor and makes it, or a view of its rows, the weight. */
static tg_status take_tensor(tg_loaded_checkpoint *b, tg_found_weight *w, const tg_tensor *t,
                             tg_err *e)
{
    const tg_weight_rule *r = w->rule;
    int64_t first, rows = find_size(&b->h, r->rows), cols = find_size(&b->h, r->cols);
    int64_t all = find_part(b, r, &first, &w->order);
    TG_TRY(check_shape(t, all, cols, r->cols == TG_DIM_1, e));
    w->tensor = t;
    if (all == rows) return TG_OK;
    tg_tensor *view = TG_ARENA_ARRAY(&b->arena, tg_tensor, 1);
    if (!view) return tg_fail_nomem(e, sizeof *view, "a view of a tensor");
    *view = *t;
    view->dims[0] = rows;
    view->first_row += first;
    if (!t->prequant)
        view->data = (const uint8_t *)t->data + (size_t)first * tg_dtype_row_bytes(t->dtype, cols);
    w->tensor = view;
    return TG_OK;
}

static tg_status find_weights(tg_loaded_checkpoint *b, name_list *missing, tg_err *e)
{
    const tg_weight_rule *r;
    for (int32_t i = 0; (r = get_rule(b->arch, i)) != NULL; i++) {
        /* A tied model's head is the embedding, also where the file has a copy of it. */
        bool is_tied_head = r->role == TG_W_HEAD && b->h.is_tied;
        for (int32_t l = 0; l < n_layers_of(b, r->role); l++) {
            tg_found_weight *w = get_found(b, r->role, l);
            w->rule = r;
            w->order = order_of(b, r);
            const tg_tensor *t = is_tied_head ? NULL : find_tensor(b, r, l);
            if (t) TG_TRY(take_tensor(b, w, t, e));
        }
        /* A tensor of several weights is missed once. */
        tg_weight_part part = part_of(b, r);
        bool is_first = part == TG_WEIGHT_PART_ALL || part == TG_WEIGHT_PART_Q ||
                        part == TG_WEIGHT_PART_GROUP_Q || part == TG_WEIGHT_PART_GATE;
        for (int32_t l = 0; is_first && l < n_layers_of(b, r->role); l++) {
            char name[NAME_BYTES];
            if (get_found(b, r->role, l)->tensor || !is_needed(b, r)) continue;
            expand_name(name, rule_pattern(b, r), b->prefix, l);
            add_name(missing, name, strlen(name));
        }
    }
    return TG_OK;
}

/* Does `name` fit the pattern with some layer that the model has? */
static bool is_match(const tg_loaded_checkpoint *b, tg_str name, const tg_weight_rule *r)
{
    char want[NAME_BYTES];
    const char *pattern = rule_pattern(b, r);
    int32_t layer = 0;
    if (!pattern || name.len >= NAME_BYTES) return false;
    if (tg_weight_role_is_per_layer(r->role)) {
        /* The layer is the first number that follows a dot. */
        size_t i = 1;
        while (i < name.len &&
               !(name.ptr[i - 1] == '.' && name.ptr[i] >= '0' && name.ptr[i] <= '9'))
            i++;
        for (; i < name.len && name.ptr[i] >= '0' && name.ptr[i] <= '9'; i++)
            if ((layer = 10 * layer + (name.ptr[i] - '0')) >= b->h.n_layers) return false;
    }
    return tg_str_is(name, expand_name(want, pattern, b->prefix, layer));
}

/* What a row of the architecture lets pass: frequencies saved beside the weights, another model's
 * tower. */
static bool is_ignored(const tg_loaded_checkpoint *b, tg_str name)
{
    for (const char *const *p = b->arch->ignored_tensors; *p; p++) {
        size_t n = strlen(*p);
        for (size_t i = 0; i + n <= name.len; i++)
            if (memcmp(name.ptr + i, *p, n) == 0) return true;
    }
    return false;
}

static void find_surplus(const tg_loaded_checkpoint *b, name_list *surplus)
{
    for (int32_t i = 0; i < tg_checkpoint_n_tensors(b->c); i++) {
        tg_str name = tg_checkpoint_get_tensor(b->c, i)->name;
        const tg_tensor *made =
            b->prequantized ? tg_prequantized_find_codes(b->prequantized, name) : NULL;
        bool is_known = is_ignored(b, name) || (b->prequantized && tg_prequantized_is_side(name));
        const tg_weight_rule *r;
        for (int32_t k = 0; !is_known && (r = get_rule(b->arch, k)) != NULL; k++)
            is_known = is_match(b, made ? made->name : name, r);
        if (!is_known) add_name(surplus, name.ptr, name.len);
    }
}

static tg_status resolve(tg_loaded_checkpoint *b, tg_config *keys, tg_err *e)
{
    name_list missing = {0}, surplus = {0};
    TG_TRY(find_arch(&b->arch, keys, e));
    b->h.embed_scale = b->h.residual_scale = b->h.logit_scale = 1;
    TG_TRY(b->arch->read_hparams(&b->h, keys, b->c, &b->arena, e));
    TG_TRY(tg_rope_check_lengths(&b->h, tg_config_get_file(keys), e));
    const json_t *quantization = tg_config_get_json(keys, "quantization_config");
    if (quantization) TG_TRY(tg_prequantized_new(&b->prequantized, b->c, quantization, e));
    /* After the architecture asked: what is left has a reader nowhere. */
    TG_TRY(tg_config_refuse_unread(keys, e));
    tg_config_ignore_common(keys);
    TG_TRY(warn_unread(b, keys, e));

    find_prefix(b);
    TG_TRY(read_embed_rows(b, e));
    /* A GGUF file says that its head is the embedding by having no other. */
    if (is_gguf(b->c)) b->h.is_tied = !find_tensor(b, find_rule(b->arch, TG_W_HEAD), 0);
    b->found =
        TG_ARENA_ARRAY(&b->arena, tg_found_weight, (size_t)TG_W_COUNT * (size_t)b->h.n_layers);
    if (!b->found)
        return tg_fail_nomem(e, (size_t)TG_W_COUNT * (size_t)b->h.n_layers * sizeof *b->found,
                             "weight table");
    TG_TRY(find_weights(b, &missing, e));
    find_surplus(b, &surplus);
    return missing.n || surplus.n ? fail_names(b, &missing, &surplus, e) : TG_OK;
}

tg_status tg_loaded_checkpoint_open(tg_loaded_checkpoint **out, const tg_checkpoint *c, tg_err *e)
{
    tg_config *keys = NULL;
    *out = NULL;
    tg_loaded_checkpoint *b = TG_NEW(tg_loaded_checkpoint);
    if (!b) return tg_fail_nomem(e, sizeof *b, "a loaded checkpoint");
    b->c = c;
    tg_status s = tg_config_new(&keys, c, e);
    if (s == TG_OK) s = resolve(b, keys, e);
    tg_config_free(keys);
    if (s != TG_OK) {
        tg_loaded_checkpoint_free(b);
        return s;
    }
    *out = b;
    return TG_OK;
}

void tg_loaded_checkpoint_free(tg_loaded_checkpoint *b)
{
    if (!b) return;
    tg_prequantized_free(b->prequantized);
    tg_arena_deinit(&b->arena);
    tg_mem_free(b);
}

void tg_loaded_checkpoint_limit_vocab(tg_loaded_checkpoint *b, int32_t n_vocab)
{
    b->h.n_vocab = TG_MIN(b->h.n_vocab, n_vocab);
}

const tg_hparams *tg_loaded_checkpoint_hparams(const tg_loaded_checkpoint *b)
{
    return &b->h;
}

const tg_checkpoint *tg_loaded_checkpoint_checkpoint(const tg_loaded_checkpoint *b)
{
    return b->c;
}

const tg_arch *tg_loaded_checkpoint_arch(const tg_loaded_checkpoint *b)
{
    return b->arch;
}

const tg_found_weight *tg_loaded_checkpoint_find_weight(const tg_loaded_checkpoint *b,
                                                        tg_weight_role role, int32_t layer)
{
    TG_ASSERT((int)role >= 0 && role < TG_W_COUNT && layer >= 0 && layer < n_layers_of(b, role));
    return get_found(b, role, layer);
}

/* A table that no layer reads is not there. */
static bool is_rope_used(const tg_loaded_checkpoint *b, int32_t which)
{
    if (b->h.ropes[which].rotary_dim == 0) return false;
    for (int32_t l = 0; l < b->h.n_layers; l++) {
        if (b->h.has_no_rope[l]) continue;
        bool is_second = b->h.is_sliding[l] && b->h.ropes[1].rotary_dim > 0;
        if (is_second == (which == 1)) return true;
    }
    return false;
}

tg_weight_shape tg_loaded_checkpoint_weight_shape(const tg_loaded_checkpoint *b,
                                                  tg_weight_role role, int32_t layer,
                                                  int32_t max_length)
{
    tg_weight_shape shape = {0};
    if (role == TG_W_ROPE_0 || role == TG_W_ROPE_1) {
        int32_t which = role == TG_W_ROPE_1;
        shape.is_present = is_rope_used(b, which);
        shape.rows = max_length + tg_rope_original_length(&b->h, max_length);
        shape.cols = b->h.ropes[which].rotary_dim;
        return shape;
    }
    const tg_found_weight *w = tg_loaded_checkpoint_find_weight(b, role, layer);
    if (!w->tensor) return shape;
    shape.is_present = true;
    shape.rows = w->tensor->dims[0];
    shape.cols = w->tensor->n_dims == 2 ? w->tensor->dims[1] : 1;
    return shape;
}

tg_status tg_loaded_checkpoint_build(const tg_loaded_checkpoint *b, int32_t max_length,
                                     tg_graph **out, tg_err *e)
{
    int32_t n_layers = b->h.n_layers;
    tg_weight_shape *shapes = TG_NEW_ARRAY(tg_weight_shape, (size_t)TG_W_COUNT * (size_t)n_layers);
    tg_build *build = NULL;
    if (!shapes)
        return tg_fail_nomem(e, (size_t)TG_W_COUNT * (size_t)n_layers * sizeof *shapes,
                             "weight shapes");
    for (int role = 0; role < TG_W_COUNT; role++)
        for (int32_t l = 0; l < n_layers_of(b, (tg_weight_role)role); l++)
            shapes[(int64_t)role * n_layers + l] =
                tg_loaded_checkpoint_weight_shape(b, (tg_weight_role)role, l, max_length);

    tg_status s = tg_build_new(&build, shapes, n_layers, e);
    if (s == TG_OK) {
        tg_block_decoder(build, &b->h, b->arch->layer);
        s = tg_build_finish(build, out, e);
        if (s != TG_OK) tg_err_context(e, "%s", tg_checkpoint_get_path(b->c));
    }
    tg_mem_free(shapes);
    return s;
}
