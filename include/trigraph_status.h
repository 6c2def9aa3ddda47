/* SPDX-License-Identifier: Apache-2.0
 * trigraph_status.h - how every fallible call reports.
 *
 * Part of the public interface, and the one public header that src/base sees: the types of an
 * error are the same inside and outside. A call that can fail returns a tg_status and takes a
 * tg_err last, which may be NULL. On failure the tg_err holds one complete sentence with the value
 * that was wrong, the limit it broke and, where there is one, what to do next. */
#ifndef TRIGRAPH_STATUS_H
#define TRIGRAPH_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tg_status {
    TG_OK = 0,
    TG_E_ARGUMENT,    /* the caller asked for something outside the documented range */
    TG_E_IO,          /* the operating system refused: open, read, write, map, no space */
    TG_E_CORRUPT,     /* a file breaks the rules of its format */
    TG_E_UNSUPPORTED, /* well formed, but not something this build can do */
    TG_E_NOMEM,       /* memory was refused */
    TG_E_LIMIT,       /* a size chosen at export or open is exceeded: length, batch, pages */
    TG_E_BUSY,        /* full for now; the same call may work later */
    TG_E_CANCELLED,   /* a signal or the caller ended it */
    TG_E_NUMERIC      /* the model produced NaN or infinity */
} tg_status;

/* Zero-initialize before the first use; the first failure stays until it is zeroed again. */
typedef struct tg_err {
    tg_status status;
    char msg[508];
} tg_err;

#ifdef __cplusplus
}
#endif
#endif
