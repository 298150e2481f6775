// SPDX-License-Identifier: Apache-2.0
// ProcessReader, one process in /proc and its cgroup, read again and again at little cost. Not
// thread-safe: its owner locks.
//
// To read all threads costs some microseconds each. So a survey, which is seldom, chooses those
// that ran or waited most, and only these are followed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "collector/host_signals.h"
#include "collector/segments/file_descriptor.h"

namespace nccl_exporter::collector {

// Followed threads of a process. Those of PyTorch that delay a step are the main thread, the
// thread of autograd and NCCL's progress thread. Progress threads that were once among them are
// followed beside them, of one communicator each.
inline constexpr size_t kFollowedThreads = 4, kFollowedProgressThreads = 8;

class ProcessReader {
 public:
  // `root` is prepended to /proc and /sys: empty but in tests. `pid` is in the namespace of /proc.
  ProcessReader(const std::string& root, pid_t pid)
      : folder_(root + "/proc/" + std::to_string(pid)), cgroups_(root + "/sys/fs/cgroup") {}

  // Chooses threads and files to be read. `counts_verbs`: also counts open devices for
  // verbs. NCCL opens them when it begins, and keeps them.
  void Survey(bool counts_verbs, int64_t monotonic_ns);
  // When it was surveyed; nothing before the first survey.
  const std::optional<int64_t>& surveyed_ns() const { return surveyed_ns_; }
  // Add what has happened since the call before. Files cost ten times as much as threads.
  void ReadThreads();
  void ReadFiles();

  const HostSignals& signals() const { return signals_; }

 private:
  struct Times {
    uint64_t running_ns = 0;
    uint64_t waiting_ns = 0;  // ready to run, and without a CPU
  };
  struct Thread {
    Times surveyed = {}, read = {};  // at the latest survey and look
    FileDescriptor schedstat = {};   // open while it is followed
    bool makes_progress = false;     // was followed once, and is one of NCCL's progress threads
    bool is_busy = false;            // one of kFollowedThreads
  };
  // A total of its cgroup, from the first look on: a process may be moved to another cgroup.
  struct CgroupTotal {
    void Follow(std::string other);
    // Nothing where the file is not there.
    std::optional<uint64_t> Grown(std::optional<uint64_t> now);

    std::string file = {};
    std::optional<uint64_t> read = {};
    uint64_t sum = 0;
  };
  static std::optional<Times> TimesIn(const std::string& schedstat);
  void ChooseThreads();
  void FindCgroup();
  std::optional<uint64_t> CountVerbs() const;

  const std::string folder_;  // /proc/PID
  const std::string cgroups_;
  HostSignals signals_;
  std::map<pid_t, Thread> threads_;  // all at the latest survey
  CgroupTotal throttled_, stalled_;
  bool has_no_quota_ = false;
  std::optional<int64_t> surveyed_ns_;
};

}  // namespace nccl_exporter::collector
