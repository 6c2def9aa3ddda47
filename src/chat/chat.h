/* SPDX-License-Identifier: Apache-2.0
 * chat.h - the chat templates of one model, and a conversation rendered through the right one.
 *
 * A model has one template or several by name: "default", "tool_use", "rag". Which one renders is
 * decided as transformers decides it: the one that was asked for by name, else "tool_use" where the
 * conversation brings tools and there is one, else "default". Variables are transformers' too:
 * messages, tools and documents (None when not given), add_generation_prompt, the special tokens,
 * and whatever the request adds.
 *
 * Conversations come in the form of OpenAI's API, and templates differ in what they take. Before
 * rendering, in a copy:
 *
 *   keys of a message that are null are dropped, as transformers does
 *   "reasoning_content", "thinking" and "reasoning" fill each other in, as transformers does
 *   content that is a list of text parts becomes one text, the parts joined by a line feed, where
 *     the template takes only text; text becomes a list of one part where it takes only lists
 *   the arguments of tool calls become an object where the template takes only objects, or writes
 *     text otherwise than its object, and JSON text where it refuses an object
 *   the content of an assistant's message that only calls tools is null, "" or absent, as the
 *     template takes it; absent where it takes several
 *
 * Which form a template takes is found by rendering small conversations with it, once, when it is
 * first used. Parts that are no text are refused: nothing here reads images or sound.
 *
 * A template that does not parse is an error when it is used, not before: a model without a usable
 * template still continues text. */
#ifndef TG_CHAT_CHAT_H
#define TG_CHAT_CHAT_H

#include "jinja/template.h"

typedef struct tg_chat tg_chat;

/* `text` is the default template, empty for none; `named` is JSON, an object of further templates
 * by name, empty for none. Both are copied. `name` is what messages call their source. */
TG_MUST_USE tg_status tg_chat_new(tg_chat **out, tg_str text, tg_str named, const char *name,
                                  tg_err *e);
void tg_chat_free(tg_chat *c); /* accepts NULL */

/* The spelling of a special token, such as "bos_token". Before the first rendering. */
TG_MUST_USE tg_status tg_chat_set_token(tg_chat *c, const char *name, tg_str spelling, tg_err *e);

/* The default one first, as "default". */
int32_t tg_chat_n_templates(const tg_chat *c);
const char *tg_chat_get_name(const tg_chat *c, int32_t i);
tg_str tg_chat_get_text(const tg_chat *c, int32_t i);

/* A conversation to be rendered; everything is borrowed. */
typedef struct tg_conversation {
    const json_t *messages;    /* a list of at least one object */
    const json_t *tools;       /* a list of objects, or NULL */
    const json_t *documents;   /* a list of objects, or NULL */
    const json_t *kwargs;      /* further variables, which win over special tokens; or NULL */
    const char *template_name; /* NULL: chosen as above */
    bool add_generation_prompt;
} tg_conversation;

/* Appends the prompt to `out`, which is as it was before on failure. Its special tokens are in it,
 * BOS too where the template writes one: it is tokenized without adding any. A mistake in the
 * request is TG_E_ARGUMENT and names the message; a call of raise_exception gives the template's
 * words. `o` may be NULL. Any number of threads may render at the same time. */
TG_MUST_USE tg_status tg_chat_render(tg_buf *out, tg_chat *c, const tg_conversation *q,
                                     const tg_template_options *o, tg_err *e);

/* Whether every template parses: what an export wants to say at once. */
TG_MUST_USE tg_status tg_chat_check(tg_chat *c, tg_err *e);

#endif
