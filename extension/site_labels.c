/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site-labels: labels of processes by a table of the site. Setting `file`: CSV, read again when it
 * changes. Its first line has names: first that of a label of nccl_rank_info, such as hostname or
 * nccl_job, then those of the labels that it gives. Fields have no quotes and no commas.
 *
 *   nccl_job,team,cost_center
 *   4711,speech,c17
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nccl_exporter_extension.h"

#define MOST_COLUMNS 9 /* the key and eight labels */
#define MOST_BYTES (16l << 20)

struct row {
  char* fields[MOST_COLUMNS]; /* in the text; NULL where the row ends before */
};

struct table {
  char* text;
  struct row* rows; /* the first has the names, the others are sorted by the key */
  size_t count;
  size_t columns;
};

struct site_labels {
  const nccl_ext_host* host;
  const char* file;
  struct timespec modified;
  struct table table;
};

static void free_table(struct table* table) {
  free(table->text);
  free(table->rows);
  *table = (struct table){0};
}

static int compare(const void* one, const void* other) {
  return strcmp(((const struct row*)one)->fields[0], ((const struct row*)other)->fields[0]);
}

/* Takes a line apart in its place. */
static size_t split(char* line, struct row* row) {
  size_t columns = 0;
  for (char* field = line; field != NULL && columns < MOST_COLUMNS;) {
    char* const comma = strchr(field, ',');
    if (comma != NULL) *comma = '\0';
    row->fields[columns++] = field;
    field = comma == NULL ? NULL : comma + 1;
  }
  return columns;
}

/* 0 if there is no such file, no memory, too much text, or no line with two names. */
static int read_table(const char* path, struct table* table) {
  FILE* const file = fopen(path, "re");
  if (file == NULL) return 0;
  *table = (struct table){0};
  table->text = malloc(MOST_BYTES + 1);
  const size_t bytes = table->text == NULL ? 0 : fread(table->text, 1, MOST_BYTES, file);
  fclose(file);
  if (bytes == 0 || bytes == MOST_BYTES) return free_table(table), 0;
  table->text[bytes] = '\0';
  size_t lines = 1;
  for (const char* at = table->text; (at = strchr(at, '\n')) != NULL; ++at) ++lines;
  table->rows = calloc(lines, sizeof *table->rows);
  if (table->rows == NULL) return free_table(table), 0;
  char* rest = table->text;
  for (char* line; (line = strtok_r(rest, "\r\n", &rest)) != NULL;) {
    const size_t columns = split(line, &table->rows[table->count]);
    if (table->count++ == 0) table->columns = columns;
  }
  if (table->count == 0 || table->columns < 2) return free_table(table), 0;
  qsort(table->rows + 1, table->count - 1, sizeof *table->rows, compare);
  return 1;
}

static void reload(struct site_labels* self) {
  struct stat status;
  if (stat(self->file, &status) != 0) return; /* what was read before stays */
  if (status.st_mtim.tv_sec == self->modified.tv_sec &&
      status.st_mtim.tv_nsec == self->modified.tv_nsec)
    return;
  self->modified = status.st_mtim;
  struct table table;
  if (!read_table(self->file, &table)) {
    self->host->log(self->host->data, 1,
                    "the table is empty, too long or cannot be read; the last one stays");
    return;
  }
  free_table(&self->table);
  self->table = table;
}

/* The row of a process, or NULL. */
static const struct row* row_of(const struct site_labels* self, const nccl_ext_snapshot* snapshot,
                                size_t process) {
  if (self->table.count < 2) return NULL;
  const char* const key =
      self->host->process_label(snapshot, process, self->table.rows[0].fields[0]);
  if (key == NULL) return NULL;
  const struct row wanted = {.fields = {(char*)key}};
  return bsearch(&wanted, self->table.rows + 1, self->table.count - 1, sizeof wanted, compare);
}

static nccl_ext_status create(const nccl_ext_host* host, void** out) {
  const char* const file = host->config(host->data, "file");
  if (file == NULL) {
    host->log(host->data, 1, "set site-labels.file=PATH");
    return NCCL_EXT_BAD_CONFIG;
  }
  struct site_labels* const self = calloc(1, sizeof *self);
  if (self == NULL) return NCCL_EXT_FAILED;
  self->host = host;
  self->file = file;
  *out = self;
  return NCCL_EXT_OK;
}

static nccl_ext_status partition(void* self, const nccl_ext_snapshot* snapshot,
                                 nccl_ext_claims* claims) {
  struct site_labels* const site = self;
  reload(site);
  for (size_t i = 0; i < site->host->processes(snapshot); ++i) {
    if (row_of(site, snapshot, i) == NULL) continue;
    for (size_t column = 1; column < site->table.columns; ++column)
      site->host->claim_label(claims, i, site->table.rows[0].fields[column]);
  }
  return NCCL_EXT_OK;
}

static nccl_ext_status compile(void* self, const nccl_ext_snapshot* snapshot,
                               nccl_ext_output* output) {
  const struct site_labels* const site = self;
  for (size_t i = 0; i < site->host->processes(snapshot); ++i) {
    const struct row* const row = row_of(site, snapshot, i);
    for (size_t column = 1; row != NULL && column < site->table.columns; ++column) {
      const char* const value = row->fields[column];
      if (value != NULL && *value != '\0')
        site->host->set_label(output, i, site->table.rows[0].fields[column], value);
    }
  }
  return NCCL_EXT_OK;
}

static void destroy(void* self) {
  if (self == NULL) return;
  free_table(&((struct site_labels*)self)->table);
  free(self);
}

const nccl_ext_extension NCCL_EXT_OBJECT = {
    .struct_size = sizeof(nccl_ext_extension),
    .abi_major = NCCL_EXT_ABI_MAJOR,
    .capabilities = NCCL_EXT_LABELS,
    .name = "site-labels",
    .version = "1.0",
    .create = create,
    .partition = partition,
    .compile = compile,
    .destroy = destroy,
};
