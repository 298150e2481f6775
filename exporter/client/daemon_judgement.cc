// SPDX-License-Identifier: Apache-2.0
#include "exporter/client/daemon_judgement.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "exporter/client/findings_from_json.h"
#include "exporter/findings/findings_json.h"
#include "exporter/findings/words.h"
#include "exporter/node/time_text.h"

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kFindingsPath = "/api/v1/findings";
constexpr int kOk = 200, kUnauthorized = 401;

bool IsPort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port != 0;
}

bool IsAddress(const std::string& host) {
  in6_addr parsed{};
  return ::inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

// Why there are no findings in it; empty where there may be.
std::string FaultOf(const PlainAnswer& answer, const DaemonAddress& address) {
  const std::string at = address.Text();
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

std::string DaemonAddress::Text() const {
  return (host.find(':') == std::string::npos ? host : '[' + host + ']') + ':' + port;
}

std::optional<DaemonAddress> ParseDaemonAddress(std::string_view url, std::string& fault) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&](std::string why) {
    fault = std::move(why);
    return std::nullopt;
  };
  if (!url.starts_with(kScheme)) return refuse("write http://HOST:PORT, or none");
  url.remove_prefix(kScheme.size());
  const size_t colon = url.rfind(':');
  if (colon == std::string_view::npos || !IsPort(url.substr(colon + 1)))
    return refuse("it has no port of 1 to 65535; write http://HOST:PORT, or none");
  DaemonAddress address{.host = std::string(url.substr(0, colon)),
                        .port = std::string(url.substr(colon + 1))};
  if (address.host == "localhost") address.host = "127.0.0.1";
  const bool has_brackets = address.host.starts_with('[') && address.host.ends_with(']');
  if (has_brackets) address.host = address.host.substr(1, address.host.size() - 2);
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  if (!IsAddress(address.host) || has_brackets != is_ipv6)
    return refuse(
        "the host is neither localhost nor an address, and IPv6 needs brackets; the "
        "daemon is on this node");
  return address;
}

DaemonJudgement JudgementIn(const PlainAnswer& answer, const DaemonAddress& address,
                            const WatchedDirectories& watched) {
  const auto none = [](std::string why) {
    return DaemonJudgement{.judgement = {}, .why_not = std::move(why)};
  };
  if (std::string fault = FaultOf(answer, address); !fault.empty()) return none(Printable(fault));
  const std::string at = address.Text();
  std::string fault;
  std::optional<ReceivedFindings> received = FindingsFromJson(answer.body, fault);
  if (!received) return none(fmt::format("the answer at {} is not understood: {}", at, fault));
  if (received->watches.boot_id != watched.boot_id)
    return none(fmt::format("the daemon at {} is on another node", at));
  if (received->watches.ids != watched.ids)
    return none(fmt::format("the daemon at {} watches other directories", at));
  return {.judgement = std::move(received->judgement),
          .since_realtime_ns = received->start_realtime_ns,
          .why_not = ""};
}

AskDaemon DaemonAt(const std::string& daemon, std::vector<std::string> segment_dirs) {
  std::string fault;
  const std::optional<DaemonAddress> address = ParseDaemonAddress(daemon, fault);
  if (!address) {
    return [daemon] {
      return DaemonJudgement{.judgement = {}, .why_not = "--daemon=" + Printable(daemon)};
    };
  }
  return [address = *address, segment_dirs = std::move(segment_dirs)] {
    const PlainAnswer answer = PlainGet({.host = address.host,
                                         .port = address.port,
                                         .path = kFindingsPath,
                                         .patience = kDaemonPatience,
                                         .most_bytes = kMostAnswerBytes});
    return JudgementIn(answer, address, WatchedDirectoriesOf(segment_dirs));
  };
}

std::string ShownJudgement::Line(int64_t now_ns) const {
  if (is_of_daemon) {
    constexpr size_t kDate = sizeof("2023-11-14") - 1, kClock = sizeof("22:13") - 1;
    const std::string since = TimeText(since_realtime_ns);
    return since.size() > kDate + 1 + kClock
               ? fmt::format("Judged by the daemon since {} {} UTC.", since.substr(0, kDate),
                             since.substr(kDate + 1, kClock))
               : "Judged by the daemon.";
  }
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

ShownJudgement Shown(DaemonJudgement of_daemon, Judgement own, int64_t own_since_realtime_ns) {
  if (of_daemon.judgement)
    return {.judgement = std::move(*of_daemon.judgement),
            .is_of_daemon = true,
            .since_realtime_ns = of_daemon.since_realtime_ns};
  return {.judgement = std::move(own),
          .since_realtime_ns = own_since_realtime_ns,
          .why_not_of_daemon = std::move(of_daemon.why_not)};
}

}  // namespace nccl_exporter::exporter
