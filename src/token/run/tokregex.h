/* SPDX-License-Identifier: Apache-2.0
 * tokregex.h - the patterns of tokenizers, run by PCRE2.
 *
 * tokenizer.json writes patterns for Oniguruma with Ruby's syntax. They are translated, since the
 * two engines differ in small things that change ids: what \s and \w hold, what {2,3}+ means,
 * where $ matches. A construct whose meaning would change is refused with its place. */
#ifndef TG_TOKEN_TOKREGEX_H
#define TG_TOKEN_TOKREGEX_H

#include "base/str.h"

typedef struct tg_regex tg_regex;

/* Translates and compiles; machine code where PCRE2 has it. Shared by any number of threads. */
TG_MUST_USE tg_status tg_regex_new(tg_regex **out, tg_str pattern, tg_err *e);
/* The same for a pattern that is translated already. */
TG_MUST_USE tg_status tg_regex_new_translated(tg_regex **out, tg_str pattern, tg_err *e);
void tg_regex_free(tg_regex *r); /* accepts NULL */

/* One thread's working memory. {0} is empty. */
typedef struct tg_regex_scratch {
    void *match, *context;
} tg_regex_scratch;

void tg_regex_scratch_deinit(tg_regex_scratch *s);

/* The first match at or after `from`, in [*begin, *end); *begin is SIZE_MAX when there is none.
 * `text` is valid UTF-8 and `from` begins a character. TG_E_LIMIT when the pattern takes more
 * steps than any sane one needs for a text of this length. */
TG_MUST_USE tg_status tg_regex_find(const tg_regex *r, tg_regex_scratch *s, tg_str text,
                                    size_t from, size_t *begin, size_t *end, tg_err *e);

/* Appends the pattern in PCRE2's syntax. */
TG_MUST_USE tg_status tg_regex_translate(tg_buf *out, tg_str pattern, tg_err *e);

#endif
