/* SPDX-License-Identifier: Apache-2.0
 * test_models.c - the random models of tests/parity/models against what transformers says of them
 * (tests/parity/kit writes both): logits of every position within 2e-3 and greedy ids, in all three
 * graphs, whole and in pieces, alone and four rows at a time; and the values inside: the first
 * that differs is named. Folders given as arguments take the place of tests/parity/models. */
#include "format/safetensors.h"
#include "model/model.h"
#include "parity.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

#define BOUND 2e-3 /* of a logit, and of a value inside in units of its row's largest */

enum { N_SEQUENCES = 4, MAX_IDS = 160, MAX_ROWS = 8, K = 4, NAME_BYTES = 160 };

static char **given;
static int32_t n_given;

typedef struct sequence {
    int32_t ids[MAX_IDS]; /* n of them, n_prompt in the prompt; greedy goes on from there */
    int32_t n, n_prompt, greedy[MAX_IDS], n_greedy;
} sequence;

/* The results of transformers. */
typedef struct expected {
    json_t *json;
    tg_file_map map;
    tg_arena arena;
    tg_safetensors tensors;
    bool is_counted[1024]; /* a value inside that was compared */
    sequence sequences[N_SEQUENCES];
    int32_t rows[MAX_ROWS], n_rows, max_length;
} expected;

/* A folder's model, exported. */
typedef struct subject {
    const char *folder;
    const expected *want;
    parity_run run;
    double worst;
} subject;

static void open_expected(expected *x, const char *folder)
{
    tg_buf path = {0};
    tg_err e = {0};
    *x = (expected){0};
    x->json = parity_load_json(tg_path_join(&path, folder, "expected.json"));
    x->max_length = (int32_t)json_integer_value(json_object_get(x->json, "max_length"));
    x->n_rows = parity_get_ids(json_object_get(x->json, "rows"), x->rows, MAX_ROWS);
    const json_t *list = json_object_get(x->json, "sequences");
    assert_int_equal(json_array_size(list), N_SEQUENCES);
    for (int32_t i = 0; i < N_SEQUENCES; i++) {
        const json_t *s = json_array_get(list, (size_t)i);
        sequence *to = &x->sequences[i];
        to->n = parity_get_ids(json_object_get(s, "ids"), to->ids, MAX_IDS);
        to->n_greedy = parity_get_ids(json_object_get(s, "greedy"), to->greedy, MAX_IDS);
        to->n_prompt = (int32_t)json_integer_value(json_object_get(s, "prompt"));
        assert_true(to->n_prompt > 0 && to->n_prompt <= to->n && to->n_greedy > 0);
    }
    if (tg_file_map_open(&x->map, tg_path_join(&path, folder, "expected.safetensors"), &e) !=
            TG_OK ||
        tg_safetensors_parse(&x->tensors, &x->arena, x->map.data, x->map.n_bytes, folder, &e) !=
            TG_OK)
        fail_msg("%s", e.msg);
    assert_true(x->tensors.n_tensors <= (int32_t)TG_COUNT(x->is_counted));
    tg_buf_deinit(&path);
}

static void close_expected(expected *x)
{
    tg_arena_deinit(&x->arena);
    tg_file_map_close(&x->map);
    json_decref(x->json);
}

/* The tensor's number, TG_NONE when it was not kept. */
static int32_t find_value(const expected *x, const char *name)
{
    for (int32_t i = 0; i < x->tensors.n_tensors; i++)
        if (tg_str_is(x->tensors.tensors[i].name, name)) return i;
    return TG_NONE;
}

static const float *get_row(const expected *x, int32_t tensor, int32_t row, int32_t width)
{
    const tg_tensor *t = &x->tensors.tensors[tensor];
    assert_true(t->dtype == TG_DTYPE_F32 && t->n_dims == 2 && t->dims[1] == width);
    assert_true(row < t->dims[0]);
    return (const float *)(const void *)t->data + (int64_t)row * width;
}

/* ---- logits */

static void open_subject(subject *s, const char *source, const expected *want, int32_t batch)
{
    static const int32_t buckets[] = {16, 128};
    tg_export_options o = {.batch = batch,
                           .max_length = want->max_length,
                           .context_buckets = buckets,
                           .n_context_buckets = 2,
                           .speculation = K,
                           .has_speculation = true,
                           .weights = "f32",
                           .kv = "f32",
                           .is_forced = true};
    char artifact[256];
    tg_err e = {0};
    snprintf(artifact, sizeof artifact, "%s/model", parity_dir());
    if (tg_export(source, artifact, &o, &e) != TG_OK) fail_msg("%s: %s", source, e.msg);
    *s = (subject){.folder = source, .want = want};
    parity_open(&s->run, artifact, 2, NULL);
    /* Places that no token was written to may hold anything. */
    assert_int_equal(tg_exec_fill_kv(s->run.exec, 0xff, NULL), TG_OK);
}

