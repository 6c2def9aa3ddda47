/* SPDX-License-Identifier: Apache-2.0 */
#include "app/roofline.h"

#include "app/report.h"

#include <inttypes.h>
#include <string.h>

/* No cache holds the first; beyond the second a buffer is read at the memory's rate anyway. */
enum { MEMORY_BYTES = 256 << 20, MOST_CYCLIC_BYTES = 512 << 20, ALIGN = 4096 };

/* Where two threads run, by how long a cache line takes to the other and back. The limits lie
 * between what one core (47 ns), one chiplet (100-130) and two chiplets or sockets (350-600)
 * measured on Zen 4, Zen 5 and Emerald Rapids. */
static const struct {
    double below_ns;
    const char *name;
} placements[] = {
    {0.5, "one thread"},
    {80, "one core"},
    {250, "two cores of one chiplet"},
    {1e9, "two chiplets"},
};

static const char *find_placement(double ns)
{
    int i = 0;
    while (ns >= placements[i].below_ns)
        i++;
    return placements[i].name;
}

/* Products and cache go by tokens, weights by steps. A step of the speeds has a token of every row;
 * some of those counted here had fewer, before the last row began and after the first ended. */
static void take_needs(tg_roofline *r, const tg_costs *c)
{
    for (int32_t i = 0; i < c->n; i++) {
        const tg_op_cost *x = &c->rows[i];
        double n_steps = (double)x->n_steps, n_full = (double)x->n_tokens / r->n_rows;
        if (strcmp(x->step, "context") == 0)
            r->prompt_products += x->n_products / (double)x->n_tokens;
        if (strcmp(x->step, "token") != 0) continue;
        r->products += x->n_products / n_full;
        if (strcmp(x->op, "attention") == 0)
            r->cache_bytes += x->n_bytes / n_full;
        else
            r->weight_bytes += x->n_bytes / n_steps;
    }
}

tg_status tg_roofline_init(tg_roofline *r, const tg_costs *c, int32_t n_rows, int32_t n_runs,
                           tg_arena *arena, tg_err *e)
{
    double **const columns[] = {&r->cyclic,      &r->dots,         &r->decode,
                                &r->prompt,      &r->decode_share, &r->decode_dots_share,
                                &r->prompt_share};
    r->n_rows = n_rows;
    r->n_runs = n_runs;
    take_needs(r, c);
    for (size_t i = 0; i < TG_COUNT(columns); i++) {
        *columns[i] = TG_ARENA_ARRAY(arena, double, n_runs);
        if (!*columns[i]) return tg_fail_nomem(e, (size_t)n_runs * 8, "measurements");
    }
    r->cyclic_bytes = TG_MIN(tg_align_up((size_t)r->weight_bytes, ALIGN), MOST_CYCLIC_BYTES);
    r->memory_bytes = TG_MAX(r->cyclic_bytes, MEMORY_BYTES);
    r->buffer = tg_mem_reserve(r->memory_bytes);
    if (!r->buffer) return tg_fail_nomem(e, r->memory_bytes, "a buffer to read");
    /* With pages of 4 KB a core reads a fifth slower (Zen 4: 25 instead of 30 GB/s), and the
     * rate is to be the machine's. */
    tg_mem_prefer_large_pages(r->buffer, r->memory_bytes);
    memset(r->buffer, 1, r->memory_bytes); /* or every page would be the same page of zeros */
    return TG_OK;
}

void tg_roofline_deinit(tg_roofline *r)
{
    if (r->buffer) tg_mem_unreserve(r->buffer, r->memory_bytes);
    r->buffer = NULL;
}

void tg_roofline_begin_run(tg_roofline *r, int32_t i, tg_engine *g)
{
    tg_peak_rates now = tg_engine_measure_rates(g, r->buffer, r->cyclic_bytes);
    r->cyclic[i] = now.read_bytes_per_s;
    r->dots[i] = now.products_per_s;
}

void tg_roofline_end_run(tg_roofline *r, int32_t i, tg_engine *g, double decode, double prompt)
{
    tg_peak_rates now = tg_engine_measure_rates(g, r->buffer, r->cyclic_bytes);
    double steps = decode / r->n_rows;
    r->cyclic[i] = (r->cyclic[i] + now.read_bytes_per_s) / 2;
    r->dots[i] = (r->dots[i] + now.products_per_s) / 2;
    r->decode[i] = decode;
    r->prompt[i] = prompt;
    r->decode_share[i] = steps * (r->weight_bytes + r->cache_bytes) / r->cyclic[i];
    r->decode_dots_share[i] = steps * r->products / r->dots[i];
    r->prompt_share[i] = prompt * r->prompt_products / r->dots[i];
}

