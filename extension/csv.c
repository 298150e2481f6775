/* SPDX-License-Identifier: Apache-2.0 */
/*
 * csv: counters and gauges of the daemon as lines of CSV, a file an hour: time, family, value and
 * labels, "name=value" with ";" between; ";" and "\" of a value have "\" before them. Setting
 * `families`: names or beginnings, separated by commas; without it those of collectives and sends.
 * Files are nccl-YYYY-MM-DD-HH.csv, by UTC.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_exporter_extension.h"

#define MOST_LINE 8192
#define MOST_LINES 65536

struct csv {
  const nccl_ext_host* host;
  const char* families;
  size_t used;
  char lines[MOST_LINES]; /* that are not appended yet */
};

static nccl_ext_status create(const nccl_ext_host* host, void** self) {
  struct csv* const csv = malloc(sizeof *csv);
  if (csv == NULL) return NCCL_EXT_FAILED;
  csv->host = host;
  csv->families = host->config(host->data, "families");
  if (csv->families == NULL) csv->families = "nccl_collective_,nccl_p2p_";
  *self = csv;
  return NCCL_EXT_OK;
}

static nccl_ext_status partition(void* self, const nccl_ext_snapshot* snapshot,
                                 nccl_ext_claims* claims) {
  (void)self, (void)snapshot, (void)claims;
  return NCCL_EXT_OK;
}

static int is_wanted(const struct csv* csv, const char* family) {
  for (const char* at = csv->families; *at != '\0';) {
    const size_t length = strcspn(at, ",");
    if (length != 0 && strncmp(family, at, length) == 0) return 1;
    at += length + (at[length] == ',');
  }
  return 0;
}

/* Appends a field in quotes, with its own doubled. The end of a line that is full is cut. */
static size_t put(char* line, size_t size, const char* text) {
  if (size + 2 < MOST_LINE) line[size++] = '"';
  for (; *text != '\0' && size + 3 < MOST_LINE; ++text) {
    if (*text == '"') line[size++] = '"';
    line[size++] = *text == '\n' || *text == '\r' ? ' ' : *text;
  }
  if (size + 1 < MOST_LINE) line[size++] = '"';
  return size;
}

/* Appends a label's value that ends before `size`. Returns its end, or 0 where it has no room. */
static size_t escape(char* labels, size_t used, size_t size, const char* value) {
  for (; *value != '\0'; ++value) {
    if (used + 2 >= size) return 0;
    if (*value == ';' || *value == '\\') labels[used++] = '\\';
    labels[used++] = *value;
  }
  return used;
}

static nccl_ext_status flush(struct csv* csv, const char* file, nccl_ext_output* output) {
  const size_t size = csv->used;
  csv->used = 0;
  return size == 0 ? NCCL_EXT_OK : csv->host->append(output, file, csv->lines, size);
}

static nccl_ext_status write_sample(struct csv* csv, const nccl_ext_snapshot* snapshot,
                                    size_t family, size_t sample, const char* file,
                                    nccl_ext_output* output) {
  const nccl_ext_host* const host = csv->host;
  if (MOST_LINES - csv->used < MOST_LINE + 2 && flush(csv, file, output) != NCCL_EXT_OK)
    return NCCL_EXT_FAILED;
  char* const line = csv->lines + csv->used;
  const int head = snprintf(
      line, MOST_LINE / 2, "%lld,%s,%.17g,", (long long)(host->time_ns(snapshot) / 1000000),
      host->family_name(snapshot, family), host->sample_value(snapshot, family, sample));
  if (head < 0 || head >= MOST_LINE / 2) return NCCL_EXT_FAILED;
  char labels[MOST_LINE / 2];
  size_t used = 0;
  for (size_t i = 0; i < host->sample_labels(snapshot, family, sample); ++i) {
    const int name = snprintf(labels + used, sizeof labels - used, "%s%s=", i == 0 ? "" : ";",
                              host->sample_label_name(snapshot, family, sample, i));
    if (name < 0 || (size_t)name >= sizeof labels - used) break;
    const size_t end = escape(labels, used + (size_t)name, sizeof labels,
                              host->sample_label_value(snapshot, family, sample, i));
    if (end == 0) break;
    used = end;
  }
  labels[used] = '\0';
  const size_t size = put(line, (size_t)head, labels);
  line[size] = '\n';
  csv->used += size + 1;
  return NCCL_EXT_OK;
}

static nccl_ext_status compile(void* self, const nccl_ext_snapshot* snapshot,
                               nccl_ext_output* output) {
  struct csv* const csv = self;
  csv->used = 0;
  const time_t seconds = (time_t)(csv->host->time_ns(snapshot) / 1000000000);
  struct tm utc;
  char file[40];
  if (gmtime_r(&seconds, &utc) == NULL ||
      strftime(file, sizeof file, "nccl-%Y-%m-%d-%H.csv", &utc) == 0)
    return NCCL_EXT_FAILED;
  for (size_t family = 0; family < csv->host->families(snapshot); ++family) {
    if (csv->host->family_type(snapshot, family) == NCCL_EXT_HISTOGRAM ||
        !is_wanted(csv, csv->host->family_name(snapshot, family)))
      continue;
    for (size_t sample = 0; sample < csv->host->samples(snapshot, family); ++sample) {
      if (write_sample(csv, snapshot, family, sample, file, output) != NCCL_EXT_OK)
        return NCCL_EXT_FAILED;
    }
  }
  return flush(csv, file, output);
}

static void destroy(void* self) { free(self); }

const nccl_ext_extension NCCL_EXT_OBJECT = {
    .struct_size = sizeof(nccl_ext_extension),
    .abi_major = NCCL_EXT_ABI_MAJOR,
    .capabilities = NCCL_EXT_SINK,
    .name = "csv",
    .version = "1.0",
    .create = create,
    .partition = partition,
    .compile = compile,
    .destroy = destroy,
};
