// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/pulls.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <utility>

#include "exporter/cli/client/http_config.h"
#include "exporter/cli/client/plain_get.h"
#include "exporter/cli/commands.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

using Clock = std::chrono::steady_clock;

// The daemon sends no more than 24 MiB.
constexpr size_t kMostScrapedBytes = 32 << 20;
constexpr std::chrono::milliseconds kPatience{10000};
constexpr const char* kAccept =
    "Accept: application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
    "encoding=delimited\r\n";
constexpr int kOk = 200;

PlainRequest ScrapeOf(const PullRequest& request) {
  std::string fault;
  const HttpConfig config = ReadHttpConfig(request.http_config_file);
  const HttpAddress server = *ParseAnyDaemonAddress(request.daemon, fault);
  return {.server = server,
          .path = request.path,
          .patience = kPatience,
          .most_bytes = kMostScrapedBytes,
          .host_field = server.socket.empty() ? server.HostField() : "localhost",
          .fields = config.fields + kAccept,
          .tls = config.tls};
}

sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&signals, signal);
  return signals;
}

// False where a signal ends the command meanwhile.
bool SleepUntil(Clock::time_point until) {
  const sigset_t signals = EndingSignals();
  const auto left = std::max(until - Clock::now(), Clock::duration(0));
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
  return sigtimedwait(&signals, nullptr, &limit) < 0;
}

}  // namespace

void AddPullFlags(CLI::App& app, PullRequest& request) {
  AddAnyDaemonFlag(app, request.daemon);
  const auto store_path = [&request](const std::string& value) {
    request.path = value;
    const bool is_path = value.starts_with('/') && value.find_first_of(" \r\n") == value.npos;
    return is_path ? "" : "it does not begin with /, or has a blank";
  };
  AddChecked(app, "--daemon.path", store_path,
             "Path of its metrics. With ?collect[]=alerts it has those that the rules read.")
      ->default_str(request.path);
  AddHttpConfigFlag(app, request.http_config_file);
}

void BlockEndingSignals() {
  const sigset_t signals = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void PullUntilSignal(const PullRequest& request, const TakePull& take) {
  const PlainRequest scrape = ScrapeOf(request);
  std::string said;
  Clock::time_point next = Clock::now();
  do {
    const auto asked = std::chrono::system_clock::now().time_since_epoch();
    const int64_t asked_ns = std::chrono::nanoseconds(asked).count();
    const PlainAnswer answer = PlainGet(scrape);
    std::string fault = answer.fault;
    if (fault.empty() && answer.status != kOk) fault = "status " + std::to_string(answer.status);
    if (!fault.empty()) {
      take(std::nullopt, asked_ns);
    } else if (!take(answer.body, asked_ns)) {
      fault = "it is not understood";
    }
    if (fault != std::exchange(said, fault) && !fault.empty())
      Fail(kSuccess, PrintablePath("no metrics of the daemon at " + scrape.server.HostField() +
                                   ": " + fault));
    next = std::max(next + request.interval, Clock::now());
  } while (SleepUntil(next));
}

}  // namespace nccl_exporter::exporter
