// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/require.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace nccl_exporter {
namespace {

int own_rank = -1;

// Without destructors and exit handlers: those would wait for peers.
[[noreturn]] void Fail(const char* what, const char* why) {
  fprintf(stderr, "rank %d: %s: %s\n", own_rank, what, why);
  fflush(stderr);
  _exit(1);
}

}  // namespace

void NameRequirements(int rank) { own_rank = rank; }

void Require(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) Fail(what, ncclGetLastError(nullptr));
}

void Require(cudaError_t result, const char* what) {
  if (result != cudaSuccess) Fail(what, cudaGetErrorString(result));
}

void Require(bool holds, const char* what) {
  if (!holds) Fail(what, strerror(errno));
}

}  // namespace nccl_exporter
