/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest extension that gives a label and a family. docs/extensions.md explains the parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_exporter_extension.h"

struct example {
  const nccl_ext_host* host;
  const char* label;
};

static nccl_ext_status create(const nccl_ext_host* host, void** self) {
  struct example* const example = malloc(sizeof *example);
  if (example == NULL) return NCCL_EXT_FAILED;
  example->host = host;
  example->label = host->config(host->data, "label");
  if (example->label == NULL) example->label = "parity";
  *self = example;
  return NCCL_EXT_OK;
}

static nccl_ext_status partition(void* self, const nccl_ext_snapshot* snapshot,
                                 nccl_ext_claims* claims) {
  const struct example* const example = self;
  /* NCCL_EXT_NOT_CLAIMED: an earlier extension has it. The host logs why a label is refused. */
  for (size_t i = 0; i < example->host->processes(snapshot); ++i)
    example->host->claim_label(claims, i, example->label);
  return example->host->claim_family(claims, "processes", "Processes with NCCL.", NCCL_EXT_GAUGE);
}

static nccl_ext_status compile(void* self, const nccl_ext_snapshot* snapshot,
                               nccl_ext_output* output) {
  const struct example* const example = self;
  const size_t processes = example->host->processes(snapshot);
  for (size_t i = 0; i < processes; ++i) {
    const char* const pid = example->host->process_label(snapshot, i, "pid");
    const int is_odd = pid != NULL && atoi(pid) % 2 != 0;
    example->host->set_label(output, i, example->label, is_odd ? "odd" : "even");
  }
  return example->host->add_sample(output, "processes", 0, NULL, NULL, (double)processes);
}

static void destroy(void* self) { free(self); }

const nccl_ext_extension NCCL_EXT_OBJECT = {
    .struct_size = sizeof(nccl_ext_extension),
    .abi_major = NCCL_EXT_ABI_MAJOR,
    .capabilities = NCCL_EXT_LABELS | NCCL_EXT_FAMILIES,
    .name = "example",
    .version = "1.0",
    .create = create,
    .partition = partition,
    .compile = compile,
    .destroy = destroy,
};
