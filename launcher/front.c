/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front.h"

#include "base/child.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/link.h"
#include "base/wire.h"
#include "launcher/agent_step.h"
#include "launcher/commands.h"
#include "launcher/control.h"
#include "launcher/jsonw.h"
#include "launcher/runview.h"
#include "launcher/screen.h"
#include "launcher/slurm.h"
#include "rendezvous/tree_msg.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TICK_MS = 250,
    BEAT_TICKS = 4,
    COME_BACK_MS = 5000,   /* for a lead that lost us to find us again */
    PULSE_MS = 10000,      /* the lead says something at least so often */
    LEAD_END_MS = 45000,   /* for the lead to deliver what it has */
    MPIRUN_END_MS = 5000,  /* for mpirun to go by itself after that */
    MPIRUN_KILL_MS = 3000, /* between SIGTERM and SIGKILL */
    STEP_END_MS = 15000,   /* for the agents' step to end after the lead */
    STEP_LOST_MS = 3000,   /* the same, when a node of it is lost */
    STEP_KILL_MS = 5000,   /* for srun to kill it */
    REPEAT_MS = 1000,      /* before mpirun is run again */
    LOST_WORLD_MS = 2000,  /* for an mpirun that lost a node to end by itself */
    MAX_REPEATS = 5,       /* in a row, of worlds that do not last: */
    LASTING_MS = 60000,
    LOG_TAIL_BYTES = 4096,
    MAX_RUN_BYTES = CHANNEL_MAX_FRAME - 1024, /* goes in one frame */
    MAX_UNREAD_BYTES = 1 << 20, /* that nobody has read: no more output then */
};

enum phase {
    STARTING, /* the lead has not connected yet */
    RUNNING,
    OVER,     /* the verdict is known: mpirun has to go */
};

struct front {
    const struct front_config *config;
    uv_loop_t loop;
    struct child_table *children;
    struct link_listener *listener;
    struct link *lead;
    struct control_server *control;
    struct writer *writer;
    struct screen *screen;
    struct buf run_bytes;  /* the run's configuration, encoded */
    pid_t starter;         /* by hand: muster-mpi, whose child this is */
    size_t n_owed;         /* bytes of output without credit for them yet */
    bool told_unread;
    bool lets_go;          /* of what nobody reads, and ends */
    bool is_ending;        /* only that is left */
    uv_timer_t tick;
    uv_signal_t signals[6];
    enum phase phase;
    int status;
    char reason[1024];
    unsigned n_ticks;
    unsigned n_signals;
    uint64_t started_ms;
    uint64_t started_wall_ns;
    uint64_t heard_ms;     /* from the lead, the last time */
    uint64_t ticked_ms;
    uint64_t lead_gone_ms; /* since when; 0 while it is there */
    uint64_t over_ms;      /* since when only mpirun is waited for */
    pid_t mpirun_pid;      /* -1 while none runs */
    uint64_t mpirun_at_ms; /* when it was started */
    uint64_t epoch;
    unsigned n_repeats;
    uint64_t repeat_at_ms; /* 0: no need */
    uint64_t end_mpirun_at_ms; /* its world is lost; 0: it is not */
    char log_path[PATH_MAX];
    struct agent_step *step;   /* or NULL */
    struct agent_step_config step_config;
    char step_log[PATH_MAX];
    bool is_kept;              /* agents live in that step */
    bool began;                /* the lead has connected once */
    bool in_order;             /* the lead itself gave the verdict */
    bool lost_node;            /* it says that it has lost one */
};

static uint64_t now_ms(const struct front *f)
{
    return uv_now(&f->loop);
}

/* --- the end --- */

static void settle(struct front *f, int status, const char *reason)
{
    if (f->phase == OVER) {
        return;
    }
    f->phase = OVER;
    f->status = status;
    f->over_ms = now_ms(f);
    str_copy(f->reason, sizeof(f->reason), reason);
    f->repeat_at_ms = 0;
}

static bool mpirun_is_gone(struct front *f, uint64_t waited)
{
    if (f->mpirun_pid <= 0) {
        return true;
    }
    if (waited > MPIRUN_END_MS + MPIRUN_KILL_MS) {
        child_kill(f->children, f->mpirun_pid, SIGKILL);
    } else if (waited > MPIRUN_END_MS) {
        child_kill(f->children, f->mpirun_pid, SIGTERM);
    }
    return false;
}

