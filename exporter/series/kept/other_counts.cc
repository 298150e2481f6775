// SPDX-License-Identifier: Apache-2.0
#include "exporter/series/kept/other_counts.h"

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

// Adds to `sum` what `now` has more than `before`. A count that decreases, as only a damaged
// segment has, counts as unchanged.
void AddIncrease(uint64_t now, uint64_t before, uint64_t& sum) {
  if (now > before) sum += now - before;
}

template <size_t kSize>
void AddIncrease(const std::array<uint64_t, kSize>& now, const std::array<uint64_t, kSize>& before,
                 std::array<uint64_t, kSize>& sum) {
  for (size_t i = 0; i < kSize; ++i) AddIncrease(now[i], before[i], sum[i]);
}

// Without durations by size, which comm="other" does not have.
void AddIncrease(const collector::FunctionSnapshot& now, const collector::FunctionSnapshot& before,
                 collector::FunctionSnapshot& sum) {
  AddIncrease(now.calls, before.calls, sum.calls);
  AddIncrease(now.completed, before.completed, sum.completed);
  for (size_t i = 0; i < now.sizes.size(); ++i) {
    for (uint64_t collector::SizeClassSnapshot::*const count :
         {&collector::SizeClassSnapshot::operations, &collector::SizeClassSnapshot::bytes,
          &collector::SizeClassSnapshot::timed_operations,
          &collector::SizeClassSnapshot::timed_bytes, &collector::SizeClassSnapshot::busy_ns})
      AddIncrease(now.sizes[i].*count, before.sizes[i].*count, sum.sizes[i].*count);
  }
  AddIncrease(now.duration, before.duration, sum.duration);
  AddIncrease(now.bandwidth, before.bandwidth, sum.bandwidth);
  AddIncrease(now.bandwidth_sum_kib, before.bandwidth_sum_kib, sum.bandwidth_sum_kib);
}

void AddIncrease(const collector::NetworkCounts& now, const collector::NetworkCounts& before,
                 collector::NetworkCounts& sum) {
  for (size_t i = 0; i < now.directions.size(); ++i) {
    const collector::NetworkDirectionCounts& counts = now.directions[i];
    AddIncrease(counts.wait_ns, before.directions[i].wait_ns, sum.directions[i].wait_ns);
    AddIncrease(counts.bytes, before.directions[i].bytes, sum.directions[i].bytes);
    AddIncrease(counts.operations, before.directions[i].operations, sum.directions[i].operations);
  }
}

void AddIncrease(const collector::NetworkBusBytes& now, const collector::NetworkBusBytes& before,
                 collector::NetworkBusBytes& sum) {
  AddIncrease(now.all, before.all, sum.all);
  AddIncrease(now.timed, before.timed, sum.timed);
}

// Where it is known now.
template <typename Counts>
void AddIncrease(const std::optional<Counts>& now, const std::optional<Counts>& before,
                 std::optional<Counts>& sum) {
  if (!now) return;
  if (!sum) sum.emplace();
  AddIncrease(*now, before.value_or(Counts{}), *sum);
}

// Counts that comm="other" has.
void AddIncrease(const RankCounts& now, const RankCounts& before, int64_t since_realtime_ns,
                 RankCounts& sum) {
  AddIncrease(now.kernel_ns, before.kernel_ns, sum.kernel_ns);
  if (!now.node) return;
  if (!sum.node) sum.node.emplace().since_realtime_ns = since_realtime_ns;
  AddIncrease(now.node->network, before.node.value_or(NodeCounts{}).network, sum.node->network);
}

void AddIncrease(const collector::CommunicatorSnapshot& now,
                 const collector::CommunicatorSnapshot& before,
                 collector::CommunicatorSnapshot& sum) {
  for (size_t i = 0; i < now.functions.size(); ++i) {
    if (now.functions.IsInUse(i))
      AddIncrease(now.functions[i], before.functions[i], sum.functions.Change(i));
  }
  AddIncrease(now.network, before.network, sum.network);
  if (now.timing_source != TimingSource::kNone) sum.timing_source = now.timing_source;
}

}  // namespace

void OtherCounts::Begin(std::shared_ptr<const Book> book) {
  before_ = std::exchange(latest_, std::move(book));
  communicators_before_.clear();
  if (before_ == nullptr) return;
  for (const collector::ProcessSnapshot& process : before_->node->processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators)
      communicators_before_[MemberKey(process, communicator)] = {
          .communicator = &communicator, .counts = before_->Of(process, communicator)};
  }
}

SeriesGroup OtherCounts::Count(const SeriesGroup& other) {
  SeriesGroup sums{.labels = other.labels, .members = {}};
  for (const GroupMember& member : other.members) {
    CommunicatorSums::Sum& sum =
        sums_.Of(other.labels, member.process->uid, member.communicator->ranks,
                 latest_->node->taken_realtime_ns);
    const Counts before = Before(member);
    AddIncrease(*member.communicator, *before.communicator, sum.communicator);
    if (member.counts == nullptr) continue;
    if (!sum.counts) sum.counts.emplace();
    AddIncrease(*member.counts, before.counts == nullptr ? RankCounts() : *before.counts,
                sum.communicator.created_realtime_ns, *sum.counts);
  }
  sums_.AppendTo(other.labels, sums.members);
  return sums;
}

OtherCounts::Counts OtherCounts::Before(const GroupMember& member) const {
  static const collector::CommunicatorSnapshot kNothing;
  const auto found = communicators_before_.find(MemberKey(*member.process, *member.communicator));
  if (found != communicators_before_.end()) return found->second;
  const int64_t created_ns = member.communicator->is_overflow
                                 ? member.process->start_realtime_ns
                                 : member.communicator->created_realtime_ns;
  const bool is_new =
      before_ != nullptr && created_ns >= before_->node->taken_realtime_ns - kLatestSightNs;
  if (is_new) return {.communicator = &kNothing};
  return {.communicator = member.communicator, .counts = member.counts};
}

void OtherCounts::End(const std::set<SharedLabels>& labels) {
  sums_.KeepOnly(labels);
  before_.reset();
  communicators_before_.clear();
  if (sums_.empty()) latest_.reset();
}

}  // namespace nccl_exporter::exporter
