// SPDX-License-Identifier: Apache-2.0
// The judgement of this node's daemon, for commands that show findings: `top` and `inflight`. The
// daemon has followed the node for longer than a command that was just started. For any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/cli/client/plain_get.h"
#include "exporter/findings/node_judge.h"
#include "exporter/ledger/watched_directories.h"

namespace nccl_exporter::exporter {

inline constexpr std::string_view kDefaultDaemon = "http://127.0.0.1:9828";
// Where a daemon of this node serves its findings to local commands, whatever its other addresses
// ask for. The command asks there first, unless --daemon names another address.
inline constexpr std::string_view kFindingsSocket = "/run/nccl-exporter-daemon/findings.sock";
// The value of --daemon that asks nobody.
inline constexpr std::string_view kNoDaemon = "none";

// For one answer. A loaded node needs some hundred milliseconds.
inline constexpr std::chrono::milliseconds kDaemonPatience{2000};

struct DaemonAddress {
  std::string host;  // a number: its resolution waits for nobody
  std::string port;
  std::string socket = {};  // path of a Unix socket, in place of both

  std::string Text() const;  // "127.0.0.1:9828", or the path
};

// Whether nobody but root and the daemon's user can have put a socket there: it is in a directory
// that only a system account or we ourselves write, in one that only root writes.
bool IsProtectedSocket(const std::string& path);

// Of http://HOST:PORT, or unix:PATH. HOST is localhost or an IP address, because the daemon is on
// this node. Nothing for others; then `fault` says why.
std::optional<DaemonAddress> ParseDaemonAddress(std::string_view url, std::string& fault);

struct DaemonJudgement {
  std::optional<Judgement> judgement;
  int64_t since_realtime_ns = 0;  // start of the daemon
  std::string why_not;            // where there is no judgement
};

// What `answer` of the daemon at `address` is worth for a command that watches `watched`. Pure.
DaemonJudgement JudgementIn(const PlainAnswer& answer, const DaemonAddress& address,
                            const WatchedDirectories& watched);

using AskDaemon = std::function<DaemonJudgement()>;
// Asks the daemon at `daemon`, a value of --daemon that is right, for as long as kDaemonPatience.
AskDaemon DaemonAt(const std::string& daemon, std::vector<std::string> segment_dirs);

// A judgement, and whose it is.
struct ShownJudgement {
  Judgement judgement;
  bool is_of_daemon = false;
  int64_t since_realtime_ns = 0;  // when its judge began
  std::string why_not_of_daemon = {};

  // "Judged by the daemon since 2026-11-22 12:01 UTC.", "Judged here for 40 s: no daemon at ...".
  std::string Line(int64_t now_ns) const;
  nlohmann::ordered_json Json() const;
};

// That of the daemon, or `own`, whose judge began at `own_since_realtime_ns`.
ShownJudgement Shown(DaemonJudgement of_daemon, Judgement own, int64_t own_since_realtime_ns);

}  // namespace nccl_exporter::exporter
