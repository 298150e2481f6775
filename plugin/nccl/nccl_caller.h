// SPDX-License-Identifier: Apache-2.0
// The copy of NCCL that calls: its version, and its own parameters, read as NCCL reads them. At
// init only.
#pragma once

#include "plugin/nccl/profiler_abi.h"

namespace nccl_exporter::plugin {

// Arguments of NCCL's init, in one form for all API versions. v1 to v3 pass none of them:
// `is_known` is false, and id and rank come with the first operation.
struct InitRequest {
  int api_version = 0;
  bool is_known = false;
  uint64_t id = 0;
  const char* name = nullptr;
  int nodes = 0;
  int ranks = 0;
  int rank = 0;
  abi::Logger logger = nullptr;
};

// Version of the library that contains an address, as ncclGetVersion reports it (22907 for 2.29.7);
// 0 where it cannot be found, as with NCCL linked statically into a framework that hides its
// symbols.
int FindNcclVersion(const void* address_in_nccl);

// The number that the caller has for a log level of NVIDIA's (abi::kLogWarn, abi::kLogInfo). RCCL
// and NCCLX have inserted ERROR below WARN, so that a line of INFO would be shown as a warning.
// Both export ncclAllToAllv, which NVIDIA's NCCL does not have. RCCL before 2.27.7 does too, and
// has NVIDIA's numbers: there INFO becomes ABORT, which is shown with NCCL_DEBUG=TRACE only.
int LogLevelOf(const void* logger, int level);

// A line of NCCL's log, at a level of NVIDIA's.
template <typename... Arguments>
void Log(abi::Logger logger, int level, const char* format, Arguments... arguments) {
  if (logger == nullptr) return;
  const int callers_level = LogLevelOf(reinterpret_cast<const void*>(logger), level);
  logger(callers_level, abi::kLogInit, __FILE__, __LINE__, format, arguments...);
}

// Whether NCCL_ALLGATHERV_ENABLE=0 is certain to be in force (2.29 and later). `get` answers like
// getenv. NCCL copies its configuration files into the environment before it calls init, and reads
// the parameter at the first Broadcast: a program that changes the variable in between is not seen.
bool IsAllgathervOff(const char* (*get)(const char* name));

// Whether it is certain that no kernel runs by NVLink SHARP over buffers that the job registered:
// NVLS is switched off (NCCL_NVLS_ENABLE=0, an NCCL_ALGO without it), or the registration is, both
// that of calls and that of captured graphs (NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0).
bool AreNvlsBuffersOff(const char* (*get)(const char* name));

// Whether the environment makes communicators share the resources of the one that they are split
// from or shrunk from. A program may ask for the same in ncclConfig_t, which no profiler is given.
bool SharesResources(const char* (*get)(const char* name));

}  // namespace nccl_exporter::plugin
