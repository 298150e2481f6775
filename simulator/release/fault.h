// SPDX-License-Identifier: Apache-2.0
// Faults of NCCL's kernel events and their time stamps: one row each, with its parameters and the
// releases that have it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/code_table.h"
#include "simulator/release/release.h"

namespace nccl_exporter::sim {

enum class Fault : uint8_t {
  kDriftSelfSend,
  kDriftGraph,
  kDriftBroadcast,
  kHostAhead,
  kDeviceAhead,
  kRingOverrun,
  kLostStart,
  kLostKernel,
  kStuck,
  kBackwards,
  kZero,
  kEqual,
  kJump,
  kRasMask,
  kAbortedTransfer,
  kStaleTransfer,
  kCount
};

struct FaultParameter {
  std::string_view name;
  int64_t standard = 0;
};

struct FaultTraits {
  Fault id;
  std::string_view name;
  int first_release;  // from this one on
  int end_release;    // and before this one
  std::array<FaultParameter, 2> parameters;
  std::string_view help;
};

const FaultTraits& TraitsOf(Fault fault);

// The faults of a job.
class Faults {
 public:
  // `text` is NAME or NAME:PARAMETER=VALUE,PARAMETER=VALUE. Returns what is wrong with it, or
  // nothing.
  std::string Add(std::string_view text, const Release& release);

  bool Any() const { return !parameters_.empty(); }
  bool Has(Fault fault) const { return parameters_.contains(fault); }
  std::vector<std::string_view> Names() const;

  // Whether the fault strikes the launch with that number (from 1) of its communicator.
  bool StrikesEvery(Fault fault, uint64_t launch) const;
  bool StrikesAfter(Fault fault, uint64_t launch) const;
  // Whether this strike of StrikesEvery has an even number.
  bool IsEvenStrike(Fault fault, uint64_t launch) const;
  // When NCCL's thread comes to what is due then: later if it is held up.
  int64_t PolledNs(int64_t due_ns) const;
  // The event mask that an operator has set at that time; nothing: the plugin's.
  std::optional<uint32_t> RasMaskAt(int64_t job_ns) const;
  // By how much the GPU's clock is off then.
  int64_t JumpNs(int64_t job_ns) const;

 private:
  int64_t Parameter(Fault fault, size_t place) const { return parameters_.at(fault)[place]; }

  std::map<Fault, std::array<int64_t, 2>> parameters_;
};

// The table, for --help.
std::string FaultHelp();

}  // namespace nccl_exporter::sim
