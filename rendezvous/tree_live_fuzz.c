/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any frames to a member of the control tree, by peers that know the key: children
 * before and after their hello, a parent or a front end, and what the member does
 * itself in between. The links are this file's own (the linker puts them in the place
 * of base/link.h's): no sockets, no time. The input is {rank, lead}, then a series of
 * {who, what, n as 2 bytes, n bytes}.
 *
 * Checked beyond memory errors: whoever has connected is taken or sent away; what is
 * told names ranks of the run, and events such as may come to it; what is passed on
 * decodes; frames of a link that was closed are touched no more.
 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/order.h"
#include "rendezvous/store_line.h"
#include "rendezvous/tree.h"
#include "tests/lib/fuzz.h"

#include <string.h>

enum { N_RANKS = 7, N_LATER = 9, N_CHILDREN = 4, MAX_LINKS = 64 };

struct link {
    const struct link_ops *ops; /* NULL: nobody has taken it over */
    void *ctx;
    void *frame; /* that is being told of */
    struct buf out; /* of link_begin() */
    uint16_t type;
    bool closed, is_up;
};

static struct {
    struct tree *tree;
    struct roster roster;
    uint32_t rank;
    struct link *links[MAX_LINKS]; /* all that ever were */
    size_t n_links;
    struct link *children[N_CHILDREN];
    struct link *up;
    void (*on_peer)(struct link *l, const struct channel_frame *first,
                    void *ctx);
    void *on_peer_ctx;
} w;

static struct link *new_link(void)
{
    struct link *l = calloc(1, sizeof(*l));

    expect(l != NULL);
    w.links[w.n_links++] = l;
    return l;
}

/* --- the links --- */

void __wrap_link_adopt(struct link *l, const struct link_ops *ops, void *ctx);
struct buf *__wrap_link_begin(struct link *l, uint16_t type);
int __wrap_link_end(struct link *l);
void __wrap_link_close(struct link *l);
int __wrap_link_connect(uv_loop_t *loop, const struct link_target *target,
                        const uint8_t key[CHANNEL_KEY_BYTES],
                        const struct link_ops *ops, void *ctx,
                        struct link **ret, struct error *e);
uint64_t __wrap_link_last_heard_ms(const struct link *l);
void __wrap_link_listener_open(struct link_listener *l,
                               const uint8_t key[CHANNEL_KEY_BYTES],
                               void (*on_peer)(struct link *l,
                                               const struct channel_frame *f,
                                               void *ctx), void *ctx);
const char *__wrap_link_peer(const struct link *l);
int __wrap_link_send(struct link *l, uint16_t type, const void *data,
                     size_t len);
int __wrap_link_send_buf(struct link *l, uint16_t type, const struct buf *b);
void __wrap_tree_look(struct tree *t, uint32_t rank, const char *address);
void __wrap_tree_look_at_lead(struct tree *t);
void __wrap_tree_seek(struct tree *t);

void __wrap_link_adopt(struct link *l, const struct link_ops *ops, void *ctx)
{
    expect(!l->closed);
    l->ops = ops;
    l->ctx = ctx;
}

/* What is said, in a form that the other side takes. */
static void check_said(uint16_t type, const void *data, size_t len)
{
    struct wire_reader r = wire_reader(data, len);
    struct tree_loss loss;
    uint32_t rank;
    size_t n;
    const void *blob;

    switch (type) {
    case TREE_REPORT:
    case TREE_FOLLOW:
    case TREE_EVENT:
    case TREE_HERE:
    case TREE_LOST:
        rank = wire_get_u32(&r);
        expect(type != TREE_EVENT || wire_get_u64(&r) > 0);
        blob = wire_get_bytes(&r, CHANNEL_MAX_FRAME, &n);
        expect(wire_done(&r) &&
               rank < (type == TREE_EVENT ? ORDER_MAX_NODES : w.roster.n));
        expect(type != TREE_LOST || tree_loss_decode(blob, n, &loss) == 0);
        break;
    default:
        break;
    }
}

int __wrap_link_send(struct link *l, uint16_t type, const void *data,
                     size_t len)
{
    expect(!l->closed);
    check_said(type, data, len);
    return 0;
}

int __wrap_link_send_buf(struct link *l, uint16_t type, const struct buf *b)
{
    return __wrap_link_send(l, type, b->data, b->len);
}

struct buf *__wrap_link_begin(struct link *l, uint16_t type)
{
    expect(!l->closed);
    l->type = type;
    buf_clear(&l->out);
    return &l->out;
}

int __wrap_link_end(struct link *l)
{
    return __wrap_link_send_buf(l, l->type, &l->out);
}

/* A frame is valid until the next call on its link: here it is gone with that. */
static void forget_frame(struct link *l)
{
    free(l->frame);
    l->frame = NULL;
}

void __wrap_link_close(struct link *l)
{
    if (!l) {
        return;
    }
    expect(!l->closed);
    l->closed = true;
    forget_frame(l);
    if (w.up == l) {
        w.up = NULL;
    }
    for (size_t i = 0; i < N_CHILDREN; i++) {
        if (w.children[i] == l) {
            w.children[i] = NULL;
        }
    }
}

