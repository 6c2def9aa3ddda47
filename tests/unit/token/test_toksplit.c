/* SPDX-License-Identifier: Apache-2.0
 *
 * Words are cut into tokens from left to right (neighbors.h). What they must become is worked
 * out here by the definition of byte pair encoding, merge by merge, over random vocabularies of two
 * letters: with so few, every word is full of equal pairs side by side. */
#include "check.h"
#include "token/compile/tokcompile.h"
#include "token/run/tokblob.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TOKENS = 60, MAX_MERGES = 60, MAX_LEN = 16, MAX_WORD = 150, N_BYTES = 256 };

typedef struct vocab {
    char text[MAX_TOKENS][MAX_LEN + 1]; /* "a", "b", then what merges make; id: 256 + index */
    int n_tokens;
    int left[MAX_MERGES], right[MAX_MERGES], made[MAX_MERGES]; /* by rank */
    int n_merges;
} vocab;

static uint64_t state;

static int pick(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

static int find_token(const vocab *v, const char *text)
{
    for (int i = 0; i < v->n_tokens; i++)
        if (strcmp(v->text[i], text) == 0) return i;
    return -1;
}

static bool has_merge(const vocab *v, int left, int right)
{
    for (int k = 0; k < v->n_merges; k++)
        if (v->left[k] == left && v->right[k] == right) return true;
    return false;
}

static void swap(int *x, int i, int k)
{
    int y = x[i];
    x[i] = x[k];
    x[k] = y;
}

/* Shuffled, most merges have tokens that are made later than their rank. */
static vocab make_vocab(int n_merges, bool is_shuffled)
{
    vocab v = {.text = {"a", "b"}, .n_tokens = 2};
    while (v.n_merges < n_merges) {
        int left = pick(v.n_tokens), right = pick(v.n_tokens);
        char joined[2 * MAX_LEN + 1];
        snprintf(joined, sizeof joined, "%s%s", v.text[left], v.text[right]);
        if (strlen(joined) > MAX_LEN || has_merge(&v, left, right)) continue;
        int made = find_token(&v, joined);
        if (made >= 0 && !is_shuffled) continue; /* another merge of a token may be a late one */
        if (made < 0) memcpy(v.text[made = v.n_tokens++], joined, strlen(joined) + 1);
        v.left[v.n_merges] = left;
        v.right[v.n_merges] = right;
        v.made[v.n_merges++] = made;
    }
    for (int i = v.n_merges - 1; is_shuffled && i > 0; i--) {
        int k = pick(i + 1);
        swap(v.left, i, k);
        swap(v.right, i, k);
        swap(v.made, i, k);
    }
    return v;
}

/* A byte's own token is its value, which for the two letters merges know as tokens 0 and 1. */
static int id_of(const vocab *v, int token)
{
    return token < 2 ? v->text[token][0] : N_BYTES + token;
}

static tg_tokenizer *open_vocab(const vocab *v, tg_buf *blob)
{
    tg_buf json = {0};
    tg_err e = {0};
    tg_buf_printf(&json,
                  "{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {\"type\": "
                  "\"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}, "
                  "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
                  "\"vocab\": {");
    for (int i = 0; i < N_BYTES; i++)
        tg_buf_printf(&json, "\"\\u%04x\": %d, ", (int)tg_tok_byte_char((uint8_t)i), i);
    for (int i = 2; i < v->n_tokens; i++)
        tg_buf_printf(&json, "\"%s\": %d%s", v->text[i], N_BYTES + i,
                      i + 1 < v->n_tokens ? ", " : "");
    tg_buf_printf(&json, "}, \"merges\": [");
    for (int k = 0; k < v->n_merges; k++)
        tg_buf_printf(&json, "%s[\"%s\", \"%s\"]", k ? ", " : "", v->text[v->left[k]],
                      v->text[v->right[k]]);
    tg_buf_printf(&json, "]}}");
    if (tg_tokenizer_compile_json(blob, tg_buf_str(&json), (tg_str){"", 0}, &e) != TG_OK)
        fail_msg("%s", e.msg);
    tg_tokenizer *t = NULL;
    if (tg_tokenizer_open(&t, blob->ptr, blob->len, &e) != TG_OK) fail_msg("%s", e.msg);
    tg_buf_deinit(&json);
    return t;
}

/* The definition: the pair of the lowest rank, the leftmost of equals, until there is none. */
static int merge_plainly(const vocab *v, int *tokens, int n)
{
    for (;;) {
        int best = MAX_MERGES, at = -1;
        for (int i = 0; i + 1 < n; i++)
            for (int k = 0; k < best; k++)
                if (k < v->n_merges && v->left[k] == tokens[i] && v->right[k] == tokens[i + 1])
                    best = k, at = i;
        if (at < 0) return n;
        tokens[at] = v->made[best];
        memmove(tokens + at + 1, tokens + at + 2, (size_t)(n - at - 2) * sizeof *tokens);
        n--;
    }
}

/* Runs of a letter, since those are where the leftmost of equals counts. */
static int make_word(char *word)
{
    int n = 1 + pick(MAX_WORD - 1), longest = 1 + pick(12);
    for (int i = 0, left = 0, letter = 'a'; i < n; i++, left--) {
        if (left <= 0) letter = letter == 'a' ? 'b' : 'a', left = 1 + pick(longest);
        word[i] = (char)letter;
    }
    return n;
}

static void compare_words(const vocab *v, const tg_tokenizer *t, int n_words)
{
    tg_tok_scratch scratch = {.pinned = -1};
    tg_ids ids = {0};
    tg_spans spans = {0};
    tg_err e = {0};
    for (int w = 0; w < n_words; w++) {
        char word[MAX_WORD];
        int tokens[MAX_WORD], n = make_word(word);
        for (int i = 0; i < n; i++)
            tokens[i] = word[i] - 'a';
        tg_encode_options o = {.spans = &spans};
        tg_ids_clear(&ids);
        tg_spans_clear(&spans);
        tg_status s = tg_tok_encode(&scratch, &ids, t, (tg_str){word, (size_t)n}, &o, &e);
        if (s != TG_OK) fail_msg("%s", e.msg);
        int n_tokens = merge_plainly(v, tokens, n), at = 0;
        for (int i = 0; i < n_tokens; i++) {
            if (i >= (int)ids.len || ids.ptr[i] != id_of(v, tokens[i]))
                fail_msg("'%.*s': id %d of %d differs", n, word, i, n_tokens);
            assert_int_equal(spans.ptr[i].begin, at);
            assert_int_equal(spans.ptr[i].end, at += (int)strlen(v->text[tokens[i]]));
        }
        assert_int_equal(ids.len, n_tokens);
    }
    assert_null(scratch.queue.at); /* no word was left to the queue */
    tg_tok_scratch_deinit(&scratch);
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
}

static void compare_vocabs(bool is_shuffled)
{
    state = 1;
    for (int i = 0; i < 300; i++) {
        vocab v = make_vocab(2 + pick(MAX_MERGES - 4), is_shuffled);
        tg_buf blob = {0};
        tg_tokenizer *t = open_vocab(&v, &blob);
        assert_true(t->h->flags & TG_TOK_HAS_SPLITS);
        compare_words(&v, t, 20);
        tg_tokenizer_close(t);
        tg_buf_deinit(&blob);
    }
}

static void words_become_what_merging_makes_of_them(void **unused)
{
    (void)unused;
    compare_vocabs(false);
}

static void merges_before_those_of_their_tokens_keep_their_meaning(void **unused)
{
    (void)unused;
    compare_vocabs(true);
}

/* Under the sanitizers this is what shows that whatever the tables say, encoding ends. */
static void damaged_splits_do_no_harm(void **unused)
{
    (void)unused;
    state = 2;
    vocab v = make_vocab(40, true);
    tg_buf blob = {0};
    tg_tokenizer *t = open_vocab(&v, &blob);
    for (int i = 0; i < 2000; i++) {
        static const tg_tok_section sections[] = {TG_TOK_KEY_TRIE, TG_TOK_SPLITS, TG_TOK_SPLITS,
                                                  TG_TOK_BIGRAMS, TG_TOK_EARLY};
        const tg_tok_range *r = &t->h->sections[sections[pick(5)]];
        int32_t *cells = (void *)(blob.ptr + r->at), k = pick((int)(r->n_bytes / 4));
        int32_t before = cells[k];
        cells[k] = pick(8) ? pick(v.n_tokens + N_BYTES + 5) - 3 : INT32_MAX - pick(2);
        char word[MAX_WORD];
        size_t n_bytes = (size_t)make_word(word);
        char *copy = test_malloc(n_bytes); /* the sanitizer sees a step beyond it */
        memcpy(copy, word, n_bytes);
        tg_ids ids = {0};
        tg_err e = {0};
        tg_status s =
            tg_tokenizer_encode(&ids, t, (tg_str){copy, n_bytes}, &(tg_encode_options){0}, &e);
        test_free(copy);
        assert_true(s == TG_OK || s == TG_E_CORRUPT);
        for (size_t n = 0; n < ids.len; n++)
            assert_in_range(ids.ptr[n], 0, t->h->n_vocab - 1);
        tg_ids_deinit(&ids);
        cells[k] = before;
    }
    tg_tokenizer_close(t);
    tg_buf_deinit(&blob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_what_merging_makes_of_them),
        cmocka_unit_test(merges_before_those_of_their_tokens_keep_their_meaning),
        cmocka_unit_test(damaged_splits_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
