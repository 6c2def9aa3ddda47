/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/kernel.h"

void tg_kernels_fill_avx2(tg_kernels *k)
{
    (void)k;
}
