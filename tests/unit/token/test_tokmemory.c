/* SPDX-License-Identifier: Apache-2.0
 * test_tokmemory.c - what compiling a large vocabulary takes. A program of its own, for a peak is
 * the process'. */
#include "base/mem.h"
#include "base/os.h"
#include "check.h"
#include "token/compile/tokcompile.h"

enum { N = 262144, MOST_LETTERS = 4 };

/* i in letters: a to z, aa to zz, ... Every piece but the letters has cuts, so merges. */
static size_t spell(int32_t i, char out[MOST_LETTERS])
{
    char back[MOST_LETTERS];
    size_t n = 0;
    for (int32_t rest = i + 1; rest > 0; rest = (rest - 1) / 26)
        back[n++] = (char)('a' + (rest - 1) % 26);
    for (size_t k = 0; k < n; k++)
        out[k] = back[n - 1 - k];
    return n;
}

/* At most at once: what is said of the tokens (72 bytes each: 19 MB), the tables, or the blob and
 * of the tables what is not yet in it. It was seven times the blob for Gemma 3 while everything
 * lived until the end. */
static void a_vocabulary_of_262144_takes_less_than_three_times_its_tables(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* their shadows and quarantines are memory too */
#endif
    tg_str *tokens = tg_mem_new_array(N, sizeof *tokens);
    float *scores = tg_mem_new_array(N, sizeof *scores);
    char *letters = tg_mem_new_array(N, MOST_LETTERS);
    assert_true(tokens && scores && letters);
    for (int32_t i = 0; i < N; i++) {
        char *at = letters + (size_t)i * MOST_LETTERS;
        tokens[i] = (tg_str){at, spell(i, at)};
        scores[i] = (float)-i;
    }
    tg_gguf_vocab v = {.model = TG_STR("llama"),
                       .tokens = tokens,
                       .scores = scores,
                       .n_tokens = N,
                       .bos_id = TG_TOKEN_NONE,
                       .eos_id = TG_TOKEN_NONE,
                       .unk_id = TG_TOKEN_NONE,
                       .pad_id = TG_TOKEN_NONE,
                       .cls_id = TG_TOKEN_NONE,
                       .sep_id = TG_TOKEN_NONE};
    tg_buf blob = {0};
    tg_err e = {0};
    int64_t before = tg_memory_peak_bytes();
    if (tg_tokenizer_compile_gguf(&blob, &v, &e) != TG_OK) fail_msg("%s", e.msg);
    int64_t taken = tg_memory_peak_bytes() - before;
    print_message("%zu bytes of tables, %.0f MB taken\n", blob.len, (double)taken / 1e6);
    assert_true(taken < 3 * (int64_t)blob.len);
    assert_true(taken > (int64_t)blob.len); /* or nothing was measured */
    tg_buf_deinit(&blob);
    tg_mem_free(letters);
    tg_mem_free(scores);
    tg_mem_free(tokens);
    assert_int_equal(tg_mem_n_alive(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vocabulary_of_262144_takes_less_than_three_times_its_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
