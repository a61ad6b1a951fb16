/* The structs of Apache Arrow's C data interface and C stream interface, as its specification declares them. */
#ifndef ZEROCOPY_ARROW_H
#define ZEROCOPY_ARROW_H

#include <stdint.h>

#define ARROW_FLAG_NULLABLE 2 /* of a schema's flags */

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *self);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *self);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *self, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *self, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *self);
    void (*release)(struct ArrowArrayStream *self);
    void *private_data;
};

#endif
