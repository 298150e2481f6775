// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/call_list.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace nccl_exporter::sim {
namespace {

constexpr uint64_t kElements = 256 * 1024;  // ncclFloat32: 1 MiB

struct ListedCall {
  std::string_view name;
  std::vector<Call> (*make)(int ranks);
};

template <Function function>
std::vector<Call> One(int) {
  return {{.function = function, .count = kElements}};
}

std::vector<Call> Exchange(int ranks) {
  std::vector<Call> calls;
  for (int rank = 0; rank < ranks && ranks > 1; ++rank) {
    calls.push_back({.function = Function::kSend,
                     .count = kElements,
                     .root = rank,
                     .destination = (rank + 1) % ranks});
  }
  return calls;
}

std::vector<Call> BroadcastsOfAll(int ranks) {
  std::vector<Call> calls;
  for (int root = 0; root < ranks; ++root) {
    calls.push_back({.function = Function::kBroadcast, .count = kElements, .root = root});
  }
  return calls;
}

constexpr std::array<ListedCall, 8> kCalls{{
    {"allreduce", One<Function::kAllReduce>},
    {"allgather", One<Function::kAllGather>},
    {"reducescatter", One<Function::kReduceScatter>},
    {"reduce", One<Function::kReduce>},
    {"broadcast", One<Function::kBroadcast>},
    {"alltoall", One<Function::kAlltoAll>},
    {"sendrecv", Exchange},
    {"allgatherv", BroadcastsOfAll},
}};

std::string WriteOne(std::string_view text, const std::vector<int>& world, LayoutBuilder& builder) {
  const size_t at = text.find('@');
  const std::string_view name = text.substr(0, at);
  const auto call = std::find_if(kCalls.begin(), kCalls.end(),
                                 [&](const ListedCall& c) { return c.name == name; });
  if (call == kCalls.end()) return "there is no call " + std::string(name);
  builder.Grouped(world, call->make(builder.shape().ranks()));
  if (at == std::string_view::npos) return "";
  int64_t step = 0;
  const std::string_view number = text.substr(at + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), step);
  if (error != std::errc() || end != number.data() + number.size() || step < 0)
    return "bad step in " + std::string(text);
  builder.OnlyInStep(step);
  return "";
}

}  // namespace

std::string WriteCallList(std::string_view list, LayoutBuilder& builder) {
  const std::vector<int> world = builder.AddWorld("calls");
  while (true) {
    const size_t comma = list.find(',');
    if (std::string error = WriteOne(list.substr(0, comma), world, builder); !error.empty())
      return error;
    if (comma == std::string_view::npos) return "";
    list = list.substr(comma + 1);
  }
}

std::string CallListHelp() {
  std::string help =
      "the calls of a step on one communicator, instead of --layout: NAME or NAME@STEP (only in "
      "that step),";
  help += " separated by commas. Names:";
  for (const ListedCall& call : kCalls) help += " " + std::string(call.name);
  return help + " (Broadcasts of all roots in one group)";
}

}  // namespace nccl_exporter::sim