int __wrap_link_connect(uv_loop_t *loop, const struct link_target *target,
                        const uint8_t key[CHANNEL_KEY_BYTES],
                        const struct link_ops *ops, void *ctx,
                        struct link **ret, struct error *e)
{
    (void)loop;
    (void)target;
    (void)key;
    (void)e;
    if (w.n_links == MAX_LINKS) {
        return -1;
    }
    expect(!w.up);
    w.up = *ret = new_link();
    w.up->ops = ops;
    w.up->ctx = ctx;
    return 0;
}

uint64_t __wrap_link_last_heard_ms(const struct link *l)
{
    expect(!l->closed);
    return 0;
}

void __wrap_link_listener_open(struct link_listener *l,
                               const uint8_t key[CHANNEL_KEY_BYTES],
                               void (*on_peer)(struct link *l,
                                               const struct channel_frame *f,
                                               void *ctx), void *ctx)
{
    (void)l;
    (void)key;
    w.on_peer = on_peer;
    w.on_peer_ctx = ctx;
}

const char *__wrap_link_peer(const struct link *l)
{
    expect(!l->closed);
    return "127.0.0.1";
}

/* These open sockets. */
void __wrap_tree_look(struct tree *t, uint32_t rank, const char *address)
{
    (void)t;
    (void)rank;
    (void)address;
}

void __wrap_tree_look_at_lead(struct tree *t)
{
    (void)t;
}

void __wrap_tree_seek(struct tree *t)
{
    (void)t;
}

/* --- what the member is told --- */

static void touch(const void *data, size_t len)
{
    volatile uint8_t sum = 0;

    for (size_t i = 0; i < len; i++) {
        sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
    }
}

static void on_blob(void *ctx, const void *data, size_t len)
{
    (void)ctx;
    touch(data, len);
}

static void on_config(void *ctx, uint64_t age_ms, const void *data, size_t len)
{
    (void)age_ms;
    on_blob(ctx, data, len);
}

/* An order may make this member lead, or follow, from within. */
static bool on_order(void *ctx, const void *data, size_t len)
{
    const uint8_t *bytes = data;

    (void)ctx;
    if (len > 2 && bytes[0] == 2) {
        tree_set_view(w.tree, bytes[1], bytes[2] % N_RANKS);
    }
    return len > 0 && bytes[0] > 0;
}

static void on_word(void *ctx, const struct tree_word *word)
{
    (void)ctx;
    (void)word;
}

static void on_uplink(void *ctx, bool up, const char *why)
{
    (void)ctx;
    expect(up || why[0]);
}

static void on_text(void *ctx, const char *why)
{
    (void)ctx;
    touch(why, strlen(why));
}

static void on_nothing(void *ctx)
{
    (void)ctx;
}

static void own_seen(void *ctx, struct tree_seen *ret)
{
    (void)ctx;
    ret->n_suspect = ret->view % 2;
}

static void on_rank(void *ctx, uint32_t rank)
{
    (void)ctx;
    expect(rank < w.roster.n);
}

static void on_seen(void *ctx, const struct tree_seen *below)
{
    (void)ctx;
    expect(below->n_suspect <= below->n && below->n <= TREE_MAX_SEEN);
}

/* None before a first child has shown its clock. */
static uint64_t word_age(void *ctx)
{
    (void)ctx;
    return w.rank % 2 ? UINT64_MAX : 5;
}

static void on_lost(void *ctx, uint32_t rank, const struct tree_loss *loss)
{
    on_rank(ctx, rank);
    on_text(ctx, loss->why);
}

static void on_event(void *ctx, uint32_t rank, const void *data, size_t len)
{
    on_rank(ctx, rank);
    touch(data, len);
}

/* One that is no member may bring clients of the store. */
static void on_stranger(void *ctx, struct link *l,
                        const struct channel_frame *first)
{
    struct store_hello h;
    _buf_ struct buf b = {0};

    (void)ctx;
    if (store_hello_decode(first, &h)) {
        store_hello_encode(&h, &b);
        expect(b.len == first->len && !memcmp(b.data, first->data, b.len));
    }
    __wrap_link_close(l);
}

static const struct tree_ops ops = {
    .on_config = on_config, .on_order = on_order, .on_word = on_word,
    .on_uplink = on_uplink, .on_refused = on_text,
    .on_writable = on_nothing, .own_seen = own_seen, .on_dead = on_rank,
    .on_follow = on_blob, .on_unfollow = on_rank, .on_seen = on_seen,
    .word_age = word_age, .on_report = on_blob, .on_lost = on_lost,
    .on_here = on_rank, .on_event = on_event, .on_request = on_blob,
    .on_drained = on_nothing, .on_ask = on_blob, .on_stranger = on_stranger,
};

/* --- what happens --- */

