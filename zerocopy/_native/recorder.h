/* Counts of recorded conversions: what recorder.c and records.c share. */
#ifndef ZEROCOPY_RECORDER_H
#define ZEROCOPY_RECORDER_H

#include "core.h"

enum { ALIASED, COPIED, UNCHANGED, REFUSED, EMPTY, KINDS };

typedef struct {
    int kind;
    int64_t aliased, copied, nanoseconds;
    bool is_unmeasured;
} Call;

/* Whether call sites and durations are recorded. */
bool records_sites(void);
/* Records a call. Returns the number of the pair's copies, or aliases, at this site if the call copied, or aliased;
   else 0. `code` is set to the site, a new reference or NULL. */
int64_t record(PyObject *pair, const Call *call, PyObject **code, int *instruction);

#endif
