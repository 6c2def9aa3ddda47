/* SPDX-License-Identifier: Apache-2.0
 * shipped.c - several tensors of a folder as the one matrix they stand for.
 *
 * A *coding* is a way to write a matrix down: which tensors, and where the code of a place and the
 * zero of a group are. A *method* is what quantization_config calls a family of codings. Truth: the
 * layouts as AutoGPTQ, AutoAWQ, compressed-tensors and transformers' fine-grained fp8 write
 * them. */
#include "format/shipped.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>

enum { MAX_CODINGS = 3, NAME_BYTES = 200 };

typedef struct coding coding;

/* One matrix. */
struct tg_shipped {
    const coding *coding;
    const tg_tensor *codes, *scales, *zeros, *index; /* zeros, index: NULL when there are none */
    int64_t rows, cols;
    int32_t bits;
    int32_t zero_shift; /* added to a stored zero */
    /* The scale of a place is number row / scale_rows * row_stride + group * group_stride; a column
     * belongs to group col / group_cols, or to the one that `index` says. */
    int64_t scale_rows, group_cols, n_groups, row_stride, group_stride;
};

struct tg_shipping {
    const tg_checkpoint *c;
    const char *file; /* config.json, for messages */
    const struct method *method;
    int32_t bits, zero_shift;       /* gptq, awq: of all matrices */
    int64_t group_size;             /* the same; -1: a row is one group */
    int64_t block_rows, block_cols; /* of fp8's scales; 0: not said */
    tg_tensor *tensors;             /* [n] the matrices under their plain names */
    tg_str *codes;                  /* [n] the names of their codes */
    int32_t n;
    tg_names names, code_names; /* into tensors */
    tg_arena arena;
};

typedef struct matrix {
    const tg_shipping *s;
    tg_str stem; /* "model.layers.0.mlp.up_proj." */
    struct tg_shipped *x;
} matrix;

struct coding {
    const char *codes; /* last part of the name of the tensor that holds the codes */
    tg_dtype dtype;    /* and its type */
    const char *scales[2], *zeros, *index;
    bool needs_zeros;
    /* rows, cols and bits from the codes' dimensions, and what must fit them. */
    tg_status (*plan)(matrix *m, tg_err *e);
    int32_t (*code)(const struct tg_shipped *x, int64_t row, int64_t col);
    int32_t (*zero)(const struct tg_shipped *x, int64_t row, int64_t group);
};

typedef struct method {
    const char *name;
    const coding *codings[MAX_CODINGS];
    tg_status (*read)(tg_shipping *s, const json_t *about, tg_err *e); /* NULL: nothing to read */
    const char *const *keys; /* of quantization_config that are understood; NULL-terminated */
} method;

/* ---- single numbers of a tensor, at any address */

static uint32_t get_word(const tg_tensor *t, int64_t i)
{
    uint32_t v;
    memcpy(&v, (const uint8_t *)t->data + (size_t)i * sizeof v, sizeof v);
    return v;
}

static int32_t get_bits(const tg_tensor *t, int64_t word, int64_t bit, int32_t n)
{
    return (int32_t)(get_word(t, word) >> bit & ((1u << n) - 1));
}

static float get_float(const tg_tensor *t, int64_t i)
{
    float v;
    size_t one = tg_dtype_row_bytes(t->dtype, 1);
    tg_dtype_unpack(t->dtype, (const uint8_t *)t->data + (size_t)i * one, &v, 1);
    return v;
}

/* ---- places: where the code of a place is, and the zero of a group of a row */

/* [cols bits / 32, rows]: a word holds neighbours of one row. */
static int32_t gptq_code(const struct tg_shipped *x, int64_t row, int64_t col)
{
    int64_t bit = col * x->bits;
    return get_bits(x->codes, bit / 32 * x->rows + row, bit % 32, x->bits);
}

/* [groups, rows bits / 32]. The first format stores one less, and rolls over. */
static int32_t gptq_zero(const struct tg_shipped *x, int64_t row, int64_t group)
{
    int64_t bit = row * x->bits, words = x->rows * x->bits / 32;
    int32_t stored = get_bits(x->zeros, group * words + bit / 32, bit % 32, x->bits);
    return (stored + x->zero_shift) & ((1 << x->bits) - 1);
}

