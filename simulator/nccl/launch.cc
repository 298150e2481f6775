// SPDX-License-Identifier: Apache-2.0
#include "simulator/nccl/launch.h"

#include <algorithm>
#include <array>

#include "proto/code_table.h"
#include "proto/collective.h"
#include "simulator/release/descriptor.h"
#include "simulator/workload/hash_random.h"

namespace nccl_exporter::sim {
namespace {

constexpr int64_t kUploadToPollNs = 1000;  // before that no thread sees an uploaded operation
// From an action of the GPU or the network to the poll that finds it.
constexpr int64_t kMostPollDelayNs = 18000;
constexpr int64_t kChannelSkewNs = 400;  // between the channels of a kernel

enum Purpose : int { kStartPoll, kStopPoll, kStartSkew, kStopSkew };

}  // namespace

int64_t Launch::DelayNs(int64_t most_ns, int channel, int purpose) const {
  const uint64_t bits = HashRandom(options_.seed, rank_.global_rank(), communicator_.id,
                                   kernel_.start_ns, channel, purpose);
  return static_cast<int64_t>(bits % static_cast<uint64_t>(most_ns));
}

// Channels of one kernel start and stop within kChannelSkewNs of each other, as blocks of a GPU do.
WorkItem Launch::ItemOn(int channel) const {
  if (NeverStarts()) return {WorkItem::kNever, WorkItem::kNever};
  return {kernel_.start_ns + DelayNs(kChannelSkewNs, channel, kStartSkew),
          never_completes_ ? WorkItem::kNever
                           : kernel_.stop_ns - DelayNs(kChannelSkewNs, channel, kStopSkew)};
}

Launch::GpuTimes Launch::TimesOf(const WorkItem& item) const {
  const GpuClock& clock = rank_.gpu_clock();
  return {clock.Read(item.start_ns),
          item.stop_ns == WorkItem::kNever ? 0 : clock.Read(item.stop_ns)};
}

ChannelConnection& Launch::ConnectionOf(const Task& task, int channel) const {
  return communicator_
      .connections[static_cast<size_t>(channel)][task.call.function == Function::kRecv ? 1 : 0];
}

// With proxy operations for times, a message to oneself has none.
bool Launch::HasNothingToShow(const Task& task) const {
  return communicator_.timing.load(std::memory_order_relaxed) == Timing::kProxy && task.is_p2p() &&
         task.call.peer == communicator_.rank;
}

int64_t Launch::Upload(const Task& task, const LaunchSlice& slice, int64_t now_ns) {
  const Release& release = options_.release;
  const bool has_proxy_events = HasProxyEvents(task);
  communicator_.NoteMask(task.mask, release);
  const bool has_kernel_events = (task.mask & kKernelCh) != 0 && release.HasKernelEvents();
  const bool shows_kernel = has_kernel_events && (task.channels.played > 0 || task.is_carried);
  const size_t member = members_.size();
  members_.push_back(
      {.function = task.call.function,
       .bytes = task.message_bytes,
       .shows_its_end = is_timed_ && (shows_kernel || has_proxy_events || HasNothingToShow(task))});
  members_.back().operation =
      communicator_.truth.AddOperation(task.call.function, task.message_bytes, kernel_.start_ns);
  true_members_.push_back(members_.back());
  int64_t last_due_ns = now_ns;
  if (has_kernel_events) {
    if (!task.is_symmetric) NoteWaits(task);
    for (int i = 0; i < task.channels.played && release.HasKernelTimes() && !never_completes_;
         ++i) {
      const GpuTimes times = TimesOf(ItemOn(task.channels.low + i));
      true_members_.back().Cover(times.start_ns, times.stop_ns);
    }
    if (task.is_carried && !never_completes_) Carry(members_[member], true_members_.back());
    last_due_ns = options_.faults.Any() && !task.is_symmetric
                      ? PostPolledEvents(task, member, now_ns)
                      : PostKernelEvents(task, member, now_ns);
  }
  return std::max(last_due_ns, PostNetworkEvents(task, slice, member, now_ns));
}

// The kernel of its plan ran on the first channel in any case.
void Launch::Carry(LaunchMember& shown, LaunchMember& real) const {
  const GpuTimes times = TimesOf(ItemOn(0));
  real.Cover(times.start_ns, times.stop_ns);
  if (is_timed_) shown.Cover(times.start_ns, times.stop_ns);
}

void Launch::RunOnDevice(int channel, bool writes, int64_t now_ns) {
  const auto place = static_cast<size_t>(channel);
  communicator_.counters[place].Run(writes);
  if (!options_.faults.Any()) return;
  WorkItem item = ItemOn(channel);
  item.is_written = writes;
  communicator_.polled[place].Run(item, now_ns, rank_.kernel_events(), options_.faults);
}

// 0 for a replay that was never counted: any entry shows as much.
uint64_t Launch::AwaitedBy(const Task& task, int part) const {
  return static_cast<size_t>(part) < task.awaited.size() ? task.awaited[static_cast<size_t>(part)]
                                                         : 0;
}

void Launch::NoteWaits(const Task& task) {
  const uint64_t number = ++communicator_.uploaded[task.call.function];
  if (never_completes_) return;  // the job is not destroyed then
  for (int i = 0; i < task.channels.played; ++i) {
    communicator_.counters[static_cast<size_t>(task.channels.low + i)].Wait(
        {.counter = AwaitedBy(task, i), .function = task.call.function, .number = number});
  }
}

// Operations on a connection are polled one after the other: a start is not reported before the
// stop of the one before.
int64_t Launch::PostKernelEvents(const Task& task, size_t member, int64_t now_ns) {
  int64_t last_due_ns = now_ns;
  for (int i = 0; i < task.channels.played; ++i) {
    const int channel = task.channels.low + i;
    ChannelConnection& connection = ConnectionOf(task, channel);
    Part part{.member = member,
              .parent = task.handle,
              .channel = channel,
              .start_due_ns = 0,
              .stop_due_ns = 0};
    part.start_due_ns = std::max(
        {now_ns + kUploadToPollNs, connection.last_due_ns + 1,
         kernel_.start_ns + kChannelSkewNs + DelayNs(kMostPollDelayNs, channel, kStartPoll)});
    part.stop_due_ns = std::max(part.start_due_ns + 1,
                                kernel_.stop_ns + DelayNs(kMostPollDelayNs, channel, kStopPoll));
    connection.last_due_ns = part.stop_due_ns;
    last_due_ns = std::max(last_due_ns, part.stop_due_ns);
    open_parts_.fetch_add(1, std::memory_order_relaxed);
    if (NeverStarts()) continue;
    const GpuTimes times = TimesOf(ItemOn(channel));
    rank_.kernel_events().Post(part.start_due_ns,
                               [self = shared_from_this(), part, &connection, times](int64_t now) {
                                 self->StartKernelChannel(part, connection, times.start_ns, now);
                               });
    if (never_completes_) continue;
    rank_.kernel_events().Post(part.stop_due_ns,
                               [self = shared_from_this(), part, &connection, times](int64_t now) {
                                 self->StopKernelChannel(part, connection, times.stop_ns, now);
                               });
  }
  return last_due_ns;
}

void Launch::StartKernelChannel(const Part& part, ChannelConnection& connection, uint64_t gpu_ns,
                                int64_t now_ns) {
  connection.started_ns = now_ns;
  connection.started_gpu_ns = gpu_ns;
  Descriptor descriptor(options_.release.api_version(), kKernelCh, part.parent, 0);
  descriptor.PutSigned(Field::kKernelChChannel, part.channel).Put(Field::kKernelChTimer, gpu_ns);
  plugin_.Start(communicator_.context, &connection.kernel_handle, descriptor, now_ns);
}

void Launch::StopKernelChannel(const Part& part, ChannelConnection& connection, uint64_t gpu_ns,
                               int64_t now_ns) {
  if (connection.kernel_handle != nullptr) {
    if (options_.release.HasKernelTimes()) {
      StateArguments arguments(gpu_ns);
      plugin_.Record(connection.kernel_handle, EventState::kKernelChStop, &arguments, now_ns);
    }
    plugin_.Stop(connection.kernel_handle, now_ns);
    if (options_.release.ClearsKernelSlots()) connection.kernel_handle = nullptr;
  }
  if (!is_timed_) {
    // The events carry the times of other work.
  } else if (options_.release.HasKernelTimes()) {
    const GpuTimes times = TimesOf(ItemOn(part.channel));
    members_[part.member].Cover(times.start_ns, times.stop_ns);
  } else {
    members_[part.member].Cover(static_cast<uint64_t>(connection.started_ns),
                                static_cast<uint64_t>(now_ns));
  }
  EndPart();
}

void Launch::EndUpload() {
  communicator_.truth.ListDurations(true_members_);
  communicator_.proxy_starts_due_ns =
      std::max(communicator_.proxy_starts_due_ns, proxy_starts_due_ns_);
  EndPart();
}

// The members' intervals were written before each part's decrement.
void Launch::EndPart() {
  if (open_parts_.fetch_sub(1, std::memory_order_acq_rel) == 1)
    communicator_.truth.CompleteLaunch(members_);
}

}  // namespace nccl_exporter::sim