/* The step of the agents ends with them: soon after the lead where all is in
 * order, or when their grace time is over. srun waits for a lost node as well,
 * which never answers. One that never had agents is of no use, and one that this
 * process leaves alone goes on. */
static bool step_is_gone(struct front *f, uint64_t waited)
{
    uint64_t end_ms = !f->began ? 0 : !f->in_order ? LEAD_END_MS
                      : f->lost_node ? STEP_LOST_MS : STEP_END_MS;

    if (!agent_step_lives(f->step) || f->lets_go || f->n_signals > 2) {
        return true;
    }
    if (waited > end_ms + STEP_KILL_MS) {
        agent_step_kill(f->step, SIGKILL);
    } else if (waited >= end_ms) {
        agent_step_kill(f->step, SIGTERM);
    }
    return false;
}

static void finish_if_done(struct front *f)
{
    uint64_t waited = now_ms(f) - f->over_ms;

    if (f->phase != OVER || (f->lead && waited < LEAD_END_MS)) {
        return;
    }
    if (mpirun_is_gone(f, waited) && step_is_gone(f, waited)) {
        uv_stop(&f->loop);
    }
}

/* --- requests --- */

static void send_request(struct front *f, const char *op, bool force)
{
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", "request");
    jsonw_str(&w, "op", op);
    jsonw_bool(&w, "force", force);
    jsonw_end_object(&w);
    if (f->lead) {
        link_send_buf(f->lead, TREE_REQUEST, &b);
    }
}

/* The first signal asks, the second forces, the third lets go. */
static void on_signal(uv_signal_t *s, int sig)
{
    struct front *f = s->data;
    bool cancel = sig == SIGINT || sig == SIGQUIT;
    bool is_notice = sig == SIGUSR1 || sig == SIGUSR2;

    /* Batch systems send these ahead of time, and may do so again and again. */
    if (is_notice && (f->phase == OVER || f->n_signals)) {
        return;
    }
    f->n_signals++;
    if (f->phase == OVER) {
        f->lets_go = true;
        return;
    }
    if (f->phase == STARTING || f->n_signals > 2) {
        settle(f, cancel ? EXIT_CANCELLED : EXIT_RESUMABLE,
               f->phase == STARTING ? "stopped before the run began"
                                    : "left alone by a third signal");
        link_close(f->lead);
        f->lead = NULL;
        f->over_ms = now_ms(f) - MPIRUN_END_MS; /* do not wait */
        return;
    }
    screen_note(f->screen, is_notice
              ? "%s: asking the workers to stop"
              : f->n_signals == 1
              ? "%s: asking the workers to stop (once more: kill them)"
              : "%s again: killing the workers", child_signal_name(sig));
    send_request(f, cancel ? "cancel" : "preempt", f->n_signals > 1);
}

static int on_control(void *arg, const char *op, const json_t *body,
                      struct jsonw *reply, struct error *e)
{
    struct front *f = arg;

    if (f->phase == OVER) {
        jsonw_str(reply, "text", "the run has ended");
        return 0;
    }
    if (!f->lead) {
        return error_text(e, EAGAIN, f->phase == STARTING
                          ? "the run is only being put together"
                          : "the lead is not to be reached just now");
    }
    send_request(f, op, json_is_true(json_object_get(body, "force")));
    jsonw_str(reply, "text", "passed on to the lead");
    return 0;
}

/* --- the lead --- */

/* No more than a bounded amount of output is taken that nobody reads, a pager
 * or a stopped terminal: the workers wait then, as they would on a pipe of their
 * own. What is left at the end is bounded by what agents hold. */
static void give_credit(struct front *f)
{
    _buf_ struct buf b = {0};

    if (!f->lead || !f->n_owed ||
        (f->phase != OVER && writer_pending(f->writer) > MAX_UNREAD_BYTES)) {
        return;
    }
    wire_put_u32(&b, (uint32_t)f->n_owed);
    link_send_buf(f->lead, TREE_CREDIT, &b);
    f->n_owed = 0;
}

static void on_room(void *arg)
{
    give_credit(arg);
}

static void tell_unread(struct front *f)
{
    int error = writer_error(f->writer, 1);

    if (error && !f->told_unread) {
        f->told_unread = true;
        screen_note(f->screen, "standard output: %s; the run goes on, and what "
                    "workers print is in %s/logs", strerror(error),
                    f->config->dir->path);
    }
}

