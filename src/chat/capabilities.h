/* SPDX-License-Identifier: Apache-2.0
 * capabilities.h - what the template of a model takes, and conversations brought into that form.
 *
 * Templates are programs, so the only way to know is to run them: each question is a small
 * conversation with a word that must come out again, and not inside a printed list. */
#ifndef TG_CHAT_CAPABILITIES_H
#define TG_CHAT_CAPABILITIES_H

#include "jinja/template.h"

/* Roles beyond these are taken to be like the user's; "developer" like the system's. */
typedef enum tg_role {
    TG_ROLE_SYSTEM,
    TG_ROLE_USER,
    TG_ROLE_ASSISTANT,
    TG_ROLE_TOOL,
    TG_ROLE_COUNT
} tg_role;

/* The content of a message that only calls tools. */
typedef enum tg_blank { TG_BLANK_ABSENT, TG_BLANK_NULL, TG_BLANK_EMPTY } tg_blank;

typedef struct tg_template_capabilities {
    bool takes_text[TG_ROLE_COUNT];  /* content that is a string */
    bool takes_parts[TG_ROLE_COUNT]; /* content that is a list of text parts */
    /* Arguments of a call: an object, if only to print it as Python does; the JSON text of one,
     * which then gives what the object gives unless that is printed so. */
    bool takes_object, takes_json;
    tg_blank blank;
} tg_template_capabilities;

/* `tokens` is an object of variables every rendering has: the special tokens. Fails only for want
 * of memory: a template that refuses a question does not take what was asked. */
TG_MUST_USE tg_status tg_template_capabilities_find(tg_template_capabilities *out,
                                                    const tg_template *t, json_t *tokens,
                                                    tg_err *e);

/* A copy of the messages as the template takes them; chat.h lists what is done. The caller owns
 * *out. */
TG_MUST_USE tg_status tg_template_capabilities_shape(json_t **out,
                                                     const tg_template_capabilities *h,
                                                     const json_t *messages, tg_err *e);

#endif
