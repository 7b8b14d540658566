/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls: arguments are checked, codes become errno values. */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/view.h"
#include "muster.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* What is said is the errno value that comes closest. */
static int to_errno(int rc)
{
    switch (-rc) {
    case ERR_FORMAT: return -EILSEQ;
    case ERR_VERSION: return -EPROTONOSUPPORT;
    case ERR_LOST: return -ECONNABORTED;
    default: return -rc >= ERR_SPEC ? -EIO : rc;
    }
}

/* Before what asks nobody else: no old error is left. */
static int enter_alone(struct muster_ckpt *ck)
{
    if (!ck) {
        return -EINVAL;
    }
    ck->error = (struct error){0};
    return ck->root < 0 ? error_text(&ck->error, EINVAL, "it could not be "
                                     "opened") : 0;
}

static bool is_of_parent(const struct muster_ckpt *ck)
{
    return (ck->m || ck->group.world > 1) && ck->pid != getpid();
}

static int enter(struct muster_ckpt *ck)
{
    int rc = enter_alone(ck);

    if (rc == 0 && is_of_parent(ck)) {
        return error_text(&ck->error, EOPNOTSUPP, "process %ld was forked from the one that "
                          "opened these checkpoints, whom other ranks or an agent wait for: "
                          "expected it to open its own, with a group of its own",
                          (long)getpid());
    }
    return rc;
}

/* Before one that changes what is registered: nobody reads it any more. */
static int enter_registry(struct muster_ckpt *ck)
{
    int rc = enter_alone(ck);

    if (rc == 0) {
        ckpt_lazy_await(ck);
    }
    return rc;
}

PUBLIC const char *muster_ckpt_error_text(const struct muster_ckpt *ck)
{
    return ck ? ck->error.text : "";
}

PUBLIC int muster_ckpt_tensor(struct muster_ckpt *ck,
                       const struct muster_ckpt_tensor *t)
{
    int rc = enter_registry(ck);

    if (rc == 0 && !t) {
        rc = error_text(&ck->error, EINVAL, "no tensor");
    }
    return rc < 0 ? rc : registry_tensor(&ck->registry, t, &ck->error);
}

PUBLIC int muster_ckpt_blob(struct muster_ckpt *ck, const char *name, void *data,
                     size_t len, enum muster_blob kind)
{
    int rc = enter_registry(ck);

    return rc < 0 ? rc : registry_blob(&ck->registry, name, data, len, kind,
                                       &ck->error);
}

PUBLIC int muster_ckpt_is_device(struct muster_ckpt *ck, const void *data)
{
    return ck ? device_of(&ck->registry.finder, data) != NULL : -EINVAL;
}

PUBLIC int muster_ckpt_clear(struct muster_ckpt *ck)
{
    int rc = enter_registry(ck);

    if (rc == 0) {
        uint32_t rank = ck->registry.rank;
        uint64_t n_changes = ck->registry.n_changes, n_calls = ck->registry.n_calls;

        registry_release(&ck->registry);
        ck->registry.rank = rank;
        ck->registry.n_changes = n_changes + 1; /* never as many as before */
        ck->registry.n_calls = n_calls + 1;
    }
    return rc;
}

/* --- whether one is due --- */

PUBLIC int muster_ckpt_due(struct muster_ckpt *ck, int64_t step)
{
    int rc = enter(ck);

    return rc < 0 ? rc : to_errno(ckpt_due_all(ck, step));
}

PUBLIC int muster_ckpt_should_stop(struct muster_ckpt *ck, int *why)
{
    int rc = enter(ck);

    if (rc == 0 && why) {
        *why = ck->is_stopping ? MUSTER_CKPT_STOPPING : 0;
    }
    return rc < 0 ? rc : ck->is_stopping;
}

/* --- saving --- */

PUBLIC int muster_ckpt_save(struct muster_ckpt *ck, int64_t step, unsigned flags,
                     uint64_t *ret_save)
{
    int rc = enter(ck);

    if (rc == 0 && (step < 0 || step == MUSTER_CKPT_LATEST ||
                    (flags & ~(MUSTER_CKPT_LAZY | MUSTER_CKPT_WAIT |
                               MUSTER_CKPT_SKIP | MUSTER_CKPT_REFUSE)))) {
        rc = error_text(&ck->error, EINVAL, "save: step %" PRId64 ", flags %#x",
                        step, flags);
    }
    return rc < 0 ? rc : to_errno(ckpt_save_all(ck, step, flags, ret_save));
}

PUBLIC int muster_ckpt_fence(struct muster_ckpt *ck)
{
    int rc = enter_alone(ck); /* of a child's parent the save is: it has none to end */

    rc = rc < 0 ? rc : to_errno(ckpt_lazy_end(ck, &ck->error));
    if (rc == 0) {
        ckpt_say_note(ck);
    }
    return rc;
}

static int reached(struct muster_ckpt *ck, uint64_t save,
                   enum muster_ckpt_level level, int64_t timeout_ms)
{
    const struct recent *r;

