// SPDX-License-Identifier: Apache-2.0
#include "collector/host/process_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "collector/host/proc_text.h"

namespace nccl_exporter::collector {
namespace {

bool IsThere(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace

// A kernel that does not count shows zeros, also of a thread that has run.
std::optional<ProcessReader::Times> ProcessReader::TimesIn(const std::string& schedstat) {
  unsigned long long running = 0, waiting = 0, turns = 0;
  if (std::sscanf(schedstat.c_str(), "%llu %llu %llu", &running, &waiting, &turns) != 3 ||
      turns == 0)
    return std::nullopt;
  return Times{.running_ns = running, .waiting_ns = waiting};
}

void ProcessReader::Survey(bool counts_verbs, int64_t monotonic_ns) {
  surveyed_ns_ = monotonic_ns;
  ChooseThreads();
  FindCgroup();
  if (!counts_verbs) {
    signals_.verbs_devices.reset();
  } else if (signals_.verbs_devices.value_or(0) == 0) {
    signals_.verbs_devices = CountVerbs();
  }
}

void ProcessReader::FindCgroup() {
  const std::string membership = ReadProcFile(folder_ + "/cgroup");
  const auto of_v2 = CgroupOf(membership, ""), of_v1 = CgroupOf(membership, "cpu");
  std::string throttling = of_v2 ? ThrottlingFile(cgroups_, *of_v2) : "";
  if (throttling.empty() && of_v1) throttling = ThrottlingFile(cgroups_ + "/cpu", *of_v1);
  const auto of_cpu = of_v1 ? std::optional("/cpu" + *of_v1) : of_v2;
  has_no_quota_ = throttling.empty() && of_cpu && IsThere(cgroups_ + *of_cpu + "/cgroup.procs");
  throttled_.Follow(std::move(throttling));
  // Beside v1, as systemd mounts both.
  const std::string unified = cgroups_ + "/unified";
  const std::string& v2 = IsThere(unified) ? unified : cgroups_;
  stalled_.Follow(of_v2 ? v2 + *of_v2 + "/memory.pressure" : "");
}

void ProcessReader::CgroupTotal::Follow(std::string other) {
  if (other == file) return;
  file = std::move(other);
  read.reset();
}

std::optional<uint64_t> ProcessReader::CgroupTotal::Grown(std::optional<uint64_t> now) {
  if (!now) return std::nullopt;
  sum += *now - std::min(*now, read.value_or(*now));
  read = now;
  return sum;
}

// Those that have run or waited most since the survey before, and known progress threads.
void ProcessReader::ChooseThreads() {
  std::map<pid_t, Thread> before = std::exchange(threads_, {});
  std::vector<std::pair<uint64_t, pid_t>> order;
  for (const std::string& name : NamesIn(folder_ + "/task")) {
    const pid_t id = std::atoi(name.c_str());
    const auto times = TimesIn(ReadProcFile(folder_ + "/task/" + name + "/schedstat"));
    if (!times) continue;
    Thread& thread = threads_[id] = std::move(before[id]);
    const uint64_t all = times->running_ns + times->waiting_ns,
                   earlier = thread.surveyed.running_ns + thread.surveyed.waiting_ns;
    order.emplace_back(all - std::min(earlier, all), id);
    thread.surveyed = *times;
  }
  std::ranges::sort(order, std::ranges::greater());
  size_t progress_threads = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    Thread& thread = threads_[order[i].second];
    thread.is_busy = i < kFollowedThreads;
    const bool is_followed =
        thread.is_busy || (thread.makes_progress && progress_threads++ < kFollowedProgressThreads);
    if (!is_followed) {
      thread.schedstat = {};
    } else if (!thread.schedstat.is_open()) {
      const std::string folder = folder_ + "/task/" + std::to_string(order[i].second);
      thread.schedstat =
          FileDescriptor(::open((folder + "/schedstat").c_str(), O_RDONLY | O_CLOEXEC));
      // With NCCL_SET_THREAD_NAME=1: ncclSetThreadName() of NCCL's debug.cc.
      thread.makes_progress = ReadProcFile(folder + "/comm").starts_with("NCCL Progress");
      thread.read = thread.surveyed;
    }
  }
}

// A process has descriptors. If no link is seen, this process may not read them.
std::optional<uint64_t> ProcessReader::CountVerbs() const {
  const std::vector<std::string> names = NamesIn(folder_ + "/fd");
  std::set<std::string> devices;
  bool is_readable = false;
  for (const std::string& name : names) {
    std::array<char, 64> target{};
    const std::string path = folder_ + "/fd/" + name;
    is_readable |= ::readlink(path.c_str(), target.data(), target.size() - 1) > 0;
    const std::string device = target.data();
    if (device.starts_with("/dev/infiniband/uverbs")) devices.insert(device);
  }
  if (devices.empty() && (!is_readable || names.size() == kMostNames)) return std::nullopt;
  return devices.size();
}

void ProcessReader::ReadFiles() {
  signals_.involuntary_switches =
      NumberBehind(ReadProcFile(folder_ + "/status"), "nonvoluntary_ctxt_switches:");
  signals_.major_faults = MajorFaults(ReadProcFile(folder_ + "/stat"));
  const auto throttled_ns = throttled_.Grown(ThrottledNs(ReadProcFile(throttled_.file)));
  signals_.throttled_ns = has_no_quota_ ? throttled_.sum : throttled_ns;
  const auto stalled_us = stalled_.Grown(NumberBehind(ReadProcFile(stalled_.file), " total="));
  signals_.memory_stall_ns = stalled_us ? std::optional(*stalled_us * 1000) : std::nullopt;
}

void ProcessReader::ReadThreads() {
  std::optional<uint64_t> longest_ns;
  for (auto& [id, thread] : threads_) {
    if (!thread.schedstat.is_open()) continue;
    std::array<char, 96> text{};
    const bool is_read = ::pread(thread.schedstat.number(), text.data(), text.size() - 1, 0) > 0;
    const auto times = TimesIn(is_read ? text.data() : "");
    if (!times) {  // it has ended
      thread = {};
      continue;
    }
    if (thread.is_busy)
      longest_ns = std::max(longest_ns.value_or(0), times->waiting_ns - thread.read.waiting_ns);
    if (thread.makes_progress)
      signals_.progress_cpu_ns =
          signals_.progress_cpu_ns.value_or(0) + times->running_ns - thread.read.running_ns;
    thread.read = *times;
  }
  if (longest_ns) *longest_ns += signals_.cpu_wait_ns.value_or(0);
  signals_.cpu_wait_ns = longest_ns;
}

}  // namespace nccl_exporter::collector