/* The nibble of a word in which the row of its eight stands. */
static const int32_t awq_nibbles[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* [cols, rows / 8] */
static int32_t awq_code(const struct tg_shipped *x, int64_t row, int64_t col)
{
    return get_bits(x->codes, col * (x->rows / 8) + row / 8, 4 * awq_nibbles[row % 8], 4);
}

static int32_t awq_zero(const struct tg_shipped *x, int64_t row, int64_t group)
{
    return get_bits(x->zeros, group * (x->rows / 8) + row / 8, 4 * awq_nibbles[row % 8], 4);
}

/* [rows, cols bits / 32], codes and zeros stored from the middle up. */
static int32_t packed_code(const struct tg_shipped *x, int64_t row, int64_t col)
{
    int64_t bit = col * x->bits, words = x->codes->dims[1];
    return get_bits(x->codes, row * words + bit / 32, bit % 32, x->bits) - (1 << (x->bits - 1));
}

/* [rows bits / 32, groups] */
static int32_t packed_zero(const struct tg_shipped *x, int64_t row, int64_t group)
{
    int64_t bit = row * x->bits;
    return get_bits(x->zeros, bit / 32 * x->n_groups + group, bit % 32, x->bits) -
           (1 << (x->bits - 1));
}

static int32_t int8_code(const struct tg_shipped *x, int64_t row, int64_t col)
{
    return ((const int8_t *)x->codes->data)[row * x->cols + col];
}

static int32_t int8_zero(const struct tg_shipped *x, int64_t row, int64_t group)
{
    return ((const int8_t *)
                x->zeros->data)[row / x->scale_rows * x->row_stride + group * x->group_stride];
}

/* ---- checks */

static const tg_tensor *find_part(const matrix *m, const char *part)
{
    char name[NAME_BYTES];
    size_t n = strlen(part);
    if (m->stem.len + n > sizeof name) return NULL;
    memcpy(name, m->stem.ptr, m->stem.len);
    memcpy(name + m->stem.len, part, n);
    return tg_checkpoint_find_tensor(m->s->c, (tg_str){name, m->stem.len + n});
}

static tg_status fail_shape(const tg_tensor *t, const tg_tensor *codes, int64_t rows, int64_t cols,
                            tg_err *e)
{
    tg_buf is = {0}, with = {0};
    tg_tensor_print_dims(&is, t);
    tg_tensor_print_dims(&with, codes);
    tg_status s = tg_fail(
        e, TG_E_CORRUPT,
        "%s: tensor '%.*s' is %s %s, but with '%.*s' of %s it must be [%" PRId64 ", %" PRId64 "].",
        t->file, (int)t->name.len, t->name.ptr, tg_dtype_get_name(t->dtype), tg_buf_cstr(&is),
        (int)codes->name.len, codes->name.ptr, tg_buf_cstr(&with), rows, cols);
    tg_buf_deinit(&is);
    tg_buf_deinit(&with);
    return s;
}

static bool has_dims(const tg_tensor *t, tg_dtype dtype, int64_t rows, int64_t cols)
{
    return t->dtype == dtype && t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == cols;
}

static tg_status check_matrix_of_codes(const matrix *m, tg_err *e)
{
    const tg_tensor *t = m->x->codes;
    if (t->n_dims == 2 && t->dims[0] > 0 && t->dims[1] > 0 && t->dims[0] < INT32_MAX &&
        t->dims[1] < INT32_MAX)
        return TG_OK;
    tg_buf is = {0};
    tg_tensor_print_dims(&is, t);
    tg_status s = tg_fail(e, TG_E_CORRUPT, "%s: tensor '%.*s' is %s, but codes are a matrix.",
                          t->file, (int)t->name.len, t->name.ptr, tg_buf_cstr(&is));
    tg_buf_deinit(&is);
    return s;
}

/* Scales of [groups, rows]: gptq and awq. */
static tg_status plan_groups_first(matrix *m, tg_err *e)
{
    struct tg_shipped *x = m->x;
    const tg_tensor *t = x->scales;
    x->scale_rows = 1;
    x->row_stride = 1;
    x->group_stride = x->rows;
    x->group_cols = m->s->group_size > 0 ? m->s->group_size : x->cols;
    x->n_groups = tg_div_up(x->cols, x->group_cols);
    if (t->n_dims != 2 || t->dims[0] != x->n_groups || t->dims[1] != x->rows)
        return fail_shape(t, x->codes, x->n_groups, x->rows, e);
    int64_t words = x->rows * x->bits / 32;
    if (x->zeros && !has_dims(x->zeros, TG_DTYPE_I32, x->n_groups, words))
        return fail_shape(x->zeros, x->codes, x->n_groups, words, e);
    return TG_OK;
}

static tg_status plan_gptq(matrix *m, tg_err *e)
{
    struct tg_shipped *x = m->x;
    x->bits = m->s->bits;
    x->zero_shift = m->s->zero_shift;
    x->cols = x->codes->dims[0] * (32 / x->bits);
    x->rows = x->codes->dims[1];
    if (x->rows % (32 / x->bits) != 0)
        return tg_fail(
            e, TG_E_UNSUPPORTED, "%s: tensor '%.*s' has %" PRId64 " outputs, no multiple of %d.",
            x->codes->file, (int)x->codes->name.len, x->codes->name.ptr, x->rows, 32 / x->bits);
    return plan_groups_first(m, e);
}

static tg_status plan_awq(matrix *m, tg_err *e)
{
    struct tg_shipped *x = m->x;
    x->bits = m->s->bits;
    x->cols = x->codes->dims[0];
    x->rows = x->codes->dims[1] * 8;
    return plan_groups_first(m, e);
}

/* Scales of one number, one a row, [rows, groups], or one a block. */
static tg_status plan_rows_first(matrix *m, tg_err *e)
{
    struct tg_shipped *x = m->x;
    const tg_tensor *t = x->scales;
    int64_t r = t->n_dims > 0 ? t->dims[0] : 1, g = t->n_dims > 1 ? t->dims[1] : 1;
    int64_t block_rows = m->s->block_rows, block_cols = m->s->block_cols;
    x->scale_rows = 1;
    x->group_cols = x->cols;
    x->n_groups = 1;
    if (t->n_dims <= 2 && r == 1 && g == 1) {
        x->scale_rows = x->rows;
        return TG_OK;
    }
    x->row_stride = g;
    x->group_stride = 1;
    x->n_groups = g;
    if (t->n_dims <= 2 && r == x->rows && g >= 1 && x->cols % g == 0) {
        x->group_cols = x->cols / g;
        return TG_OK;
    }
    if (block_rows == 0) return fail_shape(t, x->codes, x->rows, 1, e);
    x->scale_rows = block_rows;
    x->group_cols = block_cols;
    if (t->n_dims != 2 || r != tg_div_up(x->rows, block_rows) ||
        g != tg_div_up(x->cols, block_cols))
        return fail_shape(t, x->codes, tg_div_up(x->rows, block_rows),
                          tg_div_up(x->cols, block_cols), e);
    return TG_OK;
}

static tg_status plan_plain(matrix *m, tg_err *e)
{
    struct tg_shipped *x = m->x;
    x->rows = x->codes->dims[0];
    x->cols = x->codes->dims[1];
    x->bits = 8;
    TG_TRY(plan_rows_first(m, e));
    if (x->zeros && (x->zeros->dtype != TG_DTYPE_I8 ||
                     tg_tensor_n_elems(x->zeros) != tg_tensor_n_elems(x->scales)))
        return fail_shape(x->zeros, x->codes, x->rows, x->n_groups, e);
    return TG_OK;
}

/* How many columns there are, weight_shape says: the last word may be padded. */
static tg_status plan_packed(matrix *m, tg_err *e)
{
    struct tg_shipped *x = m->x;
    const tg_tensor *shape = find_part(m, "weight_shape"), *t = x->codes;
    int64_t sizes[2];
    if (!shape || shape->dtype != TG_DTYPE_I64 || tg_tensor_n_elems(shape) != 2)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: tensor '%.*sweight_shape' of two i64 numbers is missing.", t->file,
                       (int)m->stem.len, m->stem.ptr);
    memcpy(sizes, shape->data, sizeof sizes);
    x->rows = sizes[0];
    x->cols = sizes[1];
    for (x->bits = 4; x->bits <= 8; x->bits += 4)
        if (x->rows == t->dims[0] && x->cols > 0 && x->cols < INT32_MAX &&
            tg_div_up(x->cols * x->bits, 32) == t->dims[1])
            break;
    if (x->bits > 8)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: tensor '%.*s' of [%" PRId64 ", %" PRId64
                       "] words cannot hold the [%" PRId64 ", %" PRId64
                       "] codes of 4 or 8 bits that '%.*s' speaks of.",
                       t->file, (int)t->name.len, t->name.ptr, t->dims[0], t->dims[1], x->rows,
                       x->cols, (int)shape->name.len, shape->name.ptr);
    TG_TRY(plan_rows_first(m, e));
    int64_t words = tg_div_up(x->rows * x->bits, 32);
    if (x->zeros && !has_dims(x->zeros, TG_DTYPE_I32, words, x->n_groups))
        return fail_shape(x->zeros, x->codes, words, x->n_groups, e);
    return TG_OK;
}

