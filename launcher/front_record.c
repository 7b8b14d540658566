/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front_record.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RECORD_BYTES = 32 << 20 }; /* HOSTS_MAX names */

static const char *const sources[] = {
    [HOSTS_LOCAL] = "local",
    [HOSTS_GIVEN] = "given",
    [HOSTS_SLURM] = "slurm",
};

void front_record_release(struct front_record *r)
{
    host_list_release(&r->hosts);
}

/* --- writing --- */

/* What a host is called where it is not this one. */
static const char *name_for_others(const struct front_record *r,
                                   const struct host *h)
{
    bool is_alias = strcmp(h->name, "localhost") == 0 ||
                    str_starts(h->name, "127.");

    return h->is_local && is_alias ? r->host : h->name;
}

/* Nothing where no host has any. */
static void print_slots(const struct host_list *hosts, struct jsonw *w)
{
    if (!hosts_have_slots(hosts)) {
        return;
    }
    jsonw_array(w, "slots");
    for (size_t i = 0; i < hosts->n; i++) {
        jsonw_int(w, NULL, hosts->items[i].slots);
    }
    jsonw_end_array(w);
}

static void print_hosts(const struct front_record *r, struct jsonw *w)
{
    jsonw_str(w, "source", sources[r->hosts.source]);
    jsonw_array(w, "hosts");
    for (size_t i = 0; i < r->hosts.n; i++) {
        jsonw_str(w, NULL, name_for_others(r, &r->hosts.items[i]));
    }
    jsonw_end_array(w);
    print_slots(&r->hosts, w);
}

void front_record_print(const struct front_record *r, struct buf *to)
{
    struct jsonw w = jsonw_start(to);

    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", FRONT_RECORD_VERSION);
    jsonw_str(&w, "host", r->host);
    jsonw_bool(&w, "by_hand", r->by_hand);
    jsonw_int(&w, "epoch", (int64_t)r->epoch);
    jsonw_opt_str(&w, "mpirun", r->mpirun);
    if (r->mpirun_pid) {
        jsonw_int(&w, "mpirun_pid", r->mpirun_pid);
        jsonw_int(&w, "mpirun_start", (int64_t)r->mpirun_start);
        jsonw_opt_str(&w, "machine", r->machine);
    }
    jsonw_opt_str(&w, "ssh", r->ssh);
    jsonw_opt_str(&w, "key_file", r->key_file);
    jsonw_opt_str(&w, "slurm_job", r->slurm_job);
    jsonw_opt_str(&w, "cwd", r->cwd);
    jsonw_int(&w, "agents_per_host", r->agents_per_host);
    jsonw_int(&w, "n_agents", r->n_agents);
    jsonw_int(&w, "gather_seconds", r->gather_seconds);
    jsonw_bool(&w, "agent_is_node", r->agent_is_node);
    jsonw_bool(&w, "own_step", r->own_step);
    jsonw_bool(&w, "kept", r->is_kept);
    if (r->detach_ms <= INT64_MAX) {
        jsonw_int(&w, "detach_ms", (int64_t)r->detach_ms);
    }
    print_hosts(r, &w);
    jsonw_end_object(&w);
    buf_putc(to, '\n');
}

int front_record_write(const struct rundir *dir, const struct front_record *r,
                       struct error *e)
{
    _buf_ struct buf text = {0};
    char path[PATH_MAX];
    int rc = rundir_path(dir, path, sizeof(path), e, "front.json");

    if (rc < 0) {
        return rc;
    }
    front_record_print(r, &text);
    return text.failed ? error_set(e, ENOMEM, "write %s", path)
                       : fs_write_replace(path, text.data, text.len, e);
}

/* --- reading --- */

static bool get_int(const json_t *o, const char *key, int64_t max,
                    int64_t missing, int64_t *ret)
{
    const json_t *v = json_object_get(o, key);

    *ret = v ? json_integer_value(v) : missing;
    return !v || (json_is_integer(v) && *ret >= 0 && *ret <= max);
}

