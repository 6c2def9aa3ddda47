/* SPDX-License-Identifier: Apache-2.0
 * hello.c - a question, and the answer as it comes.
 *
 *   cc hello.c $(pkg-config --cflags --libs trigraph) -o hello && ./hello MODEL "A question" */
#include <stdio.h>
#include <string.h>
#include <trigraph.h>

static bool print(void *context, const char *text, size_t n, const int32_t *ids, int32_t n_ids)
{
    (void)ids, (void)n_ids;
    return fwrite(text, 1, n, context) != n || fflush(context) != 0; /* true ends the answer */
}

int main(int argc, char **argv)
{
    tg_request_options options = {.max_tokens = 32, .on_text = print, .context = stdout};
    tg_model *model = NULL;
    tg_engine *engine = NULL;
    tg_request *request = NULL;
    char *dir = NULL;
    tg_tokens prompt = {0};
    tg_err e = {0};
    bool is_ok = argc == 3 && tg_cache_find(&dir, argv[1], NULL, NULL, &e) == TG_OK &&
                 tg_model_open(&model, dir, &e) == TG_OK &&
                 tg_engine_open(&engine, model, NULL, &e) == TG_OK &&
                 tg_text_tokenize(&prompt, tg_model_get_text(model), argv[2], strlen(argv[2]), NULL,
                                  &e) == TG_OK &&
                 tg_engine_submit(&request, engine, prompt.ids, prompt.n, &options, &e) == TG_OK &&
                 tg_request_wait(request, &e) == TG_OK;
    if (is_ok)
        putchar('\n');
    else
        fprintf(stderr, "hello: %s\n", argc == 3 ? e.msg : "usage: hello MODEL QUESTION");
    tg_request_free(request);
    tg_engine_close(engine);
    tg_model_close(model);
    tg_tokens_deinit(&prompt);
    tg_free(dir);
    return is_ok ? 0 : 1;
}
