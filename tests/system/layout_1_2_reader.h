// SPDX-License-Identifier: Apache-2.0
// Reader of segments by the rules and offsets of layout 1.2, which were recorded from the daemon of
// that version and never change. It shares no constant with proto/.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace nccl_exporter {

class Layout12Reader {
 public:
  explicit Layout12Reader(std::string segment) : bytes_(std::move(segment)) {}

  // Why that daemon refuses the segment; empty if it reads it. The methods below need a segment
  // that it reads.
  std::string Refusal() const;

  // By number of the cause; causes that did not occur are left out.
  nlohmann::json Losses() const;
  // One object for each live communicator, in the shape of the simulator's ground truth.
  // `in_flight` has the functions of the operations in flight.
  nlohmann::json Communicators() const;

 private:
  uint64_t Word(uint64_t offset) const;
  nlohmann::json Functions(uint64_t slot) const;
  nlohmann::json Counts(uint64_t block) const;
  nlohmann::json NonZero(uint64_t offset, uint64_t words) const;

  const std::string bytes_;
};

}  // namespace nccl_exporter