/* Every column's group is there. */
static tg_status check_index(const struct tg_shipped *x, tg_err *e)
{
    const tg_tensor *t = x->index;
    if (t->n_dims != 1 || t->dims[0] != x->cols || t->dtype != TG_DTYPE_I32)
        return fail_shape(t, x->codes, x->cols, 1, e);
    for (int64_t c = 0; c < x->cols; c++) {
        int32_t g = (int32_t)get_word(t, c);
        if (g < 0 || g >= x->n_groups)
            return tg_fail(e, TG_E_CORRUPT,
                           "%s: tensor '%.*s' gives column %" PRId64 " group %" PRId32
                           ", but there are %" PRId64 ".",
                           t->file, (int)t->name.len, t->name.ptr, c, g, x->n_groups);
    }
    return TG_OK;
}

static tg_status check_scales(const struct tg_shipped *x, tg_err *e)
{
    const tg_tensor *t = x->scales;
    bool is_float =
        t->dtype == TG_DTYPE_F32 || t->dtype == TG_DTYPE_F16 || t->dtype == TG_DTYPE_BF16;
    for (int64_t i = 0, n = tg_tensor_n_elems(t); is_float && i < n; i++)
        if (!isfinite(get_float(t, i)))
            return tg_fail(e, TG_E_CORRUPT, "%s: tensor '%.*s' holds %g at %" PRId64 ".", t->file,
                           (int)t->name.len, t->name.ptr, (double)get_float(t, i), i);
    return is_float ? TG_OK
                    : tg_fail(e, TG_E_UNSUPPORTED,
                              "%s: tensor '%.*s' has type %s; scales are f32, f16 or bf16.",
                              t->file, (int)t->name.len, t->name.ptr, tg_dtype_get_name(t->dtype));
}

