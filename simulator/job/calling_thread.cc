// SPDX-License-Identifier: Apache-2.0
#include "simulator/job/calling_thread.h"

#include <algorithm>
#include <utility>

#include "simulator/truth/drift.h"

namespace nccl_exporter::sim {

namespace {

// Until when a thread that launches a plan may be preempted, and still make the calls of the next
// group before their kernels start. `next` null: those of the next step, which begins when this one
// is done on the GPU.
int64_t LatestEndNs(const Plan& plan, const ThreadGroup* next) {
  constexpr int64_t kToMakeCallsNs = 5000;  // some 200 callbacks
  if (next == nullptr) return plan.kernel_stop_ns + kToMakeCallsNs;
  int64_t latest_ns = kNever;
  for (const Plan& later : next->plans)
    latest_ns = std::min(latest_ns, later.kernel_start_ns - kToMakeCallsNs);
  return latest_ns;
}

}  // namespace

CalledRank& CallingThread::Called(int global_rank) {
  return ranks_[static_cast<size_t>(global_rank - ranks_.front().rank.global_rank())];
}

void CallingThread::GoOnTo(int64_t job_ns) {
  now_ns_ = std::max(now_ns_, job_ns);
  for (CalledRank& called : ranks_) called.rank.SetHorizon(now_ns_);
  clock_mode_.SleepUntil(clock_mode_.Moment(now_ns_));
  for (CalledRank& called : ranks_) called.rank.GoOnTo(now_ns_);
}

void CallingThread::Drain() {
  for (CalledRank& called : ranks_) now_ns_ = called.rank.Drain(now_ns_);
}

void CallingThread::Finalize() {
  Drain();
  for (CalledRank& called : ranks_) called.communicators.FinalizeAll(now_ns_ += kCallbackNs);
}

bool CallingThread::HasHung() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const CalledRank& called) { return called.communicators.HasHung(); });
}

void CallingThread::StartStep(const ThreadStep& step) {
  GoOnTo(step.started_ns);
  ++steps_;
  if (clock_mode_.IsBehind(step.started_ns)) ++late_steps_;
  clock_mode_.Compute(std::chrono::duration<double, std::milli>(options_.host_work_ms));
  if (ranks_.front().communicators.IsRecreatedAt(step.step)) {
    Drain();
    graphs_.clear();
  }
  for (CalledRank& called : ranks_)
    called.communicators.UpdateTo(step.step, now_ns_ += kCallbackNs);
}

bool CallingThread::Play(const ThreadStep& step) {
  if (step.started_ns >= kNever) return false;
  StartStep(step);
  if (HasHung()) return false;
  for (size_t i = 0; i < step.groups.size(); ++i) {
    if (step.groups[i].calls.front().called_ns >= kNever) return false;
    if (clock_mode_.StopAsked()) return true;
    PlayGroup(step.groups[i], i + 1 < step.groups.size() ? &step.groups[i + 1] : nullptr, false);
  }
  return true;
}

void CallingThread::PlayHanging(const ThreadStep& step) {
  StartStep(step);
  if (!step.groups.empty()) PlayGroup(step.groups.front(), nullptr, true);
}

void CallingThread::PlayGroup(const ThreadGroup& group, const ThreadGroup* next,
                              bool never_completes) {
  GoOnTo(group.calls.front().called_ns);
  if (!plugin_.IsLoaded()) return;
  if (options_.faults.Has(Fault::kRasMask)) plugin_.ControlMask(options_.faults.RasMaskAt(now_ns_));
  if (options_.captures_graphs && group.is_capturable && !never_completes) {
    if (!graphs_.contains(group.id)) Capture(group);
    Replay(group, graphs_.at(group.id));
    return;
  }
  auto plans = std::make_shared<Plans>(MakeCalls(group, false));
  if (options_.is_nonblocking) {
    events_.End(now_ns_);
    LaunchOnHostThread(group, plans);
    return;
  }
  Launch(group, next, *plans, never_completes);
  events_.End(now_ns_);
}