static bool get_str(const json_t *o, const char *key, char *to, size_t size)
{
    const json_t *v = json_object_get(o, key);
    const char *s = json_string_value(v);

    if (s && strlen(s) < size) {
        str_copy(to, size, s);
    }
    return !v || (s && strlen(s) < size);
}

static bool get_strings(const json_t *o, struct front_record *r)
{
    return get_str(o, "host", r->host, sizeof(r->host)) &&
           get_str(o, "machine", r->machine, sizeof(r->machine)) &&
           get_str(o, "mpirun", r->mpirun, sizeof(r->mpirun)) &&
           get_str(o, "ssh", r->ssh, sizeof(r->ssh)) &&
           get_str(o, "key_file", r->key_file, sizeof(r->key_file)) &&
           get_str(o, "slurm_job", r->slurm_job, sizeof(r->slurm_job)) &&
           get_str(o, "cwd", r->cwd, sizeof(r->cwd));
}

static bool get_numbers(const json_t *o, struct front_record *r)
{
    int64_t epoch, start, per_host, n_agents, seconds, detach;

    if (!get_int(o, "epoch", UINT32_MAX, 0, &epoch) ||
        !get_int(o, "mpirun_pid", INT32_MAX, 0, &r->mpirun_pid) ||
        !get_int(o, "mpirun_start", INT64_MAX, 0, &start) ||
        !get_int(o, "agents_per_host", UINT16_MAX, 1, &per_host) ||
        !get_int(o, "n_agents", INT32_MAX, 0, &n_agents) ||
        !get_int(o, "gather_seconds", INT32_MAX, 300, &seconds) ||
        !get_int(o, "detach_ms", INT64_MAX, -1, &detach) || per_host < 1) {
        return false;
    }
    r->epoch = (uint64_t)epoch;
    r->mpirun_start = (uint64_t)start;
    r->agents_per_host = (unsigned)per_host;
    r->n_agents = (unsigned)n_agents;
    r->gather_seconds = (unsigned)seconds;
    r->detach_ms = detach < 0 ? UINT64_MAX : (uint64_t)detach;
    r->by_hand = json_is_true(json_object_get(o, "by_hand"));
    r->agent_is_node = json_is_true(json_object_get(o, "agent_is_node"));
    r->own_step = json_is_true(json_object_get(o, "own_step"));
    r->is_kept = json_is_true(json_object_get(o, "kept"));
    return true;
}

static bool get_source(const json_t *o, enum hosts_source *ret)
{
    const char *s = json_string_value(json_object_get(o, "source"));

    for (size_t i = 0; s && i < ARRAY_SIZE(sources); i++) {
        if (strcmp(s, sources[i]) == 0) {
            *ret = (enum hosts_source)i;
            return true;
        }
    }
    return false;
}

static int get_hosts(const json_t *o, struct front_record *r, struct error *e)
{
    const json_t *names = json_object_get(o, "hosts");
    enum hosts_source source = HOSTS_LOCAL;
    _buf_ struct buf list = {0};

    if (!get_source(o, &source) || !json_is_array(names)) {
        return error_text(e, ERR_FORMAT, "expected hosts");
    }
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));

        if (!name || !*name || strpbrk(name, ",:[")) {
            return error_text(e, ERR_FORMAT, "expected the names of hosts");
        }
        buf_printf(&list, "%s%s", i ? "," : "", name);
    }
    if (list.len == 0) {
        return r->by_hand ? 0 : error_text(e, ERR_FORMAT, "expected hosts");
    }
    if (hosts_parse(buf_str(&list), &r->hosts, e) < 0) {
        return error_text(e, ERR_FORMAT, "expected hosts, each once");
    }
    if (r->n_agents < 1 ||
        (r->n_agents - 1) / r->agents_per_host >= r->hosts.n) {
        return error_text(e, ERR_FORMAT, "%u agents do not fit %zu hosts",
                          r->n_agents, r->hosts.n);
    }
    r->hosts.source = source == HOSTS_LOCAL && !hosts_all_local(&r->hosts)
                          ? HOSTS_GIVEN : source;
    return 0;
}