static void step(subject *s, tg_graph_kind kind, const tg_exec_row *rows, int32_t n)
{
    tg_err e = {0};
    if (tg_exec_step(s->run.exec, kind, rows, n, &e) != TG_OK) fail_msg("%s: %s", s->folder, e.msg);
}

/* Output `out` of the last step against the row of logits after `position` of a sequence. */
static void check_logits(subject *s, int32_t out, int32_t which, int32_t position, const char *way)
{
    const float *got;
    char name[32];
    int32_t n_vocab = s->run.artifact->program.n_vocab;
    snprintf(name, sizeof name, "logits.%d", which);
    int32_t tensor = find_value(s->want, name);
    assert_true(tensor != TG_NONE);
    /* Of the first sequence all positions are kept, of the others the last. */
    const float *row = get_row(s->want, tensor, which == 0 ? position : 0, n_vocab);
    assert_int_equal(tg_exec_read_logits(s->run.exec, out, &got, NULL), TG_OK);
    for (int32_t i = 0; i < n_vocab; i++) {
        double error = fabs((double)got[i] - (double)row[i]);
        s->worst = fmax(s->worst, error);
        if (!(error <= BOUND))
            fail_msg("%s, %s: logit %d after position %d of sequence %d is %g instead of %g",
                     s->folder, way, i, position, which, (double)got[i], (double)row[i]);
    }
}

/* Tokens [at, at + n) of a sequence in row `row`, and what comes after each. */
static void read_piece(subject *s, tg_graph_kind kind, int32_t which, int32_t at, int32_t n,
                       const char *way)
{
    const sequence *q = &s->want->sequences[which];
    tg_exec_row row = {.tokens = q->ids + at,
                       .n_tokens = n,
                       .position = at,
                       .is_long = tg_program_is_long(&s->run.artifact->program, q->n),
                       .n_outs = n};
    step(s, kind, &row, 1);
    for (int32_t i = 0; i < n; i++)
        if (which == 0 || at + i == q->n - 1) check_logits(s, i, which, at + i, way);
}

/* The first sequence by each graph: a prompt in pieces of `piece`, then pieces of `then`. */
static void check_ways(subject *s)
{
    static const struct {
        const char *name;
        int32_t piece, from;
        tg_graph_kind kind;
        int32_t then;
    } ways[] = {
        {"context graph, whole", MAX_IDS, MAX_IDS, TG_KIND_CONTEXT, 1},
        {"context graph, full buckets", 16, MAX_IDS, TG_KIND_CONTEXT, 1},
        {"context graph, padded buckets", 7, MAX_IDS, TG_KIND_CONTEXT, 1},
        {"token graph", 9, 9, TG_KIND_TOKEN, 1},
        {"speculate graph", 5, 5, TG_KIND_SPECULATE, K + 1},
        {"speculate graph, padded", 20, 20, TG_KIND_SPECULATE, 3},
    };
    int32_t n = s->want->sequences[0].n;
    for (size_t w = 0; w < TG_COUNT(ways); w++)
        for (int32_t at = 0, now; at < n; at += now) {
            bool is_prompt = at < ways[w].from;
            now = TG_MIN(is_prompt ? ways[w].piece : ways[w].then, n - at);
            read_piece(s, is_prompt ? TG_KIND_CONTEXT : ways[w].kind, 0, at, now, ways[w].name);
        }
}