// The calls of a group up to ncclGroupEnd, and the plans that come of them.
CallingThread::Plans CallingThread::MakeCalls(const ThreadGroup& group, bool is_captured) {
  const int depth = group.is_explicit ? 2 : 1;
  std::vector<GroupEvents::CallEvent> called;
  for (const RankCall& call : group.calls) {
    now_ns_ = std::max(now_ns_, call.called_ns);
    LiveCommunicator& communicator = Called(call.rank).communicators.At(call.communicator);
    called.push_back(events_.Call(communicator, call, depth, is_captured, now_ns_));
  }
  events_.BeginEnd(now_ns_);
  if (options_.release.PreparesTasksLate()) {
    for (GroupEvents::CallEvent& event : called) event.mask = plugin_.Mask();
  }

  Plans plans;
  for (const Plan& plan : group.plans) {
    CalledRank& rank = Called(plan.rank);
    LiveCommunicator& communicator = rank.communicators.At(plan.communicator);
    PreparedPlan& prepared = plans.emplace_back(options_, plugin_, rank.rank, communicator);
    communicator.was_captured = is_captured;
    const bool has_kernel_events =
        !plan.calls.empty() && (called[plan.calls.front()].mask & kKernelCh) != 0;
    if (has_kernel_events &&
        CallsBringDrift(group, plan.rank, plan.communicator, options_.release)) {
      communicator.is_drifting.store(true);
    }
    const bool joins =
        options_.release.JoinsBroadcasts() && HasSeveralRoots(group, plan.rank, plan.communicator);
    const bool is_symmetric = IsSymmetric(plan.tasks, communicator, options_);
    for (size_t i = 0; i < plan.tasks.size(); ++i) {
      if (is_symmetric && !options_.release.AnnouncesSymmetric()) continue;
      if (plan.tasks[i].function == Function::kBroadcast &&
          (joins || options_.release.BroadcastIsCallOnly())) {
        communicator.sequences[static_cast<size_t>(Function::kBroadcast)]++;
        prepared.AddUnannounced(MakeTask(plan.tasks[i], communicator, options_), joins);
        continue;
      }
      Task task = MakeTask(plan.tasks[i], communicator, options_);
      task.mask = called[plan.calls[i]].mask;
      task.parent = called[plan.calls[i]].handle;
      if (is_symmetric) MakeSymmetric(task, i, is_captured);
      prepared.Add(task);
    }
    prepared.CountMaskFaults(is_captured);
  }
  return plans;
}

// First all kernels are launched, then their plans are announced, one after the other.
void CallingThread::Launch(const ThreadGroup& group, const ThreadGroup* next, Plans& plans,
                           bool never_completes) {
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].IsEmpty()) continue;
    now_ns_ = std::max(now_ns_, group.plans[i].launched_ns);
    events_.LaunchKernel(plans[i].communicator(), plans[i].Mask(), now_ns_);
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].IsEmpty() && !plans[i].HasUnannounced()) continue;
    const KernelTimes kernel = KernelTimes::Of(group.plans[i]);
    plans[i].MayBePreemptedUntil(LatestEndNs(group.plans[i], next));
    plans[i].Play(kernel, PreparedPlan::Way::kEager, never_completes, now_ns_);
  }
}

// Non-blocking: ncclGroupEnd returns at once, and a thread of NCCL's does the rest. KernelLaunch is
// not played there.
void CallingThread::LaunchOnHostThread(const ThreadGroup& group,
                                       const std::shared_ptr<Plans>& plans) {
  for (size_t i = 0; i < plans->size(); ++i) {
    if ((*plans)[i].IsEmpty() && !(*plans)[i].HasUnannounced()) continue;
    const Plan& plan = group.plans[i];
    const KernelTimes kernel = KernelTimes::Of(plan);
    Called(plan.rank).rank.host().Post(
        std::max(now_ns_, plan.launched_ns), [plans, i, kernel](int64_t& now_ns) {
          (*plans)[i].Play(kernel, PreparedPlan::Way::kEager, false, now_ns);
        });
  }
}

// Calls that are captured announce themselves once; so do plans that no host function will announce
// at replays.
void CallingThread::Capture(const ThreadGroup& group) {
  Plans& plans = graphs_[group.id] = MakeCalls(group, true);
  for (PreparedPlan& plan : plans) {
    plan.CountAtCapture();
    if (plan.IsEmpty()) continue;
    events_.LaunchKernel(plan.communicator(), plan.Mask(), now_ns_);
    if (plan.HasProxyOperations() || !options_.release.AnnouncesAtCapture()) continue;
    plan.Play({}, PreparedPlan::Way::kAtCapture, false, now_ns_);
  }
  events_.End(now_ns_);
}

void CallingThread::Replay(const ThreadGroup& group, Plans& plans) {
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].CountMaskFaultsAtReplay();
    if (plans[i].IsEmpty() && !plans[i].HasUnannounced()) continue;
    const Plan& plan = group.plans[i];
    const KernelTimes kernel = KernelTimes::Of(plan);
    PreparedPlan& prepared = plans[i];
    Called(plan.rank).rank.host().Post(
        std::max(now_ns_, plan.launched_ns), [&prepared, kernel](int64_t& now_ns) {
          if (!prepared.HasProxyOperations()) return prepared.PlaySilently(kernel, now_ns);
          prepared.Play(kernel, PreparedPlan::Way::kReplay, false, now_ns);
        });
  }
}

}  // namespace nccl_exporter::sim
