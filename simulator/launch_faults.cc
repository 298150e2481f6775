// SPDX-License-Identifier: Apache-2.0
// A launch whose kernel events go wrong: which counters the host waits for, what it finds there, what gets lost.
#include <utility>

#include "simulator/launch.h"

namespace nccl_exporter::sim {
namespace {

constexpr int64_t kMostPollDelayNs = 18000;
constexpr uint64_t kBackwardsNs = 5000;

}  // namespace

void Launch::RunUncounted(const Task& task, int64_t now_ns) {
  for (int i = 0; i < task.channels.used; ++i) {
    const int channel = task.channels.low + i;
    ConnectionOf(task, channel).polled.Run(ItemOn(channel), now_ns, rank_.kernel_events(), options_.faults);
  }
}

int64_t Launch::PostPolledEvents(const Task& task, size_t member, int64_t now_ns) {
  const Faults& faults = options_.faults;
  const bool runs_hidden_parts = faults.Has(Fault::kDriftSelfSend) && task.is_p2p();
  const int run = runs_hidden_parts ? task.channels.used : task.channels.played;
  for (int i = 0; i < run; ++i) {
    const int channel = task.channels.low + i;
    ChannelConnection& connection = ConnectionOf(task, channel);
    if (faults.StrikesAfter(Fault::kDeviceAhead, number_) && !std::exchange(connection.is_device_ahead, true)) {
      connection.polled.Run(connection.latest_item, now_ns, rank_.kernel_events(), faults);
    }
    connection.latest_item = ItemOn(channel);
    connection.polled.Run(connection.latest_item, now_ns, rank_.kernel_events(), faults);
    if (i >= task.channels.played) continue;  // the host knows nothing of this one
    const Part part{.member = member, .parent = task.handle, .channel = channel, .start_due_ns = 0, .stop_due_ns = 0};
    PolledWork work{.counter = CountWork(connection),
                    .start_delay_ns = DelayNs(kMostPollDelayNs, channel, 0),
                    .stop_delay_ns = DelayNs(kMostPollDelayNs, channel, 1)};
    work.start = [self = shared_from_this(), part, &connection](const WorkItem* shown, int64_t now) {
      self->ReportStart(part, connection, shown, now);
    };
    work.stop = [self = shared_from_this(), part, &connection](const WorkItem* shown, int64_t now) {
      self->ReportStop(part, connection, shown, now);
    };
    open_parts_.fetch_add(1, std::memory_order_relaxed);
    if (!std::exchange(has_polled_parts_, true)) LoseEvents(work);
    if (GetsStuck(connection)) work.counter = PolledWork::kNeverWritten;
    if (connection.is_stuck || !work.start || !work.stop) {
      communicator_.account.MarkAffected(members_[member].operation);
    }
    connection.polled.Append(std::move(work), now_ns, rank_.kernel_events(), faults);
  }
  return kernel_.stop_ns + kMostPollDelayNs;
}

// The counter that the host waits for.
uint64_t Launch::CountWork(ChannelConnection& connection) const {
  const Faults& faults = options_.faults;
  const bool is_not_counted = faults.Has(Fault::kDriftGraph) && is_replay_ && !communicator_.was_captured;
  if (is_not_counted) return connection.polled.counted();
  if (faults.StrikesAfter(Fault::kHostAhead, number_) && !connection.is_ahead) {
    connection.is_ahead = true;
    connection.polled.Count();
  }
  return connection.polled.Count();
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

void Launch::ReportStart(const Part& part, ChannelConnection& connection, const WorkItem* shown, int64_t now_ns) {
  const Faults& faults = options_.faults;
  uint64_t gpu_ns = 0;
  if (shown != nullptr) {
    gpu_ns = TimesOf(*shown).start_ns + static_cast<uint64_t>(faults.JumpNs(shown->start_ns));
  }
  if (faults.StrikesEvery(Fault::kZero, number_) && faults.IsEvenStrike(Fault::kZero, number_)) gpu_ns = 0;
  connection.started_item = shown == nullptr ? WorkItem{} : *shown;
  StartKernelChannel(part, connection, gpu_ns, now_ns);
}

void Launch::ReportStop(const Part& part, ChannelConnection& connection, const WorkItem* shown, int64_t now_ns) {
  const Faults& faults = options_.faults;
  const WorkItem own = ItemOn(part.channel);
  uint64_t gpu_ns = 0;
  if (shown != nullptr) gpu_ns = TimesOf(*shown).stop_ns + static_cast<uint64_t>(faults.JumpNs(shown->stop_ns));
  bool is_false = shown == nullptr || shown->stop_ns != own.stop_ns || connection.started_item.start_ns != own.start_ns;
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
  if (is_false) communicator_.account.MarkAffected(members_[part.member].operation);
  StopKernelChannel(part, connection, gpu_ns, now_ns);
}

}  // namespace nccl_exporter::sim
