/* SPDX-License-Identifier: Apache-2.0
 * prequant_matrix.c - how a matrix is written down as several tensors: where the code of a place
 * and the zero of a group are. Truth: the layouts as AutoGPTQ, AutoAWQ, compressed-tensors and
 * transformers' fine-grained fp8 write them. */
#include "format/prequant_matrix.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { NAME_BYTES = 200 };

struct tg_prequant_matrix {
    const tg_coding *coding;
    const tg_tensor *codes, *scales, *zeros, *index; /* zeros, index: NULL when there are none */
    int64_t rows, cols;
    int32_t bits;
    int32_t zero_shift; /* added to a stored zero */
    /* The scale of a place is number row / scale_rows * row_stride + group * group_stride; a column
     * belongs to group col / group_cols, or to the one that `index` says. */
    int64_t scale_rows, group_cols, n_groups, row_stride, group_stride;
};

typedef struct matrix {
    const tg_prequant_folder *from;
    tg_str stem;
    struct tg_prequant_matrix *x;
} matrix;

struct tg_coding_rules {
    /* rows, cols and bits from the codes' dimensions, and what must fit them. */
    tg_status (*plan)(matrix *m, tg_err *e);
    int32_t (*code)(const struct tg_prequant_matrix *x, int64_t row, int64_t col);
    int32_t (*zero)(const struct tg_prequant_matrix *x, int64_t row, int64_t group);
};

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

/* [cols bits / 32, rows]: a word holds neighbors of one row. */
static int32_t gptq_code(const struct tg_prequant_matrix *x, int64_t row, int64_t col)
{
    int64_t bit = col * x->bits;
    return get_bits(x->codes, bit / 32 * x->rows + row, bit % 32, x->bits);
}

/* [groups, rows bits / 32]. The first format stores one less, and rolls over. */
static int32_t gptq_zero(const struct tg_prequant_matrix *x, int64_t row, int64_t group)
{
    int64_t bit = row * x->bits, words = x->rows * x->bits / 32;
    int32_t stored = get_bits(x->zeros, group * words + bit / 32, bit % 32, x->bits);
    return (stored + x->zero_shift) & ((1 << x->bits) - 1);
}

/* The nibble of a word that holds each of its eight rows. */
static const int32_t awq_nibbles[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* [cols, rows / 8] */
static int32_t awq_code(const struct tg_prequant_matrix *x, int64_t row, int64_t col)
{
    return get_bits(x->codes, col * (x->rows / 8) + row / 8, 4 * awq_nibbles[row % 8], 4);
}

static int32_t awq_zero(const struct tg_prequant_matrix *x, int64_t row, int64_t group)
{
    return get_bits(x->zeros, group * (x->rows / 8) + row / 8, 4 * awq_nibbles[row % 8], 4);
}

/* [rows, cols bits / 32], codes and zeros stored from the middle up. */
static int32_t packed_code(const struct tg_prequant_matrix *x, int64_t row, int64_t col)
{
    int64_t bit = col * x->bits, words = x->codes->dims[1];
    return get_bits(x->codes, row * words + bit / 32, bit % 32, x->bits) - (1 << (x->bits - 1));
}

/* [rows bits / 32, groups] */
static int32_t packed_zero(const struct tg_prequant_matrix *x, int64_t row, int64_t group)
{
    int64_t bit = row * x->bits;
    return get_bits(x->zeros, bit / 32 * x->n_groups + group, bit % 32, x->bits) -
           (1 << (x->bits - 1));
}

static int32_t int8_code(const struct tg_prequant_matrix *x, int64_t row, int64_t col)
{
    return ((const int8_t *)x->codes->data)[row * x->cols + col];
}

static int32_t int8_zero(const struct tg_prequant_matrix *x, int64_t row, int64_t group)
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
    return tg_checkpoint_find_tensor(m->from->c, (tg_str){name, m->stem.len + n});
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
    struct tg_prequant_matrix *x = m->x;
    const tg_tensor *t = x->scales;
    x->scale_rows = 1;
    x->row_stride = 1;
    x->group_stride = x->rows;
    x->group_cols = m->from->group_size > 0 ? m->from->group_size : x->cols;
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
    struct tg_prequant_matrix *x = m->x;
    x->bits = m->from->bits;
    x->zero_shift = m->from->zero_shift;
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
    struct tg_prequant_matrix *x = m->x;
    x->bits = m->from->bits;
    x->cols = x->codes->dims[0];
    x->rows = x->codes->dims[1] * 8;
    return plan_groups_first(m, e);
}

