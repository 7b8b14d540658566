/* SPDX-License-Identifier: Apache-2.0 */
/* The XML of an object store's answers: elements, one after the other, with the
 * text in them. Attributes, and what no S3 has (a DOCTYPE, elements nested too
 * deep, texts too long), are not for us: the latter make it damaged. */
#ifndef MUSTER_CKPT_S3_XML_H
#define MUSTER_CKPT_S3_XML_H

#include "base/error.h"

#include <stddef.h>

/* Told at the end of each element: its path ("ListBucketResult/Contents/Key") and
 * the text in it since its last child. Less than 0 stops. */
typedef int s3_xml_f(void *arg, const char *path, const char *text);

/* 0, what `each` stopped with, -ERR_FORMAT, -ENOMEM. */
int s3_xml_walk(const void *data, size_t len, s3_xml_f *each, void *arg,
                struct error *e);

#endif
