// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/rank_calls.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace nccl_exporter::sim {
namespace {

// The work descriptions of a plan have to fit a kernel's arguments; more tasks take another launch.
constexpr size_t kTasksPerPlan = 128;

void AppendCall(const Call& call, const Communicator& communicator, int global_rank,
                std::vector<RankCall>& calls) {
  const int rank = communicator.RankOf(global_rank);
  if (rank < 0) return;
  RankCall mine{.rank = global_rank,
                .communicator = call.communicator,
                .function = call.function,
                .count = call.count,
                .datatype = call.datatype,
                .root = call.root};
  const auto append = [&](Function function, int peer) {
    mine.function = function;
    mine.peer = peer;
    calls.push_back(mine);
  };
  if (call.function == Function::kAlltoAll) {
    for (int peer = 0; peer < communicator.ranks() && communicator.ranks() > 1; ++peer) {
      append(Function::kSend, peer);
      append(Function::kRecv, peer);
    }
  } else if (call.function == Function::kSend) {
    if (rank == call.root) append(Function::kSend, call.destination);
    if (rank == call.destination) append(Function::kRecv, call.root);
  } else if (communicator.ranks() > 1 && call.count > 0) {
    calls.push_back(mine);
  }
}

}  // namespace

// Written down here once more, so that the ground truth does not rest on the plugin's vocabulary.
uint64_t ElementBytes(std::string_view datatype) {
  if (datatype.ends_with("64")) return 8;
  if (datatype.ends_with("32")) return 4;
  return datatype.ends_with("16") ? 2 : 1;
}

uint64_t MessageBytesOf(const RankCall& call, int ranks) {
  const bool is_sharded =
      call.function == Function::kAllGather || call.function == Function::kReduceScatter;
  return call.count * ElementBytes(call.datatype) *
         static_cast<uint64_t>(is_sharded && ranks > 0 ? ranks : 1);
}

std::vector<RankCall> CallsOf(const Group& group, const std::vector<Communicator>& communicators,
                              int first_rank, int last_rank) {
  std::vector<RankCall> calls;
  for (const Call& call : group.calls) {
    for (int rank = first_rank; rank < last_rank; ++rank) {
      AppendCall(call, communicators[static_cast<size_t>(call.communicator)], rank, calls);
    }
  }
  return calls;
}

std::vector<Plan> PlansOf(const std::vector<RankCall>& calls,
                          const std::vector<Communicator>& communicators) {
  std::vector<size_t> order(calls.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t place) {
    const RankCall& call = calls[place];
    const bool is_p2p = TraitsOf(call.function).is_point_to_point;
    const int ranks = communicators[static_cast<size_t>(call.communicator)].ranks();
    // Collectives are binned by kind and sorted by size, largest first; point-to-point keeps the
    // order of the calls.
    return std::tuple(call.rank, call.communicator, is_p2p,
                      is_p2p ? Function::kSend : call.function,
                      is_p2p ? std::string_view() : call.datatype,
                      is_p2p ? uint64_t{0} : ~MessageBytesOf(call, ranks));
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });

  std::vector<Plan> plans;
  for (const size_t place : order) {
    const RankCall& call = calls[place];
    if (plans.empty() || plans.back().rank != call.rank ||
        plans.back().communicator != call.communicator ||
        plans.back().tasks.size() == kTasksPerPlan) {
      plans.push_back(
          {.rank = call.rank, .communicator = call.communicator, .tasks = {}, .calls = {}});
    }
    plans.back().tasks.push_back(call);
    plans.back().calls.push_back(place);
  }
  return plans;
}

}  // namespace nccl_exporter::sim