/* ---- the type that holds all values */

static int64_t group_of(const struct tg_shipped *x, int64_t col)
{
    return x->index ? (int32_t)get_word(x->index, col) : col / x->group_cols;
}

static float scale_of(const struct tg_shipped *x, int64_t row, int64_t group)
{
    return get_float(x->scales, row / x->scale_rows * x->row_stride + group * x->group_stride);
}

/* An index that says what the columns' order says too is none. */
static void drop_plain_index(struct tg_shipped *x)
{
    for (int64_t c = 0; x->index && c < x->cols; c++)
        if ((int32_t)get_word(x->index, c) != c / x->group_cols) return;
    x->index = NULL;
}

static bool are_scales_f16(const struct tg_shipped *x)
{
    for (int64_t i = 0, n = tg_tensor_n_elems(x->scales); i < n; i++) {
        float d = get_float(x->scales, i);
        if (tg_f16_to_f32(tg_f32_to_f16(d)) != d) return false;
    }
    return true;
}

static tg_dtype choose_dtype(const struct tg_shipped *x)
{
    if (!x->coding->code || x->index || x->cols % 32 != 0) return TG_DTYPE_F32;
    if (x->n_groups > 1 && x->group_cols % 32 != 0) return TG_DTYPE_F32;
    /* Codes of gptq and awq begin at 0, the others at the lowest number of their bits. */
    int32_t low = x->coding->needs_zeros ? 0 : -(1 << (x->bits - 1));
    int32_t high = low + (1 << x->bits) - 1, least = INT32_MAX, most = INT32_MIN;
    for (int64_t r = 0; x->zeros && r < x->rows; r++)
        for (int64_t g = 0; g < x->n_groups; g++) {
            int32_t z = x->coding->zero(x, r, g);
            least = TG_MIN(least, z);
            most = TG_MAX(most, z);
        }
    if (x->zeros) {
        low -= most;
        high -= least;
    }
    if (low < -128 || high > 127) return TG_DTYPE_F32;
    if (!are_scales_f16(x)) return TG_DTYPE_Q8_F;
    if (low >= -8 && high <= 7) return TG_DTYPE_Q4_0;
    return low >= -16 && high <= 15 ? TG_DTYPE_Q5_0 : TG_DTYPE_Q8_0;
}

/* ---- matrices of a folder */

/* The name without `part` and with the dot before it; len 0 when it does not end so. */
static tg_str find_stem(tg_str name, const char *part)
{
    size_t n = strlen(part);
    bool is_end = name.len > n + 1 && name.ptr[name.len - n - 1] == '.' &&
                  memcmp(name.ptr + name.len - n, part, n) == 0;
    return (tg_str){name.ptr, is_end ? name.len - n : 0};
}

static tg_status fail_part(const tg_tensor *codes, tg_str stem, const char *part, tg_err *e)
{
    return tg_fail(e, TG_E_CORRUPT,
                   "%s: tensor '%.*s' is quantized, but '%.*s%s', without which its numbers mean "
                   "nothing, is missing.",
                   codes->file, (int)codes->name.len, codes->name.ptr, (int)stem.len, stem.ptr,
                   part);
}

static tg_status add_matrix(tg_shipping *s, const coding *k, const tg_tensor *codes, tg_str stem,
                            tg_err *e)
{
    static const char weight[] = "weight";
    struct tg_shipped *x = TG_ARENA_NEW(&s->arena, struct tg_shipped);
    char *name = tg_arena_alloc(&s->arena, stem.len + sizeof weight);
    if (!x || !name) return tg_fail_nomem(e, sizeof *x + stem.len, "a quantized weight");
    matrix m = {.s = s, .stem = stem, .x = x};
    x->coding = k;
    x->codes = codes;
    for (size_t i = 0; i < TG_COUNT(k->scales) && !x->scales && k->scales[i]; i++)
        x->scales = find_part(&m, k->scales[i]);
    if (!x->scales) return fail_part(codes, stem, k->scales[0], e);
    x->zeros = k->zeros ? find_part(&m, k->zeros) : NULL;
    if (k->needs_zeros && !x->zeros) return fail_part(codes, stem, k->zeros, e);
    x->index = k->index ? find_part(&m, k->index) : NULL;
    TG_TRY(check_matrix_of_codes(&m, e));
    TG_TRY(check_scales(x, e));
    TG_TRY(k->plan(&m, e));
    if (x->index) TG_TRY(check_index(x, e));
    drop_plain_index(x);

    memcpy(name, stem.ptr, stem.len);
    memcpy(name + stem.len, weight, sizeof weight);
    tg_tensor *t = &s->tensors[s->n];
    *t = (tg_tensor){.name = {name, stem.len + sizeof weight - 1},
                     .dtype = choose_dtype(x),
                     .n_dims = 2,
                     .dims = {x->rows, x->cols},
                     .file = codes->file,
                     .shipped = x};
    s->codes[s->n++] = codes->name;
    return tg_tensor_plan_bytes(t, e);
}

