// SPDX-License-Identifier: Apache-2.0
// Changes of a running job's first communicator by NCCL's calls for elastic jobs: which ranks go
// on, in which communicator, and what NCCL does not report any more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nccl_exporter::sim {

enum class ElasticKind : uint8_t { kRevoke, kShrinkAbort, kShrink, kGrow, kSuspend, kCount };

struct ElasticChange {
  ElasticKind kind{};
  int64_t step = 0;  // the last one of the communicator, or before it is suspended

  // Its operations of that step are aborted from some group on. NCCL's progress thread ends when
  // the abort flag is set (2.30.7 src/proxy.cc ncclProxyProgress), so no end of them is reported,
  // and the communicator is not destroyed before the job ends.
  bool Aborts() const { return kind == ElasticKind::kRevoke || kind == ElasticKind::kShrinkAbort; }
  bool IsSuspendedIn(int64_t a_step) const {
    constexpr int64_t kSuspendedSteps = 50;
    return kind == ElasticKind::kSuspend && a_step > step && a_step <= step + kSuspendedSteps;
  }
};

// `text` is NAME@STEP. `error` says what is wrong: the release, such as 23007, must have the call.
std::optional<ElasticChange> ParseElasticChange(std::string_view text, int nccl_version,
                                                std::string& error);

// The table, for --help.
std::string ElasticHelp();

}  // namespace nccl_exporter::sim
