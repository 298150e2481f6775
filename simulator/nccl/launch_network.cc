// SPDX-License-Identifier: Apache-2.0
// The network operations of a launch: their way, their events, their account.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "simulator/nccl/launch.h"
#include "simulator/network/path.h"
#include "simulator/workload/rank_calls.h"

namespace nccl_exporter::sim {
namespace {

constexpr int64_t kUploadToPollNs = 1000;  // before that no thread sees an uploaded operation
constexpr int64_t kMostTakeUpNs = 18000;   // until the thread takes it up

enum Purpose : int { kSendStart = 16, kRecvStart };

bool GoesOut(const Task& task, bool is_send) {
  return task.call.function != (is_send ? Function::kRecv : Function::kSend);
}

// Sends that another process makes for this rank.
bool IsDelegated(const PlayOptions& options, int channel, bool is_send) {
  return options.network_options.uses_pxn && is_send && channel % 2 == 1;
}

uint32_t ProxyBitsOf(const Release& release) {
  return kProxyOp | kProxyStep | (release.HasKernelEvents() ? uint32_t{kNetPlugin} : 0);
}

// A ring has this rank first; what it sends goes over the first hop, and what it receives came over
// the last.
std::vector<int> RingFrom(const Communicator& communicator, int rank) {
  std::vector<int> ring{rank};
  for (int next = RingNeighbour(communicator, rank, true); next != rank;
       next = RingNeighbour(communicator, next, true)) {
    ring.push_back(next);
  }
  return ring;
}

}  // namespace

int Launch::PeerOf(const Task& task, bool is_send) const {
  return task.is_p2p() ? task.call.peer
                       : RingNeighbour(communicator_.shape, communicator_.rank, is_send);
}

// Steps of each hop on each channel. The rank sends over the first hop and receives over the last;
// a send or receive has only one.
std::vector<std::vector<StepTimes>> Launch::StepsOnNetwork(const Task& task,
                                                           const LaunchSlice& slice) const {
  std::vector<int> ranks;
  if (!task.is_p2p()) {
    ranks = RingFrom(communicator_.shape, communicator_.rank);
  } else if (task.call.function == Function::kSend) {
    ranks = {communicator_.rank, task.call.peer};
  } else {
    ranks = {task.call.peer, communicator_.rank};
  }
  Path path{.steps = StepsOf(task), .overlap = options_.network_options.overlap};
  bool ends = !never_completes_;
  int64_t begin_ns = 0;
  int64_t stop_ns = kNever;
  for (const int rank : ranks) {
    const LaunchTransfer::RankTimes& times = kernel_.transfer->ranks[static_cast<size_t>(rank)];
    path.ranks.push_back({times.launched_ns, times.start_ns});
    begin_ns = std::max(begin_ns, times.start_ns);
    stop_ns = std::min(stop_ns, times.stop_ns);
    ends = ends && times.stop_ns < kNever;
  }
  const size_t hops = task.is_p2p() ? 1 : ranks.size();
  for (size_t hop = 0; hop < hops; ++hop)
    path.hops.push_back(kernel_.transfer->HopOf(ranks[hop], ranks[(hop + 1) % ranks.size()]));
  path.stop_ns = kNever;
  if (ends) {
    const auto span_ns = static_cast<double>(stop_ns - begin_ns);
    path.stop_ns = begin_ns + static_cast<int64_t>(span_ns * slice.until);
    for (Path::Rank& rank : path.ranks) {
      if (slice.from > 0) rank.start_ns = begin_ns + static_cast<int64_t>(span_ns * slice.from);
    }
  }
  return sim::StepsOf(path);
}

int Launch::StepsOf(const Task& task) const {
  const uint64_t chunk = options_.network_options.chunk_bytes;
  return static_cast<int>(std::max<uint64_t>(1, (BytesOnChannel(task) + chunk - 1) / chunk));
}

// In a ring of n ranks each hands on an n-th of the message in n-1 steps, for an AllReduce in twice
// as many (2.30.7 src/enqueue.cc, nstepsPerLoop and nchunksPerLoop of ncclPatternRing and
// ncclPatternRingTwice). From or to a root the whole message passes.
uint64_t Launch::BytesOnHop(const Task& task) const {
  const int ranks = communicator_.shape.ranks();
  const uint64_t bytes = MessageBytesOf(task.call, ranks);
  const auto steps = static_cast<uint64_t>(ranks - 1), parts = static_cast<uint64_t>(ranks);
  switch (task.call.function) {
    case Function::kAllReduce:
      return 2 * bytes * steps / parts;
    case Function::kAllGather:
    case Function::kReduceScatter:
      return bytes * steps / parts;
    default:
      return bytes;
  }
}

uint64_t Launch::BytesOnChannel(const Task& task) const {
  return BytesOnHop(task) / static_cast<uint64_t>(task.channels.used);
}

bool Launch::HasProxyEvents(const Task& task) const {
  if (!task.crosses_network || (task.mask & ProxyBitsOf(options_.release)) == 0) return false;
  for (const bool is_send : {true, false}) {
    for (int i = 0; i < task.channels.used && GoesOut(task, is_send); ++i) {
      if (!IsDelegated(options_, task.channels.low + i, is_send)) return true;
    }
  }
  return false;
}

int64_t Launch::PostNetworkEvents(const Task& task, const LaunchSlice& slice, size_t member,
                                  int64_t now_ns) {
  int64_t last_due_ns = now_ns;
  if (!task.crosses_network || kernel_.transfer == nullptr) return last_due_ns;
  const std::vector<std::vector<StepTimes>> hops = StepsOnNetwork(task, slice);
  for (const bool is_send : {true, false}) {
    if (!GoesOut(task, is_send)) continue;
    const std::vector<StepTimes>& times = is_send ? hops.front() : hops.back();
    for (int i = 0; i < task.channels.used; ++i) {
      last_due_ns = std::max(
          last_due_ns, PostOnChannel(task, member, task.channels.low + i, is_send, times, now_ns));
    }
  }
  return last_due_ns;
}

// When the progress thread takes the operation up, and when its connection is free for it.
Launch::NetworkMoments Launch::MomentsOn(int channel, bool is_send, int peer,
                                         const StepTimes& last_step, int64_t now_ns) {
  NetworkMoments moments;
  moments.start_ns =
      now_ns + kUploadToPollNs + DelayNs(kMostTakeUpNs, channel, is_send ? kSendStart : kRecvStart);
  if (!options_.release.HasDetailedProxyStates())
    moments.start_ns = std::max(moments.start_ns, communicator_.proxy_starts_due_ns);
  int64_t& free_ns = communicator_.network_free_ns[{channel, is_send ? 1 : 0, peer}];
  moments.begin_ns = std::max(moments.start_ns + 1, free_ns);
  // Up to 2.26 an operation starts when its connection takes it up, later when the progress thread
  // receives it.
  if (options_.release.HasDetailedProxyStates()) moments.start_ns = moments.begin_ns;
  const int64_t end_ns = is_send ? last_step.sent_ns : last_step.consumed_ns;
  free_ns = std::min<int64_t>(
      kNever, std::max(moments.begin_ns, end_ns) + 2 * options_.network_options.poll_ns);
  return moments;
}

int64_t Launch::PostOnChannel(const Task& task, size_t member, int channel, bool is_send,
                              const std::vector<StepTimes>& times, int64_t now_ns) {
  const NetworkOptions& network = options_.network_options;
  const bool is_announced = (task.mask & ProxyBitsOf(options_.release)) != 0;
  const int peer = PeerOf(task, is_send);
  const NetworkMoments moments = MomentsOn(channel, is_send, peer, times.back(), now_ns);
  ProxyOperation operation(is_send, times, network.overlap,
                           {.interval_ns = network.poll_ns, .most_repeats = network.most_repeats},
                           BytesOnChannel(task), network.chunk_bytes);
  const bool is_delegated = IsDelegated(options_, channel, is_send);
  if (!is_announced || is_delegated) AccountUnseen(operation, moments.begin_ns);
  if (!is_announced) {
    PostStopOfStale(channel, is_send, moments.begin_ns);
    return now_ns;
  }
  ProxyIdentity identity{.context = communicator_.context,
                         .parent = task.handle,
                         .rank = communicator_.rank,
                         .pid = getpid(),
                         .channel = channel,
                         .peer = peer,
                         .mask = task.mask,
                         .chunk_bytes = network.chunk_bytes};
  if (is_delegated) {
    // The neighbour's numbers, of its process. The worst that they can be is valid in ours.
    identity.rank = (communicator_.rank + 1) % communicator_.shape.ranks();
    identity.pid = getppid();
  }
  PostStale(identity, operation, moments.start_ns);
  auto work = std::make_shared<NetworkWork>(NetworkWork{
      .member = member,
      .is_foreign = is_delegated,
      .events = ProxyEvents(options_.release, plugin_, identity, std::move(operation))});
  proxy_starts_due_ns_ = std::max(proxy_starts_due_ns_, moments.start_ns);
  return Post(work, moments);
}

void Launch::AccountUnseen(ProxyOperation operation, int64_t begin_ns) {
  if (begin_ns >= kNever || operation.RunUnseen(begin_ns) >= kNever) return;
  communicator_.truth.AddNetworkOperation(
      {.is_send = operation.is_send(), .is_reported = false, .steps = operation.marks()});
}

// NCCL starts an operation of any transport when it takes it up, and stops it only in that of the
// network (2.30.7 src/proxy.cc :434, src/transport/net.cc). The handle stays in its pooled slot,
// until an operation that is reported replaces it.
void Launch::PostStale(const ProxyIdentity& identity, const ProxyOperation& operation,
                       int64_t due_ns) {
  if (!options_.faults.Has(Fault::kStaleTransfer) || due_ns >= kNever) return;
  void*& slot =
      communicator_
          .stale_transfers[operation.is_send() ? 0 : 1][static_cast<size_t>(identity.channel)];
  const bool strikes = options_.faults.StrikesEvery(Fault::kStaleTransfer, number_);
  auto events = std::make_shared<ProxyEvents>(options_.release, plugin_, identity, operation);
  rank_.proxy().Post(due_ns, [self = shared_from_this(), events, strikes, &slot](int64_t now_ns) {
    if (strikes) events->Start(now_ns);
    slot = events->handle();
  });
}

void Launch::PostStopOfStale(int channel, bool is_send, int64_t due_ns) {
  if (!options_.faults.Has(Fault::kStaleTransfer) || due_ns >= kNever) return;
  void*& slot = communicator_.stale_transfers[is_send ? 0 : 1][static_cast<size_t>(channel)];
  rank_.proxy().Post(due_ns, [self = shared_from_this(), &slot](int64_t now_ns) {
    if (slot == nullptr) return;
    StateArguments arguments(0);
    self->plugin_.Record(slot, EventState::kProxyOpInProgress, &arguments, now_ns);
    self->plugin_.Stop(slot, now_ns);
    slot = nullptr;
  });
}

// Returns when its last event is due, as far as that is known.
int64_t Launch::Post(const std::shared_ptr<NetworkWork>& work, const NetworkMoments& moments) {
  if (!work->is_foreign) open_parts_.fetch_add(1, std::memory_order_relaxed);
  if (moments.start_ns >= kNever) return moments.start_ns;
  EventQueue& proxy = rank_.proxy();
  proxy.Post(moments.start_ns,
             [self = shared_from_this(), work](int64_t now_ns) { self->Start(*work, now_ns); });
  if (moments.begin_ns >= kNever) return moments.begin_ns;
  proxy.Post(moments.begin_ns, [work](int64_t now_ns) { work->events.Begin(now_ns); });
  if (!work->events.HasSteps()) {
    const int64_t end_ns = work->events.RunUnseen(moments.begin_ns);
    if (end_ns >= kNever) return end_ns;
    proxy.Post(end_ns,
               [self = shared_from_this(), work](int64_t now_ns) { self->Stop(*work, now_ns); });
    return end_ns;
  }
  if (options_.faults.StrikesEvery(Fault::kAbortedTransfer, number_)) work->events.AbortHalfway();
  PostProgress(work, moments.begin_ns);
  return std::max(moments.begin_ns, work->events.operation().EndNs());
}

void Launch::PostProgress(const std::shared_ptr<NetworkWork>& work, int64_t due_ns) {
  rank_.proxy().Post(
      due_ns, [self = shared_from_this(), work](int64_t now_ns) { self->Progress(work, now_ns); });
}

void Launch::Start(NetworkWork& work, int64_t now_ns) {
  work.events.Start(now_ns);
  if (work.events.IsReported()) communicator_.truth.AddReportedNetworkOperation(work.is_foreign);
}

void Launch::Progress(const std::shared_ptr<NetworkWork>& work, int64_t now_ns) {
  const int64_t next_ns = work->events.Progress(now_ns);
  const bool is_aborted = work->events.IsAborted();
  if (work->events.operation().IsDone() && !is_aborted) return Stop(*work, now_ns);
  if (next_ns < kNever) return PostProgress(work, next_ns);
  // Kernel events show the end of the launch all the same.
  const bool needs_stop = communicator_.timing.load(std::memory_order_relaxed) == Timing::kProxy;
  if (is_aborted && !needs_stop && !work->is_foreign) EndPart();
}

void Launch::Stop(NetworkWork& work, int64_t now_ns) {
  work.events.Stop(now_ns);
  if (work.is_foreign) return;
  const ProxyOperation& operation = work.events.operation();
  communicator_.truth.AddNetworkOperation({.is_send = operation.is_send(),
                                           .peer = work.events.peer(),
                                           .is_reported = work.events.IsReported(),
                                           .steps = operation.marks()});
  EndPart();
}

}  // namespace nccl_exporter::sim