void tg_roofline_finish(tg_roofline *r, tg_engine *g)
{
    double *const columns[] = {r->cyclic,      r->dots,         r->decode,
                               r->prompt,      r->decode_share, r->decode_dots_share,
                               r->prompt_share};
    tg_peak_rates now = tg_engine_measure_rates(g, r->buffer, r->memory_bytes);
    r->n_threads = tg_engine_get_info(g).n_threads;
    r->memory_rate = now.read_bytes_per_s;
    r->round_trip_ns = now.round_trip_ns;
    for (size_t i = 0; i < TG_COUNT(columns); i++)
        tg_sort(columns[i], r->n_runs);
}

static double middle(const tg_roofline *r, const double *column)
{
    return tg_median(column, r->n_runs);
}

void tg_roofline_print(const tg_roofline *r, tg_buf *out)
{
    double bytes = r->weight_bytes + r->cache_bytes, rows = r->n_rows;
    double cyclic = middle(r, r->cyclic), dots = middle(r, r->dots);
    double decode = middle(r, r->decode), prompt = middle(r, r->prompt);
    tg_buf_printf(out, "\nroofline, %s", find_placement(r->round_trip_ns));
    if (r->round_trip_ns > 0) tg_buf_printf(out, " (%.0f ns to and fro)", r->round_trip_ns);
    tg_buf_printf(out, "\n\n| %-18s | %10s | %10s | %10s | %10s | %8s |\n", "tokens/s", "needed",
                  "rate", "bound", "reached", "share");
    tg_buf_add_cstr(out, "| ------------------ | ---------: | ---------: | ---------: | "
                         "---------: | -------: |\n");
    tg_buf_printf(out,
                  "| %-18s | %7.1f MB | %5.1f GB/s | %10.1f | %10.1f | %6.1f %% |\n"
                  "| %-18s | %7.1f M  | %5.0f G/s  | %10.1f | %10.1f | %6.1f %% |\n"
                  "| %-18s | %7.1f M  | %5.0f G/s  | %10.1f | %10.1f | %6.1f %% |\n",
                  "decode, bytes", bytes / 1e6, cyclic / 1e9, rows * cyclic / bytes, decode,
                  100 * middle(r, r->decode_share), "decode, products", r->products / 1e6,
                  dots / 1e9, rows * dots / r->products, decode,
                  100 * middle(r, r->decode_dots_share), "prompt, products",
                  r->prompt_products / 1e6, dots / 1e9, dots / r->prompt_products, prompt,
                  100 * middle(r, r->prompt_share));
    tg_buf_printf(out,
                  "\na token step reads %.1f MB of weights and %.1f MB of cache; a buffer of %.1f "
                  "MB is read over and over; beyond the caches memory gives %.1f GB/s\n",
                  r->weight_bytes / 1e6, r->cache_bytes / 1e6, (double)r->cyclic_bytes / 1e6,
                  r->memory_rate / 1e9);
}

static void report(const tg_roofline *r, const char *key, const double *column, tg_buf *out)
{
    tg_report_begin(out, key);
    tg_report_add_real(out, "median", middle(r, column));
    tg_report_add_real(out, "min", column[0]);
    tg_report_add_real(out, "max", column[r->n_runs - 1]);
    tg_report_end(out);
}

void tg_roofline_report(const tg_roofline *r, tg_buf *out)
{
    tg_report_begin(out, "roofline");
    tg_report_add_text(out, "placement", tg_str_from_cstr(find_placement(r->round_trip_ns)));
    tg_report_add_real(out, "round_trip_ns", r->round_trip_ns);
    tg_report_add_real(out, "weight_bytes", r->weight_bytes);
    tg_report_add_real(out, "cache_bytes", r->cache_bytes);
    tg_report_add_real(out, "products", r->products);
    tg_report_add_real(out, "prompt_products", r->prompt_products);
    tg_report_add_int(out, "cyclic_bytes", (int64_t)r->cyclic_bytes);
    tg_report_add_real(out, "memory_bytes_per_s", r->memory_rate);
    report(r, "cyclic_bytes_per_s", r->cyclic, out);
    report(r, "products_per_s", r->dots, out);
    report(r, "decode_tokens_per_s", r->decode, out);
    report(r, "prompt_tokens_per_s", r->prompt, out);
    report(r, "decode_bytes_share", r->decode_share, out);
    report(r, "decode_products_share", r->decode_dots_share, out);
    report(r, "prompt_products_share", r->prompt_share, out);
    tg_report_end(out);
}
