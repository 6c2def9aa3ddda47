/* SPDX-License-Identifier: Apache-2.0
 * golden.h - comparing text with a committed file. Tests run in the repository's root; with
 * TG_BLESS set they write the file instead, and the difference git shows is what is to be reviewed.
 * */
#ifndef TG_TESTS_GOLDEN_H
#define TG_TESTS_GOLDEN_H

#include "base/file.h"
#include "check.h"

static inline void assert_golden(const char *path, const tg_buf *got)
{
    tg_buf want = {0};
    tg_err e = {0};
    if (getenv("TG_BLESS")) {
        if (tg_file_save(path, tg_buf_str(got), &e) != TG_OK) fail_msg("%s", e.msg);
        return;
    }
    if (tg_file_load(&want, path, 1 << 20, &e) != TG_OK) fail_msg("%s", e.msg);
    if (!tg_str_is_equal(tg_buf_str(&want), tg_buf_str(got)))
        fail_msg("%s differs; the text is now\n%s", path, tg_buf_cstr(got));
    tg_buf_deinit(&want);
}

#endif
