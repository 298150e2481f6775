// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/ledger.h"

#include <algorithm>
#include <set>

namespace nccl_exporter::exporter {
namespace {

// Whether other nodes take part. Old profiler APIs do not say how many nodes there are.
bool SpansNodes(const collector::CommunicatorSnapshot& communicator, uint64_t local_ranks) {
  if (communicator.nodes != 0) return communicator.nodes > 1;
  return local_ranks != 0 && local_ranks < communicator.ranks;
}

}  // namespace

std::shared_ptr<const Book> Ledger::Enter(std::shared_ptr<const collector::NodeSnapshot> node,
                                          const Moment& now) {
  const auto book = std::make_shared<Book>(std::move(node));
  std::vector<Rank> ranks;
  for (size_t i = 0; i < book->rows.size(); ++i)
    AdvanceProcess(book->node->processes[i], now, book->rows[i], ranks);
  const bool ends_interval = now.monotonic_ns - interval_start_ns_ >= times_.interval_ns;
  std::map<collector::CommunicatorKey, std::vector<Rank>> communicators;
  for (const Rank& rank : ranks) {
    if (rank.communicator->has_identity && !rank.communicator->is_overflow) {
      communicators[CommunicatorKeyOf(*rank.process, *rank.communicator)].push_back(rank);
    } else {
      if (rank.counter->new_network())
        rank.counter->node().CountNetwork(*rank.counter->new_network(), {});
      Fill(rank, SpansNodes(*rank.communicator, 0), false, now);
    }
  }
  for (const auto& [key, local] : communicators) AdvanceCommunicator(local, now, ends_interval);
  if (ends_interval) {
    for (const Rank& rank : ranks) rank.counter->EndInterval(now.monotonic_ns);
    interval_start_ns_ = now.monotonic_ns;
  }
  Forget(now);
  has_previous_ = true;
  previous_realtime_ns_ = now.realtime_ns;
  return book;
}

bool Ledger::IsInUse(const Rank& rank) {
  return rank.process->is_alive && !rank.communicator->is_closed;
}

void Ledger::AdvanceCommunicator(std::span<const Rank> ranks, const Moment& now,
                                 bool ends_interval) const {
  // If two ranks have one number, the newest in use: its row is served.
  const auto order = [](const Rank& rank) {
    const collector::CommunicatorSnapshot& communicator = *rank.communicator;
    return std::tuple(communicator.rank, !IsInUse(rank), -communicator.created_realtime_ns);
  };
  const Rank& lowest = *std::ranges::min_element(ranks, {}, order);
  std::set<uint64_t> numbers;
  std::vector<const TimesByOperation*> operations;
  std::optional<uint64_t> compared;
  for (const Rank& rank : ranks) {
    numbers.insert(rank.communicator->rank);
    if (rank.counter->HasIntervalSince(interval_start_ns_))
      operations.push_back(&rank.counter->operations());
    // The least is right: a rank that the snapshot before lacked also has what was counted then.
    if (rank.communicator->arrivals && IsInUse(rank))
      compared = std::min(compared.value_or(~uint64_t{0}), rank.counter->new_compared());
  }
  NodeCounter& node = lowest.counter->node();
  const collector::NetworkBusBytes network = node.network();
  for (const Rank& rank : ranks) {
    node.CountProgress(rank.counter->new_progress());
    if (rank.counter->new_network()) node.CountNetwork(*rank.counter->new_network(), network);
  }
  if (compared) node.CountCompared(*compared);
  if (ends_interval) node.CountLarge(operations, lowest.communicator->ranks);
  for (const Rank& rank : ranks)
    Fill(rank, SpansNodes(*rank.communicator, numbers.size()),
         rank.communicator == lowest.communicator, now);
}

void Ledger::Fill(const Rank& rank, bool spans_nodes, bool is_lowest, const Moment& now) const {
  RankCounts& counts = rank.counts->emplace(rank.counter->Counts(spans_nodes, is_lowest));
  const int64_t progress_ns = rank.communicator->last_progress_monotonic_ns;
  counts.is_quiet = rank.process->IsHalted() || progress_ns == 0 ||
                    now.monotonic_ns - progress_ns >= times_.quiet_ns;
}

// A clock that is set between two snapshots makes a new one look old: its counts start at 0.
bool Ledger::IsNew(int64_t created_realtime_ns) const {
  return has_previous_ && created_realtime_ns >= previous_realtime_ns_ - kLatestSightNs;
}

void Ledger::AdvanceProcess(const collector::ProcessSnapshot& snapshot, const Moment& now,
                            Book::Row& row, std::vector<Rank>& ranks) {
  const ProcessKey key(snapshot.file.device, snapshot.file.inode, snapshot.start_realtime_ns);
  const auto [found, is_first] = processes_.try_emplace(key);
  Process& process = found->second;
  if (is_first) {
    process.since_realtime_ns =
        IsNew(snapshot.start_realtime_ns) ? snapshot.start_realtime_ns : now.realtime_ns;
  }
  process.uid = snapshot.uid;
  process.seen_ns = now.monotonic_ns;
  uint64_t progress = 0;
  for (size_t i = 0; i < snapshot.communicators.size(); ++i) {
    const collector::CommunicatorSnapshot& communicator = snapshot.communicators[i];
    RankCounter& counter = Find(process, communicator, now);
    counter.Advance(communicator, now, times_);
    progress += counter.progress();
    ranks.push_back({&snapshot, &communicator, &counter, &row.ranks[i]});
    process.has_times |= counter.has_times();
    process.has_point_to_point |= counter.has_point_to_point();
  }
  uint64_t kernel_ns = process.gone_kernel_ns;
  uint64_t point_to_point = process.gone_point_to_point;
  for (const auto& [slot, counters] : process.communicators) {
    kernel_ns += counters.NewKernelNs();
    point_to_point += counters.NewPointToPoint();
  }
  ProcessCounts& counts = row.counts.emplace();
  counts.since_realtime_ns = process.since_realtime_ns;
  counts.progress = progress + snapshot.communicators.size();
  if (process.has_times) counts.kernel_ns = kernel_ns;
  if (process.has_point_to_point) counts.point_to_point_operations = point_to_point;
}

void Ledger::Process::TakeOver(const RankCounter& gone) {
  gone_kernel_ns += gone.NewKernelNs();
  gone_point_to_point += gone.NewPointToPoint();
}

RankCounter& Ledger::Find(Process& process, const collector::CommunicatorSnapshot& communicator,
                          const Moment& now) {
  const auto [found, is_first] = process.communicators.try_emplace(communicator.slot);
  RankCounter& counters = found->second;
  if (!is_first && counters.generation() == communicator.generation) return counters;
  if (!is_first) {
    process.TakeOver(counters);
    counters = {};
  }
  if (IsNew(communicator.created_realtime_ns)) {
    counters.BeginNew(communicator, now);
  } else {
    counters.BeginWithoutPast(communicator, now);
  }
  return counters;
}

void Ledger::Forget(const Moment& now) {
  std::set<uint64_t> too_many;  // users
  const auto is_over = [&](uint64_t uid, int64_t seen_ns) {
    return now.monotonic_ns - seen_ns > times_.forget_ns ||
           (too_many.contains(uid) && seen_ns != now.monotonic_ns);
  };
  const auto forget = [&] {
    std::erase_if(processes_,
                  [&](const auto& item) { return is_over(item.second.uid, item.second.seen_ns); });
    for (auto& entry : processes_) {
      Process& process = entry.second;
      std::erase_if(process.communicators, [&](const auto& item) {
        const RankCounter& counters = item.second;
        if (!is_over(process.uid, counters.advanced_ns())) return false;
        process.TakeOver(counters);
        return true;
      });
    }
  };
  forget();
  std::map<uint64_t, size_t> absent;  // by user
  for (const auto& [key, process] : processes_) {
    size_t& count = absent[process.uid];
    if (process.seen_ns != now.monotonic_ns) ++count;
    for (const auto& [slot, counters] : process.communicators)
      count += counters.advanced_ns() != now.monotonic_ns;
  }
  for (const auto& [uid, count] : absent) {
    if (count > kMostAbsent) too_many.insert(uid);
  }
  if (!too_many.empty()) forget();
}

size_t Ledger::remembered() const {
  size_t sum = processes_.size();
  for (const auto& [key, process] : processes_) sum += process.communicators.size();
  return sum;
}

}  // namespace nccl_exporter::exporter
