// SPDX-License-Identifier: Apache-2.0
#include "simulator/nccl/prepared_plan.h"

#include <algorithm>

#include "simulator/nccl/group_events.h"
#include "simulator/workload/hash_random.h"

namespace nccl_exporter::sim {
namespace {

enum Purpose : uint64_t { kAnnouncement, kStops };

bool StartsGroup(uint32_t mask, const Release& release) {
  uint32_t bits = kColl | kP2p | kProxyOp | kProxyStep;
  if (!release.ReadsMaskPerPlan()) bits |= kGroup | kKernelCh | kNetPlugin;
  return (mask & bits) != 0;
}

std::vector<LaunchedTask> LaunchedTasksOf(const std::vector<Task>& tasks, int rank) {
  std::vector<LaunchedTask> launched;
  for (const Task& task : tasks) {
    if (!task.has_kernel_bit()) continue;
    launched.push_back({.is_p2p = task.is_p2p(),
                        .is_to_self = task.call.peer == rank,
                        .has_unplayed_channels = task.channels.played < task.channels.announced});
  }
  return launched;
}

// Collectives of a kernel run one after the other, by size; sends and receives at once.
std::vector<LaunchSlice> SlicesOf(const std::vector<Task>& tasks) {
  const auto weight = [](const Task& task) {
    return task.is_p2p() ? 0.0 : static_cast<double>(task.message_bytes) + 1;
  };
  double sum = 0;
  for (const Task& task : tasks) sum += weight(task);
  std::vector<LaunchSlice> slices;
  double from = 0;
  for (const Task& task : tasks) {
    const double until = from + weight(task);
    slices.push_back(task.is_p2p() ? LaunchSlice{} : LaunchSlice{from / sum, until / sum});
    from = until;
  }
  return slices;
}

}  // namespace

uint32_t PreparedPlan::Mask() const {
  const auto task =
      std::find_if(tasks_.begin(), tasks_.end(), [](const Task& t) { return t.mask != 0; });
  return task == tasks_.end() ? 0 : task->mask;
}

void PreparedPlan::CountMaskFaults(bool is_captured) const {
  const auto bit = [](const Task& task) { return (task.mask & kKernelCh) != 0 ? 1 : 0; };
  const Task* first = nullptr;
  for (const Task& task : tasks_) {
    int expected = -1;
    communicator_.first_bit.compare_exchange_strong(expected, bit(task));
    if (options_.release.BearsNoMaskChange() && expected >= 0 && expected != bit(task))
      ++communicator_.mask_faults;
    if (!is_captured && !task.is_p2p()) continue;
    if (first != nullptr && bit(*first) != bit(task)) ++communicator_.mask_faults;
    if (first == nullptr) first = &task;
  }
}

void PreparedPlan::CountMaskFaultsAtReplay() const {
  if (!IsEmpty() && ((Mask() ^ plugin_.Mask()) & kKernelCh) != 0) ++communicator_.mask_faults;
}

bool PreparedPlan::HasProxyOperations() const {
  return std::any_of(tasks_.begin(), tasks_.end(), [&](const Task& task) {
    return task.crosses_network || ((task.mask & kKernelCh) && options_.release.HasKernelEvents());
  });
}

uint64_t PreparedPlan::NextSequence(const Task& task, Way way) {
  if (task.is_p2p()) return 0;
  uint64_t& next = communicator_.sequences[static_cast<size_t>(task.call.function)];
  const bool counts_captured =
      (task.mask & kKernelCh) && (group_handle_ != nullptr || task.parent != nullptr);
  const bool counts = options_.release.CountsOnlyAnnounced()
                          ? group_handle_ != nullptr
                          : way == Way::kEager || counts_captured;
  return counts ? next++ : next;
}

void PreparedPlan::StartTasks(Way way, int64_t& now_ns) {
  for (Task& task : tasks_) {
    const uint64_t sequence = NextSequence(task, way);
    if (!IsAnnounced(task, options_.release, group_handle_)) continue;
    Descriptor descriptor =
        DescribeTask(task, communicator_, options_.release, group_handle_, sequence);
    plugin_.Start(communicator_.context, &task.handle, descriptor, now_ns += kCallbackNs);
  }
}

void PreparedPlan::StopTasks(int64_t& now_ns) {
  const bool is_unchecked = options_.release.StopsTasksUnchecked() && group_handle_ != nullptr;
  for (const Task& task : tasks_) {
    if (is_unchecked || task.handle != nullptr) plugin_.Stop(task.handle, now_ns += kCallbackNs);
  }
}

void PreparedPlan::LoadMaskOfPlan() {
  const uint32_t mask = plugin_.Mask();
  for (Task& task : tasks_) task.mask = mask;
}

// The calling thread is preempted until a short kernel has ended.
void PreparedPlan::MaybeLetKernelEndFirst(uint64_t purpose, int64_t end_ns, int64_t& now_ns) {
  constexpr int64_t kShortKernelNs = 200000;
  constexpr uint64_t kOneIn = 16;
  if (end_ns > preempted_until_ns_ || end_ns > now_ns + kShortKernelNs) return;
  if (end_ns <= now_ns ||
      HashRandom(options_.seed, communicator_.id, end_ns, purpose) % kOneIn != 0)
    return;
  rank_.GoOnTo(end_ns);
  now_ns = end_ns;
}

void PreparedPlan::Play(const KernelTimes& kernel, Way way, bool never_completes, int64_t& now_ns) {
  const Release& release = options_.release;
  const bool may_be_preempted = way == Way::kEager && !never_completes;
  // Where no event dates the call, the kernel may be over when the plan is announced.
  if (release.PreparesTasksLate() && may_be_preempted)
    MaybeLetKernelEndFirst(kAnnouncement, kernel.stop_ns, now_ns);
  if (release.ReadsMaskPerPlan()) LoadMaskOfPlan();
  if (StartsGroup(Mask(), release)) {
    Descriptor descriptor(release.api_version(), kGroup, nullptr, 0);
    plugin_.Start(communicator_.context, &group_handle_, descriptor, now_ns += kCallbackNs);
  }
  const bool replays_after_eager = way == Way::kReplay && !communicator_.was_captured;
  if (way != Way::kAtCapture &&
      communicator_.truth.BringsDrift(LaunchedTasksOf(tasks_, communicator_.rank),
                                      replays_after_eager)) {
    communicator_.is_drifting.store(true);
  }
  StartTasks(way, now_ns);

  const auto launch = std::make_shared<Launch>(options_, plugin_, rank_, communicator_, kernel,
                                               tasks_.size(), never_completes, way == Way::kReplay);
  if (way != Way::kAtCapture) CountWork(way, *launch, now_ns);
  // Announced while it is captured: the plan is not handed to the GPU, and where the events say so
  // it does not count.
  const bool counts = way != Way::kAtCapture || !release.AnnouncesCalls();
  int64_t last_due_ns = now_ns;
  const std::vector<LaunchSlice> slices = SlicesOf(tasks_);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (counts && IsAnnounced(tasks_[i], release, group_handle_)) {
      last_due_ns = std::max(last_due_ns, launch->Upload(tasks_[i], slices[i], now_ns));
    }
  }
  launch->EndUpload();
  // The events of the kernel are delivered before its tasks are stopped.
  if (may_be_preempted) MaybeLetKernelEndFirst(kStops, last_due_ns, now_ns);
  StopTasks(now_ns);
  if (group_handle_ != nullptr) plugin_.Stop(group_handle_, now_ns += kCallbackNs);
}

void PreparedPlan::PlaySilently(const KernelTimes& kernel, int64_t now_ns) {
  const auto launch =
      std::make_shared<Launch>(options_, plugin_, rank_, communicator_, kernel, 0, false, true);
  CountWork(Way::kReplay, *launch, now_ns);
  launch->EndUpload();
}

}  // namespace nccl_exporter::sim
