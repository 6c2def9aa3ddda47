/* SPDX-License-Identifier: Apache-2.0
 * tokdfabuild.h - builds the image that run/tokdfa.h runs. */
#ifndef TG_TOKEN_TOKDFABUILD_H
#define TG_TOKEN_TOKDFABUILD_H

#include "token/run/tokdfa.h"

/* Appends the image of a pattern in PCRE2's syntax, as tg_regex_translate writes it. *is_built is
 * false, and nothing appended, where the pattern holds what no image can or would be too large. */
TG_MUST_USE tg_status tg_dfa_build(tg_buf *out, tg_str pattern, bool *is_built, tg_err *e);

#endif
