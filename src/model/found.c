/* SPDX-License-Identifier: Apache-2.0
 * found.c - a tensor for every weight of the architecture's table.
 *
 * A tensor that the table names and the file lacks is an error, and so is one that the file has and
 * no row knows: a model that drops a bias still talks, only worse. Both lists are shown together,
 * since they explain each other. Where the config and the file disagree, a tied head that differs
 * from the embedding is used with a warning, as in transformers 5; biases that the config denies
 * are refused, unless they are zero everywhere, as converters to GPTQ write them. */
#include "model/found.h"

#include "base/log.h"
#include "format/prequant_matrix.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 160, SHOWN = 3 };

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
    return tg_loaded_checkpoint_is_gguf(b) ? r->gguf : r->hf;
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
    b->prefix = tg_loaded_checkpoint_is_gguf(b) ? "" : model_prefix;
    if (tg_loaded_checkpoint_is_gguf(b) || !b->arch->hf_prefixes) return;
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

int32_t tg_loaded_checkpoint_n_layers(const tg_loaded_checkpoint *b, tg_weight_role role)
{
    return tg_weight_role_is_per_layer(role) ? b->h.n_layers : 1;
}

/* GGUF: a group that some layer has a weight of is needed whole. */
static bool is_in_file(const tg_loaded_checkpoint *b, tg_weight_group group)
{
    const tg_weight_rule *r;
    for (int32_t i = 0; (r = get_rule(b->arch, i)) != NULL; i++)
        for (int32_t l = 0; r->group == group && l < tg_loaded_checkpoint_n_layers(b, r->role); l++)
            if (get_found(b, r->role, l)->tensor) return true;
    return false;
}

static bool is_needed(const tg_loaded_checkpoint *b, const tg_weight_rule *r)
{
    if (r->role == TG_W_HEAD) return !b->h.is_tied;
    if (b->groups[r->group] == TG_PRESENCE_BY_FILE) return is_in_file(b, r->group);
    return b->groups[r->group] == TG_PRESENCE_ALWAYS;
}

/* ---- one tensor for several weights */

