// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/daemon_judgement.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "exporter/cli/client/http_address.h"
#include "exporter/findings/findings_json.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kFindingsPath = "/api/v1/findings";
constexpr int kOk = 200, kUnauthorized = 401;

ShownJudgement NotOfDaemon(std::string why) {
  return {.judgement = {}, .why_not_of_daemon = std::move(why)};
}

// Why there are no findings in it; empty where there may be.
std::string FaultOf(const PlainAnswer& answer, const HttpAddress& address) {
  const std::string at = address.HostField();
  if (!answer.is_connected) return "no daemon at " + at;
  if (answer.status == 0 && !answer.status_line.empty())
    return fmt::format("the answer at {} is no plain HTTP", at);
  if (answer.status == kUnauthorized)
    return fmt::format("the daemon at {} asks for a password", at);
  if (!answer.fault.empty()) return fmt::format("the daemon at {}: {}", at, answer.fault);
  if (answer.status != kOk)
    return fmt::format("the daemon at {} answers with status {}", at, answer.status);
  return "";
}

}  // namespace

bool IsProtectedSocket(const std::string& path) {
  constexpr uid_t kFirstUser = 1000;  // accounts below are of the system
  const std::string directory = path.substr(0, path.rfind('/'));
  const std::string above = directory.substr(0, directory.rfind('/'));
  struct stat of_socket {
  }, of_directory{}, of_above{};
  if (::lstat(path.c_str(), &of_socket) != 0 || ::lstat(directory.c_str(), &of_directory) != 0 ||
      ::lstat(above.empty() ? "/" : above.c_str(), &of_above) != 0)
    return false;
  constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
  const uid_t owner = of_directory.st_uid;
  return S_ISSOCK(of_socket.st_mode) && S_ISDIR(of_directory.st_mode) &&
         (owner < kFirstUser || owner == ::geteuid()) &&
         (of_directory.st_mode & kOthersWrite) == 0 && S_ISDIR(of_above.st_mode) &&
         of_above.st_uid == 0 && (of_above.st_mode & kOthersWrite) == 0;
}

std::optional<HttpAddress> ParseAnyDaemonAddress(std::string_view url, std::string& fault) {
  constexpr std::string_view kUnix = "unix:";
  if (!url.starts_with(kUnix)) return ParseHttpAddress(url, fault);
  url.remove_prefix(kUnix.size());
  if (url.starts_with('/')) return HttpAddress{.host = "", .port = "", .socket = std::string(url)};
  fault = "its path does not begin with /";
  return std::nullopt;
}

std::optional<HttpAddress> ParseDaemonAddress(std::string_view url, std::string& fault) {
  const auto refuse = [&](const std::string& why) {
    fault = why + "; write http://HOST:PORT, unix:/PATH, or none";
    return std::nullopt;
  };
  std::optional<HttpAddress> http = ParseAnyDaemonAddress(url, fault);
  if (!http) return refuse(fault);
  if (!http->socket.empty()) return http;
  if (http->is_tls || !http->prefix.empty()) return refuse("TLS and prefixes are not supported");
  if (http->host == "localhost") http->host = "127.0.0.1";
  if (!IsAddress(http->host))
    return refuse("the host is neither localhost nor an address, and the daemon is on this node");
  return http;
}

ShownJudgement JudgementIn(const PlainAnswer& answer, const HttpAddress& address,
                           const std::optional<WatchedDirectories>& watched) {
  std::string fault = FaultOf(answer, address);
  if (!fault.empty()) return NotOfDaemon(Printable(fault));
  const std::string at = address.HostField();
  std::optional<ReceivedFindings> received = FindingsFromJson(answer.body, fault);
  if (!received)
    return NotOfDaemon(fmt::format("the answer at {} is not understood: {}", at, fault));
  if (watched && received->watches.boot_id != watched->boot_id)
    return NotOfDaemon(fmt::format("the daemon at {} is on another node", at));
  if (watched && received->watches.ids != watched->ids)
    return NotOfDaemon(fmt::format("the daemon at {} watches other directories", at));
  return {.judgement = std::move(received->judgement),
          .is_of_daemon = true,
          .since_realtime_ns = received->start_realtime_ns};
}

AskDaemon DaemonAt(const std::string& daemon, std::optional<std::vector<std::string>> segment_dirs,
                   HttpConfig config) {
  std::string fault;
  const std::optional<HttpAddress> address =
      segment_dirs ? ParseDaemonAddress(daemon, fault) : ParseAnyDaemonAddress(daemon, fault);
  if (!address) return [daemon] { return NotOfDaemon("--daemon=" + Printable(daemon)); };
  const auto ask = [segment_dirs = std::move(segment_dirs),
                    config = std::move(config)](const HttpAddress& at) {
    const bool is_local = segment_dirs || !at.socket.empty();
    const PlainAnswer answer = PlainGet({.server = at,
                                         .path = kFindingsPath,
                                         .patience = kDaemonPatience,
                                         .most_bytes = kMostAnswerBytes,
                                         .host_field = is_local ? "localhost" : at.HostField(),
                                         .fields = config.fields,
                                         .tls = config.tls});
    std::optional<WatchedDirectories> watched;
    if (segment_dirs) watched = WatchedDirectoriesOf(*segment_dirs);
    return JudgementIn(answer, at, watched);
  };
  return [address = *address, is_default = daemon == kDefaultDaemon, ask] {
    const HttpAddress local{.host = "", .port = "", .socket = std::string(kFindingsSocket)};
    if (is_default && IsProtectedSocket(local.socket)) {
      ShownJudgement judged = ask(local);
      if (judged.is_of_daemon) return judged;
    }
    return ask(address);
  };
}

std::string ShownJudgement::Line(int64_t now_ns) const {
  constexpr int64_t kSecondNs = 1000000000;
  if (is_of_daemon && since_realtime_ns <= 0) return "Judged by the daemon.";
  if (is_of_daemon)
    return fmt::format("Judged by the daemon since {:%Y-%m-%d %H:%M} UTC.",
                       fmt::gmtime(since_realtime_ns / kSecondNs));
  const double seconds = static_cast<double>(now_ns - since_realtime_ns) / 1e9;
  return fmt::format("Judged here {}: {}.",
                     seconds > 0 ? "for " + DurationText(seconds) : "by one look",
                     why_not_of_daemon);
}

nlohmann::ordered_json ShownJudgement::Json() const {
  return {{"by", is_of_daemon ? "daemon" : "command"},
          {"since", TimeJson(since_realtime_ns)},
          {"reason", why_not_of_daemon}};
}

ShownJudgement Shown(ShownJudgement of_daemon, Judgement own, int64_t own_since_realtime_ns) {
  if (of_daemon.is_of_daemon) return of_daemon;
  of_daemon.judgement = std::move(own);
  of_daemon.since_realtime_ns = own_since_realtime_ns;
  return of_daemon;
}

DaemonWatch::DaemonWatch(AskDaemon ask)
    : ask_(std::move(ask)),
      first_screen_at_(std::chrono::steady_clock::now() + kFirstScreenPatience) {
  Ask();
}

void DaemonWatch::Ask() {
  asked_at_ = std::chrono::steady_clock::now();
  question_ = std::async(std::launch::async, ask_);
}

ShownJudgement DaemonWatch::Latest() {
  if (question_.valid() && question_.wait_until(first_screen_at_) == std::future_status::ready)
    latest_ = question_.get();
  if (!question_.valid() && std::chrono::steady_clock::now() >= asked_at_ + kDaemonInterval) Ask();
  return latest_;
}

}  // namespace nccl_exporter::exporter
