/* SPDX-License-Identifier: Apache-2.0
 * check_kernels.c - is every kernel of every tier this machine has the one that kernel.h defines?
 *
 * For each tier the table is refilled, and each entry whose function changed is run against the
 * reference tier, to the bit; the reference itself is run against plain double precision within the
 * bounds of kernel.h. Each check has a thread of its own: a kernel that counts on what another
 * thread, or an earlier kernel of this one, has set up is found out. A crash is caught, named, and
 * the rest goes on.
 *
 *   check_kernels [--list] [--tier=NAME] [--kernel=PART] [--bench]
 *
 * TG_SEED sets the seed; it is reset before each check and printed with each failure. */
#include "bench.h"
#include "cases_attend.h"
#include "cases_math.h"
#include "cases_matmul.h"
#include "cases_sample.h"

#include <pthread.h>

typedef void case_fn(check *c);

typedef struct kernel_case {
    const char *name;
    size_t at;      /* of the entry in tg_kernels */
    case_fn *check; /* c->k against c->ref */
    case_fn *truth; /* c->ref against double precision; NULL: `check` compares with the truth itself
                        (but sample_row's is tests/unit/kernel/test_sample.c) */
    case_fn *bench; /* NULL: none */
    tg_layout layout; /* of matmul and embed */
} kernel_case;

#define ENTRY(field) offsetof(tg_kernels, field)

static const kernel_case cases[] = {
    {"quantize", ENTRY(quantize), check_quantize, truth_quantize, bench_quantize, 0},
    {"rms_norm", ENTRY(rms_norm), check_rms_norm, truth_rms_norm, bench_rms_norm, 0},
    {"layer_norm", ENTRY(layer_norm), check_layer_norm, truth_layer_norm, bench_layer_norm, 0},
    {"scale", ENTRY(scale), check_scale, truth_scale, NULL, 0},
    {"softcap", ENTRY(softcap), check_cap, truth_cap, bench_cap, 0},
    {"rope", ENTRY(rope), check_rope, truth_rope, bench_rope, 0},
    {"glu_silu", ENTRY(glu[TG_ACT_SILU]), check_silu, truth_silu, bench_silu, 0},
    {"glu_gelu_tanh", ENTRY(glu[TG_ACT_GELU_TANH]), check_gelu, truth_gelu, bench_gelu, 0},
    {"add", ENTRY(add), check_add, NULL, bench_add, 0},
    {"kv_store_f32", ENTRY(kv_store[TG_KV_F32]), check_kv_store_f32, NULL, NULL, 0},
    {"kv_store_f16", ENTRY(kv_store[TG_KV_F16]), check_kv_store_f16, NULL, bench_kv_store, 0},
    {"kv_store_bf16", ENTRY(kv_store[TG_KV_BF16]), check_kv_store_bf16, NULL, NULL, 0},
    {"kv_store_q8", ENTRY(kv_store[TG_KV_Q8]), check_kv_store_q8, NULL, NULL, 0},
    {"kv_store_q16", ENTRY(kv_store[TG_KV_Q16]), check_kv_store_q16, NULL, bench_kv_store_q16, 0},
    {"kv_query_bf16", ENTRY(kv_query[TG_KV_BF16]), check_kv_query_bf16, NULL, NULL, 0},
    {"kv_query_q8", ENTRY(kv_query[TG_KV_Q8]), check_kv_query_q8, NULL, NULL, 0},
    {"kv_query_q16", ENTRY(kv_query[TG_KV_Q16]), check_kv_query_q16, NULL, NULL, 0},
    {"attend_f32", ENTRY(attend[TG_KV_F32]), check_attend_f32, truth_attend_f32, bench_attend_f32,
     0},
    {"attend_f16", ENTRY(attend[TG_KV_F16]), check_attend_f16, truth_attend_f16, bench_attend_f16,
     0},
    {"attend_bf16", ENTRY(attend[TG_KV_BF16]), check_attend_bf16, truth_attend_bf16,
     bench_attend_bf16, 0},
    {"attend_q8", ENTRY(attend[TG_KV_Q8]), check_attend_q8, truth_attend_q8, bench_attend_q8, 0},
    {"attend_q16", ENTRY(attend[TG_KV_Q16]), check_attend_q16, truth_attend_q16, bench_attend_q16,
     0},
    {"attend_finish", ENTRY(attend_finish), check_finish, truth_finish, bench_finish, 0},
    {"sample_row", ENTRY(sample_row), check_sample_row, NULL, bench_sample, 0},
    {"sum_words", ENTRY(sum_words), check_sum_words, truth_sum_words, NULL, 0},
    {"sum_products", ENTRY(sum_products), check_sum_products, truth_sum_products, NULL, 0},
};

