/* SPDX-License-Identifier: Apache-2.0
 * tokens.c - what a model reads of a conversation: the prompt that its chat template makes of it,
 * and the tokens of that. Needs no weights: MODEL may be a folder with a tokenizer and a template.
 *
 *   cc tokens.c $(pkg-config --cflags --libs trigraph) -o tokens
 *   ./tokens MODEL '[{"role": "user", "content": "A question"}]' */
#include <stdio.h>
#include <trigraph.h>

static tg_status print(const tg_text *text, const tg_tokens *tokens, tg_err *e)
{
    for (int32_t i = 0; i < tokens->n; i++) {
        char *spelling;
        tg_status s = tg_text_print_token(&spelling, text, tokens->ids[i], e);
        if (s != TG_OK) return s;
        printf("%d\t%d-%d\t%s\n", tokens->ids[i], tokens->ranges[i].begin, tokens->ranges[i].end,
               spelling);
        tg_free(spelling);
    }
    return TG_OK;
}

int main(int argc, char **argv)
{
    /* The template wrote the special tokens: they are read, and none are added. */
    tg_tokenize_options options = {.no_add_special = true, .has_ranges = true};
    tg_text *text = NULL;
    tg_tokens tokens = {0};
    char *prompt = NULL;
    size_t n_bytes = 0;
    tg_err e = {0};
    bool is_ok = argc == 3 && tg_text_open(&text, argv[1], &e) == TG_OK &&
                 tg_text_render_chat(&prompt, &n_bytes, text, argv[2], NULL, &e) == TG_OK &&
                 tg_text_tokenize(&tokens, text, prompt, n_bytes, &options, &e) == TG_OK &&
                 print(text, &tokens, &e) == TG_OK;
    if (!is_ok) fprintf(stderr, "tokens: %s\n", argc == 3 ? e.msg : "usage: tokens MODEL MESSAGES");
    tg_tokens_deinit(&tokens);
    tg_free(prompt);
    tg_text_close(text);
    return is_ok ? 0 : 1;
}