/* Scales of one number, one a row, [rows, groups], or one a block. */
static tg_status plan_rows_first(matrix *m, tg_err *e)
{
    struct tg_prequant_matrix *x = m->x;
    const tg_tensor *t = x->scales;
    int64_t r = t->n_dims > 0 ? t->dims[0] : 1, g = t->n_dims > 1 ? t->dims[1] : 1;
    int64_t block_rows = m->from->block_rows, block_cols = m->from->block_cols;
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
    struct tg_prequant_matrix *x = m->x;
    x->rows = x->codes->dims[0];
    x->cols = x->codes->dims[1];
    x->bits = 8;
    TG_TRY(plan_rows_first(m, e));
    if (x->zeros && (x->zeros->dtype != TG_DTYPE_I8 ||
                     tg_tensor_n_elems(x->zeros) != tg_tensor_n_elems(x->scales)))
        return fail_shape(x->zeros, x->codes, x->rows, x->n_groups, e);
    return TG_OK;
}

/* weight_shape says how many columns there are: the last word may be padded. */
static tg_status plan_packed(matrix *m, tg_err *e)
{
    struct tg_prequant_matrix *x = m->x;
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
static tg_status check_index(const struct tg_prequant_matrix *x, tg_err *e)
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

static tg_status check_scales(const struct tg_prequant_matrix *x, tg_err *e)
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

static int64_t group_of(const struct tg_prequant_matrix *x, int64_t col)
{
    return x->index ? (int32_t)get_word(x->index, col) : col / x->group_cols;
}

static float scale_of(const struct tg_prequant_matrix *x, int64_t row, int64_t group)
{
    return get_float(x->scales, row / x->scale_rows * x->row_stride + group * x->group_stride);
}

/* An index that says what the columns' order says too is none. */
static void drop_plain_index(struct tg_prequant_matrix *x)
{
    for (int64_t c = 0; x->index && c < x->cols; c++)
        if ((int32_t)get_word(x->index, c) != c / x->group_cols) return;
    x->index = NULL;
}

static bool are_scales_f16(const struct tg_prequant_matrix *x)
{
    for (int64_t i = 0, n = tg_tensor_n_elems(x->scales); i < n; i++) {
        float d = get_float(x->scales, i);
        if (tg_f16_to_f32(tg_f32_to_f16(d)) != d) return false;
    }
    return true;
}

static tg_dtype choose_dtype(const struct tg_prequant_matrix *x)
{
    if (!x->coding->rules->code || x->index || x->cols % 32 != 0) return TG_DTYPE_F32;
    if (x->n_groups > 1 && x->group_cols % 32 != 0) return TG_DTYPE_F32;
    /* Codes of gptq and awq begin at 0, the others at the lowest number of their bits. */
    int32_t low = x->coding->needs_zeros ? 0 : -(1 << (x->bits - 1));
    int32_t high = low + (1 << x->bits) - 1, least = INT32_MAX, most = INT32_MIN;
    for (int64_t r = 0; x->zeros && r < x->rows; r++)
        for (int64_t g = 0; g < x->n_groups; g++) {
            int32_t z = x->coding->rules->zero(x, r, g);
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

/* ---- codings */

static const tg_coding_rules gptq_rules = {.plan = plan_gptq, .code = gptq_code, .zero = gptq_zero};
const tg_coding tg_coding_gptq = {
    .codes = "qweight",
    .dtype = TG_DTYPE_I32,
    .scales = {"scales"},
    .zeros = "qzeros",
    .index = "g_idx",
    .needs_zeros = true,
    .rules = &gptq_rules,
};
static const tg_coding_rules awq_rules = {.plan = plan_awq, .code = awq_code, .zero = awq_zero};
const tg_coding tg_coding_awq = {
    .codes = "qweight",
    .dtype = TG_DTYPE_I32,
    .scales = {"scales"},
    .zeros = "qzeros",
    .needs_zeros = true,
    .rules = &awq_rules,
};
static const tg_coding_rules packed_rules = {
    .plan = plan_packed, .code = packed_code, .zero = packed_zero};
const tg_coding tg_coding_packed = {
    .codes = "weight_packed",
    .dtype = TG_DTYPE_I32,
    .scales = {"weight_scale"},
    .zeros = "weight_zero_point",
    .index = "weight_g_idx",
    .rules = &packed_rules,
};
static const tg_coding_rules int8_rules = {
    .plan = plan_plain, .code = int8_code, .zero = int8_zero};
const tg_coding tg_coding_int8 = {
    .codes = "weight",
    .dtype = TG_DTYPE_I8,
    .scales = {"weight_scale"},
    .zeros = "weight_zero_point",
    .index = "weight_g_idx",
    .rules = &int8_rules,
};
static const tg_coding_rules fp8_rules = {.plan = plan_plain};
const tg_coding tg_coding_fp8 = {
    .codes = "weight",
    .dtype = TG_DTYPE_F8_E4M3,
    .scales = {"weight_scale_inv", "weight_scale"},
    .rules = &fp8_rules,
};
const tg_coding tg_coding_fp8_scale = {
    .codes = "weight",
    .dtype = TG_DTYPE_F8_E4M3,
    .scales = {"weight_scale"},
    .rules = &fp8_rules,
};

/* ---- a matrix */

static tg_status fail_part(const tg_tensor *codes, tg_str stem, const char *part, tg_err *e)
{
    return tg_fail(e, TG_E_CORRUPT,
                   "%s: tensor '%.*s' is quantized, but '%.*s%s', without which its numbers mean "
                   "nothing, is missing.",
                   codes->file, (int)codes->name.len, codes->name.ptr, (int)stem.len, stem.ptr,
                   part);
}

tg_status tg_prequant_matrix_new(tg_tensor *out, const tg_prequant_folder *from, const tg_coding *k,
                                 const tg_tensor *codes, tg_arena *arena, tg_err *e)
{
    static const char weight[] = "weight";
    tg_str stem = {codes->name.ptr, codes->name.len - strlen(k->codes)};
    struct tg_prequant_matrix *x = TG_ARENA_NEW(arena, struct tg_prequant_matrix);
    char *name = tg_arena_alloc(arena, stem.len + sizeof weight);
    if (!x || !name) return tg_fail_nomem(e, sizeof *x + stem.len, "a quantized weight");
    matrix m = {.from = from, .stem = stem, .x = x};
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
    TG_TRY(k->rules->plan(&m, e));
    if (x->index) TG_TRY(check_index(x, e));
    drop_plain_index(x);

    memcpy(name, stem.ptr, stem.len);
    memcpy(name + stem.len, weight, sizeof weight);
    *out = (tg_tensor){.name = {name, stem.len + sizeof weight - 1},
                       .dtype = choose_dtype(x),
                       .n_dims = 2,
                       .dims = {x->rows, x->cols},
                       .file = codes->file,
                       .prequant = x};
    return tg_tensor_plan_bytes(out, e);
}

/* ---- rows */

static float value_of(const struct tg_prequant_matrix *x, int64_t row, int64_t col)
{
    int64_t group = group_of(x, col);
    float scale = scale_of(x, row, group);
    if (!x->coding->rules->code)
        return scale * tg_f8_e4m3_to_f32(((const uint8_t *)x->codes->data)[row * x->cols + col]);
    int32_t zero = x->zeros ? x->coding->rules->zero(x, row, group) : 0;
    return scale * (float)(x->coding->rules->code(x, row, col) - zero);
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
    const struct tg_prequant_matrix *x = t->prequant;
    int64_t group = group_of(x, col);
    float scale = scale_of(x, row, group);
    int32_t zero = x->zeros ? x->coding->rules->zero(x, row, group) : 0, q[32];
    for (int j = 0; j < 32; j++)
        q[j] = x->coding->rules->code(x, row, col + j) - zero;
    uint16_t d = tg_f32_to_f16(scale);
    bool is_f32 = t->dtype == TG_DTYPE_Q8_F;
    memcpy(dst, is_f32 ? (const void *)&scale : (const void *)&d, is_f32 ? 4 : 2);
    return write_codes(t->dtype, dst + (is_f32 ? 4 : 2), q);
}

void tg_prequant_matrix_read(const tg_tensor *t, int64_t row, void *dst)
{
    uint8_t *to = dst;
    row += t->first_row;
    TG_ASSERT(row >= 0 && row < t->prequant->rows);
    if (t->dtype != TG_DTYPE_F32) {
        for (int64_t c = 0; c < t->dims[1]; c += 32)
            to = write_block(t, to, row, c);
        return;
    }
    for (int64_t c = 0; c < t->dims[1]; c++, to += sizeof(float)) {
        float v = value_of(t->prequant, row, c);
        memcpy(to, &v, sizeof v);
    }
}
