/* SPDX-License-Identifier: Apache-2.0
 * tokunicode.h - classes of characters as the reference library knows them.
 *
 * Its tables are of several versions of Unicode, none of them that of utf8proc or PCRE2 here: what
 * is a mark, a digit or a letter to it decides where words end. So the classes are the library's
 * own, asked out of it by tools/generate/mkunicode. */
#ifndef TG_TOKEN_TOKUNICODE_H
#define TG_TOKEN_TOKUNICODE_H

#include "base/base.h"

typedef enum tg_unicode_class {
    TG_UNICODE_PUNCTUATION, /* with all signs of ASCII */
    TG_UNICODE_NUMERIC,
    TG_UNICODE_WORD,       /* a pattern's \w */
    TG_UNICODE_CONTROL,    /* what BERT's clean_text removes */
    TG_UNICODE_NONSPACING, /* what BERT's strip_accents removes */
    TG_UNICODE_MARK,       /* what StripAccents removes */
    TG_UNICODE_JOINING,    /* one grapheme cluster with a letter before it */
    TG_UNICODE_PRESENT,    /* what normalization forms know: all others are left alone by them */
    TG_UNICODE_CLASS_COUNT
} tg_unicode_class;

bool tg_unicode_is(tg_unicode_class k, int32_t cp);

/* The number of the script that UnicodeScripts puts a character into; 0: into any. */
int tg_unicode_script(int32_t cp);

/* Unicode's White_Space, which no version changes any more. */
TG_INLINE bool tg_unicode_is_space(int32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f ||
           cp == 0x205f || cp == 0x3000;
}

#endif
