/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/lease_note.h"

#include "base/str.h"
#include "ckpt/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CHECK_BYTES = 6 + 16 + 1 }; /* " xxh3 ", the digits, a newline */

/* One word of printable characters, of any length. */
static void put_word(char *to, size_t size, const char *text)
{
    size_t n = 0;

    for (; n < size - 1 && text[n]; n++) {
        to[n] = text[n] > ' ' && text[n] <= '~' ? text[n] : '_';
    }
    to[n] = '\0';
    if (n == 0) {
        str_copy(to, size, "-");
    }
}

void lease_note_put(struct lease_note *n, const char *run, const char *host,
                    const char *machine)
{
    put_word(n->run, sizeof(n->run), run);
    put_word(n->host, sizeof(n->host), host);
    put_word(n->machine, sizeof(n->machine), machine);
}

size_t lease_note_encode(const struct lease_note *n, char to[LEASE_NOTE_BYTES])
{
    int len = snprintf(to, LEASE_NOTE_BYTES - CHECK_BYTES,
                       "muster-run 1 %s %s %s %s %d %" PRIu64 " %s %" PRId64,
                       n->state == LEASE_HAS ? "has" : "wants", n->run, n->host,
                       n->machine, n->pid, n->start, n->is_alone ? "alone" : "shared",
                       n->since_s);

    _Static_assert(2 * COMMIT_WRITER_BYTES + MACHINE_ID_BYTES + 3 * 21 + 40 + CHECK_BYTES <
                   LEASE_NOTE_BYTES, "the longest fits");
    snprintf(to + len, CHECK_BYTES + 1, " xxh3 %016" PRIx64 "\n",
             digest_short_of(to, (size_t)len));
    return (size_t)len + CHECK_BYTES;
}

static bool is_text(const char *data, size_t len)
{
    for (size_t i = 0; i + 1 < len; i++) {
        if (data[i] < ' ' || data[i] > '~') {
            return false;
        }
    }
    return len > 0 && data[len - 1] == '\n';
}

/* Whatever is not as we would write it again is none: so each byte counts. */
bool lease_note_decode(const void *data, size_t len, struct lease_note *ret)
{
    char text[LEASE_NOTE_BYTES], again[LEASE_NOTE_BYTES], state[8], alone[8];
    struct lease_note n = {0};

    _Static_assert(COMMIT_WRITER_BYTES == 65 && MACHINE_ID_BYTES == 128, "as read below");
    if (len >= sizeof(text) || !is_text(data, len)) {
        return false;
    }
    memcpy(text, data, len);
    text[len] = '\0';
    if (sscanf(text, "muster-run 1 %7s %64s %64s %127s %10d %20" SCNu64 " %7s %20" SCNd64,
               state, n.run, n.host, n.machine, &n.pid, &n.start, alone, &n.since_s) != 8) {
        return false;
    }
    n.state = strcmp(state, "has") == 0 ? LEASE_HAS : LEASE_WANTS;
    n.is_alone = strcmp(alone, "alone") == 0;
    if (n.pid <= 0 || lease_note_encode(&n, again) != len || memcmp(again, text, len) != 0) {
        return false;
    }
    *ret = n;
    return true;
}

/* Where a process can be looked at that is proof, either way; but that of one agent of
 * several says nothing of the others, of whom one leads on. Elsewhere it is proof that its
 * file is renewed. */
enum lease_fate lease_judge(const struct lease_sight *s)
{
    if (s->is_whole && s->is_here && s->is_running) {
        return LEASE_HELD;
    }
    if (s->is_whole && s->is_here && s->note.is_alone) {
        return LEASE_GONE;
    }
    if (s->is_renewed) {
        return LEASE_HELD;
    }
    if (s->still_ms > LEASE_STALE_MS) { /* also of one from the future */
        return LEASE_GONE;
    }
    return s->age_ms > LEASE_STALE_MS && s->still_ms > LEASE_WATCH_MS ? LEASE_GONE
                                                                     : LEASE_WATCH;
}