/* In memory of its own, so that what is read beyond it is found. */
static struct channel_frame frame_of(struct link *l, uint8_t type,
                                     const uint8_t *data, size_t n)
{
    struct channel_frame f = {.type = type, .len = n};

    l->frame = malloc(n + !n);
    expect(l->frame != NULL);
    if (n > 0) {
        memcpy(l->frame, data, n);
    }
    f.data = l->frame;
    return f;
}

static void give(struct link *l, uint8_t type, const uint8_t *data, size_t n)
{
    struct channel_frame f = frame_of(l, type, data, n);

    l->ops->on_frame(l, &f, l->ctx);
    forget_frame(l);
}

static void go_down(struct link *l)
{
    struct error e = {.text = "reset"};

    l->ops->on_down(l, false, &e, l->ctx);
    expect(l->closed);
}

/* The first frame of one that has shown that it knows the key. */
static void come(size_t i, uint8_t type, const uint8_t *data, size_t n)
{
    struct channel_frame f;
    struct link *l;

    if (w.n_links == MAX_LINKS) {
        return;
    }
    l = new_link();
    f = frame_of(l, type, data, n);
    w.on_peer(l, &f, w.on_peer_ctx);
    forget_frame(l);
    expect((l->ops != NULL) != l->closed);
    if (!l->closed) {
        w.children[i] = l;
    }
}

static void act(uint8_t what, const uint8_t *data, size_t n)
{
    struct buf b = {.data = (char *)(uintptr_t)data, .len = n};
    struct tree_output o = {.node = w.rank, .data = data, .len = n};
    uint8_t one = n > 0 ? data[0] : 0;

    switch (what % 8) {
    case 0:
        tree_set_view(w.tree, one, n > 1 ? data[1] % N_RANKS : 0);
        break;
    case 1:
        tree_follow(w.tree, &b);
        break;
    case 2:
        tree_report(w.tree, &b);
        break;
    case 3:
        tree_output(w.tree, &o);
        break;
    case 4:
        tree_seek_rank(w.tree, one % N_RANKS);
        break;
    case 5:
        w.roster.n = N_LATER;
        expect(tree_grow(w.tree) == 0);
        break;
    case 6:
        tree_finish(w.tree, TREE_FINISH_ALL);
        break;
    default:
        tree_event(w.tree, data, n);
        break;
    }
}

static void step(uint8_t who, uint8_t what, const uint8_t *data, size_t n)
{
    size_t i = who % (N_CHILDREN + 3);

    if (i < N_CHILDREN && w.children[i]) {
        give(w.children[i], what, data, n);
    } else if (i < N_CHILDREN) {
        come(i, what, data, n);
    } else if (i == N_CHILDREN && w.up) {
        if (!w.up->is_up) {
            w.up->is_up = true;
            w.up->ops->on_up(w.up, w.up->ctx);
        }
        give(w.up, what, data, n);
    } else if (i == N_CHILDREN + 1) {
        struct link *l = what % 5 < N_CHILDREN ? w.children[what % 5] : w.up;

        if (l) {
            go_down(l);
        }
    } else {
        act(what, data, n);
    }
}

static void set_up(uv_loop_t *loop, uint32_t rank, uint32_t lead)
{
    static const uint8_t key[CHANNEL_KEY_BYTES] = {3};
    static char *const front[] = {(char *)"127.0.0.1", NULL};
    struct roster_entry entry = {.slots = 1, .port = 9, .n_addrs = 1,
                                 .addrs = {"127.0.0.1"}, .host = "n"};
    struct tree_config config = {
        .loop = loop, .roster = &w.roster, .rank = rank, .lead = lead,
        .arity = 2, .lease_ms = 15000, .run_id = "run", .version = "v",
        .key = key, .ops = &ops, .front_addrs = front, .front_port = 9,
    };

    w.rank = rank;
    for (int i = 0; i < N_LATER; i++) {
        expect(roster_add(&w.roster, &entry) == 0);
    }
    w.roster.n = N_RANKS;
    expect(tree_create(&config, &w.tree, NULL) == 0);
}

static void tear_down(uv_loop_t *loop)
{
    tree_close(w.tree);
    expect(uv_run(loop, UV_RUN_DEFAULT) == 0 && uv_loop_close(loop) == 0);
    for (size_t i = 0; i < w.n_links; i++) {
        expect(w.links[i]->closed);
        buf_release(&w.links[i]->out);
        free(w.links[i]);
    }
    roster_release(&w.roster);
    memset(&w, 0, sizeof(w));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uv_loop_t loop;

    if (size < 2) {
        return 0;
    }
    expect(uv_loop_init(&loop) == 0);
    set_up(&loop, data[0] % N_RANKS, data[1] % N_RANKS);
    data += 2;
    size -= 2;
    while (size >= 4) {
        size_t n = (size_t)data[2] << 8 | data[3];

        n = n < size - 4 ? n : size - 4;
        step(data[0], data[1], data + 4, n);
        uv_run(&loop, UV_RUN_NOWAIT);
        data += 4 + n;
        size -= 4 + n;
    }
    tear_down(&loop);
    return 0;
}
