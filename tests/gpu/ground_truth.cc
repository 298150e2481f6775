// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ground_truth.h"

#include <string>

namespace nccl_exporter {

void GroundTruth::Call(Function function, uint64_t count, uint32_t element_bytes) {
  if (ranks_ == 1) return;  // a copy, which NCCL announces in no way
  if (count == 0 && !TraitsOf(function).is_point_to_point) return;  // dropped by NCCL
  if (announcements_.calls) ++functions_[static_cast<size_t>(function)].calls;
  if (function == Function::kBroadcast && !announcements_.broadcast_operations) return;
  const uint32_t told_ranks = announcements_.communicator ? ranks_ : 0;
  const Operation operation{function, MessageBytes(function, count, element_bytes, told_ranks)};
  if (is_capturing_) {
    captured_.push_back(operation);
  } else {
    Count(operation);
  }
}

void GroundTruth::BeginCapture() {
  is_capturing_ = true;
  captured_.clear();
}

void GroundTruth::Replay() {
  for (const Operation& operation : captured_) Count(operation);
}

void GroundTruth::Count(const Operation& operation) {
  Counts& counts = functions_[static_cast<size_t>(operation.function)];
  const auto size_class = static_cast<size_t>(SizeClassOf(operation.message_bytes));
  ++counts.operations[size_class];
  counts.bytes[size_class] += operation.message_bytes;
}

nlohmann::json GroundTruth::ToJson() const {
  nlohmann::json functions = nlohmann::json::object();
  for (size_t i = 0; i < functions_.size(); ++i) {
    const Counts& counts = functions_[i];
    nlohmann::json sizes = nlohmann::json::object();
    for (size_t size = 0; size < counts.operations.size(); ++size) {
      if (counts.operations[size] == 0) continue;
      sizes[std::to_string(kSizeClassBounds[size])] = {{"operations", counts.operations[size]},
                                                       {"bytes", counts.bytes[size]}};
    }
    if (counts.calls == 0 && sizes.empty()) continue;
    functions[std::string(kFunctions[i].name)] = {{"calls", counts.calls},
                                                  {"sizes", std::move(sizes)}};
  }
  return functions;
}

}  // namespace nccl_exporter
