/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site-labels: labels of processes by a table of the site. Setting `file`: CSV, read again when it
 * changes. Its first line has names: first that of a label of nccl_rank_info, such as hostname or
 * nccl_job, then those of the labels that it gives. Each other line has as many fields and another
 * key; an empty field gives no label. Quotes are those of RFC 4180, without line breaks. A table
 * that is wrong is refused whole.
 *
 *   nccl_job,team,cost_center
 *   4711,"speech, audio",c17
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nccl_exporter_extension.h"

#define MOST_COLUMNS 9 /* the key and eight labels */
#define MOST_BYTES (16l << 20)
#define NAME "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

struct row {
  char* fields[MOST_COLUMNS]; /* in the text */
  size_t line;
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
  long long seen[5]; /* signs of a change: error, inode, bytes and time of change */
  int is_key_known;  /* a process has the label of the key, or it is logged that none has it */
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

/* Takes a line apart in its place. Returns its fault, or NULL. */
static const char* split(char* in, struct row* row, size_t* columns) {
  char end = ',';
  for (*columns = 0; end == ','; ++*columns) {
    if (*columns == MOST_COLUMNS) return "more than 9 fields";
    char* out = row->fields[*columns] = in;
    if (*in != '"') {
      out = in += strcspn(in, ",\"");
    } else {
      do {
        for (++in; *in != '"' && *in != '\0';) *out++ = *in++;
        if (*in++ == '\0') return "a quote without its end";
        if (*in == '"') *out++ = '"'; /* two are one of the text */
      } while (*in == '"');
    }
    end = *in++;
    if (end != ',' && end != '\0') return "a quote in the middle of a field";
    *out = '\0';
  }
  return NULL;
}

/* The fault of a row with this many fields, or NULL. */
static const char* fault_of(const struct table* table, const struct row* row, size_t columns) {
  if (row != table->rows)
    return columns != table->columns ? "another number of fields than in the first line"
           : *row->fields[0] == '\0' ? "no key"
                                     : NULL;
  for (size_t i = 0; i < columns; ++i) {
    const char* const name = row->fields[i];
    if (*name <= '9' || name[strspn(name, NAME)] != '\0') return "a field that is no label's name";
    for (size_t j = 0; j < i; ++j)
      if (strcmp(name, row->fields[j]) == 0) return "a name for the second time";
  }
  return columns < 2 ? "fewer than two names" : NULL;
}

/* Takes the text apart in its place. Returns its fault and the line, or NULL. */
static const char* parse(struct table* table, size_t* line) {
  for (char *at = table->text, *next; *at != '\0'; at = next) {
    next = at + strcspn(at, "\n");
    if (next > at && next[-1] == '\r') next[-1] = '\0';
    if (*next == '\n') *next++ = '\0';
    ++*line;
    if (*at == '\0') continue;
    struct row* const row = &table->rows[table->count];
    row->line = *line;
    size_t columns;
    const char* fault = split(at, row, &columns);
    if (fault == NULL) fault = fault_of(table, row, columns);
    if (fault != NULL) return fault;
    if (table->count++ == 0) table->columns = columns;
  }
  *line = 0;
  if (table->count == 0) return "is empty";
  qsort(table->rows + 1, table->count - 1, sizeof *table->rows, compare);
  for (size_t i = 2; i < table->count; ++i) {
    const struct row *const one = &table->rows[i - 1], *const other = &table->rows[i];
    *line = one->line > other->line ? one->line : other->line;
    if (compare(one, other) == 0) return "a key for the second time";
  }
  return NULL;
}

/* Returns the fault of the file and the line, 0 for all of it, or NULL. */
static const char* read_table(FILE* file, struct table* table, size_t* line) {
  table->text = malloc(MOST_BYTES + 1);
  if (table->text == NULL) return strerror(errno);
  const size_t bytes = fread(table->text, 1, MOST_BYTES, file);
  if (ferror(file)) return strerror(errno);
  if (bytes == MOST_BYTES) return "has 16 MiB or more";
  table->text[bytes] = '\0';
  if (strlen(table->text) != bytes) return "is no text";
  size_t lines = 1;
  for (const char* at = table->text; (at = strchr(at, '\n')) != NULL; ++at) ++lines;
  table->rows = calloc(lines, sizeof *table->rows);
  return table->rows == NULL ? strerror(errno) : parse(table, line);
}

static void reload(struct site_labels* self) {
  FILE* const file = fopen(self->file, "re");
  struct stat status = {0};
  const int error = file == NULL || fstat(fileno(file), &status) != 0 ? errno : 0;
  const long long sight[] = {error, (long long)status.st_ino, status.st_size, status.st_ctim.tv_sec,
                             status.st_ctim.tv_nsec};
  if (memcmp(sight, self->seen, sizeof sight) != 0) {
    memcpy(self->seen, sight, sizeof sight);
    struct table table = {0};
    size_t line = 0;
    const char* const fault = error != 0 ? strerror(error) : read_table(file, &table, &line);
    if (fault == NULL) {
      free_table(&self->table);
      self->table = table;
      self->is_key_known = 0;
    } else {
      char text[512], place[32] = "";
      if (line != 0) snprintf(place, sizeof place, "line %zu has ", line);
      snprintf(text, sizeof text, "%.300s: %s%s; %s", self->file, place, fault,
               self->table.count == 0 ? "there is no table" : "the last table stays");
      self->host->log(self->host->data, 1, text);
      free_table(&table);
    }
  }
  if (file != NULL) fclose(file);
}

/* The row of a process, or NULL. */
static const struct row* row_of(struct site_labels* self, const nccl_ext_snapshot* snapshot,
                                size_t process) {
  if (self->table.count == 0) return NULL;
  const char* const key =
      self->host->process_label(snapshot, process, self->table.rows[0].fields[0]);
  if (key == NULL) return NULL;
  self->is_key_known = 1;
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
  const size_t processes = site->host->processes(snapshot);
  for (size_t i = 0; i < processes; ++i) {
    const struct row* const row = row_of(site, snapshot, i);
    for (size_t column = 1; row != NULL && column < site->table.columns; ++column) {
      if (*row->fields[column] != '\0')
        site->host->claim_label(claims, i, site->table.rows[0].fields[column]);
    }
  }
  if (site->table.count != 0 && processes != 0 && !site->is_key_known) {
    char text[512];
    snprintf(text, sizeof text, "%.300s: no process has the label %.64s, the table's key",
             site->file, site->table.rows[0].fields[0]);
    site->host->log(site->host->data, 1, text);
    site->is_key_known = 1;
  }
  return NCCL_EXT_OK;
}

static nccl_ext_status compile(void* self, const nccl_ext_snapshot* snapshot,
                               nccl_ext_output* output) {
  struct site_labels* const site = self;
  for (size_t i = 0; i < site->host->processes(snapshot); ++i) {
    const struct row* const row = row_of(site, snapshot, i);
    for (size_t column = 1; row != NULL && column < site->table.columns; ++column) {
      if (*row->fields[column] != '\0')
        site->host->set_label(output, i, site->table.rows[0].fields[column], row->fields[column]);
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
