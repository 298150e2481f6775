/* SPDX-License-Identifier: Apache-2.0 */
/* Extensions that break the interface, each in a way of its own: BROKEN is the number of the way.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "extension/nccl_exporter_extension.h"

enum {
  kMajor = 1,  /* another ABI major */
  kSize,       /* a struct that is too short */
  kName,       /* another name than its file's */
  kConfig,     /* refuses any configuration */
  kUndeclared, /* samples of a family that it has not claimed */
  kFlood,      /* more samples than an extension may have */
  kReserved,   /* labels of the daemon */
  kNoProcess,  /* labels of processes that are not there */
  kSlow,       /* takes too long */
  kCrash,      /* dies at an answer that it does not expect */
  kLeak,       /* keeps memory of each answer */
  kRandom,     /* gives something else each time */
  kFails,      /* fails where it gets nothing */
  kSmallLeak,  /* keeps a little memory of each answer */
  kOfCreations /* keeps a little memory of each creation */
};

static const nccl_ext_host* host;
static unsigned answers;
static void* volatile kept;

/* Does not free what it has kept before. */
static void keep(size_t bytes) {
  if ((kept = malloc(bytes)) != NULL) memset((void*)kept, 1, bytes);
}

static nccl_ext_status create(const nccl_ext_host* given, void** self) {
  host = given;
  *self = NULL;
  if (BROKEN == kOfCreations) keep(10000);
  return BROKEN == kConfig ? NCCL_EXT_BAD_CONFIG : NCCL_EXT_OK;
}

static nccl_ext_status partition(void* self, const nccl_ext_snapshot* snapshot,
                                 nccl_ext_claims* claims) {
  (void)self;
  nccl_ext_status status = host->claim_family(claims, "own", "Its own.", NCCL_EXT_GAUGE);
  for (size_t i = 0; i < host->processes(snapshot); ++i) {
    const nccl_ext_status claimed =
        host->claim_label(claims, i, BROKEN == kReserved ? "rank" : "own");
    if (BROKEN == kFails && claimed != NCCL_EXT_OK) status = claimed;
  }
  return status;
}

static void sleep_ms(long ms) {
  const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static nccl_ext_status compile(void* self, const nccl_ext_snapshot* snapshot,
                               nccl_ext_output* output) {
  (void)self;
  ++answers;
  const size_t processes = host->processes(snapshot);
  if (BROKEN == kUndeclared) host->add_sample(output, "other", 0, NULL, NULL, 1);
  for (int i = 0; BROKEN == kFlood && i < 100000; ++i) {
    char text[12] = {(char)('a' + i % 26), (char)('a' + i / 26 % 26), (char)('a' + i / 676 % 26),
                     (char)('a' + i / 17576)};
    const char *name = "i", *value = text;
    host->add_sample(output, "own", 1, &name, &value, i);
  }
  if (BROKEN == kNoProcess) host->set_label(output, processes, "own", "x");
  if (BROKEN == kSlow) sleep_ms(1500);
  if (BROKEN == kCrash &&
      (processes == 0 || strlen(host->process_label(snapshot, processes - 1, "pid")) > 100))
    abort();
  if (BROKEN == kLeak) keep(1 << 20);
  if (BROKEN == kSmallLeak) keep(100000);
  host->add_sample(output, "own", 0, NULL, NULL, BROKEN == kRandom ? answers : 1);
  return NCCL_EXT_OK;
}

static void destroy(void* self) { (void)self; }

const nccl_ext_extension NCCL_EXT_OBJECT = {
    .struct_size = BROKEN == kSize ? 8 : sizeof(nccl_ext_extension),
    .abi_major = BROKEN == kMajor ? NCCL_EXT_ABI_MAJOR + 1 : NCCL_EXT_ABI_MAJOR,
    .capabilities = NCCL_EXT_LABELS | NCCL_EXT_FAMILIES,
    .name = BROKEN == kName ? "whole" : "broken",
    .version = "1.0",
    .create = create,
    .partition = partition,
    .compile = compile,
    .destroy = destroy,
};