    save = save ? save : ck->n_saves;
    r = &ck->recent[save % CKPT_N_RECENT];
    if ((unsigned)level > MUSTER_CKPT_REMOTE) {
        return error_text(&ck->error, EINVAL, "level %d: there is none such", (int)level);
    }
    if (save == 0) {
        return error_text(&ck->error, EINVAL, "nothing has been saved by this handle");
    }
    if (r->number != save) {
        return error_text(&ck->error, EINVAL, "save %" PRIu64 ": expected one of the last "
                          "%d of this handle, which has made %" PRIu64, save,
                          CKPT_N_RECENT, ck->n_saves);
    }
    return ckpt_reached(ck, r, level, timeout_ms, &ck->error);
}

PUBLIC int muster_ckpt_test(struct muster_ckpt *ck, uint64_t save,
                     enum muster_ckpt_level level)
{
    int rc = enter(ck);

    return rc < 0 ? rc : to_errno(reached(ck, save, level, 0));
}

PUBLIC int muster_ckpt_wait(struct muster_ckpt *ck, uint64_t save,
                     enum muster_ckpt_level level, int64_t timeout_ms)
{
    int rc = enter(ck);

    if (rc == 0 && save == 0 && ck->n_saves == 0 && (unsigned)level <= MUSTER_CKPT_REMOTE) {
        return 0; /* nothing is on its way */
    }
    rc = rc < 0 ? rc : reached(ck, save, level, timeout_ms);
    if (rc == 0) {
        rc = error_text(&ck->error, ETIMEDOUT, "the save is still on its way");
    }
    return rc > 0 ? 0 : to_errno(rc);
}

/* --- loading --- */

PUBLIC int muster_ckpt_latest(struct muster_ckpt *ck, int64_t below, int64_t *ret_step)
{
    int rc = enter(ck);

    if (rc == 0 && (!ret_step || below < 0)) {
        rc = error_text(&ck->error, EINVAL, "latest: below %" PRId64, below);
    }
    return rc < 0 ? rc : to_errno(ckpt_latest_all(ck, below, ret_step));
}

PUBLIC int muster_ckpt_load(struct muster_ckpt *ck, int64_t step, unsigned flags,
                     int64_t *ret_step)
{
    int rc = enter(ck);

    if (rc == 0 && (step < 0 || (flags & ~(MUSTER_CKPT_CANNOT | MUSTER_CKPT_UNFIT)))) {
        rc = error_text(&ck->error, EINVAL, "load: step %" PRId64 ", flags %#x",
                        step, flags);
    }
    return rc < 0 ? rc : to_errno(ckpt_load_all(ck, step, flags, ret_step));
}

PUBLIC int muster_ckpt_passed_over(const struct muster_ckpt *ck, const char **ret_why)
{
    if (ret_why) {
        *ret_why = ck ? ck->passed.text : "";
    }
    return ck ? ck->n_passed : -EINVAL;
}

PUBLIC int muster_ckpt_read(struct muster_ckpt *ck, int64_t step,
                     const struct muster_ckpt_tensor *box)
{
    int rc = enter(ck);

    if (rc == 0 && (!box || step < 0 || step == MUSTER_CKPT_LATEST)) {
        rc = error_text(&ck->error, EINVAL, "read: a box, and the step that "
                        "muster_ckpt_latest() tells");
    }
    return rc < 0 ? rc : to_errno(ckpt_read_one(ck, step, box));
}

PUBLIC int muster_ckpt_map(struct muster_ckpt *ck, int64_t step,
                    const struct muster_ckpt_tensor *box, unsigned flags,
                    struct muster_ckpt_view **ret)
{
    int rc = enter(ck);

    if (rc == 0 && (!box || !ret || step < 0 || step == MUSTER_CKPT_LATEST ||
                    (flags & ~(MUSTER_CKPT_WRITABLE | MUSTER_CKPT_VERIFY)))) {
        rc = error_text(&ck->error, EINVAL, "map: a box, the step that "
                        "muster_ckpt_latest() tells, and flags %#x", flags);
    }
    return rc < 0 ? rc : to_errno(ckpt_map_one(ck, step, box, flags, ret));
}

PUBLIC void muster_ckpt_unmap(struct muster_ckpt_view *view)
{
    view_destroy(view);
}

PUBLIC int muster_ckpt_read_blob(struct muster_ckpt *ck, int64_t step, const char *name,
                          void *to, size_t size, size_t *ret_len)
{
    int rc = enter(ck);

    if (rc == 0 && (!name || step < 0 || step == MUSTER_CKPT_LATEST ||
                    (size > 0 && !to))) {
        rc = error_text(&ck->error, EINVAL, "read a blob: its name, and the step "
                        "that muster_ckpt_latest() tells");
    }
    return rc < 0 ? rc : to_errno(ckpt_read_blob_one(ck, step, name, to, size,
                                                     ret_len));
}
