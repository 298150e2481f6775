/* SPDX-License-Identifier: Apache-2.0 */
/* An extension that shows what its host does. PROBE is a fault of its object. Settings: `fail`, the
 * call that fails after all it does; `label`, the one it gives; `files`, whether it appends.
 */
#include <stdint.h>
#include <string.h>

#include "extension/nccl_exporter_extension.h"

enum { kWithoutObject = 1, kWithoutVersion, kWithoutFunction, kWithoutCapability, kOfLaterHosts };

static const nccl_ext_host* host;

static nccl_ext_status ends(const char* call) {
  const char* const fails = host->config(host->data, "fail");
  return fails != NULL && strcmp(fails, call) == 0 ? NCCL_EXT_FAILED : NCCL_EXT_OK;
}

static const char* label(void) {
  const char* const name = host->config(host->data, "label");
  return name == NULL ? "own" : name;
}

static nccl_ext_status create(const nccl_ext_host* given, void** self) {
  host = given;
  *self = NULL;
  return ends("create");
}

static nccl_ext_status partition(void* self, const nccl_ext_snapshot* snapshot,
                                 nccl_ext_claims* claims) {
  (void)self;
  for (size_t i = 0; i < host->processes(snapshot); ++i) host->claim_label(claims, i, label());
  host->claim_family(claims, "own", "Its own.", NCCL_EXT_GAUGE);
  return ends("partition");
}

#define EXPECT(promise) \
  if (!(promise)) host->log(host->data, 1, #promise)

static void look_beyond(const nccl_ext_snapshot* snapshot) {
  const size_t families = host->families(snapshot), processes = host->processes(snapshot);
  EXPECT(families != 0 && processes != 0 && host->samples(snapshot, 0) == 1);
  EXPECT(host->process_label(snapshot, processes, "pid") == NULL);
  EXPECT(host->process_label(snapshot, SIZE_MAX, "pid") == NULL);
  EXPECT(host->process_label(snapshot, 0, "none") == NULL);
  EXPECT(host->family_name(snapshot, families) == NULL);
  EXPECT(host->family_help(snapshot, families) == NULL);
  EXPECT(host->family_type(snapshot, families) == 0);
  EXPECT(host->samples(snapshot, families) == 0);
  const size_t places[][2] = {{families, 0}, {0, 1}, {SIZE_MAX, SIZE_MAX}};
  for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
    const size_t family = places[i][0], sample = places[i][1];
    const double value = host->sample_value(snapshot, family, sample),
                 sum = host->sample_sum(snapshot, family, sample);
    EXPECT(value != value && sum != sum); /* NaN */
    EXPECT(host->sample_labels(snapshot, family, sample) == 0);
    EXPECT(host->sample_label_name(snapshot, family, sample, 0) == NULL);
    EXPECT(host->sample_label_value(snapshot, family, sample, 0) == NULL);
  }
  const size_t labels = host->sample_labels(snapshot, 0, 0);
  EXPECT(labels != 0 && host->sample_label_name(snapshot, 0, 0, labels - 1) != NULL);
  EXPECT(host->sample_label_name(snapshot, 0, 0, labels) == NULL);
  EXPECT(host->sample_label_value(snapshot, 0, 0, labels) == NULL);
}

static nccl_ext_status compile(void* self, const nccl_ext_snapshot* snapshot,
                               nccl_ext_output* output) {
  (void)self;
  look_beyond(snapshot);
  for (size_t i = 0; i < host->processes(snapshot); ++i) host->set_label(output, i, label(), "x");
  host->add_sample(output, "own", 0, NULL, NULL, 1);
  if (host->config(host->data, "files") != NULL) {
    host->append(output, "a", "1", 1);
    host->append(output, "b", "2", 1);
  }
  return ends("compile");
}

static void destroy(void* self) {
  (void)self;
  host->log(host->data, 0, "destroyed");
}

#if PROBE != 1
const nccl_ext_extension NCCL_EXT_OBJECT = {
    .struct_size = sizeof(nccl_ext_extension),
    .abi_major = NCCL_EXT_ABI_MAJOR,
    .capabilities = PROBE == kWithoutCapability ? 0
                    : PROBE == kOfLaterHosts    ? NCCL_EXT_LABELS | 8u
                                             : NCCL_EXT_LABELS | NCCL_EXT_FAMILIES | NCCL_EXT_SINK,
    .name = "probe",
    .version = PROBE == kWithoutVersion ? NULL : "1.0",
    .create = create,
    .partition = partition,
    .compile = PROBE == kWithoutFunction ? NULL : compile,
    .destroy = destroy,
};
#endif
