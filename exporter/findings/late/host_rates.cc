// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late/host_rates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "exporter/findings/late/busy_rates.h"
#include "exporter/ledger/local_communicators.h"

namespace nccl_exporter::exporter {
namespace {

using collector::HostSignals;

struct Signal {
  std::optional<uint64_t> HostSignals::*count;
  bool is_time;  // in nanoseconds
  const char* name;
  const char* words;
};
constexpr std::array<Signal, 4> kSignals{{
    {&HostSignals::cpu_wait_ns, true, "CPU",
     "waits for a CPU {:.1f} % of the time, its peers {:.1f} %"},
    {&HostSignals::throttled_ns, true, "quota",
     "is throttled by its CPU quota {:.1f} % of the time, its peers {:.1f} %"},
    {&HostSignals::memory_stall_ns, true, "memory",
     "is in a cgroup that waits for memory {:.1f} % of the time, its peers {:.1f} %"},
    {&HostSignals::major_faults, false, "page faults",
     "waits for a disk at {:.0f} page faults per second, its peers at {:.0f}"},
}};

}  // namespace

void HostRates::Record(const collector::NodeSnapshot& node, int64_t monotonic_ns) {
  Signals& signals = looks_.emplace_back(monotonic_ns, Signals()).second;
  for (const collector::ProcessSnapshot& process : node.processes) {
    if (process.host) signals.emplace(process.file, *process.host);
  }
  // Looks are a little early or late. One that went would take a third of some signals with it.
  const int64_t oldest_ns = monotonic_ns - (times_.window + times_.interval / 6).count();
  while (looks_.front().first < oldest_ns) looks_.pop_front();
}

// Since the first look of the window that has the signal: processes are surveyed one by one. A
// signal that is read seldom needs half a window.
std::optional<double> HostRates::RateOf(const collector::FileKey& file,
                                        std::optional<uint64_t> HostSignals::*count) const {
  const auto value = [&](const auto& look) -> std::optional<uint64_t> {
    const auto signals = look.second.find(file);
    return signals == look.second.end() ? std::nullopt : signals->second.*count;
  };
  const auto first =
      std::ranges::find_if(looks_, [&](const auto& look) { return value(look).has_value(); });
  if (first == looks_.end()) return std::nullopt;
  const auto from = value(*first), to = value(looks_.back());
  const int64_t passed_ns = looks_.back().first - first->first;
  if (!to || *to < *from || passed_ns < times_.window.count() / 2) return std::nullopt;
  return static_cast<double>(*to - *from) / static_cast<double>(passed_ns);
}

std::string HostRates::Unusual(const collector::NodeSnapshot& node,
                               const collector::ProcessSnapshot& process) const {
  if (!process.host && process.seen_pid == 0)
    return "not known: the daemon does not see the process in /proc";
  if (!process.host)
    return fmt::format("not known: of a user's processes {} are looked at, and {} of a node",
                       collector::kMostHostProcessesPerUser, collector::kMostHostProcesses);
  std::vector<std::string> unusual;
  std::vector<const char*> compared;
  for (const Signal& signal : kSignals) {
    // Shares of the time in percent, or events per second.
    const double unit = signal.is_time ? 100 : 1e9;
    const auto own = RateOf(process.file, signal.count);
    std::vector<double> peers;
    for (const collector::ProcessSnapshot& other : node.processes) {
      if (&other == &process || !other.is_alive || JobKeyOf(other) != JobKeyOf(process)) continue;
      if (const auto rate = RateOf(other.file, signal.count)) peers.push_back(unit * *rate);
    }
    if (!own || peers.empty()) continue;
    compared.push_back(signal.name);
    const double median = Quantile(0.5, peers);
    const double least = signal.is_time ? 100 * times_.suspect_share : times_.suspect_faults;
    if (unit * *own > median + least && median < times_.suspect_median * unit * *own)
      unusual.push_back(fmt::format(fmt::runtime(signal.words), unit * *own, median));
  }
  if (unusual.empty() && !compared.empty())
    return fmt::format("nothing unusual, compared with its peers: {}", fmt::join(compared, ", "));
  return fmt::format("{}", fmt::join(unusual, "; "));
}

}  // namespace nccl_exporter::exporter