/* Of a record that has them, one for each host. */
static int get_slots(const json_t *o, struct front_record *r, struct error *e)
{
    const json_t *slots = json_object_get(o, "slots");

    if (!slots) {
        return 0;
    }
    if (!json_is_array(slots) || json_array_size(slots) != r->hosts.n) {
        return error_text(e, ERR_FORMAT, "expected the slots of each host");
    }
    for (size_t i = 0; i < r->hosts.n; i++) {
        const json_t *one = json_array_get(slots, i);

        if (!json_is_integer(one) || json_integer_value(one) < 0 ||
            json_integer_value(one) > HOSTS_MAX_SLOTS) {
            return error_text(e, ERR_FORMAT, "expected numbers of slots");
        }
        r->hosts.items[i].slots = (uint32_t)json_integer_value(one);
    }
    return 0;
}

static int parse_object(const json_t *o, struct front_record *r,
                        struct error *e)
{
    const json_t *version = json_object_get(o, "v");
    int rc;

    if (!json_is_integer(version) || json_integer_value(version) < 1) {
        return error_text(e, ERR_FORMAT, "expected an object with a format "
                          "version 'v'");
    }
    if (json_integer_value(version) > FRONT_RECORD_VERSION) {
        return error_text(e, ERR_VERSION, "written by a newer muster");
    }
    if (!get_strings(o, r) || !get_numbers(o, r)) {
        return error_text(e, ERR_FORMAT, "a value is of another type, or out "
                          "of range");
    }
    rc = get_hosts(o, r, e);
    return rc < 0 ? rc : get_slots(o, r, e);
}

int front_record_parse(const char *text, size_t len, struct front_record *ret,
                       struct error *e)
{
    _front_record_ struct front_record r = {0};
    json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    int rc = parse_object(o, &r, e);

    json_decref(o);
    if (rc == 0) {
        *ret = r;
        r.hosts = (struct host_list){0};
    }
    return rc;
}

static int check_owner(int fd, const char *path, struct error *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0) {
        return error_set(e, errno, "look at %s", path);
    }
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        (st.st_mode & 022)) {
        return error_text(e, EPERM, "%s is not this user's own file: only the "
                          "user who started a run can take it over", path);
    }
    return 0;
}

int front_record_read(const struct rundir *dir, struct front_record *ret,
                      struct error *e)
{
    _free_ char *text = NULL;
    _close_ int fd = -1;
    char path[PATH_MAX];
    size_t len = 0;
    int rc = rundir_path(dir, path, sizeof(path), e, "front.json");

    if (rc < 0) {
        return rc;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return error_set(e, errno, "open %s", path);
    }
    rc = check_owner(fd, path, e);
    rc = rc < 0 ? rc : fs_read_fd(fd, path, MAX_RECORD_BYTES, &text, &len, e);
    if (rc < 0) {
        return rc;
    }
    rc = front_record_parse(text, len, ret, e);
    return rc < 0 ? error_wrap(e, "%s", path) : 0;
}

bool front_record_find(const struct front_record *r, struct proc *ret)
{
    char host[HOSTS_NAME_BYTES] = "", here[MACHINE_ID_BYTES];

    gethostname(host, sizeof(host) - 1);
    machine_id(here, sizeof(here));
    return r->mpirun_pid > 0 && strcmp(host, r->host) == 0 &&
           strcmp(here, r->machine) == 0 &&
           proc_read((pid_t)r->mpirun_pid, ret) == 0 &&
           ret->start == r->mpirun_start && ret->state != 'Z' && ret->state != 'X';
}