static tg_status add_matrices(tg_shipping *s, tg_err *e)
{
    int32_t n = tg_checkpoint_n_tensors(s->c);
    s->tensors = TG_ARENA_ARRAY(&s->arena, tg_tensor, n);
    s->codes = TG_ARENA_ARRAY(&s->arena, tg_str, n);
    tg_name *names = TG_ARENA_ARRAY(&s->arena, tg_name, n);
    tg_name *code_names = TG_ARENA_ARRAY(&s->arena, tg_name, n);
    if (!s->tensors || !s->codes || !names || !code_names)
        return tg_fail_nomem(e, (size_t)n * sizeof(tg_tensor), "the quantized weights");
    for (int32_t i = 0; i < n; i++) {
        const tg_tensor *t = tg_checkpoint_get_tensor(s->c, i);
        for (int k = 0; k < MAX_CODINGS && s->method->codings[k]; k++) {
            const coding *c = s->method->codings[k];
            tg_str stem = find_stem(t->name, c->codes);
            if (stem.len && t->dtype == c->dtype) TG_TRY(add_matrix(s, c, t, stem, e));
        }
    }
    tg_str twice = {0};
    for (int32_t i = 0; i < s->n; i++) {
        names[i] = (tg_name){s->tensors[i].name, i};
        code_names[i] = (tg_name){s->codes[i], i};
    }
    if (!tg_names_init(&s->names, names, s->n, &twice))
        return tg_fail(e, TG_E_CORRUPT, "%s: '%.*s' is there in two codings.",
                       tg_checkpoint_get_path(s->c), (int)twice.len, twice.ptr);
    (void)tg_names_init(&s->code_names, code_names, s->n, &twice); /* names of tensors differ */
    return TG_OK;
}

/* ---- methods */

static const coding gptq_coding = {
    .codes = "qweight",
    .dtype = TG_DTYPE_I32,
    .scales = {"scales"},
    .zeros = "qzeros",
    .index = "g_idx",
    .needs_zeros = true,
    .plan = plan_gptq,
    .code = gptq_code,
    .zero = gptq_zero,
};
static const coding awq_coding = {
    .codes = "qweight",
    .dtype = TG_DTYPE_I32,
    .scales = {"scales"},
    .zeros = "qzeros",
    .needs_zeros = true,
    .plan = plan_awq,
    .code = awq_code,
    .zero = awq_zero,
};
static const coding packed_coding = {
    .codes = "weight_packed",
    .dtype = TG_DTYPE_I32,
    .scales = {"weight_scale"},
    .zeros = "weight_zero_point",
    .index = "weight_g_idx",
    .plan = plan_packed,
    .code = packed_code,
    .zero = packed_zero,
};
static const coding int8_coding = {
    .codes = "weight",
    .dtype = TG_DTYPE_I8,
    .scales = {"weight_scale"},
    .zeros = "weight_zero_point",
    .index = "weight_g_idx",
    .plan = plan_plain,
    .code = int8_code,
    .zero = int8_zero,
};
static const coding fp8_coding = {
    .codes = "weight",
    .dtype = TG_DTYPE_F8_E4M3,
    .scales = {"weight_scale_inv", "weight_scale"},
    .plan = plan_plain,
};

/* A number under its usual or its older name; 0 when it is absent. */
static tg_status read_number(const tg_shipping *s, const json_t *about, const char *key,
                             const char *older, int64_t *out, tg_err *e)
{
    bool is_present = false;
    *out = 0;
    TG_TRY(tg_json_get_i64(about, key, out, &is_present, s->file, e));
    return is_present ? TG_OK : tg_json_get_i64(about, older, out, &is_present, s->file, e);
}

static tg_status read_sizes(tg_shipping *s, const json_t *about, int32_t most_bits, tg_err *e)
{
    int64_t bits;
    TG_TRY(read_number(s, about, "bits", "w_bit", &bits, e));
    if (bits != 4 && bits != most_bits)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: quantization_config.bits is %" PRId64 "; %s built. Use another "
                       "quantization of the model.",
                       s->file, bits, most_bits == 8 ? "4 and 8 are" : "only 4 is");
    s->bits = (int32_t)bits;
    TG_TRY(read_number(s, about, "group_size", "q_group_size", &s->group_size, e));
    if (s->group_size == -1 || (s->group_size > 0 && s->group_size < INT32_MAX)) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT,
                   "%s: quantization_config.group_size is %" PRId64
                   ", but must be -1 or a number of columns.",
                   s->file, s->group_size);
}