static int32_t find_best(subject *s, int32_t out)
{
    const float *logits;
    int32_t best = 0;
    assert_int_equal(tg_exec_read_logits(s->run.exec, out, &logits, NULL), TG_OK);
    for (int32_t i = 1; i < s->run.artifact->program.n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* The text before answer i, which makes it a long one, once more from its first token. */
static void read_as_long(subject *s, int32_t row, const sequence *x, int32_t i)
{
    int32_t ids[MAX_IDS];
    memcpy(ids, x->ids, (size_t)x->n_prompt * sizeof *ids);
    memcpy(ids + x->n_prompt, x->greedy, (size_t)i * sizeof *ids);
    tg_exec_row all = {.row = row, .tokens = ids, .n_tokens = x->n_prompt + i, .is_long = true};
    step(s, TG_KIND_CONTEXT, &all, 1);
}

/* All sequences as rows of the same steps: prompts of different lengths side by side, then a token
 * each, until the shorter answers end and the longer go on. */
static void check_greedy(subject *s, int32_t first, int32_t n_rows)
{
    const sequence *q = s->want->sequences;
    const tg_program *p = &s->run.artifact->program;
    tg_exec_row rows[N_SEQUENCES] = {0};
    int32_t next[N_SEQUENCES] = {0}, n_most = 0;
    for (int32_t r = 0; r < n_rows; r++) {
        const sequence *x = &q[first + r];
        rows[r] = (tg_exec_row){.row = r,
                                .tokens = x->ids,
                                .n_tokens = x->n_prompt,
                                .is_long = tg_program_is_long(p, x->n_prompt),
                                .n_outs = 1};
        n_most = TG_MAX(n_most, x->n_greedy);
    }
    step(s, TG_KIND_CONTEXT, rows, n_rows);
    for (int32_t r = 0; r < n_rows; r++)
        if (q[first + r].n_prompt == q[first + r].n)
            check_logits(s, r, first + r, q[first + r].n - 1, "batch");
    for (int32_t i = 0;; i++) {
        int32_t n = 0;
        for (int32_t r = 0, out = 0; r < n_rows; r++) {
            const sequence *x = &q[first + r];
            if (i >= x->n_greedy) continue; /* ended in an earlier step */
            next[r] = find_best(s, out++);
            if (next[r] != x->greedy[i])
                fail_msg("%s, rows of %d: greedy id %d of sequence %d is %d instead of %d",
                         s->folder, n_rows, i, first + r, next[r], x->greedy[i]);
        }
        if (i + 1 == n_most) return;
        for (int32_t r = 0; r < n_rows; r++) {
            const sequence *x = &q[first + r];
            if (i + 1 >= x->n_greedy) continue;
            rows[n++] = (tg_exec_row){.row = r,
                                      .tokens = &next[r],
                                      .n_tokens = 1,
                                      .position = x->n_prompt + i,
                                      .is_long = tg_program_is_long(p, x->n_prompt + i + 1),
                                      .n_outs = 1};
            if (rows[n - 1].is_long && !tg_program_is_long(p, x->n_prompt + i))
                read_as_long(s, r, x, i);
        }
        step(s, TG_KIND_TOKEN, rows, n);
    }
}

/* ---- values inside */

typedef struct looker {
    subject *s;
    expected *want;
    const tg_loaded_checkpoint *model;
    float sum[MAX_ROWS][4096]; /* the residual stream as transformers has it */
    int32_t width;             /* of the stream */
    char failure[400];         /* the first value that differs */
    pthread_mutex_t lock;      /* q, k and v may be met by different threads */
} looker;

/* A row of ours against one of theirs; the first difference is put into words. */
static void compare_row(looker *k, const char *name, int32_t row, const float *got,
                        const float *want, int32_t width)
{
    double largest = 1, worst = 0;
    int32_t at = 0;
    for (int32_t i = 0; i < width; i++) {
        double error = fabs((double)got[i] - (double)want[i]);
        largest = fmax(largest, fabs((double)want[i]));
        if (error > worst || isnan(error)) {
            worst = error;
            at = i;
        }
    }
    if (worst <= BOUND * largest || k->failure[0]) return;
    snprintf(k->failure, sizeof k->failure,
             "%s: the first value that differs is %s, position %d: number %d of %d is %g instead "
             "of %g",
             k->s->folder, name, k->want->rows[row], at, width, (double)got[at], (double)want[at]);
}

static void compare(looker *k, const char *name, const float *x, int64_t stride, int32_t width)
{
    int32_t tensor = find_value(k->want, name);
    if (tensor == TG_NONE) return;
    for (int32_t i = 0; i < k->want->n_rows; i++)
        compare_row(k, name, i, x + k->want->rows[i] * stride, get_row(k->want, tensor, i, width),
                    width);
    k->want->is_counted[tensor] = true;
}

/* MODULE.in or MODULE.out: the module is the weight's name without its last part. */
static void name_value(const looker *k, char out[NAME_BYTES], int32_t role, int32_t layer,
                       const char *end)
{
    const tg_found_weight *w = NULL;
    const tg_str *name;
    tg_str module;
    int32_t column = tg_weight_role_is_per_layer((tg_weight_role)role) ? layer : 0;
    w = tg_loaded_checkpoint_find_weight(k->model, (tg_weight_role)role, column);
    assert_non_null(w->tensor);
    name = &w->tensor->name;
    module = *name;
    while (module.len > 0 && module.ptr[module.len - 1] != '.')
        module.len--;
    snprintf(out, NAME_BYTES, "%.*s%s", (int)module.len, module.ptr, end);
}

static void name_layer(const looker *k, char out[NAME_BYTES], int32_t layer, const char *end)
{
    const char *pattern = json_string_value(json_object_get(k->want->json, "layer"));
    const char *mark = strchr(pattern, '#');
    assert_non_null(mark);
    snprintf(out, NAME_BYTES, "%.*s%d%s.%s", (int)(mark - pattern), pattern, layer, mark + 1, end);
}

/* The input of a product. A tied head is multiplied under the embedding's name. */
static void watch(void *context, const tg_weight_entry *w, const tg_cpu_input *in)
{
    looker *k = context;
    char name[NAME_BYTES];
    pthread_mutex_lock(&k->lock);
    if (w->role == TG_W_EMBED)
        snprintf(name, sizeof name, "%s.in",
                 json_string_value(json_object_get(k->want->json, "head")));
    else
        name_value(k, name, w->role, w->layer, "in");
    compare(k, name, in->x, in->stride, (int32_t)w->cols);
    pthread_mutex_unlock(&k->lock);
}

/* Their stream plus what their module gave, as an operation that adds in place leaves it. */
static void compare_sum(looker *k, const char *name, const tg_cpu_result *r)
{
    int32_t tensor = find_value(k->want, name);
    if (tensor == TG_NONE) return;
    for (int32_t i = 0; i < k->want->n_rows; i++) {
        const float *y = get_row(k->want, tensor, i, r->width);
        for (int32_t c = 0; c < r->width; c++)
            k->sum[i][c] += y[c];
        compare_row(k, name, i, r->x + k->want->rows[i] * r->stride, k->sum[i], r->width);
    }
    k->want->is_counted[tensor] = true;
}

/* The stream between layers, and from where sums go on. */
static void compare_stream(looker *k, const char *name, const tg_cpu_result *r)
{
    int32_t tensor = find_value(k->want, name);
    assert_true(tensor != TG_NONE && r->width <= (int32_t)TG_COUNT(k->sum[0]));
    compare(k, name, r->x, r->stride, r->width);
    for (int32_t i = 0; i < k->want->n_rows; i++)
        memcpy(k->sum[i], get_row(k->want, tensor, i, r->width),
               (size_t)r->width * sizeof k->sum[0][0]);
}

/* Whether an instruction is the last of a layer. */
static bool is_last(const subject *s, const tg_instr *x)
{
    const tg_program *p = &s->run.artifact->program;
    for (int32_t i = 0; i < p->n_plans; i++)
        for (int32_t k = 0; k < p->plans[i].n_segments; k++) {
            const tg_segment *g = &p->plans[i].segments[k];
            if (g->n_layers > 0 && x == p->plans[i].instrs + g->first_instr + g->n_instrs - 1)
                return true;
        }
    return false;
}

static void look(looker *k, const tg_cpu_result *r)
{
    char name[NAME_BYTES];
    tg_op op = (tg_op)r->instr->op;
    const tg_weight_slot *slot = &tg_op_get(op)->slots[0];
    int32_t role = r->instr->weights[0];
    if (op == TG_OP_EMBED) {
        name_layer(k, name, 0, "in");
        compare_stream(k, name, r);
        return;
    }
    if (slot->name && role != TG_W_EMBED && !tg_weight_role_is_computed((tg_weight_role)role)) {
        name_value(k, name, role, r->layer, "out");
        if (tg_op_get(op)->in_place == TG_IN_PLACE_ALWAYS)
            compare_sum(k, name, r);
        else if (op == TG_OP_MATMUL || slot->is_plain)
            compare(k, name, r->x, r->stride, r->width);
    }
    if (!is_last(k->s, r->instr)) return;
    name_layer(k, name, r->layer, "out");
    compare_stream(k, name, r);
}

static void show(void *context, const tg_cpu_result *r)
{
    looker *k = context;
    pthread_mutex_lock(&k->lock);
    look(k, r);
    pthread_mutex_unlock(&k->lock);
}

static bool is_inside(tg_str name)
{
    return name.len < 7 || memcmp(name.ptr, "logits.", 7) != 0;
}

/* Every value that was kept is met on the way of the first sequence. */
static void check_inside(subject *s, expected *want)
{
    static looker k;
    tg_checkpoint *c;
    tg_loaded_checkpoint *b;
    tg_err e = {0};
    tg_device *d = tg_exec_device(s->run.exec);
    if (tg_checkpoint_open(&c, s->folder, &e) != TG_OK) fail_msg("%s", e.msg);
    if (tg_loaded_checkpoint_open(&b, c, &e) != TG_OK) fail_msg("%s", e.msg);
    k = (looker){.s = s, .want = want, .model = b, .lock = PTHREAD_MUTEX_INITIALIZER};
    tg_cpu_device_watch(d, watch, &k);
    tg_cpu_device_show(d, show, &k);
    const sequence *q = &want->sequences[0];
    tg_exec_row row = {.tokens = q->ids,
                       .n_tokens = q->n,
                       .is_long = tg_program_is_long(&s->run.artifact->program, q->n),
                       .n_outs = q->n};
    step(s, TG_KIND_CONTEXT, &row, 1);
    tg_cpu_device_watch(d, NULL, NULL);
    tg_cpu_device_show(d, NULL, NULL);
    if (k.failure[0]) fail_msg("%s", k.failure);
    for (int32_t i = 0; i < want->tensors.n_tensors; i++)
        if (is_inside(want->tensors.tensors[i].name) && !want->is_counted[i])
            fail_msg("%s: nothing was compared with %s", s->folder,
                     want->tensors.tensors[i].name.ptr);
    tg_loaded_checkpoint_free(b);
    tg_checkpoint_close(c);
}

/* ---- folders */

static void check_source(const char *source, expected *want, bool has_inside)
{
    subject s;
    open_subject(&s, source, want, 1);
    if (has_inside) check_inside(&s, want);
    check_ways(&s);
    for (int32_t i = 0; i < N_SEQUENCES; i++)
        check_greedy(&s, i, 1);
    double worst = s.worst;
    parity_close(&s.run);
    open_subject(&s, source, want, N_SEQUENCES);
    check_greedy(&s, 0, N_SEQUENCES);
    parity_close(&s.run);
    print_message("%-40s largest difference of a logit %.1e\n", source, fmax(worst, s.worst));
}

static void check_folder(const char *folder)
{
    static expected want;
    char path[300];
    open_expected(&want, folder);
    check_source(folder, &want, true);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    if (tg_path_is_file(path)) check_source(path, &want, false);
    close_expected(&want);
}

static void every_model_agrees_with_transformers(void **state)
{
    (void)state;
    static const char root[] = "tests/parity/models";
    tg_arena a = {0};
    char **names, path[300];
    int32_t n;
    for (int32_t i = 0; i < n_given; i++)
        check_folder(given[i]);
    if (n_given > 0) return;
    assert_int_equal(tg_dir_list(&a, root, &names, &n, NULL), TG_OK);
    assert_true(n > 0);
    for (int32_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", root, names[i]);
        check_folder(path);
    }
    tg_arena_deinit(&a);
}

/* A row of README's table names the architecture and its three models here. */
static void every_architecture_has_its_models_and_a_row_in_readme(void **state)
{
    (void)state;
    static const char *const names[] = {
#define TG_ARCH(name) #name,
#include "model/archs.def"
#undef TG_ARCH
    };
    tg_arena a = {0};
    tg_buf readme = {0};
    char **folders, row[64];
    int32_t n;
    tg_err e = {0};
    if (n_given > 0) skip();
    if (tg_file_load(&readme, "README.md", 1 << 20, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(tg_dir_list(&a, "tests/parity/models", &folders, &n, NULL), TG_OK);
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        int32_t n_models = 0;
        snprintf(row, sizeof row, "%s-", names[i]);
        for (int32_t k = 0; k < n; k++)
            n_models += strncmp(folders[k], row, strlen(row)) == 0;
        if (n_models < 3) fail_msg("%s has %d models here", names[i], n_models);
        snprintf(row, sizeof row, "\n| `%s` |", names[i]);
        if (!strstr(tg_buf_cstr(&readme), row)) fail_msg("README.md has no row of %s", names[i]);
    }
    tg_buf_deinit(&readme);
    tg_arena_deinit(&a);
}

int main(int argc, char **argv)
{
    given = argv + 1;
    n_given = argc - 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_agrees_with_transformers),
        cmocka_unit_test(every_architecture_has_its_models_and_a_row_in_readme),
    };
    return cmocka_run_group_tests_name("models", tests, NULL, NULL);
}
