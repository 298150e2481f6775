// SPDX-License-Identifier: Apache-2.0
// A launch whose kernel events go wrong: which counters the host waits for, what it finds there,
// what gets lost.
#include <algorithm>
#include <memory>
#include <utility>

#include "simulator/nccl/launch.h"

namespace nccl_exporter::sim {
namespace {

constexpr int64_t kMostPollDelayNs = 18000;
constexpr uint64_t kBackwardsNs = 5000;

}  // namespace

int64_t Launch::PostPolledEvents(const Task& task, size_t member, int64_t now_ns) {
  const Faults& faults = options_.faults;
  for (int i = 0; i < task.channels.played; ++i) {
    const int channel = task.channels.low + i;
    ChannelConnection& connection = ConnectionOf(task, channel);
    const Part part{.member = member,
                    .parent = task.handle,
                    .channel = channel,
                    .start_due_ns = 0,
                    .stop_due_ns = 0};
    PolledWork work{.counter = PolledCounter(AwaitedBy(task, i)),
                    .start_delay_ns = DelayNs(kMostPollDelayNs, channel, 0),
                    .stop_delay_ns = DelayNs(kMostPollDelayNs, channel, 1)};
    const std::shared_ptr<ChannelConnection> slot = SlotOf(connection);
    work.start = [self = shared_from_this(), part, slot](const WorkItem* shown, int64_t now) {
      self->ReportStart(part, *slot, shown, now);
    };
    work.stop = [self = shared_from_this(), part, slot](const WorkItem* shown, int64_t now) {
      self->ReportStop(part, *slot, shown, now);
    };
    open_parts_.fetch_add(1, std::memory_order_relaxed);
    if (!std::exchange(has_polled_parts_, true)) LoseEvents(work);
    if (GetsStuck(connection)) work.counter = PolledWork::kNeverWritten;
    if (connection.is_stuck || !work.start || !work.stop) {
      communicator_.truth.MarkAffected(members_[member].operation);
    }
    communicator_.polled[static_cast<size_t>(channel)].Append(task.call.function == Function::kRecv,
                                                              std::move(work), now_ns,
                                                              rank_.kernel_events(), faults);
  }
  return kernel_.stop_ns + kMostPollDelayNs;
}

// Works that are polled in order share the handle slot of their connection; others have one each
// (2.31.2 src/plugin/profiler.cc ncclProfilerWorkOp).
std::shared_ptr<ChannelConnection> Launch::SlotOf(ChannelConnection& connection) const {
  if (!options_.release.PollsInOrder()) return std::make_shared<ChannelConnection>();
  return {std::shared_ptr<void>(), &connection};  // the communicator outlives its launches
}

// Where a fault parts the counters, by one.
uint64_t Launch::PolledCounter(uint64_t awaited) const {
  const Faults& faults = options_.faults;
  if (faults.StrikesAfter(Fault::kHostAhead, number_)) return awaited + 1;
  if (faults.StrikesAfter(Fault::kDeviceAhead, number_))
    return awaited - std::min<uint64_t>(awaited, 1);
  return awaited;
}

bool Launch::GetsStuck(ChannelConnection& connection) const {
  if (communicator_.is_stuck || !options_.faults.StrikesAfter(Fault::kStuck, number_)) return false;
  communicator_.is_stuck = connection.is_stuck = true;
  return true;
}

void Launch::LoseEvents(PolledWork& work) const {
  const Faults& faults = options_.faults;
  if (faults.StrikesEvery(Fault::kLostStart, number_)) work.start = nullptr;
  if (faults.StrikesEvery(Fault::kLostKernel, number_)) {
    work.stop = nullptr;
    if (faults.IsEvenStrike(Fault::kLostKernel, number_)) work.start = nullptr;
  }
}

void Launch::ReportStart(const Part& part, ChannelConnection& connection, const WorkItem* shown,
                         int64_t now_ns) {
  const Faults& faults = options_.faults;
  uint64_t gpu_ns = 0;
  if (shown != nullptr) {
    gpu_ns = TimesOf(*shown).start_ns + static_cast<uint64_t>(faults.JumpNs(shown->start_ns));
  }
  if (faults.StrikesEvery(Fault::kZero, number_) && faults.IsEvenStrike(Fault::kZero, number_))
    gpu_ns = 0;
  connection.started_item = shown == nullptr ? WorkItem{} : *shown;
  StartKernelChannel(part, connection, gpu_ns, now_ns);
}

void Launch::ReportStop(const Part& part, ChannelConnection& connection, const WorkItem* shown,
                        int64_t now_ns) {
  const Faults& faults = options_.faults;
  const WorkItem own = ItemOn(part.channel);
  uint64_t gpu_ns = 0;
  if (shown != nullptr)
    gpu_ns = TimesOf(*shown).stop_ns + static_cast<uint64_t>(faults.JumpNs(shown->stop_ns));
  bool is_false = shown == nullptr || shown->stop_ns != own.stop_ns ||
                  connection.started_item.start_ns != own.start_ns;
  is_false |= faults.JumpNs(own.start_ns) != faults.JumpNs(own.stop_ns);
  if (faults.StrikesEvery(Fault::kZero, number_)) {
    if (!faults.IsEvenStrike(Fault::kZero, number_)) gpu_ns = 0;
    is_false = true;
  }
  if (faults.StrikesEvery(Fault::kBackwards, number_)) {
    gpu_ns = connection.started_gpu_ns - kBackwardsNs;
    is_false = true;
  }
  if (faults.StrikesEvery(Fault::kEqual, number_)) {
    gpu_ns = connection.started_gpu_ns;
    is_false = true;
  }
  if (is_false) communicator_.truth.MarkAffected(members_[part.member].operation);
  StopKernelChannel(part, connection, gpu_ns, now_ns);
}

}  // namespace nccl_exporter::sim