/* A string key whose value must be one of a list. */
static tg_status check_choice(const tg_shipping *s, const json_t *object, const char *key,
                              const char *const *known, int32_t *which, tg_err *e)
{
    tg_str value = {0};
    bool is_present = false;
    *which = 0;
    TG_TRY(tg_json_get_str(object, key, &value, &is_present, s->file, e));
    if (!is_present) return TG_OK;
    for (; known[*which]; ++*which)
        if (tg_str_is(value, known[*which])) return TG_OK;
    tg_buf list = {0};
    for (int32_t i = 0; known[i]; i++)
        tg_buf_printf(&list, "%s%s", i ? ", " : "", known[i]);
    tg_status st = tg_fail(e, TG_E_UNSUPPORTED, "%s: quantization_config.%s is '%s'; built are %s.",
                           s->file, key, tg_name_show(value).text, tg_buf_cstr(&list));
    tg_buf_deinit(&list);
    return st;
}

static tg_status read_gptq(tg_shipping *s, const json_t *about, tg_err *e)
{
    static const char *const formats[] = {"gptq", "gptq_v2", NULL};
    int32_t which = 0;
    TG_TRY(read_sizes(s, about, 8, e));
    TG_TRY(check_choice(s, about, "checkpoint_format", formats, &which, e));
    s->zero_shift = which == 0; /* v2 stores zeros as they are */
    return TG_OK;
}

static tg_status read_awq(tg_shipping *s, const json_t *about, tg_err *e)
{
    static const char *const versions[] = {"gemm", "GEMM", NULL};
    int32_t which = 0;
    TG_TRY(read_sizes(s, about, 4, e));
    return check_choice(s, about, "version", versions, &which, e);
}

/* [rows, columns] of a block that has one scale. */
static tg_status read_block(tg_shipping *s, const json_t *list, const char *key, tg_err *e)
{
    if (!list || json_is_null(list)) return TG_OK;
    s->block_rows = json_integer_value(json_array_get(list, 0));
    s->block_cols = json_integer_value(json_array_get(list, 1));
    if (json_array_size(list) == 2 && s->block_rows > 0 && s->block_rows < INT32_MAX &&
        s->block_cols > 0 && s->block_cols < INT32_MAX)
        return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "%s: quantization_config's %s is not [rows, columns].", s->file,
                   key);
}

static tg_status read_fp8(tg_shipping *s, const json_t *about, tg_err *e)
{
    static const char *const forms[] = {"e4m3", "float8_e4m3fn", NULL};
    int32_t which = 0;
    TG_TRY(check_choice(s, about, "fmt", forms, &which, e));
    return read_block(s, json_object_get(about, "weight_block_size"), "weight_block_size", e);
}

/* What the tensors themselves say (bits, groups, blocks but for their size) is not read here. */
static tg_status read_group(tg_shipping *s, const json_t *group, tg_err *e)
{
    static const char *const formats[] = {"pack-quantized", "int-quantized", "naive-quantized",
                                          "float-quantized", NULL};
    static const char *const strategies[] = {"channel", "tensor", "group", "block", NULL};
    const json_t *w = json_object_get(group, "weights");
    int32_t which = 0;
    TG_TRY(check_choice(s, group, "format", formats, &which, e));
    if (!json_is_object(w)) return TG_OK; /* only activations */
    TG_TRY(check_choice(s, w, "strategy", strategies, &which, e));
    return read_block(s, json_object_get(w, "block_structure"), "block_structure", e);
}

static tg_status read_compressed(tg_shipping *s, const json_t *about, tg_err *e)
{
    static const char *const formats[] = {"pack-quantized",  "int-quantized",   "naive-quantized",
                                          "float-quantized", "mixed-precision", NULL};
    const json_t *group, *turned = json_object_get(about, "transform_config");
    const char *name;
    int32_t which = 0;
    TG_TRY(check_choice(s, about, "format", formats, &which, e));
    if (json_object_size(json_object_get(turned, "config_groups")) > 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: quantization_config.transform_config rotates the weights, which is "
                       "not built.",
                       s->file);
    const json_t *sparse = json_object_get(json_object_get(about, "sparsity_config"), "format");
    if (json_is_string(sparse) && strcmp(json_string_value(sparse), "dense") != 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: quantization_config.sparsity_config.format is '%s'; only dense is "
                       "built.",
                       s->file, tg_name_show(tg_str_from_cstr(json_string_value(sparse))).text);
    json_object_foreach((json_t *)(uintptr_t)json_object_get(about, "config_groups"), name, group)
        TG_TRY(read_group(s, group, e));
    return TG_OK;
}

/* Beside what is read: how it was made, what it leaves alone (the tensors say that), and what
 * activations would be rounded to. */
