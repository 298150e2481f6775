/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of extensions of nccl-exporter, in C11. docs/extensions.md is its introduction.
 *
 * An extension is a shared library, libnccl-exporter-extension-NAME.so, that exports one object:
 * NCCL_EXT_OBJECT. `nccl-exporter extension run NAME...` loads it into a process of its own, which
 * reads the answers of the daemon. The daemon loads nothing.
 *
 * Order. create() once; then for each answer of the daemon partition() and, if the extension got
 * something or has a sink, compile(); destroy() once. Of several extensions each is asked in the
 * order of the command line, and who claims something first has it. What nobody claims stays as it
 * is.
 *
 * Threads. All calls come from one thread.
 *
 * Ownership. The object, and what it points to, live as long as the library. Texts of the host are
 * valid until the function that got them returns. The host copies what it is given.
 *
 * Text. NUL-terminated UTF-8. The host cuts nothing: it refuses what is too long.
 *
 * Deadlines. partition() and compile() have one second together. An extension that takes longer
 * delays the others, and `extension check` fails it. What comes late is served late, and never
 * delays a scrape.
 *
 * Errors. A call that does not return NCCL_EXT_OK drops what the extension has given for this
 * answer; the host logs it and goes on. A crash ends the process of the host, which systemd or
 * Kubernetes starts again. The daemon's own metrics are not affected.
 *
 * Stability. Within ABI major 1 nothing is removed or reordered. Members are appended to both
 * structs: compare struct_size before using a member that came later than the first release. A
 * major lasts for two years after the next one at least.
 */
#ifndef NCCL_EXPORTER_EXTENSION_H
#define NCCL_EXPORTER_EXTENSION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_EXT_ABI_MAJOR 1

/* The name of the exported object, of the type nccl_ext_extension. */
#define NCCL_EXT_OBJECT nccl_exporter_extension_1

typedef enum nccl_ext_status {
  NCCL_EXT_OK = 0,
  NCCL_EXT_BAD_CONFIG = 1,  /* of create(): the configuration is wrong; the extension logs how */
  NCCL_EXT_NOT_CLAIMED = 2, /* of the host: it is claimed by an earlier extension, or by nobody */
  NCCL_EXT_REFUSED = 3,     /* of the host: a reserved name, no name, too long, or a limit */
  NCCL_EXT_BAD_INDEX = 4,   /* of the host */
  NCCL_EXT_FAILED = 5       /* of the extension: it cannot go on with this answer */
} nccl_ext_status;

/* Capabilities: what an extension gives. Claims and gifts of another kind are refused. */
#define NCCL_EXT_LABELS 1u   /* labels of processes, which the daemon puts on their series */
#define NCCL_EXT_FAMILIES 2u /* metric families nccl_ext_NAME_*, which the daemon serves too */
#define NCCL_EXT_SINK 4u     /* bytes for files of its own */

/* What one sample is. The value of a histogram is the number of its observations. */
typedef enum nccl_ext_type {
  NCCL_EXT_COUNTER = 0,
  NCCL_EXT_GAUGE = 1,
  NCCL_EXT_HISTOGRAM = 2
} nccl_ext_type;

/* One answer of the daemon. Read by the functions of the host, by index from 0. */
typedef struct nccl_ext_snapshot nccl_ext_snapshot;
/* What the extension has claimed of it, and what it gives. */
typedef struct nccl_ext_claims nccl_ext_claims;
typedef struct nccl_ext_output nccl_ext_output;

typedef struct nccl_ext_host {
  size_t struct_size;
  void* data; /* of the host: the first argument of its functions */

  /* Writes a line to the log of the host. */
  void (*log)(void* data, int is_error, const char* text);
  /* Value of `--set NAME.KEY=VALUE` of the command line, or NULL. Valid until destroy(). */
  const char* (*config)(void* data, const char* key);

  /* When the daemon read the counts, nanoseconds since the epoch. */
  int64_t (*time_ns)(const nccl_ext_snapshot* snapshot);

  /* Processes with NCCL on this node. Labels are those of nccl_rank_info: "uid", "pid", "hostname",
   * "nccl_job", "namespace", "pod", "gpu_uuid" and others; NULL where it has no such label. A
   * process with several communicators has those of one of them. */
  size_t (*processes)(const nccl_ext_snapshot* snapshot);
  const char* (*process_label)(const nccl_ext_snapshot* snapshot, size_t process, const char* name);

  /* Families in the order of the answer, and their samples. NULL, 0 or NaN beyond the last. */
  size_t (*families)(const nccl_ext_snapshot* snapshot);
  const char* (*family_name)(const nccl_ext_snapshot* snapshot, size_t family);
  const char* (*family_help)(const nccl_ext_snapshot* snapshot, size_t family);
  nccl_ext_type (*family_type)(const nccl_ext_snapshot* snapshot, size_t family);
  size_t (*samples)(const nccl_ext_snapshot* snapshot, size_t family);
  double (*sample_value)(const nccl_ext_snapshot* snapshot, size_t family, size_t sample);
  double (*sample_sum)(const nccl_ext_snapshot* snapshot, size_t family, size_t sample);
  size_t (*sample_labels)(const nccl_ext_snapshot* snapshot, size_t family, size_t sample);
  const char* (*sample_label_name)(const nccl_ext_snapshot* snapshot, size_t family, size_t sample,
                                   size_t label);
  const char* (*sample_label_value)(const nccl_ext_snapshot* snapshot, size_t family, size_t sample,
                                    size_t label);

  /* In partition(). A label of a process: a name that no series has yet, see docs/labels.md. A
   * family: `name` is what comes behind nccl_ext_NAME_; counters end with _total. */
  nccl_ext_status (*claim_label)(nccl_ext_claims* claims, size_t process, const char* name);
  nccl_ext_status (*claim_family)(nccl_ext_claims* claims, const char* name, const char* help,
                                  nccl_ext_type type);

  /* In compile(). A value for a claimed label; a sample of a claimed family, with `count` labels;
   * bytes to append to a file of its own, in the folder --output.dir. */
  nccl_ext_status (*set_label)(nccl_ext_output* output, size_t process, const char* name,
                               const char* value);
  nccl_ext_status (*add_sample)(nccl_ext_output* output, const char* family, size_t count,
                                const char* const* names, const char* const* values, double value);
  nccl_ext_status (*append)(nccl_ext_output* output, const char* file, const void* bytes,
                            size_t size);
} nccl_ext_host;

typedef struct nccl_ext_extension {
  size_t struct_size;    /* sizeof(nccl_ext_extension) */
  uint32_t abi_major;    /* NCCL_EXT_ABI_MAJOR */
  uint32_t capabilities; /* NCCL_EXT_LABELS and so on, added up */
  const char* name;      /* as in the name of the file: small letters, digits, and - */
  const char* version;

  /* `host` is valid until destroy(). `*self` is passed to the others; may stay NULL. */
  nccl_ext_status (*create)(const nccl_ext_host* host, void** self);
  /* Claims what this answer has for it. */
  nccl_ext_status (*partition)(void* self, const nccl_ext_snapshot* snapshot,
                               nccl_ext_claims* claims);
  /* Gives what it has claimed. */
  nccl_ext_status (*compile)(void* self, const nccl_ext_snapshot* snapshot,
                             nccl_ext_output* output);
  /* Also after a create() that failed. */
  void (*destroy)(void* self);
} nccl_ext_extension;

#ifdef __cplusplus
}
#endif

#endif
