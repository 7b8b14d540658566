/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in pickles of torch.save: which, under which names; and those that are wrong. */
#include <config.h>

#include "ckpt/torch_tensors.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- pickles --- */

static void put_number(struct buf *b, int64_t n)
{
    char bytes[8];

    for (int i = 0; i < 8; i++) {
        bytes[i] = (char)((uint64_t)n >> 8 * i);
    }
    buf_append(b, "\x8a\x08", 2);
    buf_append(b, bytes, sizeof(bytes));
}

static void put_text(struct buf *b, const char *text)
{
    buf_printf(b, "\x8c%c%s", (int)strlen(text), text);
}

static void put_tuple(struct buf *b, const int64_t *n, size_t count)
{
    buf_puts(b, "(");
    for (size_t i = 0; i < count; i++) {
        put_number(b, n[i]);
    }
    buf_puts(b, "t");
}

/* One with `n` dimensions, of a storage called "7"; `more` comes behind its strides. */
struct one {
    const char *function, *storage;
    int64_t room, offset, n;
    int64_t shape[BOX_MAX_DIMS + 1], strides[BOX_MAX_DIMS + 1];
    const char *more;
};

static void put_one(struct buf *b, const struct one *t)
{
    buf_printf(b, "ctorch._utils\n%s\n((", t->function ? t->function : "_rebuild_tensor_v2");
    put_text(b, "storage");
    buf_printf(b, "c%s\n", t->storage ? t->storage : "torch\nFloatStorage");
    put_text(b, "7");
    put_text(b, "cpu");
    put_number(b, t->room);
    buf_puts(b, "tQ");
    put_number(b, t->offset);
    put_tuple(b, t->shape, (size_t)t->n);
    put_tuple(b, t->strides, (size_t)t->n);
    buf_printf(b, "%stR", t->more ? t->more : "\x89}");
}

static const struct one plain = {.room = 6, .n = 2, .shape = {2, 3}, .strides = {3, 1}};

/* --- what is found --- */

struct seen {
    struct buf text;
    int n, fail_at;
};

static int see(void *arg, const char *name, const struct torch_tensor *t, struct error *e)
{
    struct seen *s = arg;

    (void)e;
    buf_printf(&s->text, "%s%s", s->text.len ? " " : "", name);
    if (t->key_len != 1 || t->key[0] != '7') {
        buf_puts(&s->text, "!");
    }
    return ++s->n == s->fail_at ? -EIO : 0;
}

static int see_other(void *arg, const char *name, bool is_tensor, struct error *e)
{
    struct seen *s = arg;

    (void)e;
    buf_printf(&s->text, "%s%s%s", s->text.len ? " " : "", is_tensor ? "-" : "~", name);
    return ++s->n == s->fail_at ? -EIO : 0;
}

static int walk(const struct buf *b, const char *prefix, struct seen *s, struct error *e)
{
    const struct torch_walk w = {see, see_other, s, 10000};
    _pickle_tree_ struct pickle_tree t = {0};
    int rc = pickle_tree_read(b->data, b->len, &t, e);

    return rc < 0 ? rc : torch_tensors(t.root, prefix, "tensor", &w, e);
}

static int read_one(const struct one *t, struct torch_tensor *ret)
{
    _buf_ struct buf b = {0};
    _pickle_tree_ struct pickle_tree tree = {0};
    struct error e = {0};

    put_one(&b, t);
    buf_puts(&b, ".");
    if (pickle_tree_read(b.data, b.len, &tree, &e) < 0) {
        diag("%s", e.text);
        return -EPROTO;
    }
    return torch_tensor_of(tree.root, ret);
}

static void test_one(void)
{
    struct torch_tensor t = {0};
    struct one offset = plain, row = plain, empty = plain, scalar = plain;

    is_int(read_one(&plain, &t), 1, "a tensor");
    ok(t.dtype == DTYPE_F32 && t.n_dims == 2 && t.shape[0] == 2 && t.shape[1] == 3 &&
           t.strides[0] == 3 && t.strides[1] == 1 && t.offset == 0 && t.end == 6,
       "with type, shape and place");
    offset.room = 16;
    offset.offset = 10;
    is_int(read_one(&offset, &t), 1, "one that begins later");
    ok(t.offset == 10 && t.end == 16, "and ends where its storage does");
    row.strides[0] = 0;
    row.room = 3;
    is_int(read_one(&row, &t), 1, "a row that is there twice");
    is_int((int)t.end, 3, "takes the room of one");
    empty.room = 0;
    empty.shape[1] = 0;
    is_int(read_one(&empty, &t), 1, "one of nothing");
    is_int((int)t.end, 0, "takes none");
    scalar.n = 0;
    scalar.room = 1;
    is_int(read_one(&scalar, &t), 1, "a number");
    ok(t.n_dims == 0 && t.end == 1, "is one element");
}

