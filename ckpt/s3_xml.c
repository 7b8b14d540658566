/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/s3_xml.h"

#include "base/buf.h"

#include <errno.h>
#include <expat.h>
#include <stdbool.h>
#include <string.h>

#define MAX_PATH_BYTES 512
#define MAX_TEXT_BYTES 16384

struct walk {
    XML_Parser parser;
    struct buf path, text;
    s3_xml_f *each;
    void *arg;
    int rc;
    const char *what; /* is wrong with it */
};

static void stop(struct walk *w, int rc, const char *what)
{
    w->rc = w->rc < 0 ? w->rc : rc;
    w->what = w->what ? w->what : what;
    XML_StopParser(w->parser, XML_FALSE);
}

static void begin(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct walk *w = arg;

    (void)attributes;
    if (w->path.len + strlen(name) > MAX_PATH_BYTES) {
        stop(w, -ERR_FORMAT, "elements are nested too deep");
        return;
    }
    if (w->path.len) {
        buf_putc(&w->path, '/');
    }
    buf_puts(&w->path, name);
    buf_clear(&w->text);
}

static void end(void *arg, const XML_Char *name)
{
    struct walk *w = arg;
    size_t n = strlen(name);
    int rc;

    if (w->path.failed || w->text.failed) {
        stop(w, -ENOMEM, NULL);
        return;
    }
    rc = w->each(w->arg, buf_str(&w->path), buf_str(&w->text));
    if (rc < 0) {
        stop(w, rc, NULL);
    }
    w->path.len -= n;
    w->path.len -= w->path.len > 0;
    w->path.data[w->path.len] = '\0';
    buf_clear(&w->text);
}

static void add_text(void *arg, const XML_Char *text, int len)
{
    struct walk *w = arg;

    if (w->text.len + (size_t)len > MAX_TEXT_BYTES) {
        stop(w, -ERR_FORMAT, "a text is too long");
        return;
    }
    buf_append(&w->text, text, (size_t)len);
}

/* Entities of its own could make a small answer large. */
static void refuse(void *arg, const XML_Char *name, const XML_Char *system,
                   const XML_Char *public, int has_internal)
{
    (void)name;
    (void)system;
    (void)public;
    (void)has_internal;
    stop(arg, -ERR_FORMAT, "it has a DOCTYPE");
}

static int run(struct walk *w, const void *data, size_t len, struct error *e)
{
    enum XML_Status status;

    XML_SetUserData(w->parser, w);
    XML_SetElementHandler(w->parser, begin, end);
    XML_SetCharacterDataHandler(w->parser, add_text);
    XML_SetStartDoctypeDeclHandler(w->parser, refuse);
    status = XML_Parse(w->parser, data, (int)len, XML_TRUE);
    if (w->rc == 0 && status != XML_STATUS_OK) {
        w->rc = XML_GetErrorCode(w->parser) == XML_ERROR_NO_MEMORY ? -ENOMEM
                                                                : -ERR_FORMAT;
        w->what = XML_ErrorString(XML_GetErrorCode(w->parser));
    }
    if (w->what) {
        return error_text(e, -w->rc, "an answer of %zu bytes is no XML that an "
                          "object store gives: %s", len, w->what);
    }
    return w->rc;
}

int s3_xml_walk(const void *data, size_t len, s3_xml_f *each, void *arg,
                struct error *e)
{
    struct walk w = {.each = each, .arg = arg};
    int rc;

    if (len > (64u << 20)) {
        return error_text(e, ERR_FORMAT, "an answer of %zu bytes: expected a few "
                          "MiB at most", len);
    }
    w.parser = XML_ParserCreate(NULL);
    if (!w.parser) {
        return error_set(e, ENOMEM, "read an answer");
    }
    rc = run(&w, data, len, e);
    XML_ParserFree(w.parser);
    buf_release(&w.path);
    buf_release(&w.text);
    return rc;
}