typedef void any_fn(void);

static any_fn *get_entry(const tg_kernels *k, size_t at)
{
    any_fn *f;
    memcpy(&f, (const char *)k + at, sizeof f);
    return f;
}

typedef struct options {
    const char *tier, *kernel;
    bool is_list, is_bench;
} options;

static int n_passed, n_failed;
static char alternate_stack[64 * 1024];

static void catch_crash(int signal_number)
{
    siglongjmp(check_escape, signal_number);
}

static void catch_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    struct sigaction act = {.sa_handler = catch_crash, .sa_flags = SA_ONSTACK | SA_NODEFER};
    for (size_t i = 0; i < TG_COUNT(signals); i++)
        sigaction(signals[i], &act, NULL);
}

/* A check that a thread of its own runs. */
typedef struct job {
    case_fn *f;
    check *c;
    int why; /* it ended: 0, 1000 for a failure, else the signal */
} job;

static void *run_job(void *arg)
{
    job *j = arg;
    stack_t before, stack = {.ss_sp = alternate_stack, .ss_size = sizeof alternate_stack};
    sigaltstack(&stack, &before); /* a thread has its own; one runs at a time */
    tg_fp_begin();
    int why = sigsetjmp(check_escape, 1);
    if (why == 0) j->f(j->c);
    j->why = why;
    sigaltstack(&before, NULL); /* AddressSanitizer frees what it finds there */
    return NULL;
}

/* Runs one check from a fresh seed, in a fresh thread, and reports it. */
static void run_case(const char *tier, const char *name, const char *kind, case_fn *f, check *c)
{
    job j = {.f = f, .c = c};
    pthread_t thread;
    c->rng = tg_test_seed();
    c->what[0] = 0;
    if (pthread_create(&thread, NULL, run_job, &j) != 0 || pthread_join(thread, NULL) != 0) abort();
    int why = j.why;
    if (why == 0) {
        n_passed++;
        printf("[       OK ] %s/%s%s\n", tier, name, kind);
        return;
    }
    n_failed++;
    if (why == 1000)
        printf("[  FAILED  ] %s/%s%s: seed %#llx: %s\n", tier, name, kind,
               (unsigned long long)tg_test_seed(), check_message);
    else
        printf("[  FAILED  ] %s/%s%s: signal %d, seed %#llx: %s\n", tier, name, kind, why,
               (unsigned long long)tg_test_seed(), c->what);
}

/* The layout a matmul or embed case runs: cases take no argument. */
static tg_layout current_layout;

static void check_matmul(check *c)
{
    check_matmul_of(c, current_layout);
}

static void truth_matmul(check *c)
{
    truth_matmul_of(c, current_layout);
}

static void check_embed(check *c)
{
    truth_embed_of(c, current_layout);
}

static void bench_matmul(check *c)
{
    bench_matmul_of(c, current_layout);
}

/* A table of kernels and what it is called; `before` has those that were checked already. */
typedef struct table {
    const char *name;
    bool is_ref;
    tg_kernels k, before, ref;
} table;