static void test_types(void)
{
    static const struct {
        struct one one;
        int rc;
        enum dtype dtype;
    } cases[] = {
        {{.storage = "torch\nDoubleStorage"}, 1, DTYPE_F64},
        {{.storage = "torch\nHalfStorage"}, 1, DTYPE_F16},
        {{.storage = "torch\nBFloat16Storage"}, 1, DTYPE_BF16},
        {{.storage = "torch\nLongStorage"}, 1, DTYPE_I64},
        {{.storage = "torch\nIntStorage"}, 1, DTYPE_I32},
        {{.storage = "torch\nShortStorage"}, 1, DTYPE_I16},
        {{.storage = "torch\nCharStorage"}, 1, DTYPE_I8},
        {{.storage = "torch\nByteStorage"}, 1, DTYPE_U8},
        {{.storage = "torch\nBoolStorage"}, 1, DTYPE_BOOL},
        {{.storage = "torch\nComplexFloatStorage"}, 1, DTYPE_C64},
        {{.storage = "torch\nComplexDoubleStorage"}, -ENOTSUP, 0},
        {{.storage = "mine\nFloatStorage"}, -ENOTSUP, 0},
        {{.storage = "torch.storage\nUntypedStorage"}, -ENOTSUP, 0},
        {{.storage = "torch.storage\nUntypedStorage", .function = "_rebuild_tensor_v3",
          .more = "\x89}ctorch\nuint16\n"}, 1, DTYPE_U16},
        {{.storage = "torch.storage\nUntypedStorage", .function = "_rebuild_tensor_v3",
          .more = "\x89}ctorch\nfloat8_e4m3fn\n}"}, 1, DTYPE_F8_E4M3},
        {{.storage = "torch.storage\nUntypedStorage", .function = "_rebuild_tensor_v3",
          .more = "\x89}ctorch\nint3\n"}, -ENOTSUP, 0},
        {{.function = "_rebuild_tensor", .more = ""}, 1, DTYPE_F32},
        {{.more = "\x89}}U\4conj\x88s"}, -ENOTSUP, 0},
        {{.more = "\x89}}"}, 1, DTYPE_F32},
        {{.function = "_rebuild_sparse_tensor"}, -ENOTSUP, 0},
        {{.function = "anything"}, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct one one = cases[i].one;
        struct torch_tensor t = {0};

        one.room = 12;
        one.n = 1;
        one.shape[0] = 6;
        one.strides[0] = 1;
        is_int(read_one(&one, &t), cases[i].rc, "type %zu", i);
        ok(cases[i].rc < 1 || t.dtype == cases[i].dtype, "is that");
    }
}

static void test_wrong(void)
{
    static const struct one cases[] = {
        {.room = 5, .n = 2, .shape = {2, 3}, .strides = {3, 1}},
        {.room = 6, .offset = 1, .n = 2, .shape = {2, 3}, .strides = {3, 1}},
        {.room = 6, .n = 2, .shape = {2, 3}, .strides = {4, 1}},
        {.room = -6, .n = 2, .shape = {2, 3}, .strides = {3, 1}},
        {.room = 6, .offset = -1, .n = 1, .shape = {2}, .strides = {1}},
        {.room = 6, .n = 1, .shape = {-2}, .strides = {1}},
        {.room = 6, .n = 1, .shape = {2}, .strides = {-1}},
        {.room = INT64_MAX, .n = 2, .shape = {INT64_MAX, 3}, .strides = {INT64_MAX, 1}},
        {.room = INT64_MAX, .n = 2, .shape = {INT64_MAX, 3}, .strides = {0, 0}},
        {.room = INT64_MAX, .n = 1, .shape = {INT64_MAX}, .strides = {0}},
        {.room = 6, .offset = INT64_MAX, .n = 1, .shape = {2}, .strides = {1}},
        /* Its last element is at 2^64. */
        {.room = 6, .n = 1, .shape = {(INT64_C(1) << 32) + 1}, .strides = {INT64_C(1) << 32}},
        {.room = 6, .n = BOX_MAX_DIMS + 1},
        {.room = 11, .n = 1, .shape = {6}, .strides = {1}, .function = "_rebuild_tensor_v3",
         .storage = "torch.storage\nUntypedStorage", .more = "\x89}ctorch\nuint16\n"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct torch_tensor t = {0};

        is_int(read_one(&cases[i], &t), -ERR_FORMAT, "wrong %zu", i);
    }
}

/* What makes no tensor, by which it is said to be one. */
static void test_no_tensor(void)
{
    static const struct {
        const char *pickle;
        int rc;
    } cases[] = {
        {"ctorch._utils\n_rebuild_tensor_v2\n)R.", -ERR_FORMAT},
        {"ctorch._utils\n_rebuild_tensor_v2\n(NK\1))tR.", -ERR_FORMAT},
        {"ctorch._utils\n_rebuild_tensor_v2\n(NQK\1))tR.", -ERR_FORMAT},
        {"ctorch._utils\n_rebuild_tensor_v2\n(Pof protocol 0\nK\1))tR.", -ENOTSUP},
        {"ctorch._utils\n_rebuild_tensor_v2\n((U\5otherctorch\nFloatStorage\nU\0017NK\1tQK\1))tR.",
         -ERR_FORMAT},
        {"ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nNNK\1tQK\1))tR.",
         -ERR_FORMAT},
        {"ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\0017NK\1tQN))tR.",
         -ERR_FORMAT},
        {"ctorch._utils\n_rebuild_tensor_v2\n"
         "((U\7storagectorch\nFloatStorage\nU\0017NK\1tQI0\n)K\1\x85tR.", -ERR_FORMAT},
        {"ctorch._utils\n_rebuild_parameter\n(Nt.", 0},
        {"ctorch._utils\n_rebuild_parameter\n(NtR.", -ENOTSUP},
        {"ctorch._utils\n_rebuild_parameter\n)R.", -ENOTSUP},
        {"cmine\n_rebuild_it\n)R.", -ENOTSUP},
        {"cmine\nrebuild\n)R.", 0},
        {"N.", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _pickle_tree_ struct pickle_tree tree = {0};
        struct torch_tensor t = {0};
        struct error e = {0};
        char bytes[256];
        size_t len = 0;

        /* Within these texts \001 stands before "7", and no zero byte is. */
        len = strlen(cases[i].pickle);
        memcpy(bytes, cases[i].pickle, len);
        is_int(pickle_tree_read(bytes, len, &tree, &e), 0, "pickle %zu %s", i, e.text);
        is_int(torch_tensor_of(tree.root, &t), cases[i].rc, "is what it is");
    }
    is_int(torch_tensor_of(NULL, NULL), 0, "nothing is none");
}

/* In what wraps them. */
static void test_wrapped(void)
{
    static const struct {
        const char *before, *behind;
        int n;
        int rc;
    } cases[] = {
        {"ctorch._utils\n_rebuild_parameter\n(", "\x88}tR", 1, 1},
        {"ctorch._utils\n_rebuild_parameter_with_state\n(", "\x88}}tR", 1, 1},
        {"ctorch._utils\n_rebuild_parameter\n(", "\x88}tR", 8, 1},
        {"ctorch._utils\n_rebuild_parameter\n(", "\x88}tR", 9, -ENOTSUP},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};
        _pickle_tree_ struct pickle_tree tree = {0};
        struct torch_tensor t = {0};
        struct error e = {0};

        for (int k = 0; k < cases[i].n; k++) {
            buf_puts(&b, cases[i].before);
        }
        put_one(&b, &plain);
        for (int k = 0; k < cases[i].n; k++) {
            buf_puts(&b, cases[i].behind);
        }
        buf_puts(&b, ".");
        is_int(pickle_tree_read(b.data, b.len, &tree, &e), 0, "wrapped %zu %s", i, e.text);
        is_int(torch_tensor_of(tree.root, &t), cases[i].rc, "that is a tensor, up to a depth");
    }
}

/* A subclass: _rebuild_from_type_v2(function, class, arguments, state). */
static void test_subclass(void)
{
    _buf_ struct buf one = {0}, b = {0};
    _pickle_tree_ struct pickle_tree tree = {0};
    struct torch_tensor t = {0};
    struct error e = {0};
    static const char function[] = "ctorch._utils\n_rebuild_tensor_v2\n";

    put_one(&one, &plain); /* without its function, and without R */
    buf_printf(&b, "ctorch._tensor\n_rebuild_from_type_v2\n(%scmine\nTensor\n", function);
    buf_append(&b, one.data + strlen(function), one.len - strlen(function) - 1);
    buf_puts(&b, "}tR.");
    is_int(pickle_tree_read(b.data, b.len, &tree, &e), 0, "a class of its own %s", e.text);
    is_int(torch_tensor_of(tree.root, &t), 1, "is a tensor like others");
    is_int((int)t.shape[1], 3, "of its shape");
}

static void test_names(void)
{
    static const struct {
        const char *before, *behind, *prefix, *want;
    } cases[] = {
        {"", "", "", "tensor"},
        {"", "", "model", "model"},
        {"}U\1a", "s", "", "a"},
        {"}U\1a", "s", "model", "model.a"},
        {"}U\1a}U\1b", "ss", "", "a.b"},
        {"}U\1a](NK\1", "es", "", "~a.0 ~a.1 a.2"},
        {"}U\1a(", "ts", "", "a.0"},
        {"}K\5", "s", "", "5"},
        {"}J\xff\xff\xff\xff", "s", "", "-1"},
        {"}N", "s", "", "-0"},
        {"}(NNN}U\1a", "su", "", "~0 -1.a"},
        {"}(NK\1U\1a", "u", "", "~0 a"},
        {"}U\0", "s", "", NULL},
        {"ccollections\nOrderedDict\n)RU\1a", "s", "", "a"},
        {"cmine\nThing\n)R", "a", "", "0"},
        {"cmine\nThing\n)\x81}U\1a", "sb", "", "~"},
        {"}U\2a\xff", "s", "", "-a\xff"},
        {"cmine\nNet\n)\x81}(U\x0b_parameters}(U\1wNU\1a", "uU\x08_buffers}U\x08_modules}ub", "",
         "a"},
        {"cmine\nNet\n)\x81}(U\x08_buffers}(U\1bK\1U\1a", "uU\x0b_parameters}U\x08_modules}"
         "U\x1b_non_persistent_buffers_set\x8f(U\1a\x90ub", "", "~b"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf b = {0};
        struct seen s = {0};
        struct error e = {0};

        if (!cases[i].want) {
            buf_append(&b, "}X\2\0\0\0a\0", 8);
        } else {
            buf_puts(&b, cases[i].before);
        }
        put_one(&b, &plain);
        buf_printf(&b, "%s.", cases[i].behind);
        is_int(walk(&b, cases[i].prefix, &s, &e), 0, "names %zu %s", i, e.text);
        if (cases[i].want) {
            is_str(buf_str(&s.text), cases[i].want, "are the keys that lead there");
        } else {
            is_str(buf_str(&s.text), "-a", "no text with a zero byte");
        }
        buf_release(&s.text);
    }
}

/* Wrong, too deep, or in a circle; and where whoever is told wants no more. */
static void test_ends(void)
{
    struct one wrong = plain;
    struct seen s = {0}, fails = {.fail_at = 1}, fails_later = {.fail_at = 2};
    _buf_ struct buf b = {0}, deep = {0}, bomb = {0}, two = {0};
    struct error e = {0};

    wrong.room = 5;
    buf_puts(&b, "}U\1a}U\1b");
    put_one(&b, &wrong);
    buf_puts(&b, "ss.");
    is_int(walk(&b, "", &s, &e), -ERR_FORMAT, "one that is wrong");
    like(e.text, "tensor 'a.b' reaches out of its storage", "is named");
    for (int i = 0; i < 200; i++) {
        buf_puts(&deep, "(");
    }
    for (int i = 0; i < 200; i++) {
        buf_puts(&deep, "l");
    }
    buf_puts(&deep, ".");
    is_int(walk(&deep, "", &s, &e), -EFBIG, "lists in lists, and so on");
    like(e.text, "too deep, or in a circle", "are told");
    buf_clear(&deep);
    buf_append(&deep, "]q\0h\0a.", 7);
    is_int(walk(&deep, "", &s, &e), -EFBIG, "a list in itself");
    buf_append(&bomb, "]q\0", 3);
    for (int i = 0; i < 60; i++) { /* each of the one before, twice */
        const char twice[] = {']', 'q', (char)(i + 1), '(', 'h', (char)i, 'h', (char)i, 'e'};

        buf_append(&bomb, twice, sizeof(twice));
    }
    buf_puts(&bomb, ".");
    is_int(walk(&bomb, "", &(struct seen){.fail_at = 0}, &e), -EFBIG, "2^60 lists");
    buf_release(&s.text);
    buf_puts(&two, "}(U\1a");
    put_one(&two, &plain);
    buf_puts(&two, "U\1bNu.");
    is_int(walk(&two, "", &fails, &e), -EIO, "what a function returns of a tensor");
    is_int(walk(&two, "", &fails_later, &e), -EIO, "and of another value");
    is_str(buf_str(&fails.text), "a", "ends the walk");
    buf_release(&fails.text);
    buf_release(&fails_later.text);
}

int main(void)
{
    test_one();
    test_types();
    test_wrong();
    test_no_tensor();
    test_wrapped();
    test_subclass();
    test_names();
    test_ends();
    return tap_done();
}