static const char *const gptq_keys[] = {
    "quant_method",
    "bits",
    "w_bit",
    "checkpoint_format",
    "group_size",
    "desc_act",
    "sym",
    "damp_percent",
    "static_groups",
    "true_sequential",
    "dataset",
    "model_*",
    "block_name_*",
    "module_name_*",
    "modules_in_block*",
    "batch_size",
    "backend",
    "use_*",
    "disable_exllama",
    "exllama_config",
    "max_input_length",
    "pad_token_id",
    "tokenizer",
    "cache_block_outputs",
    "lm_head",
    "meta",
    "pack_dtype",
    "quantizer",
    "damp_auto_increment",
    "mse",
    "dynamic",
    NULL,
};
static const char *const awq_keys[] = {
    "quant_method",
    "bits",
    "w_bit",
    "group_size",
    "q_group_size",
    "version",
    "zero_point",
    "modules_to_not_convert",
    "backend",
    "do_fuse",
    "fuse_max_seq_len",
    "modules_to_fuse",
    "exllama_config",
    NULL,
};
static const char *const fp8_keys[] = {
    "quant_method",
    "fmt",
    "weight_block_size",
    "activation_scheme",
    "modules_to_not_convert",
    "ignored_layers",
    "scale_fmt",
    "dequantize",
    "activation_scale_ub",
    NULL,
};
static const char *const compressed_keys[] = {
    "quant_method",
    "format",
    "config_groups",
    "ignore",
    "kv_cache_scheme",
    "quantization_status",
    "global_compression_ratio",
    "sparsity_config",
    "transform_config",
    "version",
    NULL,
};

static const method methods[] = {
    {"gptq", {&gptq_coding}, read_gptq, gptq_keys},
    {"awq", {&awq_coding}, read_awq, awq_keys},
    {"fp8", {&fp8_coding}, read_fp8, fp8_keys},
    {"fbgemm_fp8", {&fp8_coding}, NULL, fp8_keys},
    {"compressed-tensors",
     {&packed_coding, &int8_coding, &fp8_coding},
     read_compressed,
     compressed_keys},
};

/* The last parts of names beside codes; some belong to activations and the cache. */
static const char *const side_parts[] = {
    "scales",       "qzeros",           "g_idx",        "weight_scale",
    "weight_shape", "weight_scale_inv", "weight_g_idx", "weight_zero_point",
    "input_scale",  "input_zero_point", "output_scale", "input_scale_ub",
    "k_scale",      "v_scale",          "q_scale",      "activation_scale",
};

static tg_status find_method(tg_shipping *s, const json_t *about, tg_err *e)
{
    tg_str name = {0};
    bool is_present = false;
    TG_TRY(tg_json_get_str(about, "quant_method", &name, &is_present, s->file, e));
    for (size_t i = 0; i < TG_COUNT(methods); i++)
        if (tg_str_is(name, methods[i].name)) s->method = &methods[i];
    if (s->method) return TG_OK;
    tg_buf known = {0};
    for (size_t i = 0; i < TG_COUNT(methods); i++)
        tg_buf_printf(&known, "%s%s", i ? ", " : "", methods[i].name);
    tg_status st = tg_fail(e, TG_E_UNSUPPORTED,
                           "%s: quantization_config.quant_method is '%s'; built are %s. Use the "
                           "model without quantization, and let the export quantize it.",
                           s->file, tg_name_show(name).text, tg_buf_cstr(&known));
    tg_buf_deinit(&known);
    return st;
}

static bool is_key_known(const method *m, const char *key)
{
    for (const char *const *k = m->keys; *k; k++) {
        size_t n = strlen(*k);
        if ((*k)[n - 1] == '*' ? strncmp(key, *k, n - 1) == 0 : strcmp(key, *k) == 0) return true;
    }
    return false;
}

static void warn_keys(const tg_shipping *s, const json_t *about)
{
    const char *key;
    const json_t *v;
    json_object_foreach((json_t *)(uintptr_t)about, key,
                        v) if (!json_is_null(v) && !is_key_known(s->method, key))
        tg_log_warn("%s: quantization_config.%s is not known and was not used", s->file,
                    tg_name_show(tg_str_from_cstr(key)).text);
}

/* Scales of weights that are not quantized: a drafting head's, or a mistake. */
static void warn_unused(const tg_shipping *s)
{
    int32_t n = 0;
    tg_str first = {0};
    for (int32_t i = 0; i < tg_checkpoint_n_tensors(s->c); i++) {
        tg_str name = tg_checkpoint_get_tensor(s->c, i)->name, stem = {0};
        for (int k = 0; k < MAX_CODINGS && s->method->codings[k] && !stem.len; k++)
            for (size_t j = 0; j < TG_COUNT(s->method->codings[k]->scales) && !stem.len; j++)
                if (s->method->codings[k]->scales[j])
                    stem = find_stem(name, s->method->codings[k]->scales[j]);
        char weight[NAME_BYTES];
        if (!stem.len || stem.len + 6 > sizeof weight) continue;
        memcpy(weight, stem.ptr, stem.len);
        memcpy(weight + stem.len, "weight", 6);
        if (tg_shipping_find(s, (tg_str){weight, stem.len + 6})) continue;
        if (n++ == 0) first = name;
    }
    if (n > 0)
        tg_log_warn("%s: %" PRId32 " scales have no quantized weight and are not used, such as "
                    "'%.*s'",
                    tg_checkpoint_get_path(s->c), n, (int)first.len, first.ptr);
}

