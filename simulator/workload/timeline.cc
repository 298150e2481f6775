// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/timeline.h"

#include <algorithm>
#include <utility>

#include "simulator/workload/hash_random.h"
#include "simulator/workload/link_model.h"
#include "simulator/workload/rank_calls.h"

namespace nccl_exporter::sim {
namespace {

// Times that the host needs; about NCCL's own cost.
constexpr int64_t kCallNs = 1500;
constexpr int64_t kLaunchNs = 2500;
// From the launch of a kernel to its first instruction. More than the announcement of all tasks of
// a plan takes, because in a replayed graph the kernel waits for it.
constexpr int64_t kLaunchLatencyNs = 8000;

constexpr int64_t kStepJitterNs = 30000;  // of a rank's start into a step
constexpr double kComputeJitter = 0.05;   // of a rank's compute time
constexpr double kTransferJitter = 0.03;  // of an operation's time, common to its ranks
constexpr int64_t kStopJitterNs = 800;    // ranks leave an operation almost together

// Periods until the ranks of an aborted communicator go on: the time-out of the job's watchdog.
constexpr int64_t kPeriodsToAbort = 5;

enum Purpose : uint64_t { kStepStart, kCompute, kTransfer, kStop, kAbort };

// A rank with a collective waits for all ranks of the launch, one with sends and receives only for
// its peers.
bool AwaitsAll(const Plan& plan) {
  return std::any_of(plan.tasks.begin(), plan.tasks.end(),
                     [](const RankCall& task) { return task.peer < 0; });
}

// Itself included.
std::vector<Plan*> PeersOf(Plan& plan, const std::vector<Plan*>& plan_of_rank) {
  std::vector<Plan*> peers{&plan};
  for (const RankCall& task : plan.tasks) {
    Plan* const peer = plan_of_rank[static_cast<size_t>(task.peer)];
    if (peer != nullptr) peers.push_back(peer);
  }
  return peers;
}

// Function that a confused program calls instead.
Function MismatchOf(Function function) {
  return function == Function::kAllReduce ? Function::kReduceScatter : Function::kAllReduce;
}

double TransferNsOf(const Plan& plan, const Communicator& communicator) {
  const Link& link = LinkOf(communicator.nodes);
  double collectives_ns = 0;
  uint64_t sent = 0;
  uint64_t received = 0;
  for (const RankCall& task : plan.tasks) {
    const uint64_t bytes = MessageBytesOf(task, communicator.ranks());
    if (task.function == Function::kSend) {
      sent += bytes;
    } else if (task.function == Function::kRecv) {
      received += bytes;
    } else {
      collectives_ns += CollectiveNs(link, task.function, bytes, communicator.ranks());
    }
  }
  return collectives_ns + (sent + received > 0 ? TransferNs(link, std::max(sent, received)) : 0.0);
}

}  // namespace

int64_t Timeline::Rank::IdleNs() const {
  int64_t idle_ns = computed_ns;
  for (const auto& [communicator, end_ns] : streams_ns) idle_ns = std::max(idle_ns, end_ns);
  return idle_ns;
}

Timeline::Timeline(const Workload& workload, const TimelineOptions& options)
    : workload_(workload),
      options_(options),
      threads_ns_(static_cast<size_t>(workload.shape().threads())),
      ranks_(static_cast<size_t>(workload.shape().ranks())),
      conditions_(options.incidents, workload.shape(), options.seed, options.period_ns) {}

int64_t Timeline::JitterNs(int64_t most_ns, int rank, uint64_t group, uint64_t purpose) const {
  return static_cast<int64_t>(HashRandom(options_.seed, step_, group, rank, purpose) %
                              static_cast<uint64_t>(most_ns));
}

bool Timeline::IsAborted(const Communicator& communicator, const GroupPosition& position) const {
  return communicator.aborted_step == step_ &&
         position.group >= HashRandom(options_.seed, step_, kAbort) % position.groups;
}

// The last rank of an aborted communicator has failed, and makes no call of it.
void Timeline::LeaveOutFailed(ThreadGroup& group, const GroupPosition& position) const {
  std::erase_if(group.calls, [&](const RankCall& call) {
    const Communicator& communicator =
        workload_.communicators()[static_cast<size_t>(call.communicator)];
    return call.rank == communicator.members.back() && IsAborted(communicator, position);
  });
}

// A step starts when the one before is done on the GPUs of the thread, as it does where the loss is
// looked at.
int64_t Timeline::ReadyNs(int thread) const {
  const int ranks = workload_.shape().ranks_per_thread;
  int64_t ready_ns = std::max(threads_ns_[static_cast<size_t>(thread)], step_ * options_.period_ns);
  for (int rank = thread * ranks; rank < (thread + 1) * ranks; ++rank) {
    ready_ns = std::max(ready_ns, ranks_[static_cast<size_t>(rank)].IdleNs());
  }
  return ready_ns;
}

int64_t Timeline::StartThread(int thread) {
  const int ranks = workload_.shape().ranks_per_thread;
  const int first_rank = thread * ranks;
  int64_t late_ns = 0;
  for (int rank = first_rank; rank < first_rank + ranks; ++rank) {
    late_ns = std::max(late_ns, conditions_.LateNs(rank));
  }
  const int64_t thread_ns =
      ReadyNs(thread) + JitterNs(kStepJitterNs, first_rank, 0, kStepStart) + late_ns;
  for (int rank = first_rank; rank < first_rank + ranks; ++rank) {
    ranks_[static_cast<size_t>(rank)].computed_ns = thread_ns;
  }
  return threads_ns_[static_cast<size_t>(thread)] = thread_ns;
}

void Timeline::Launch(ThreadGroup& group, int64_t& thread_ns) const {
  for (RankCall& call : group.calls) call.called_ns = thread_ns += kCallNs;
  for (Plan& plan : group.plans) {
    plan.launched_ns = thread_ns += kLaunchNs;
    for (size_t i = 0; i < plan.tasks.size(); ++i)
      plan.tasks[i].called_ns = group.calls[plan.calls[i]].called_ns;
  }
  group.ended_ns = thread_ns;
}

void Timeline::StartKernel(Plan& plan, const GroupPosition& position) {
  Rank& rank = ranks_[static_cast<size_t>(plan.rank)];
  const double slowness =
      1.0 + kComputeJitter *
                Fraction(HashRandom(options_.seed, step_, position.group, plan.rank, kCompute));
  const int64_t step_compute_ns = options_.compute_ns + conditions_.ExtraComputeNs(plan.rank);
  const double compute_ns =
      static_cast<double>(step_compute_ns) / static_cast<double>(position.groups);
  const auto own_compute_ns = static_cast<int64_t>(compute_ns * slowness);
  rank.computed_ns = std::max(rank.computed_ns, plan.launched_ns) + own_compute_ns;
  int64_t& stream_ns = rank.streams_ns[plan.communicator];
  plan.kernel_start_ns =
      std::max({plan.launched_ns + kLaunchLatencyNs, rank.computed_ns, stream_ns});
  stream_ns = plan.kernel_start_ns;
}

// `plans` belong to one communicator and one launch: at most one of each rank.
void Timeline::StopKernels(const std::vector<Plan*>& plans, const GroupPosition& position,
                           bool overlaps_compute) {
  const int number = plans.front()->communicator;
  const Communicator& communicator = workload_.communicators()[static_cast<size_t>(number)];
  std::vector<Plan*> plan_of_rank(communicator.members.size());
  for (Plan* plan : plans)
    plan_of_rank[static_cast<size_t>(communicator.RankOf(plan->rank))] = plan;
  const double common =
      Fraction(HashRandom(options_.seed, step_, position.group, number, kTransfer));
  const double times = (1.0 + kTransferJitter * common) * conditions_.TransferTimes(communicator);
  const bool is_aborted = IsAborted(communicator, position);
  const Awaited all = AwaitedOf(plans, communicator);
  std::vector<int64_t> stops_ns;
  for (Plan* plan : plans) {
    const bool is_collective = AwaitsAll(*plan);
    const bool hangs =
        conditions_.Hangs(communicator, is_collective, position.group, position.groups);
    const Awaited awaited =
        is_collective ? all : AwaitedOf(PeersOf(*plan, plan_of_rank), communicator);
    const double transfer_ns = TransferNsOf(*plan, communicator) * times * awaited.adapter_times;
    const int64_t stop_ns = awaited.start_ns + static_cast<int64_t>(transfer_ns) +
                            JitterNs(kStopJitterNs, plan->rank, position.group, kStop);
    stops_ns.push_back(hangs || awaited.leaves_ns < stop_ns ? std::max(stop_ns, kNever) : stop_ns);
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    Plan& plan = *plans[i];
    Rank& rank = ranks_[static_cast<size_t>(plan.rank)];
    plan.kernel_stop_ns = is_aborted ? std::max(stops_ns[i], kNever) : stops_ns[i];
    if (plan.kernel_start_ns > conditions_.LeavesNs(IncidentKind::kKill, plan.rank))
      plan.kernel_start_ns = kNever;
    int64_t free_ns = plan.kernel_stop_ns;
    if (communicator.aborted_step == step_ && free_ns >= kNever) {
      // The abort ends the kernel, and those behind it never start.
      free_ns = (step_ + kPeriodsToAbort) * options_.period_ns;
      if (plan.kernel_start_ns >= free_ns) plan.kernel_start_ns = kNever;
    }
    rank.streams_ns[number] = free_ns;
    if (!overlaps_compute) rank.computed_ns = std::max(rank.computed_ns, free_ns);
  }
  const auto transfer = TransferOf(plan_of_rank, communicator);
  for (Plan* plan : plans) plan->transfer = transfer;
}

Timeline::Awaited Timeline::AwaitedOf(const std::vector<Plan*>& plans,
                                      const Communicator& communicator) const {
  const bool is_between_nodes = communicator.nodes > 1;
  Awaited awaited;
  for (const Plan* plan : plans) {
    awaited.start_ns = std::max(awaited.start_ns, plan->kernel_start_ns);
    awaited.leaves_ns =
        std::min(awaited.leaves_ns, conditions_.LeavesNs(IncidentKind::kKill, plan->rank));
    if (!is_between_nodes) continue;
    awaited.leaves_ns =
        std::min(awaited.leaves_ns, conditions_.LeavesNs(IncidentKind::kStop, plan->rank));
    awaited.adapter_times = std::max(awaited.adapter_times, conditions_.AdapterTimes(plan->rank));
  }
  return awaited;
}

std::shared_ptr<const LaunchTransfer> Timeline::TransferOf(const std::vector<Plan*>& plan_of_rank,
                                                           const Communicator& communicator) const {
  auto transfer = std::make_shared<LaunchTransfer>();
  for (const Plan* plan : plan_of_rank) {
    transfer->ranks.push_back(plan == nullptr ? LaunchTransfer::RankTimes{kNever, kNever, kNever}
                                              : LaunchTransfer::RankTimes{plan->launched_ns,
                                                                          plan->kernel_start_ns,
                                                                          plan->kernel_stop_ns});
  }
  if (!conditions_.HasSlowHops() || communicator.nodes == 1) return transfer;
  const auto add = [&](int sender, int receiver) {
    const HopTimes hop = conditions_.HopOf(communicator, sender, receiver);
    if (hop != HopTimes{}) transfer->hops[{sender, receiver}] = hop;
  };
  for (int rank = 0; rank < communicator.ranks(); ++rank) {
    add(rank, RingNeighbour(communicator, rank, true));
    const Plan* const plan = plan_of_rank[static_cast<size_t>(rank)];
    if (plan == nullptr) continue;
    for (const RankCall& task : plan->tasks) {
      if (task.function == Function::kSend) add(rank, task.peer);
      if (task.function == Function::kRecv) add(task.peer, rank);
    }
  }
  return transfer;
}

// The thread makes its calls of the group, or hangs before them.
void Timeline::Call(ThreadGroup& group, int thread, const GroupPosition& position) {
  int64_t& thread_ns = threads_ns_[static_cast<size_t>(thread)];
  for (RankCall& call : group.calls) {
    if (conditions_.IsMissed(call.rank, position.group, position.groups))
      thread_ns = std::max(thread_ns, kNever);
    if (call.peer < 0 && conditions_.IsMismatched(call.rank, position.group, position.groups)) {
      call.function = MismatchOf(call.function);
    }
  }
  group.plans = PlansOf(group.calls, workload_.communicators());
  group.is_explicit = group.calls.size() > 1;
  Launch(group, thread_ns);
}

std::vector<ThreadGroup> Timeline::Play(const Group& group, const GroupPosition& position) {
  const ClusterShape& shape = workload_.shape();
  std::vector<ThreadGroup> played(threads_ns_.size());
  // By the number of the launch in its group, then by communicator: what runs at once on all ranks.
  std::map<std::pair<int, int>, std::vector<Plan*>> launches;
  for (int thread = 0; thread < shape.threads(); ++thread) {
    ThreadGroup& mine = played[static_cast<size_t>(thread)];
    const int first_rank = thread * shape.ranks_per_thread;
    mine.id = group.id;
    mine.is_capturable = group.is_capturable;
    mine.calls =
        CallsOf(group, workload_.communicators(), first_rank, first_rank + shape.ranks_per_thread);
    LeaveOutFailed(mine, position);
    Call(mine, thread, position);
    std::map<std::pair<int, int>, int> launched;
    for (Plan& plan : mine.plans) {
      launches[{launched[{plan.rank, plan.communicator}]++, plan.communicator}].push_back(&plan);
    }
  }
  for (const auto& [launch, plans] : launches) {
    for (Plan* plan : plans) StartKernel(*plan, position);
    StopKernels(plans, position, group.overlaps_compute);
  }
  return played;
}

std::vector<ThreadStep> Timeline::Next() {
  const int threads = workload_.shape().threads();
  int64_t began_ns = INT64_MAX;
  for (int thread = 0; thread < threads; ++thread) began_ns = std::min(began_ns, ReadyNs(thread));
  conditions_.BeginStep(step_, began_ns);
  std::vector<ThreadStep> kept;
  for (int thread = 0; thread < threads; ++thread) {
    const int64_t started_ns = StartThread(thread);
    if (thread < options_.first_thread || thread >= options_.last_thread) continue;
    const int rank = thread * workload_.shape().ranks_per_thread;
    kept.push_back({.step = step_,
                    .started_ns = started_ns,
                    .killed_ns = conditions_.LeavesNs(IncidentKind::kKill, rank),
                    .stopped_ns = conditions_.LeavesNs(IncidentKind::kStop, rank)});
  }
  const std::vector<Group> groups = workload_.GroupsOfStep(step_);
  for (size_t index = 0; index < groups.size(); ++index) {
    if (!conditions_.IsCalled(index, groups.size())) continue;
    std::vector<ThreadGroup> played = Play(groups[index], {index, groups.size()});
    for (size_t i = 0; i < kept.size(); ++i) {
      ThreadGroup& mine = played[static_cast<size_t>(options_.first_thread) + i];
      if (!mine.calls.empty()) kept[i].groups.push_back(std::move(mine));
    }
  }
  // A rank that is killed or stopped has made its calls of the step, and makes no more.
  for (int thread = 0; thread < threads; ++thread) {
    const int rank = thread * workload_.shape().ranks_per_thread;
    const int64_t leaves_ns = std::min(conditions_.LeavesNs(IncidentKind::kKill, rank),
                                       conditions_.LeavesNs(IncidentKind::kStop, rank));
    if (leaves_ns < kNever) threads_ns_[static_cast<size_t>(thread)] = kNever;
  }
  ++step_;
  return kept;
}

int64_t SustainablePeriodNs(const Workload& workload, TimelineOptions options) {
  constexpr int kSteps = 3;
  options.first_thread = 0;
  options.last_thread = workload.shape().threads();
  options.period_ns = 0;
  options.incidents.clear();
  Timeline timeline(workload, options);
  int64_t end_ns = 0;
  for (int step = 0; step < kSteps; ++step) {
    for (const ThreadStep& thread : timeline.Next()) {
      for (const ThreadGroup& group : thread.groups) {
        for (const Plan& plan : group.plans) {
          if (plan.kernel_stop_ns < kNever) end_ns = std::max(end_ns, plan.kernel_stop_ns);
        }
      }
    }
  }
  return end_ns / kSteps * 5 / 4;
}

}  // namespace nccl_exporter::sim