static void take_output(struct front *f, const struct channel_frame *frame)
{
    struct tree_output o;

    if (tree_output_decode(frame->data, frame->len, &o) == 0) {
        screen_output(f->screen, &o);
    }
    f->n_owed += frame->len;
    give_credit(f);
}

static void take_status(struct front *f, const struct channel_frame *frame)
{
    const struct run_status *s = screen_status(f->screen, frame->data, frame->len);

    for (size_t i = 0; s && i < s->n_nodes; i++) {
        f->lost_node |= s->nodes[i].state == STATUS_NODE_LOST;
    }
    if (s && s->verdict.is_set) {
        f->in_order = true;
        settle(f, s->verdict.exit_status, s->verdict.reason);
    }
}

/* Open MPI 4.1 does not end when one of its daemons dies, and 5.0 not at once:
 * a world that a node has lost is of no use to anybody. */
static void take_event(struct front *f, const struct channel_frame *frame)
{
    json_t *o = json_loadb((const char *)frame->data, frame->len, 0, NULL);
    const char *event = json_string_value(json_object_get(o, "event"));
    json_int_t epoch = json_integer_value(json_object_get(o, "epoch"));

    if (event && strcmp(event, "mpi_lost") == 0 && !f->end_mpirun_at_ms &&
        (uint64_t)epoch == f->epoch && f->mpirun_pid > 0) {
        f->end_mpirun_at_ms = now_ms(f) + LOST_WORLD_MS;
    }
    screen_event(f->screen, o);
    json_decref(o);
}

static void on_frame(struct link *l, const struct channel_frame *frame,
                     void *ctx)
{
    struct front *f = ctx;

    (void)l;
    f->heard_ms = now_ms(f);
    switch (frame->type) {
    case TREE_OUTPUT:
        take_output(f, frame);
        break;
    case TREE_STATUS:
        take_status(f, frame);
        break;
    case TREE_EVENT:
        take_event(f, frame);
        break;
    default:
        break;
    }
}

static void on_down(struct link *l, bool closed, const struct error *why,
                    void *ctx)
{
    struct front *f = ctx;

    (void)closed;
    f->lead = NULL;
    f->lead_gone_ms = now_ms(f);
    if (f->phase == OVER) {
        f->over_ms = now_ms(f);
    } else {
        str_copy(f->reason, sizeof(f->reason), why->text);
    }
    link_close(l); /* `why` is the link's */
    finish_if_done(f);
}

static const struct link_ops lead_ops = {
    .on_frame = on_frame,
    .on_down = on_down,
};

static void refuse_version(struct front *f, const char *version)
{
    char text[TREE_ID_BYTES + 128];

    snprintf(text, sizeof(text), "the lead's host has muster %s, and this one "
             "%s: install the same one on all hosts", version,
             PACKAGE_VERSION);
    settle(f, EXIT_NOT_GATHERED, text);
}

static void on_peer(struct link *l, const struct channel_frame *first,
                    void *ctx)
{
    struct front *f = ctx;
    struct tree_hello h;
    _buf_ struct buf welcome = {0};

    if (first->type != TREE_HELLO ||
        tree_hello_decode(first->data, first->len, &h, NULL) < 0 ||
        strcmp(h.run_id, f->config->dir->id) != 0 || h.rank != 0) {
        link_close(l);
        return;
    }
    if (strcmp(h.version, PACKAGE_VERSION) != 0) {
        link_close(l);
        refuse_version(f, h.version);
        return;
    }
    if (f->lead) {
        link_close(f->lead); /* it has come back before we saw it go */
    }
    f->lead = l;
    f->began = true;
    f->n_owed = 0;
    f->heard_ms = now_ms(f);
    f->lead_gone_ms = 0;
    link_adopt(l, &lead_ops, f);
    wire_put_u32(&welcome, 0);
    link_send_buf(l, TREE_WELCOME, &welcome);
    link_send_buf(l, TREE_CONFIG, &f->run_bytes);
    if (f->phase == STARTING) {
        f->phase = RUNNING;
    } else if (f->phase == OVER) {
        send_request(f, "preempt", true); /* given up for lost, and said so */
    }
}

/* --- mpirun --- */

