/* SPDX-License-Identifier: Apache-2.0
 * jinja_char.c - methods of strings that go from character to character: of what kind they are, and
 * others in their place.
 *
 * Upper case, lower case, digits and numbers are Unicode's properties, which hold more than the
 * categories of these names. utf8proc does not know the others, so they stand here: what Python
 * 3.11's str.isupper and so on (Unicode 14; utf8proc 2.8 has 15) say beyond the category. */
#include "jinja/jinja.h"

#include <string.h>
#include <utf8proc.h>

/* Code points from..to. */
typedef struct range {
    int32_t from, to;
} range;

/* Upper case beyond the category. */
static const range other_upper[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189},
};
/* Lower case beyond the category. */
static const range other_lower[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},
    {0x2e0, 0x2e4},     {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},
    {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
    {0x2090, 0x209c},   {0x2170, 0x217f},   {0x24d0, 0x24e9},   {0x2c7c, 0x2c7d},
    {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
};
/* Superscripts, circled digits and the like: digits, but no decimals. */
static const range other_digits[] = {
    {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
    {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
    {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};
/* Letters of Chinese that are numbers. */
static const range number_letters[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382a, 0x382a},   {0x3b4d, 0x3b4d},
    {0x4e00, 0x4e00},   {0x4e03, 0x4e03},   {0x4e07, 0x4e07},   {0x4e09, 0x4e09},
    {0x4e5d, 0x4e5d},   {0x4e8c, 0x4e8c},   {0x4e94, 0x4e94},   {0x4e96, 0x4e96},
    {0x4ebf, 0x4ec0},   {0x4edf, 0x4edf},   {0x4ee8, 0x4ee8},   {0x4f0d, 0x4f0d},
    {0x4f70, 0x4f70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516b, 0x516b},   {0x516d, 0x516d},   {0x5341, 0x5341},   {0x5343, 0x5345},
    {0x534c, 0x534c},   {0x53c1, 0x53c4},   {0x56db, 0x56db},   {0x58f1, 0x58f1},
    {0x58f9, 0x58f9},   {0x5e7a, 0x5e7a},   {0x5efe, 0x5eff},   {0x5f0c, 0x5f0e},
    {0x5f10, 0x5f10},   {0x62fe, 0x62fe},   {0x634c, 0x634c},   {0x67d2, 0x67d2},
    {0x6f06, 0x6f06},   {0x7396, 0x7396},   {0x767e, 0x767e},   {0x8086, 0x8086},
    {0x842c, 0x842c},   {0x8cae, 0x8cae},   {0x8cb3, 0x8cb3},   {0x8d30, 0x8d30},
    {0x9621, 0x9621},   {0x9646, 0x9646},   {0x964c, 0x964c},   {0x9678, 0x9678},
    {0x96f6, 0x96f6},   {0xf96b, 0xf96b},   {0xf973, 0xf973},   {0xf978, 0xf978},
    {0xf9b2, 0xf9b2},   {0xf9d1, 0xf9d1},   {0xf9d3, 0xf9d3},   {0xf9fd, 0xf9fd},
    {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200e2, 0x200e2}, {0x20121, 0x20121},
    {0x2092a, 0x2092a}, {0x20983, 0x20983}, {0x2098c, 0x2098c}, {0x2099c, 0x2099c},
    {0x20aea, 0x20aea}, {0x20afd, 0x20afd}, {0x20b19, 0x20b19}, {0x22390, 0x22390},
    {0x22998, 0x22998}, {0x23b1b, 0x23b1b}, {0x2626d, 0x2626d}, {0x2f890, 0x2f890},
};

static bool is_among(const range *rows, size_t n, int32_t c)
{
    for (size_t i = 0; i < n && rows[i].from <= c; i++)
        if (c <= rows[i].to) return true;
    return false;
}

bool tg_jchar_is_upper(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LU ||
           is_among(other_upper, TG_COUNT(other_upper), c);
}

bool tg_jchar_is_lower(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LL ||
           is_among(other_lower, TG_COUNT(other_lower), c);
}

bool tg_jchar_is_cased(int32_t c)
{
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LT || tg_jchar_is_upper(c) ||
           tg_jchar_is_lower(c);
}

int tg_jchar_digit(int32_t c)
{
    if (c < 0x80) return c >= '0' && c <= '9' ? c - '0' : -1;
    if (utf8proc_category(c) != UTF8PROC_CATEGORY_ND) return -1;
    /* Decimals stand in runs of ten from zero on, and several runs may touch. */
    int32_t zero = c;
    while (utf8proc_category(zero - 1) == UTF8PROC_CATEGORY_ND)
        zero--;
    return (c - zero) % 10;
}

/* ---- questions */

typedef bool char_fn(int32_t c, utf8proc_category_t k);

static bool is_digit_char(int32_t c, utf8proc_category_t k)
{
    return k == UTF8PROC_CATEGORY_ND || is_among(other_digits, TG_COUNT(other_digits), c);
}

static bool is_decimal_char(int32_t c, utf8proc_category_t k)
{
    (void)c;
    return k == UTF8PROC_CATEGORY_ND;
}

static bool is_alpha_char(int32_t c, utf8proc_category_t k)
{
    (void)c;
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

static bool is_numeric_char(int32_t c, utf8proc_category_t k)
{
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO ||
           is_among(number_letters, TG_COUNT(number_letters), c);
}

static bool is_alnum_char(int32_t c, utf8proc_category_t k)
{
    return is_alpha_char(c, k) || is_numeric_char(c, k);
}

static bool is_space_char(int32_t c, utf8proc_category_t k)
{
    (void)k;
    return tg_jchar_is_space(c);
}

/* Every character passes, and there is one. */
static tg_jval are_all(tg_jrun *r, tg_jval s, char_fn *fn)
{
    tg_jrun_pay(r, s.len / 4);
    for (uint32_t i = 0; i < s.len;) {
        int32_t c = 0;
        int n = tg_utf8_decode(s.u.s + i, s.len - i, &c);
        if (!fn(c, utf8proc_category(c))) return tg_jbool(false);
        i += (uint32_t)TG_MAX(n, 1);
    }
    return tg_jbool(s.len > 0);
}

static tg_jval str_isdigit(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return are_all(r, s, is_digit_char);
}

static tg_jval str_isdecimal(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return are_all(r, s, is_decimal_char);
}

static tg_jval str_isnumeric(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return are_all(r, s, is_numeric_char);
}

static tg_jval str_isalpha(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return are_all(r, s, is_alpha_char);
}

static tg_jval str_isalnum(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return are_all(r, s, is_alnum_char);
}

static tg_jval str_isspace(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return are_all(r, s, is_space_char);
}

static tg_jval str_isascii(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)r;
    (void)a;
    return tg_jbool(s.is_ascii);
}

static tg_jval str_isprintable(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    tg_jrun_pay(r, s.len / 4);
    for (uint32_t i = 0; i < s.len;) {
        int32_t c = 0;
        int n = tg_utf8_decode(s.u.s + i, s.len - i, &c);
        if (!tg_jchar_is_printable(c)) return tg_jbool(false);
        i += (uint32_t)TG_MAX(n, 1);
    }
    return tg_jbool(true);
}

static tg_jval str_islower(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return tg_jbool(tg_jstr_is_cased_as(r, s, TG_JCASE_LOWER));
}

static tg_jval str_isupper(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return tg_jbool(tg_jstr_is_cased_as(r, s, TG_JCASE_UPPER));
}

/* Upper case only where no cased letter stands before, lower case only where one does. */
static tg_jval str_istitle(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    bool is_inside = false, has_any = false;
    tg_jrun_pay(r, s.len / 4);
    for (uint32_t i = 0; i < s.len;) {
        int32_t c = 0;
        int n = tg_utf8_decode(s.u.s + i, s.len - i, &c);
        bool is_lower = tg_jchar_is_lower(c), is_cased = tg_jchar_is_cased(c);
        if (is_cased && is_lower != is_inside) return tg_jbool(false);
        has_any |= is_cased;
        is_inside = is_cased;
        i += (uint32_t)TG_MAX(n, 1);
    }
    return tg_jbool(has_any);
}

/* ---- other characters in their place */

static tg_jval str_swapcase(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return tg_jstr_map_case(r, s, TG_JCASE_SWAP);
}

static tg_jval str_casefold(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    (void)a;
    return tg_jstr_map_case(r, s, TG_JCASE_FOLD);
}

/* "tabsize" */
static tg_jval str_expandtabs(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    tg_buf b = {0};
    int64_t size = 8, column = 0;
    if (a->v[0].kind != TG_J_MISSING) {
        if (!tg_jval_is_int(a->v[0]))
            return tg_jrun_raise(r, "'%s' object cannot be interpreted as an integer",
                                 tg_jkind_name(a->v[0]));
        size = TG_MAX(tg_jval_int(a->v[0]), 0);
    }
    tg_jrun_pay(r, s.len / 8);
    for (uint32_t i = 0; i < s.len && !tg_jrun_is_failed(r); i++) {
        char c = s.u.s[i];
        int64_t n_blanks = c != '\t' ? 0 : size ? size - column % size : 0;
        if ((int64_t)b.len + n_blanks > (int64_t)r->max_output) {
            tg_jrun_fail(r, TG_E_LIMIT, "a string exceeds the limit of %zu bytes", r->max_output);
            break;
        }
        tg_jrun_pay(r, n_blanks / 16);
        for (int64_t k = 0; k < n_blanks; k++)
            tg_buf_add_byte(&b, ' ');
        if (c != '\t') tg_buf_add_byte(&b, c);
        if (c == '\n' || c == '\r')
            column = 0;
        else
            column += c == '\t' ? n_blanks : ((unsigned char)c & 0xc0) != 0x80;
    }
    tg_jval v = tg_jstr_take(r, &b);
    v.is_markup = s.is_markup;
    return v;
}

/* The entry of a table of str.translate for c: MISSING for none. */
static tg_jval find_translation(tg_jrun *r, tg_jval table, int32_t c)
{
    if (table.kind == TG_J_DICT) {
        const tg_jval *v = tg_jdict_find(r, table.u.dict, tg_jint(c));
        return v ? *v : (tg_jval){.kind = TG_J_MISSING};
    }
    if (!tg_jval_has_len(table) || c >= tg_jval_len(r, table))
        return (tg_jval){.kind = TG_J_MISSING};
    return tg_jval_get_item(r, table, tg_jint(c));
}

/* "table" */
static tg_jval str_translate(tg_jrun *r, tg_jval s, const tg_jargs *a)
{
    tg_buf b = {0};
    tg_jval table = a->v[0];
    if (table.kind != TG_J_DICT && table.kind != TG_J_STR && table.kind != TG_J_LIST &&
        table.kind != TG_J_TUPLE)
        return tg_jrun_raise(r, "'%s' object is not subscriptable", tg_jkind_name(table));
    for (uint32_t i = 0; i < s.len && tg_jrun_pay(r, 1);) {
        int32_t c = 0;
        int n = TG_MAX(tg_utf8_decode(s.u.s + i, s.len - i, &c), 1);
        tg_jval v = find_translation(r, table, c);
        if (v.kind == TG_J_MISSING)
            tg_buf_add(&b, s.u.s + i, (size_t)n);
        else if (v.kind == TG_J_STR)
            tg_buf_add_str(&b, tg_jval_str(v));
        else if (tg_jval_is_int(v) && tg_jval_int(v) >= 0 && tg_jval_int(v) <= 0x10ffff)
            tg_buf_add_utf8(&b, (int32_t)tg_jval_int(v));
        else if (v.kind != TG_J_NONE)
            tg_jrun_raise(r, "character mapping must return integer, None or str");
        if (b.len > r->max_output)
            tg_jrun_fail(r, TG_E_LIMIT, "a string exceeds the limit of %zu bytes", r->max_output);
        i += (uint32_t)n;
    }
    tg_jval v = tg_jstr_take(r, &b);
    v.is_markup = s.is_markup;
    return v;
}

enum { STR = TG_J_BIT(TG_J_STR) };

const tg_jfunc tg_jchar_methods[] = {
    {"casefold", str_casefold, "", 0, STR},
    {"expandtabs", str_expandtabs, "tabsize", 0, STR},
    {"isalnum", str_isalnum, "", 0, STR},
    {"isalpha", str_isalpha, "", 0, STR},
    {"isascii", str_isascii, "", 0, STR},
    {"isdecimal", str_isdecimal, "", 0, STR},
    {"isdigit", str_isdigit, "", 0, STR},
    {"isidentifier", NULL, "", 0, STR},
    {"islower", str_islower, "", 0, STR},
    {"isnumeric", str_isnumeric, "", 0, STR},
    {"isprintable", str_isprintable, "", 0, STR},
    {"isspace", str_isspace, "", 0, STR},
    {"istitle", str_istitle, "", 0, STR},
    {"isupper", str_isupper, "", 0, STR},
    {"swapcase", str_swapcase, "", 0, STR},
    {"translate", str_translate, "/table", 1, STR},
    {0},
};