static tg_weight_part part_of(const tg_loaded_checkpoint *b, const tg_weight_rule *r)
{
    return tg_loaded_checkpoint_is_gguf(b) ? r->gguf_part : r->hf_part;
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
    bool has_pairs =
        tg_loaded_checkpoint_is_gguf(b) ? b->arch->gguf_has_pairs : b->arch->hf_has_pairs;
    tg_row_order o = {.fix = tg_loaded_checkpoint_is_gguf(b) ? r->gguf_fix : r->hf_fix,
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

/* ---- contradictions between config and file */

/* Row `row` of a tensor as floats; `raw` has room for its bytes. */
static void read_row(const tg_tensor *t, int64_t row, uint8_t *raw, float *out)
{
    size_t bytes = tg_dtype_row_bytes(t->dtype, t->dims[1]);
    const void *src = t->prequant ? raw : (const uint8_t *)t->data + (size_t)row * bytes;
    if (t->prequant) tg_prequant_matrix_read(t, row, raw);
    tg_dtype_unpack(t->dtype, src, out, t->dims[1]);
}

/* Two matrices of one shape. Stops at the first row that differs. */
static tg_status compare_matrices(const tg_tensor *x, const tg_tensor *y, bool *is_equal, tg_err *e)
{
    size_t x_bytes = tg_dtype_row_bytes(x->dtype, x->dims[1]);
    size_t y_bytes = tg_dtype_row_bytes(y->dtype, y->dims[1]);
    tg_arena a = {0};
    *is_equal = true;
    if (x->dtype == y->dtype && !x->prequant && !y->prequant) {
        *is_equal = x->data == y->data || x->n_bytes == 0 || !memcmp(x->data, y->data, x->n_bytes);
        return TG_OK;
    }
    uint8_t *raw = tg_arena_alloc(&a, TG_MAX(x_bytes, y_bytes));
    float *u = TG_ARENA_ARRAY(&a, float, x->dims[1]), *v = TG_ARENA_ARRAY(&a, float, x->dims[1]);
    tg_status s = raw && u && v ? TG_OK : tg_fail_nomem(e, x_bytes, "rows of two matrices");
    for (int64_t row = 0; s == TG_OK && *is_equal && row < x->dims[0]; row++) {
        read_row(x, row, raw, u);
        read_row(y, row, raw, v);
        for (int64_t i = 0; *is_equal && i < x->dims[1]; i++)
            *is_equal = u[i] == v[i];
    }
    tg_arena_deinit(&a);
    return s;
}

/* A head beside tie_word_embeddings: a copy of the embedding is not used, another head is. */
static tg_status check_tied_head(tg_loaded_checkpoint *b, tg_err *e)
{
    tg_found_weight *head = get_found(b, TG_W_HEAD, 0);
    const tg_tensor *embed = get_found(b, TG_W_EMBED, 0)->tensor;
    bool is_equal = false;
    if (!b->h.is_tied || !head->tensor || !embed) return TG_OK;
    TG_TRY(compare_matrices(head->tensor, embed, &is_equal, e));
    if (is_equal) {
        head->tensor = NULL;
        return TG_OK;
    }
    tg_log_warn("%s: tie_word_embeddings says that the head is the embedding, but tensor '%.*s' "
                "holds another one, which is used, as in transformers; set the key to false",
                tg_checkpoint_get_part_path(b->c, TG_HF_CONFIG), (int)head->tensor->name.len,
                head->tensor->name.ptr);
    b->h.is_tied = false;
    return TG_OK;
}

/* Of a vector. */
static tg_status check_zero(const tg_tensor *t, bool *is_zero, tg_err *e)
{
    tg_arena a = {0};
    float *v = TG_ARENA_ARRAY(&a, float, t->dims[0]);
    if (!v) return tg_fail_nomem(e, (size_t)t->dims[0] * sizeof *v, "a bias");
    tg_dtype_unpack(t->dtype, t->data, v, t->dims[0]);
    *is_zero = true;
    for (int64_t i = 0; i < t->dims[0]; i++)
        *is_zero = *is_zero && v[i] == 0;
    tg_arena_deinit(&a);
    return TG_OK;
}

/* A tensor of a group that this model does not have. Zero biases change nothing. */
static tg_status check_denied(const tg_loaded_checkpoint *b, tg_found_weight *w, tg_err *e)
{
    tg_weight_group g = w->rule->group;
    const tg_tensor *t = w->tensor;
    const char *key = b->group_keys[g], *file = tg_checkpoint_get_part_path(b->c, TG_HF_CONFIG);
    bool is_inverse = b->arch->groups[g].is_inverse, is_zero = false;
    w->tensor = NULL;
    if (g != TG_WEIGHT_GROUP_FFN_NORM) TG_TRY(check_zero(t, &is_zero, e));
    if (is_zero) return TG_OK;
    if (!key)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: tensor '%.*s' is there, but %s models of this kind have no such "
                       "weights: remove it, or correct the model's type.",
                       t->file, (int)t->name.len, t->name.ptr, b->arch->name);
    return tg_fail(
        e, TG_E_CORRUPT,
        "%s: %s is %s, so the model has no such weights, but the file has tensor '%.*s': "
        "set the key to %s to use them, or remove them.",
        file, key,
        b->is_key_absent[g]
            ? (is_inverse ? "absent, which means true" : "absent, which means false")
            : (is_inverse ? "true" : "false"),
        (int)t->name.len, t->name.ptr, is_inverse ? "false" : "true");
}

static tg_status find_rule_weights(tg_loaded_checkpoint *b, const tg_weight_rule *r, tg_err *e)
{
    for (int32_t l = 0; l < tg_loaded_checkpoint_n_layers(b, r->role); l++) {
        tg_found_weight *w = get_found(b, r->role, l);
        w->rule = r;
        w->order = order_of(b, r);
        const tg_tensor *t = find_tensor(b, r, l);
        if (!t) continue;
        TG_TRY(take_tensor(b, w, t, e));
        if (b->groups[r->group] == TG_PRESENCE_NEVER) TG_TRY(check_denied(b, w, e));
    }
    return TG_OK;
}

/* A tensor of several weights is missed once. */
static void find_missing(const tg_loaded_checkpoint *b, const tg_weight_rule *r, name_list *missing)
{
    tg_weight_part part = part_of(b, r);
    bool is_first = part == TG_WEIGHT_PART_ALL || part == TG_WEIGHT_PART_Q ||
                    part == TG_WEIGHT_PART_GROUP_Q || part == TG_WEIGHT_PART_GATE;
    if (!is_first || !is_needed(b, r)) return;
    for (int32_t l = 0; l < tg_loaded_checkpoint_n_layers(b, r->role); l++) {
        char name[NAME_BYTES];
        if (get_found(b, r->role, l)->tensor) continue;
        expand_name(name, rule_pattern(b, r), b->prefix, l);
        add_name(missing, name, strlen(name));
    }
}

/* ---- surplus tensors */

/* Does `name` fit the pattern, with a layer that the model has where it has a '#'? */
static bool is_match(const tg_loaded_checkpoint *b, tg_str name, const char *pattern)
{
    char want[NAME_BYTES];
    int32_t layer = 0;
    if (!pattern || name.len >= NAME_BYTES) return false;
    if (strchr(pattern, '#')) {
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

static bool is_weight(const tg_loaded_checkpoint *b, tg_str name)
{
    const tg_weight_rule *r;
    for (int32_t i = 0; (r = get_rule(b->arch, i)) != NULL; i++)
        if (is_match(b, name, rule_pattern(b, r))) return true;
    return false;
}

static bool is_ignored(const tg_loaded_checkpoint *b, tg_str name)
{
    const char *const *p =
        tg_loaded_checkpoint_is_gguf(b) ? b->arch->gguf_ignored : b->arch->hf_ignored;
    for (; p && *p; p++) {
        size_t n = strlen(*p);
        bool is_subtree = (*p)[n - 1] == '*';
        if (is_subtree ? tg_str_has_prefix(name, (tg_str){*p, n - 1}) : is_match(b, name, *p))
            return true;
    }
    return false;
}

/* Scales and zeros beside the codes of a weight of ours, or scales of the cache. */
static bool is_beside_weight(const tg_loaded_checkpoint *b, tg_str name)
{
    char weight[NAME_BYTES];
    tg_str stem = tg_prequantized_find_stem(name);
    if (stem.len == 0 || stem.len + sizeof "weight" > NAME_BYTES) return false;
    memcpy(weight, stem.ptr, stem.len);
    memcpy(weight + stem.len, "weight", 6);
    return is_weight(b, (tg_str){weight, stem.len + 6}) ||
           is_match(b, stem, "model.layers.#.self_attn.");
}

static void find_surplus(const tg_loaded_checkpoint *b, name_list *surplus)
{
    for (int32_t i = 0; i < tg_checkpoint_n_tensors(b->c); i++) {
        tg_str name = tg_checkpoint_get_tensor(b->c, i)->name;
        const tg_tensor *made =
            b->prequantized ? tg_prequantized_find_codes(b->prequantized, name) : NULL;
        bool is_known = is_weight(b, made ? made->name : name) || is_ignored(b, name) ||
                        (b->prequantized && is_beside_weight(b, name));
        if (!is_known) add_name(surplus, name.ptr, name.len);
    }
}

tg_status tg_loaded_checkpoint_find_weights(tg_loaded_checkpoint *b, tg_err *e)
{
    name_list missing = {0}, surplus = {0};
    const tg_weight_rule *r;
    size_t n = (size_t)TG_W_COUNT * (size_t)b->h.n_layers;
    find_prefix(b);
    TG_TRY(read_embed_rows(b, e));
    /* A GGUF file says that its head is the embedding by having no other. */
    if (tg_loaded_checkpoint_is_gguf(b))
        b->h.is_tied = !find_tensor(b, find_rule(b->arch, TG_W_HEAD), 0);
    b->found = TG_ARENA_ARRAY(&b->arena, tg_found_weight, n);
    if (!b->found) return tg_fail_nomem(e, n * sizeof *b->found, "weight table");
    for (int32_t i = 0; (r = get_rule(b->arch, i)) != NULL; i++)
        TG_TRY(find_rule_weights(b, r, e));
    TG_TRY(check_tied_head(b, e));
    for (int32_t i = 0; (r = get_rule(b->arch, i)) != NULL; i++)
        find_missing(b, r, &missing);
    find_surplus(b, &surplus);
    return missing.n || surplus.n ? fail_names(b, &missing, &surplus, e) : TG_OK;
}