static void screen_log_tail(struct front *f)
{
    _free_ char *text = NULL;
    size_t len;

    if (fs_read(f->log_path, 64 << 20, &text, &len, NULL) == 0 && len) {
        screen_block(f->screen, "the end of mpirun.log",
                   len > LOG_TAIL_BYTES ? text + len - LOG_TAIL_BYTES : text);
    }
}

static void on_mpirun_exit(void *arg, const struct child_exit *how)
{
    struct front *f = arg;

    f->mpirun_pid = -1;
    f->end_mpirun_at_ms = 0;
    if (f->phase == OVER) {
        finish_if_done(f);
        return;
    }
    if (f->phase == STARTING) {
        screen_log_tail(f);
        settle(f, EXIT_NOT_GATHERED, "mpirun could not start muster on all "
               "hosts");
        finish_if_done(f);
        return;
    }
    if (now_ms(f) - f->mpirun_at_ms > LASTING_MS) {
        f->n_repeats = 0;
    }
    if (f->config->plan.n_agents > 1 && f->n_repeats < MAX_REPEATS &&
        !agent_step_is_over(f->step)) {
        screen_note(f->screen, "mpirun ended (%s %d); the workers go on, and a new "
                  "MPI world is made", how->signal ? "signal" : "status",
                  how->signal ? how->signal : how->code);
        f->n_repeats++;
        f->repeat_at_ms = now_ms(f) + REPEAT_MS;
    }
}

static int open_log(struct front *f, struct error *e)
{
    int fd = open(f->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                  0600);

    return fd < 0 ? error_set(e, errno, "open %s", f->log_path) : fd;
}

static int front_address(const struct front *f, struct buf *to,
                         struct error *e)
{
    _strlist_ struct strlist addrs = {0};
    int rc = addr_local(f->config->loopback, &addrs, e);

    for (size_t i = 0; rc == 0 && i < addrs.n; i++) {
        buf_printf(to, "%s%s", i ? "," : "", addrs.items[i]);
    }
    buf_printf(to, ":%u", link_listener_port(f->listener));
    return rc;
}

/* In a session of its own: Ctrl-C and the batch system's signals are for us. */
static int start_mpirun(struct front *f, struct error *e)
{
    struct mpirun_plan plan = f->config->plan;
    _buf_ struct buf front = {0};
    _strlist_ struct strlist argv = {0};
    _close_ int log = open_log(f, e);
    struct child_spec spec = {.path = f->config->mpirun->path,
                              .envp = environ, .stdio = {-1, log, log},
                              .new_session = true};
    _strlist_ struct strlist env = {0};
    int rc = log < 0 ? log : front_address(f, &front, e);

    if (rc < 0) {
        return rc;
    }
    plan.front = buf_str(&front);
    plan.epoch = ++f->epoch;
    plan.is_kept = f->is_kept;
    mpirun_argv(f->config->mpirun, &plan, &argv);
    if (f->config->own_step) {
        slurm_mpirun_env(environ, plan.agents_per_host, &env);
        spec.envp = env.items;
    }
    if (argv.failed || front.failed || env.failed) {
        return error_set(e, ENOMEM, "start mpirun");
    }
    spec.argv = argv.items;
    f->mpirun_at_ms = now_ms(f);
    return child_spawn(f->children, &spec, on_mpirun_exit, f, &f->mpirun_pid,
                       e);
}

/* --- the step of the agents --- */

static void begin(struct front *f)
{
    struct error e = {0};

    if (f->phase == STARTING && start_mpirun(f, &e) < 0) {
        settle(f, EXIT_FAILED, e.text);
    }
}

static void on_step_up(void *arg, const char *why_not)
{
    struct front *f = arg;

    f->is_kept = !why_not;
    if (why_not && f->phase == STARTING) {
        screen_note(f->screen, "the agents get no step of their own, and will "
                    "end with that of mpirun: %s", why_not);
    }
    begin(f);
}

static void on_step_end(void *arg)
{
    finish_if_done(arg);
}

static int start_step(struct front *f, struct error *e)
{
    const struct front_config *c = f->config;
    int rc = fs_path(f->step_log, sizeof(f->step_log), e, "%s/agents.log",
                     c->dir->path);

    if (rc < 0) {
        return rc;
    }
    f->step_config = (struct agent_step_config){
        .loop = &f->loop,
        .children = f->children,
        .hosts = c->plan.hosts,
        .run_id = c->dir->id,
        .log_path = f->step_log,
        .wait_seconds = c->plan.gather_seconds,
        .on_up = on_step_up,
        .on_end = on_step_end,
        .arg = f,
    };
    if (agent_step_create(&f->step_config, &f->step, e) < 0) {
        on_step_up(f, e->text);
    }
    return 0;
}

