// SPDX-License-Identifier: Apache-2.0
// The seven exported tables behind one interface: an event with the fields of every version, of
// which each table takes what its version has.
#pragma once

#include <cstdint>

#include "plugin/nccl/profiler_abi.h"

namespace nccl_exporter::plugin::fuzz {

inline constexpr int kVersions = 7;

struct Event {
  uint64_t type = 0;
  void* parent = nullptr;  // of v5 and later: the call, of a task
  void* launch = nullptr;  // the launch, of a task
  int rank = 0;
  uint64_t communicator_id = 0;
  uint64_t sequence = 0;
  const char* function = nullptr;
  uint8_t function_number = 0;  // v1
  uint64_t count = 0;
  const char* datatype = nullptr;
  uint8_t datatype_number = 0;  // v1
  int peer = 0;
  uint8_t channels = 0;  // announced, of a task
  uint8_t channel = 0;
  uint64_t gpu_ns = 0;
  pid_t pid = 0;
  bool is_send = false;  // of a proxy operation
  int step = 0;
  bool is_captured = false;
};

struct Introduction {
  uint64_t id = 0;
  const char* name = nullptr;
  int nodes = 0;
  int ranks = 0;
  int rank = 0;
  abi::Logger logger = nullptr;
};

class Table {
 public:
  virtual ~Table() = default;

  virtual void Init(void** context, int* mask, const Introduction& introduction) const = 0;
  virtual void Start(void* context, void** handle, const Event* event) const = 0;
  virtual void Stop(void* handle) const = 0;
  virtual void Record(void* handle, int state, abi::StateArgs* arguments) const = 0;
  virtual void Finalize(void* context) const = 0;
};

// 1 to kVersions.
const Table& TableOf(int version);

}  // namespace nccl_exporter::plugin::fuzz
