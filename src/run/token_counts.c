/* SPDX-License-Identifier: Apache-2.0 */
#include "run/token_counts.h"

#include <math.h>
#include <string.h>

typedef struct range {
    const char *name;
    float value, low, high;
    bool is_high_open; /* the upper end itself is refused */
} range;

tg_status tg_sample_check(const tg_sample_params *p, tg_err *e)
{
    const range ranges[] = {
        {"temperature", p->temperature, 0, 100, false},
        {"top_p", p->top_p, 0, 1, false},
        {"min_p", p->min_p, 0, 1, true},
        {"repeat_penalty", p->repeat_penalty, 0, 100, false},
        {"presence_penalty", p->presence, -2, 2, false},
        {"frequency_penalty", p->frequency, -2, 2, false},
    };
    for (size_t i = 0; i < TG_COUNT(ranges); i++) {
        const range *r = &ranges[i];
        bool is_in =
            r->value >= r->low && (r->is_high_open ? r->value < r->high : r->value <= r->high);
        if (!is_in) /* NaN too */
            return tg_fail(e, TG_E_ARGUMENT, "%s is %g; it must lie between %g and %g%s", r->name,
                           (double)r->value, (double)r->low, (double)r->high,
                           r->is_high_open ? " (itself excluded)" : "");
    }
    if (p->top_k < 0)
        return tg_fail(e, TG_E_ARGUMENT, "top_k is %d; it must be 0 (off) or more", p->top_k);
    return TG_OK;
}

bool tg_sample_needs_token_counts(const tg_sample_params *p)
{
    return (p->repeat_penalty > 0 && p->repeat_penalty != 1) || p->presence != 0 ||
           p->frequency != 0;
}

tg_status tg_token_counts_init(tg_token_counts *s, tg_arena *a, int32_t room, tg_err *e)
{
    *s = (tg_token_counts){.entries = TG_ARENA_ARRAY(a, tg_sample_adjust, room), .room = room};
    return s->entries ? TG_OK : tg_fail_nomem(e, (size_t)room, "the table of token counts");
}

void tg_token_counts_add(tg_token_counts *s, int32_t id, bool is_completion)
{
    int32_t low = 0, high = s->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (s->entries[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    tg_sample_adjust *x = &s->entries[low];
    if (low == s->n || x->id != id) {
        TG_ASSERT(s->n < s->room);
        memmove(x + 1, x, (size_t)(s->n - low) * sizeof *x);
        *x = (tg_sample_adjust){.id = id, .is_counted = 1};
        s->n++;
    }
    x->n_completion += is_completion;
}