/* --- time --- */

static void send_beat(struct front *f)
{
    _buf_ struct buf b = {0};

    wire_put_u64(&b, 0);
    link_send_buf(f->lead, TREE_BEAT, &b);
}

/* A lead whose connection lives, but that says nothing: its process is stopped,
 * or its host. Silence while this process was stopped itself tells nothing. */
static void check_silence(struct front *f, uint64_t lease_ms)
{
    if (now_ms(f) - f->ticked_ms > PULSE_MS / 2) {
        f->heard_ms = now_ms(f);
    }
    f->ticked_ms = now_ms(f);
    if (f->lead && now_ms(f) - f->heard_ms > PULSE_MS + lease_ms) {
        link_close(f->lead);
        f->lead = NULL;
        f->lead_gone_ms = now_ms(f);
        snprintf(f->reason, sizeof(f->reason), "it has said nothing for %llu s; "
                 "workers that still run there end with it, or by muster "
                 "cancel",
                 (unsigned long long)(PULSE_MS + lease_ms) / 1000);
    }
}

/* The lead may have ended in order while nobody here could hear it. */
static bool settle_from_record(struct front *f)
{
    _run_view_ struct run_view v = {0};

    if (run_view_open(f->config->dir->path, &v, NULL) < 0 ||
        !v.status->verdict.is_set || v.status->started_ns < f->started_wall_ns) {
        return false;
    }
    settle(f, v.status->verdict.exit_status, v.status->verdict.reason);
    return true;
}

static void give_up_lead(struct front *f)
{
    char text[1200];

    if (!settle_from_record(f)) {
        snprintf(text, sizeof(text), "the lead is lost: %s",
                 agent_step_is_over(f->step) ? "Slurm has ended the step of the "
                                               "agents" : f->reason);
        settle(f, EXIT_RESUMABLE, text);
    }
}

static void check_lead(struct front *f)
{
    const struct job *job = f->config->run->job;
    uint64_t lease_ms = job->heartbeat_timeout_ms;

    check_silence(f, lease_ms);
    if (f->phase == STARTING &&
        now_ms(f) - f->started_ms > job->gang_timeout_ms) {
        screen_log_tail(f);
        settle(f, EXIT_NOT_GATHERED, "the nodes did not gather in time "
               "(gang.timeout)");
    }
    if (f->phase == STARTING && !f->config->mpirun &&
        getppid() != f->starter) {
        settle(f, EXIT_NOT_GATHERED, "mpirun ended before the run began");
    }
    if (f->phase == RUNNING && f->lead_gone_ms &&
        (agent_step_is_over(f->step) ||
         now_ms(f) - f->lead_gone_ms >
             (lease_ms > COME_BACK_MS ? lease_ms : COME_BACK_MS))) {
        give_up_lead(f);
    }
}

/* SIGTERM first, then SIGKILL with the orteds left to find out. */
static void end_wedged_mpirun(struct front *f)
{
    uint64_t now = now_ms(f);

    if (!f->end_mpirun_at_ms || now < f->end_mpirun_at_ms ||
        f->mpirun_pid <= 0) {
        return;
    }
    child_kill(f->children, f->mpirun_pid,
               now < f->end_mpirun_at_ms + MPIRUN_KILL_MS ? SIGTERM : SIGKILL);
}

static void on_tick(uv_timer_t *t)
{
    struct front *f = t->data;
    struct error e = {0};

    if (f->is_ending) {
        return;
    }
    if (!writer_pending(f->writer)) {
        screen_progress(f->screen, now_ms(f) - f->started_ms, now_ms(f));
    }
    tell_unread(f);
    give_credit(f);
    if (f->lead && ++f->n_ticks % BEAT_TICKS == 0) {
        send_beat(f);
    }
    check_lead(f);
    end_wedged_mpirun(f);
    if (f->repeat_at_ms && now_ms(f) >= f->repeat_at_ms) {
        f->repeat_at_ms = 0;
        if (start_mpirun(f, &e) < 0) {
            screen_note(f->screen, "mpirun cannot be run again: %s", e.text);
        }
    }
    finish_if_done(f);
}