static void run_entry(const options *o, const table *t, const kernel_case *x)
{
    const char *tier_name = t->name;
    bool is_new = t->is_ref || get_entry(&t->k, x->at) != get_entry(&t->before, x->at);
    if (!is_new || (o->kernel && !strstr(x->name, o->kernel))) return;
    current_layout = x->layout;
    if (o->is_list) {
        printf("%s/%s\n", tier_name, x->name);
        return;
    }
    check c = {.k = &t->k, .ref = &t->ref};
    if (o->is_bench) {
        printf("%s/%s\n", tier_name, x->name);
        c.rng = tg_test_seed();
        if (x->bench) x->bench(&c);
        return;
    }
    bool is_itself = t->is_ref && (x->truth || x->check == check_sample_row);
    if (!is_itself) run_case(tier_name, x->name, "", x->check, &c);
    if (t->is_ref && x->truth)
        run_case(tier_name, x->name, " against double precision", x->truth, &c);
}

static void run_table(const options *o, const table *t)
{
    if (o->tier && strcmp(o->tier, t->name) != 0) return;
    for (size_t i = 0; i < TG_COUNT(cases); i++)
        run_entry(o, t, &cases[i]);
    for (int l = 0; l < TG_LAYOUT_COUNT; l++) {
        char name[2][64];
        snprintf(name[0], sizeof name[0], "matmul_%s", tg_layout_rows[l].name);
        snprintf(name[1], sizeof name[1], "embed_%s", tg_layout_rows[l].name);
        size_t step = (size_t)l * sizeof(any_fn *);
        kernel_case m = {name[0],      ENTRY(matmul) + step, check_matmul,
                         truth_matmul, bench_matmul,         (tg_layout)l};
        kernel_case e = {name[1], ENTRY(embed) + step, check_embed, NULL, NULL, (tg_layout)l};
        run_entry(o, t, &m);
        run_entry(o, t, &e);
    }
}

static void run_tier(const options *o, tg_cpu_tier tier)
{
    table t = {.name = tg_cpu_tier_name(tier), .is_ref = tier == TG_CPU_REF};
    tg_kernels_fill_ref(&t.ref);
    tg_kernels_fill(&t.k, tier);
    if (!t.is_ref) tg_kernels_fill(&t.before, (tg_cpu_tier)((int)tier - 1));
    run_table(o, &t);
}

/* Products of the avx2 tier that the dispatcher does not choose on every machine: the plain ones,
 * where it took those with AVX-VNNI; and those with the encoding of AVX-512 (tools/checks/evex). */
extern tg_matmul_fn *const tg_avx2_matmul[TG_LAYOUT_COUNT], *const tg_evex_matmul[TG_LAYOUT_COUNT];

static void run_products(const options *o, const char *name, tg_matmul_fn *const *matmul)
{
    table t = {.name = name};
    tg_kernels_fill_ref(&t.ref);
    tg_kernels_fill(&t.before, TG_CPU_AVX2);
    t.k = t.before;
    for (int l = 0; l < TG_LAYOUT_COUNT; l++)
        if (matmul[l]) t.k.matmul[l] = matmul[l];
    run_table(o, &t);
}

int main(int argc, char **argv)
{
    options o = {0};
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--tier=", 7))
            o.tier = argv[i] + 7;
        else if (!strncmp(argv[i], "--kernel=", 9))
            o.kernel = argv[i] + 9;
        else if (!strcmp(argv[i], "--list"))
            o.is_list = true;
        else if (!strcmp(argv[i], "--bench"))
            o.is_bench = true;
        else {
            fprintf(stderr,
                    "usage: check_kernels [--list] [--tier=NAME] [--kernel=PART] [--bench]\n");
            return 2;
        }
    }
    catch_signals();
    setvbuf(stdout, NULL, _IOLBF, 0);
    tg_fp_begin();
    for (int t = 0; t <= (int)tg_cpu_detect(); t++)
        run_tier(&o, (tg_cpu_tier)t);
    if (tg_cpu_detect() >= TG_CPU_AVX2) run_products(&o, "avx2-plain", tg_avx2_matmul);
    if (tg_cpu_detect() >= TG_CPU_AVX512) run_products(&o, "avx2-evex", tg_evex_matmul);
    if (o.is_list || o.is_bench) return 0;
    printf("[  PASSED  ] %d test(s).\n", n_passed);
    if (n_failed) printf("[  FAILED  ] %d test(s).\n", n_failed);
    return n_failed || !n_passed;
}
