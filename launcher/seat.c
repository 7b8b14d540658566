/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/seat.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/wire.h"

#include <limits.h>

enum {
    MAX_WORDS = 65536,
    MAX_WORD_BYTES = 2 * 1024 * 1024,
};

void seat_offer_release(struct seat_offer *o)
{
    strlist_release(&o->argv);
    strlist_release(&o->env);
}

int seat_path(const char *dir, uint32_t generation, uint32_t rank, char *to,
              size_t size, struct error *e)
{
    return fs_path(to, size, e, "%s/mpi-g%u-r%u", dir, (unsigned)generation,
                   (unsigned)rank);
}

static bool get_bool(struct wire_reader *r)
{
    uint8_t v = wire_get_u8(r);

    r->bad = r->bad || v > 1;
    return v == 1;
}

static int record_path(const char *seat, char *to, size_t size)
{
    return fs_path(to, size, NULL, "%s.end", seat);
}

void seat_record_write(const char *path, bool by_launch)
{
    _buf_ struct buf b = {0};
    char file[PATH_MAX];

    wire_put_u64(&b, clock_wall_ns());
    wire_put_u8(&b, by_launch);
    if (!b.failed && record_path(path, file, sizeof(file)) == 0) {
        fs_write_replace(file, b.data, b.len, NULL);
    }
}

bool seat_record_read(const char *path, struct seat_record *ret)
{
    enum { RECORD_BYTES = 9 };
    _free_ char *data = NULL;
    char file[PATH_MAX];
    struct wire_reader r;
    size_t len;

    if (record_path(path, file, sizeof(file)) < 0 ||
        fs_read_regular(file, RECORD_BYTES, &data, &len, NULL) < 0) {
        return false;
    }
    r = wire_reader(data, len);
    ret->at_ns = wire_get_u64(&r);
    ret->by_launch = get_bool(&r);
    return wire_done(&r);
}

void seat_hello_encode(const struct seat_hello *h, struct buf *b)
{
    wire_put_u32(b, h->version);
    wire_put_u32(b, h->rank);
    wire_put_u32(b, h->world);
}

int seat_hello_decode(const struct buf *b, struct seat_hello *ret)
{
    struct wire_reader r = wire_reader(b->data, b->len);
    struct seat_hello h = {.version = wire_get_u32(&r)};

    h.rank = wire_get_u32(&r);
    h.world = wire_get_u32(&r);
    if (r.bad || (h.version == SEAT_VERSION && !wire_done(&r))) {
        return -ERR_FORMAT;
    }
    *ret = h;
    return 0;
}

static void put_list(const struct strlist *l, struct buf *b)
{
    wire_put_u32(b, (uint32_t)l->n);
    for (size_t i = 0; i < l->n; i++) {
        wire_put_str(b, l->items[i]);
    }
}

static void get_list(struct wire_reader *r, struct strlist *to)
{
    uint32_t n = wire_get_u32(r);

    r->bad = r->bad || n > MAX_WORDS;
    for (uint32_t i = 0; !r->bad && i < n; i++) {
        strlist_take(to, wire_dup_str(r, MAX_WORD_BYTES));
    }
}

void seat_offer_encode(const struct seat_offer *o, struct buf *b)
{
    put_list(&o->argv, b);
    put_list(&o->env, b);
    wire_put_str(b, o->cwd);
    wire_put_str(b, o->umask);
    wire_put_str(b, o->mark);
}

int seat_offer_decode(const struct buf *b, struct seat_offer *ret)
{
    struct wire_reader r = wire_reader(b->data, b->len);

    get_list(&r, &ret->argv);
    get_list(&r, &ret->env);
    wire_get_str(&r, ret->cwd, sizeof(ret->cwd));
    wire_get_str(&r, ret->umask, sizeof(ret->umask));
    wire_get_str(&r, ret->mark, sizeof(ret->mark));
    return wire_done(&r) && ret->argv.n && !ret->argv.failed &&
                   !ret->env.failed
               ? 0 : -ERR_FORMAT;
}

void seat_end_encode(const struct seat_end *end, struct buf *b)
{
    wire_put_u32(b, end->code);
    wire_put_u32(b, end->signal);
    wire_put_u8(b, end->by_launch);
    wire_put_str(b, end->text);
}

int seat_end_decode(const struct buf *b, struct seat_end *ret)
{
    struct wire_reader r = wire_reader(b->data, b->len);
    struct seat_end end = {.code = wire_get_u32(&r)};

    end.signal = wire_get_u32(&r);
    end.by_launch = get_bool(&r);
    wire_get_str(&r, end.text, sizeof(end.text));
    if (!wire_done(&r) || end.code > 255 || end.signal > 64) {
        return -ERR_FORMAT;
    }
    *ret = end;
    return 0;
}

void seat_number_encode(uint32_t n, struct buf *b)
{
    wire_put_u32(b, n);
}

int seat_number_decode(const struct buf *b, uint32_t *ret)
{
    struct wire_reader r = wire_reader(b->data, b->len);
    uint32_t n = wire_get_u32(&r);

    if (!wire_done(&r)) {
        return -ERR_FORMAT;
    }
    *ret = n;
    return 0;
}