/* --- life --- */

static void take_signals(struct front *f)
{
    static const int sigs[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1,
                               SIGUSR2};

    for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
        uv_signal_init(&f->loop, &f->signals[i]);
        f->signals[i].data = f;
        /* By hand they are mpirun's to act on. */
        if (f->config->mpirun) {
            uv_signal_start(&f->signals[i], on_signal, sigs[i]);
        } else {
            signal(sigs[i], SIG_IGN);
        }
    }
}

static int encode_run(struct front *f, struct error *e)
{
    run_config_encode(f->config->run, &f->run_bytes);
    if (f->run_bytes.failed) {
        return error_set(e, ENOMEM, "describe the run");
    }
    if (f->run_bytes.len > MAX_RUN_BYTES) {
        return error_text(e, E2BIG, "the job and this environment are %zu "
                          "bytes together, and all nodes get them: the limit "
                          "is %d", f->run_bytes.len, MAX_RUN_BYTES);
    }
    return 0;
}

static int open_front(struct front *f, struct error *e)
{
    const struct front_config *c = f->config;
    uint16_t port;
    int rc;

    if ((rc = encode_run(f, e)) < 0 ||
        (rc = fs_path(f->log_path, sizeof(f->log_path), e, "%s/mpirun.log",
                      c->dir->path)) < 0 ||
        (rc = child_table_create(&f->loop, &f->children, e)) < 0 ||
        (rc = writer_create(&f->loop, on_room, f, &f->writer, e)) < 0 ||
        (rc = screen_create(c, f->writer, &f->screen, e)) < 0 ||
        (rc = link_listen(&f->loop, c->loopback, &f->listener, e)) < 0) {
        return rc;
    }
    link_listener_open(f->listener, c->key, on_peer, f);
    port = link_listener_port(f->listener);
    if (!c->mpirun) {
        return write(c->port_fd, &port, sizeof(port)) == sizeof(port)
                   ? 0 : error_set(e, errno, "tell the port");
    }
    if (control_server_create(&f->loop, c->dir->id, "front", on_control, f,
                              &f->control, e) < 0) {
        screen_note(f->screen, "commands cannot reach this front end: %s",
                  e->text);
    }
    return c->own_step ? start_step(f, e) : start_mpirun(f, e);
}

static void close_front(struct front *f)
{
    screen_destroy(f->screen);
    writer_destroy(f->writer);
    link_close(f->lead);
    link_listener_close(f->listener);
    control_server_destroy(f->control);
    agent_step_destroy(f->step);
    child_table_destroy(f->children);
    uv_close((uv_handle_t *)&f->tick, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(f->signals); i++) {
        uv_close((uv_handle_t *)&f->signals[i], NULL);
    }
    uv_run(&f->loop, UV_RUN_DEFAULT);
    uv_loop_close(&f->loop);
    buf_release(&f->run_bytes);
}

/* Until everything is read, or a signal says that it will not be. */
static void drain_output(struct front *f)
{
    f->is_ending = true;
    while (writer_pending(f->writer) && !f->lets_go) {
        uv_run(&f->loop, UV_RUN_ONCE);
    }
}

static void say_end(struct front *f)
{
    drain_output(f);
    tell_unread(f);
    screen_end(f->screen, f->status, f->reason, now_ms(f) - f->started_ms);
    drain_output(f);
}

int front_run(const struct front_config *config)
{
    struct front f = {.config = config, .mpirun_pid = -1,
                      .starter = getppid()};
    struct error e = {0};
    int rc;

    uv_loop_init(&f.loop);
    f.started_ms = now_ms(&f);
    f.started_wall_ns = clock_wall_ns();
    uv_timer_init(&f.loop, &f.tick);
    f.tick.data = &f;
    take_signals(&f);
    rc = open_front(&f, &e);
    if (rc == 0) {
        uv_timer_start(&f.tick, on_tick, TICK_MS, TICK_MS);
        uv_run(&f.loop, UV_RUN_DEFAULT);
    } else {
        settle(&f, EXIT_FAILED, e.text);
    }
    if (f.screen) {
        say_end(&f);
    } else {
        fprintf(stderr, "muster: %s\n", e.text);
    }
    close_front(&f);
    return f.status;
}