/* ---- the interface */

tg_status tg_shipping_new(tg_shipping **out, const tg_checkpoint *c, const json_t *about, tg_err *e)
{
    *out = NULL;
    const char *file = tg_checkpoint_get_part_path(c, TG_HF_CONFIG);
    if (!json_is_object(about))
        return tg_fail(e, TG_E_CORRUPT, "%s: quantization_config is no object.", file);
    tg_shipping *s = TG_NEW(tg_shipping);
    if (!s) return tg_fail_nomem(e, sizeof *s, "the quantized weights");
    s->c = c;
    s->file = file;
    tg_status st = find_method(s, about, e);
    if (st == TG_OK && s->method->read) st = s->method->read(s, about, e);
    if (st == TG_OK) st = add_matrices(s, e);
    if (st != TG_OK) {
        tg_shipping_free(s);
        return st;
    }
    warn_keys(s, about);
    warn_unused(s);
    *out = s;
    return TG_OK;
}

void tg_shipping_free(tg_shipping *s)
{
    if (!s) return;
    tg_arena_deinit(&s->arena);
    tg_mem_free(s);
}

const tg_tensor *tg_shipping_find(const tg_shipping *s, tg_str name)
{
    int32_t i = tg_names_find(&s->names, name);
    return i < 0 ? NULL : &s->tensors[i];
}

const tg_tensor *tg_shipping_find_codes(const tg_shipping *s, tg_str name)
{
    int32_t i = tg_names_find(&s->code_names, name);
    return i < 0 ? NULL : &s->tensors[i];
}

bool tg_shipping_is_side(tg_str name)
{
    for (size_t i = 0; i < TG_COUNT(side_parts); i++)
        if (find_stem(name, side_parts[i]).len) return true;
    return false;
}

/* ---- rows */

static float value_of(const struct tg_shipped *x, int64_t row, int64_t col)
{
    int64_t group = group_of(x, col);
    float scale = scale_of(x, row, group);
    if (!x->coding->code)
        return scale * tg_f8_e4m3_to_f32(((const uint8_t *)x->codes->data)[row * x->cols + col]);
    int32_t zero = x->zeros ? x->coding->zero(x, row, group) : 0;
    return scale * (float)(x->coding->code(x, row, col) - zero);
}

/* 32 codes as ggml's blocks have them; dtype.c draws those. */
static uint8_t *write_codes(tg_dtype t, uint8_t *dst, const int32_t *q)
{
    if (t == TG_DTYPE_Q8_0 || t == TG_DTYPE_Q8_F) {
        for (int j = 0; j < 32; j++)
            dst[j] = (uint8_t)(int8_t)q[j];
        return dst + 32;
    }
    int32_t middle = t == TG_DTYPE_Q4_0 ? 8 : 16;
    if (t == TG_DTYPE_Q5_0) {
        uint32_t fifth = 0;
        for (int j = 0; j < 32; j++)
            fifth |= (uint32_t)(q[j] + middle) >> 4 << j;
        memcpy(dst, &fifth, sizeof fifth);
        dst += sizeof fifth;
    }
    for (int j = 0; j < 16; j++)
        dst[j] = (uint8_t)(((q[j] + middle) & 15) | ((q[j + 16] + middle) & 15) << 4);
    return dst + 16;
}

static uint8_t *write_block(const tg_tensor *t, uint8_t *dst, int64_t row, int64_t col)
{
    const struct tg_shipped *x = t->shipped;
    int64_t group = group_of(x, col);
    float scale = scale_of(x, row, group);
    int32_t zero = x->zeros ? x->coding->zero(x, row, group) : 0, q[32];
    for (int j = 0; j < 32; j++)
        q[j] = x->coding->code(x, row, col + j) - zero;
    uint16_t d = tg_f32_to_f16(scale);
    bool is_wide = t->dtype == TG_DTYPE_Q8_F;
    memcpy(dst, is_wide ? (const void *)&scale : (const void *)&d, is_wide ? 4 : 2);
    return write_codes(t->dtype, dst + (is_wide ? 4 : 2), q);
}

void tg_shipped_read(const tg_tensor *t, int64_t row, void *dst)
{
    uint8_t *to = dst;
    row += t->first_row;
    TG_ASSERT(row >= 0 && row < t->shipped->rows);
    if (t->dtype != TG_DTYPE_F32) {
        for (int64_t c = 0; c < t->dims[1]; c += 32)
            to = write_block(t, to, row, c);
        return;
    }
    for (int64_t c = 0; c < t->dims[1]; c++, to += sizeof(float)) {
        float v = value_of(t->shipped, row, c);
        memcpy(to, &v, sizeof v);
    }
}
