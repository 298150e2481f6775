// SPDX-License-Identifier: Apache-2.0
#include "exporter/serve.h"

#include <malloc.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "exporter/cli/commands.h"
#include "exporter/cli/doctor/gpu_processes.h"
#include "exporter/cli/node_access.h"
#include "exporter/commit.h"
#include "exporter/findings/node_watch.h"
#include "exporter/http/answer_budget.h"
#include "exporter/http/http_server.h"
#include "exporter/http/tls_context.h"
#include "exporter/http/web_guard.h"
#include "exporter/ledger/book_source.h"
#include "exporter/ledger/systems_tmpfs.h"
#include "exporter/log.h"
#include "exporter/service_notifier.h"
#include "exporter/text/version.h"
#include "exporter/trace/trace_page.h"
#include "exporter/web/scrape_page.h"
#include "exporter/web/web_pages.h"

namespace nccl_exporter::exporter {
namespace {

// The file of --web.config.file and its TLS; null without one.
struct WebSecurity {
  std::unique_ptr<WebConfigFile> file;
  std::unique_ptr<TlsContext> tls;

  explicit WebSecurity(const std::string& path, std::string& error) {
    if (path.empty()) return;
    file = std::make_unique<WebConfigFile>(path, error);
    if (!error.empty() || !file->Current()->tls) return;
    tls = std::make_unique<TlsContext>([&config = *file] { return *config.Current()->tls; }, error);
  }

  // Reads the files again, and logs whether they are in force.
  void Reload(int signal) const {
    const char* const name = sigabbrev_np(signal);
    if (signal != SIGHUP || file == nullptr)
      return spdlog::info(
          "SIG{}: nothing to reload; only a --web.config.file and the files that it names are read "
          "again, at SIGHUP and at each connection",
          name);
    std::string fault = file->FaultNow();
    if (fault.empty() && tls != nullptr) fault = tls->FaultNow();
    if (fault.empty())
      return spdlog::info("SIGHUP: the web configuration and its files are in force as they are");
    spdlog::error("SIGHUP: what was in force before stays: {}", fault);
  }
};

// SIGTERM and SIGINT end the daemon. The others, which would end it by default, get a line in the
// log: a terminal that closes, a script that rotates logs and an operator's habit send them.
sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&signals, signal);
  return signals;
}

// Waits for a signal that ends the daemon. Meanwhile takes a snapshot in the interval of
// systemd's watchdog: a daemon whose collector does not answer is not alive.
int WaitForSignal(const ServiceNotifier& service, BookSource& books, const WebSecurity& security) {
  const sigset_t signals = Signals();
  for (;;) {
    const auto interval = service.watchdog_interval().value_or(std::chrono::hours(1));
    const auto seconds = std::chrono::floor<std::chrono::seconds>(interval);
    const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (interval - seconds).count()};
    const int signal = sigtimedwait(&signals, nullptr, &limit);
    if (signal > 0 && (signal == SIGTERM || signal == SIGINT)) return signal;
    if (signal > 0) {
      security.Reload(signal);
      continue;
    }
    if (errno != EAGAIN || !service.watchdog_interval()) continue;
    books.Take();
    service.Alive();
  }
}

