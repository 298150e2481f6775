// SPDX-License-Identifier: Apache-2.0
// Waiting(), the loop of `nccl-exporter wait`: asks a daemon until it has a finding of an awaited
// kind. For any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exporter/cli/daemon_judgement.h"
#include "proto/code_table.h"

namespace nccl_exporter::exporter {

// Exit codes of `wait` follow from the order: append only.
enum class Awaited : uint8_t { kHang, kKilled, kLate, kCount };
inline constexpr CodeTable<Awaited> kAwaited{{
    {Awaited::kHang, "hang", "a finding of a hang is critical"},
    {Awaited::kKilled, "killed", "a process has ended without finalizing, and others miss it"},
    {Awaited::kLate, "late", "the others wait for a rank again and again"},
}};
static_assert(IsInOrder(kAwaited));
inline constexpr int kFirstAwaitedCode = 10;  // of kHang
inline constexpr int kTimedOut = 124;         // as timeout(1) has it

struct WaitRequest {
  std::vector<Awaited> awaited{Awaited::kHang, Awaited::kKilled};
  // Labels nccl_job, namespace and uid that the finding must have.
  std::map<std::string, std::string> wanted = {};
  std::optional<std::chrono::nanoseconds> timeout = {};  // nothing: waits without an end
  std::string daemon{kDefaultDaemon};
  std::string http_config_file = {};
};

struct WaitEnd {
  int exit_code = kTimedOut;
  std::string finding = {};  // one line of JSON; empty after a time-out
  std::string reason = {};   // of a time-out
};

// Time and standard error, which tests replace.
struct WaitSurroundings {
  std::function<std::chrono::nanoseconds()> now;  // of a clock that is never set
  std::function<void(std::chrono::nanoseconds)> sleep;
  std::function<void(const std::string&)> warn;  // one line
};

// A process that was killed ends the wait for `killed` also where a hang explains it. Warns once
// each time that the daemon does not answer any more, and goes on. A time-out may come late by the
// patience of `ask`.
WaitEnd Waiting(const WaitRequest& request, const AskDaemon& ask, const WaitSurroundings& outside);

}  // namespace nccl_exporter::exporter
