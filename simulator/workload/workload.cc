// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "simulator/workload/call_list.h"
#include "simulator/workload/hash_random.h"
#include "simulator/workload/layout.h"

namespace nccl_exporter::sim {
namespace {

constexpr int kVariedGroupId = -1;
constexpr int kChangedGroupId = 1 << 16;      // added to that of the group
constexpr uint64_t kRandomGroups = 5;         // of the layout `random`, the same in every step
constexpr uint64_t kRandomGroupsOfAStep = 3;  // and of one step's own

bool IsCalledIn(const Group& group, const std::vector<Communicator>& communicators, int64_t step) {
  if (group.only_step >= 0 && group.only_step != step) return false;
  return std::all_of(group.calls.begin(), group.calls.end(), [&](const Call& call) {
    return communicators[static_cast<size_t>(call.communicator)].first_step <= step;
  });
}

}  // namespace

Workload::Workload(const WorkloadOptions& options) : seed_(options.seed), builder_(options.shape) {
  if (!options.calls.empty()) {
    WriteCallList(options.calls, builder_);
  } else {
    const Layout& layout = *FindLayout(options.layout);
    layout.write(builder_);
    has_variety_ = layout.has_variety;
  }
  groups_ = builder_.groups();
  if (options.calls.empty() && options.layout == kRandomLayout) WriteRandom();
  if (options.aggregate > 1) Aggregate(options.aggregate);
  if (options.split_at_step >= 0) Split(options.split_at_step);
  if (options.shrink_at_step >= 0) Shrink(options.shrink_at_step);
  if (options.elastic) Begin(*options.elastic);
}

void Workload::Aggregate(int count) {
  std::vector<Group> joined;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (i % static_cast<size_t>(count) == 0) {
      joined.push_back(groups_[i]);
      continue;
    }
    std::copy(groups_[i].calls.begin(), groups_[i].calls.end(),
              std::back_inserter(joined.back().calls));
    joined.back().overlaps_compute &= groups_[i].overlaps_compute;
  }
  groups_ = std::move(joined);
}

void Workload::Split(int64_t step) {
  const Communicator parent = communicators()[0];
  const auto middle = parent.members.begin() + (parent.ranks() + 1) / 2;
  const std::vector<int> halves{
      builder_.Add(parent.name + ".split0", {parent.members.begin(), middle}, step),
      builder_.Add(parent.name + ".split1", {middle, parent.members.end()}, step)};
  builder_.Exposed(halves, {.function = Function::kAllReduce, .count = 524288});
  groups_.push_back(builder_.groups().back());
}

void Workload::Shrink(int64_t step) {
  const Communicator parent = communicators()[0];
  const std::vector<int> rest{builder_.Add(
      parent.name + ".shrunk", {parent.members.begin(), parent.members.end() - 1}, step)};
  builder_.Exposed(rest, {.function = Function::kAllReduce, .count = 262144});
  groups_.push_back(builder_.groups().back());
}

void Workload::Begin(const ElasticChange& change) {
  elastic_ = change;
  const Communicator parent = communicators()[0];
  const std::vector<int> fewer{parent.members.begin(), parent.members.end() - 1};
  if (change.kind == ElasticKind::kGrow) builder_.RemoveLastMember(0);
  if (change.Aborts()) builder_.AbortIn(change.step, 0);
  if (change.kind == ElasticKind::kSuspend) return;
  const bool shrinks =
      change.kind == ElasticKind::kShrink || change.kind == ElasticKind::kShrinkAbort;
  successor_ =
      builder_.Add(parent.name + ".next", shrinks ? fewer : parent.members, change.step + 1);
}

// The group as it is called in the step; without calls if nothing is left of it.
Group Workload::Changed(Group group, int64_t step) const {
  if (!elastic_) return group;
  const bool is_suspended = elastic_->IsSuspendedIn(step);
  std::vector<Call> calls;
  for (Call call : group.calls) {
    if (call.communicator == 0 && is_suspended) continue;
    if (call.communicator == 0 && step > elastic_->step) call.communicator = successor_;
    const int ranks = communicators()[static_cast<size_t>(call.communicator)].ranks();
    if (std::max(call.root, call.destination) >= ranks) {
      if (call.function == Function::kSend) continue;
      call.root %= ranks;
    }
    calls.push_back(call);
  }
  group.calls = std::move(calls);
  if (step > elastic_->step) group.id += kChangedGroupId;
  return group;
}

// One to five collectives of any kind, size and datatype, on the first communicator.
Group Workload::VariedGroup(int64_t step) const {
  static constexpr std::array kKinds{Function::kAllReduce, Function::kAllGather,
                                     Function::kReduceScatter, Function::kReduce,
                                     Function::kBroadcast};
  constexpr double kOctavesOfCount = 22;
  Group group{.id = kVariedGroupId, .is_capturable = false};
  const uint64_t calls = 1 + HashRandom(seed_, step, 1) % 5;
  for (uint64_t i = 0; i < calls; ++i) {
    const uint64_t bits = HashRandom(seed_, step, 2, i);
    const double octaves = kOctavesOfCount * Fraction(Scatter(bits));
    group.calls.push_back(
        {.communicator = 0,
         .function = kKinds[bits % kKinds.size()],
         .count = static_cast<uint64_t>(std::exp2(octaves)),
         .datatype = kDatatypes[(bits >> 8) % 10].name,  // the FP8 kinds came with 2.24
         .root = static_cast<int>((bits >> 16) % communicators()[0].members.size())});
  }
  return group;
}

// Half of the seeds split or shrink the first communicator on the way.
void Workload::WriteRandom() {
  random_families_ = AddRandomFamilies(builder_);
  for (uint64_t i = 0; i < kRandomGroups; ++i) {
    groups_.push_back(RandomGroup(builder_, random_families_, HashRandom(seed_, 0x72616e64, i)));
    groups_.back().id = static_cast<int>(i);
  }
  const uint64_t bits = HashRandom(seed_, 0x73706c69);
  if (builder_.shape().ranks() < 2 || bits % 4 > 1) return;
  if (bits % 4 == 0) Split(static_cast<int64_t>(1 + bits / 4 % 8));
  if (bits % 4 == 1) Shrink(static_cast<int64_t>(1 + bits / 4 % 8));
  groups_.back().id = static_cast<int>(kRandomGroups);
}

std::vector<Group> Workload::RandomGroupsOf(int64_t step) const {
  std::vector<Group> groups;
  for (uint64_t i = 0; i < kRandomGroupsOfAStep; ++i) {
    groups.push_back(
        RandomGroup(builder_, random_families_, HashRandom(seed_, step, 0x73746570, i)));
    groups.back().id = kVariedGroupId - static_cast<int>(i);
    groups.back().is_capturable = false;
  }
  return groups;
}

std::vector<Group> Workload::GroupsOfStep(int64_t step) const {
  std::vector<Group> groups;
  for (const Group& group : groups_) {
    if (IsCalledIn(group, communicators(), step)) groups.push_back(group);
  }
  if (has_variety_) groups.push_back(VariedGroup(step));
  if (!random_families_.empty()) {
    for (Group& group : RandomGroupsOf(step)) groups.push_back(std::move(group));
  }
  for (Group& group : groups) group = Changed(std::move(group), step);
  std::erase_if(groups, [](const Group& group) { return group.calls.empty(); });
  return groups;
}

}  // namespace nccl_exporter::sim