// The collector keeps a descriptor for each segment; the usual soft limit is 1024 for everything.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// One heap for all threads. They allocate little, and heaps of their own would keep what a
// connection once took: under TLS, 49 MB of resident memory in place of 26.
// Large blocks, such as answers, go back to the system when they are freed: left to itself, glibc
// takes them from the heap after the first one, and keeps up to 64 MiB (mallopt(3)).
void UseOneHeap() {
  constexpr int kLargeBlockBytes = 128 << 10;
  constexpr int kKeptBytes = 8 << 20;
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, kLargeBlockBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

void LogStart(const Options& options, const HttpServer& server, const HttpServer& health,
              const WebSecurity& security) {
  const std::vector<int> ports = server.ports();
  for (size_t i = 0; i < ports.size(); ++i) {
    spdlog::info("nccl-exporter {} listens at {} (port {}){}", kVersion, server.names()[i],
                 ports[i], security.tls ? ", TLS" : "");
  }
  const std::vector<int> health_ports = health.ports();
  for (size_t i = 0; i < health_ports.size(); ++i)
    spdlog::info("probes are answered at {} (port {})", health.names()[i], health_ports[i]);
  for (const std::string& directory : options.segment_dirs) {
    std::error_code error;
    const bool is_directory = std::filesystem::is_directory(directory, error);
    if (!is_directory && std::filesystem::exists(directory, error)) {
      spdlog::warn("{} is not a directory: it can hold no segments", directory);
    } else {
      const bool is_pattern = collector::IsPrivatePattern(directory);
      if (is_directory && IsOnSystemsTmpfs(directory))
        spdlog::warn("{} is on a tmpfs that the system needs: any user can fill it", directory);
      spdlog::info("{} {}",
                   is_directory || is_pattern ? "watching" : "waiting for segment directory",
                   directory);
    }
  }
}

// A log that nobody reads is a fault: lines are lost.
std::string FaultOfLog(const LogQueue& log) {
  return log.IsBlocked(LogQueue::Clock::now())
             ? "The log is blocked: its reader has taken nothing for " +
                   std::to_string(kLogBlockedLimit.count()) + " s"
             : "";
}

// `handler` with the guards that --web.config.file and --web.allowed-host ask for.
HttpHandler Guarded(HttpHandler handler, const WebSecurity& security, const Options& options,
                    const RefusalCounter& on_refusal) {
  if (security.file) handler = WithPasswords(*security.file, std::move(handler), on_refusal);
  if (!options.allowed_hosts.empty())
    handler = ForHosts(options.allowed_hosts, std::move(handler), on_refusal);
  return handler;
}

// `local` serves the findings to commands on this node, if the directory of its socket is there.
// Returns what is wrong, or an empty string.
std::string StartServers(const Options& options, const WebSecurity& security, HttpServer& server,
                         HttpServer& health, HttpServer& local) {
  std::string error = server.Start(options.listen_addresses, security.tls.get());
  if (error.empty()) error = health.Start(options.health_addresses);
  if (!error.empty()) return "cannot serve: " + error;
  const std::string& path = options.findings_socket;
  std::error_code failure;
  std::string local_fault;
  if (std::filesystem::is_directory(std::filesystem::path(path).parent_path(), failure))
    local_fault = local.Start({path});
  LogStart(options, server, health, security);
  if (!local_fault.empty()) spdlog::warn("no findings for top and inflight: {}", local_fault);
  if (const std::string taken = options.metrics.TakenFromRules(); !taken.empty())
    spdlog::warn("--metrics leaves out families or labels that the shipped rules need: {}", taken);
  return "";
}

collector::NodeTrace TraceOf(collector::Collector& collector, std::chrono::nanoseconds last) {
  collector::NodeTrace recent = collector.Recent(last, kMostOperationsOfPage);
  recent.node = NodeName();
  return recent;
}

// Serves until a signal ends the daemon. Returns why it could not, or an empty string.
std::string ServeUntilSignal(const Options& options) {
  const Thresholds thresholds = ThresholdsOf(options);
  const ServiceNotifier service;
  const auto log = std::make_shared<LogQueue>(STDERR_FILENO);
  ConfigureLog(options.log_level, options.log_format, log);
  std::string error;
  const WebSecurity security(options.web_config_file, error);
  if (!error.empty()) return error;
  collector::Collector collector({.directories = options.segment_dirs,
                                  .retention = options.retention,
                                  .splits_durations = options.metrics.splits_durations(),
                                  .label_directory = options.label_directory});
  Ledger ledger(LedgerTimesOf(options, thresholds));
  BookSource books([&] { return BookNow(collector, ledger); }, false);
  AnswerBudget budget;
  ScrapePage scrape_page(books, budget, kSeriesLimit, options.metrics, kCommit,
                         options.extension_socket);
  NodeWatch watch(books, thresholds, [&](const Judgement& judgement) {
    scrape_page.daemon().SetFindings(judgement.findings);
    scrape_page.daemon().SetDroppedLogLines(log->dropped());
    if (options.extension_socket.empty()) return;
    scrape_page.extensions().Fetch(ExtensionFamilies::Clock::now());
    scrape_page.daemon().SetExtensionFaults(scrape_page.extensions().faults());
  });
  // Seldom, since it reads the mappings of all processes.
  const UnmeasuredWatch unmeasured(
      "/proc", std::chrono::minutes(1),
      [&](std::optional<uint64_t> count) { scrape_page.daemon().SetUnmeasuredProcesses(count); });
  TracePage trace([&](std::chrono::nanoseconds last) { return TraceOf(collector, last); }, budget);
  WebPages pages(books, scrape_page, watch, budget,
                 {.node_name = NodeName(),
                  .telemetry_path = options.telemetry_path,
                  .start_realtime_ns = collector::Now().realtime_ns,
                  .segment_directories = options.segment_dirs,
                  .commit = kCommit,
                  .fault = [&log = *log] { return FaultOfLog(log); }},
                 options.serves_traces ? &trace : nullptr);
  const RefusalCounter on_refusal = [&](Refusal refusal) { scrape_page.daemon().Count(refusal); };
  const HttpHandler answer = [&](const HttpRequest& request) { return pages.Answer(request); };
  HttpServer server(Guarded(answer, security, options, on_refusal), on_refusal);
  budget.SetGiveWay([&] { return pages.GiveWay() || server.GiveWay(); });
  const std::shared_ptr<void> until_the_server_ends(nullptr,
                                                    [&](void*) { budget.SetGiveWay(nullptr); });
  HttpServer health([&](const HttpRequest& request) { return pages.AnswerHealth(request); },
                    on_refusal);
  HttpServer local([&](const HttpRequest& request) { return pages.AnswerFindings(request); },
                   on_refusal);
  error = StartServers(options, security, server, health, local);
  if (!error.empty()) return error;
  books.BeginLog();  // the first line of the log says where the daemon listens
  collector.Start();
  books.Take();
  service.Ready();
  const int signal = WaitForSignal(service, books, security);
  spdlog::info("stopping on {}", signal == SIGTERM ? "SIGTERM" : "SIGINT");
  service.Stopping();
  local.Stop();
  health.Stop();
  server.Stop();
  return "";
}

}  // namespace

void BlockSignals() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void UnblockSignals() {
  const sigset_t signals = Signals();
  std::signal(SIGPIPE, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

int Serve(const Options& options) {
  UseOneHeap();
  RaiseDescriptorLimit();
  const std::string fault = ServeUntilSignal(options);
  if (fault.empty()) return kSuccess;
  // Standard error may block: the signals end the process as by default.
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  return Fail(kRuntimeFailure, fault);
}

}  // namespace nccl_exporter::exporter
