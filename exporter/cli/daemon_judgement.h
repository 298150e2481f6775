// SPDX-License-Identifier: Apache-2.0
// The judgement of this node's daemon, for commands that show findings: `top` and `inflight`. The
// daemon has followed the node for longer than a command that was just started. For any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/cli/client/http_address.h"
#include "exporter/cli/client/http_config.h"
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

// Whether nobody but root and the daemon's user can have put a socket there: it is in a directory
// that only a system account or we ourselves write, in one that only root writes.
bool IsProtectedSocket(const std::string& path);

// The address is http://HOST:PORT, or unix:PATH. HOST is localhost or an IP address, because the
// daemon is on this node. Nothing for others; then `fault` says why.
std::optional<HttpAddress> ParseDaemonAddress(std::string_view url, std::string& fault);
// That of a daemon of any node: http[s]://HOST[:PORT][/PREFIX], or unix:PATH.
std::optional<HttpAddress> ParseAnyDaemonAddress(std::string_view url, std::string& fault);

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

// The judgement in the answer of the daemon at `address`, for a command that watches `watched`, or
// nothing itself; or why there is none. Pure.
ShownJudgement JudgementIn(const PlainAnswer& answer, const HttpAddress& address,
                           const std::optional<WatchedDirectories>& watched);

using AskDaemon = std::function<ShownJudgement()>;
// Asks the daemon at `daemon`, a value of --daemon that is right, for as long as kDaemonPatience.
// Without directories it may be that of any node, and `config` has a login and TLS.
AskDaemon DaemonAt(const std::string& daemon, std::optional<std::vector<std::string>> segment_dirs,
                   HttpConfig config = {});

// That of the daemon, or `own`, whose judge began at `own_since_realtime_ns`.
ShownJudgement Shown(ShownJudgement of_daemon, Judgement own, int64_t own_since_realtime_ns);

// Between two questions. An answer may be 0.5 s old, and the daemon looks every 5 s.
inline constexpr std::chrono::seconds kDaemonInterval{2};
// A first screen is late by at most this much, so that it can show the daemon's judgement.
inline constexpr std::chrono::milliseconds kFirstScreenPatience{500};

// The daemon's judgement for a screen. Its end waits for a question that is under way, at most
// kDaemonPatience.
class DaemonWatch {
 public:
  // Asks at once, and does not wait.
  explicit DaemonWatch(AskDaemon ask);

  // The latest answer. Waits for the first one until kFirstScreenPatience after the start, and for
  // no other.
  ShownJudgement Latest();

 private:
  void Ask();

  const AskDaemon ask_;
  const std::chrono::steady_clock::time_point first_screen_at_;
  std::chrono::steady_clock::time_point asked_at_;
  ShownJudgement latest_{.judgement = {}, .why_not_of_daemon = "the daemon has not answered yet"};
  std::future<ShownJudgement> question_;  // valid while one is under way; last: it uses `ask_`
};

}  // namespace nccl_exporter::exporter
