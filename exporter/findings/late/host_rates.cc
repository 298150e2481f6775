// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/late/host_rates.h"

#include <fmt/format.h>

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
  const char* words;
};
constexpr std::array<Signal, 4> kSignals{{
    {&HostSignals::cpu_wait_ns, true, "waits for a CPU {:.1f} % of the time, its peers {:.1f} %"},
    {&HostSignals::throttled_ns, true,
     "is throttled by its CPU quota {:.1f} % of the time, its peers {:.1f} %"},
    {&HostSignals::memory_stall_ns, true,
     "is in a cgroup that waits for memory {:.1f} % of the time, its peers {:.1f} %"},
    {&HostSignals::major_faults, false,
     "waits for a disk at {:.0f} page faults per second, its peers at {:.0f}"},
}};

}  // namespace

void HostRates::Record(const collector::NodeSnapshot& node, int64_t monotonic_ns) {
  Signals& signals = looks_.emplace_back(monotonic_ns, Signals()).second;
  for (const collector::ProcessSnapshot& process : node.processes) {
    if (process.host) signals.emplace(process.file, *process.host);
  }
  while (monotonic_ns - looks_.front().first > times_.window.count()) looks_.pop_front();
}

std::string HostRates::Unusual(const collector::NodeSnapshot& node,
                               const collector::ProcessSnapshot& process) const {
  if (!process.host && process.seen_pid == 0)
    return "not known: the daemon does not see the process in /proc";
  if (looks_.size() < 2) return "";
  const auto& [begin_ns, before] = looks_.front();
  const auto& [end_ns, now] = looks_.back();
  std::string unusual;
  bool is_compared = false;
  for (const Signal& signal : kSignals) {
    // Shares of the time in percent, or events per second.
    const double units = static_cast<double>(end_ns - begin_ns) / (signal.is_time ? 100 : 1e9);
    std::optional<double> own;
    std::vector<double> all;
    for (const collector::ProcessSnapshot& other : node.processes) {
      const auto first = before.find(other.file), last = now.find(other.file);
      if (JobKeyOf(other) != JobKeyOf(process) || first == before.end() || last == now.end())
        continue;
      const auto &from = first->second.*signal.count, &to = last->second.*signal.count;
      if (!from || !to || *to < *from) continue;
      all.push_back(static_cast<double>(*to - *from) / units);
      if (other.file == process.file) own = all.back();
    }
    if (!own || all.size() < 2) continue;
    is_compared = true;
    const double median = Quantile(0.5, all);
    const double least = signal.is_time ? 100 * times_.suspect_share : times_.suspect_faults;
    if (*own > median + least && median < times_.suspect_median * *own)
      unusual +=
          (unusual.empty() ? "" : "; ") + fmt::format(fmt::runtime(signal.words), *own, median);
  }
  if (!unusual.empty() || !is_compared) return unusual;
  return "nothing unusual: CPU, quota, memory and page faults are as on its peers";
}

}  // namespace nccl_exporter::exporter
