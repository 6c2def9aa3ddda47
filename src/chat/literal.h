/* SPDX-License-Identifier: Apache-2.0
 * literal.h - a prompt in which text of the conversation is told from text of the template.
 *
 * A message that spells "<|im_end|>" is rendered as the template renders any text, and a tokenizer
 * cannot know that this one is not the template's. Here the rendering says so. */
#ifndef TG_CHAT_LITERAL_H
#define TG_CHAT_LITERAL_H

#include "chat/chat.h"

/* How the control tokens of a tokenizer are spelled; borrowed. */
typedef struct tg_spellings {
    const tg_str *texts;
    int32_t n;
} tg_spellings;

/* Byte offsets of a text, ascending; {0} is empty. */
typedef struct tg_offsets {
    int32_t *at;
    int32_t n;
} tg_offsets;
void tg_offsets_deinit(tg_offsets *x);

/* tg_chat_render, to the byte, into the empty `out`; and of those characters that came out of
 * messages, tools or documents the offsets of enough to be sure: a spelling of a control token that
 * covers none of them is the template's. TG_E_UNSUPPORTED where the template handles the text so
 * that this cannot be told. */
TG_MUST_USE tg_status tg_chat_render_literal(tg_buf *out, tg_offsets *literal, tg_chat *c,
                                             const tg_conversation *q, const tg_spellings *controls,
                                             tg_err *e);

#endif
