// SPDX-License-Identifier: Apache-2.0
// nccl-exporter: wires the collector to the web pages, and runs until it is told to stop.
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "collector/collector.h"
#include "exporter/cli/client/daemon_judgement.h"
#include "exporter/cli/doctor/checks.h"
#include "exporter/cli/doctor/gpu_processes.h"
#include "exporter/cli/job/job_command.h"
#include "exporter/cli/node_in_json.h"
#include "exporter/cli/segment_dump.h"
#include "exporter/cli/top.h"
#include "exporter/commit.h"
#include "exporter/findings/in_flight_table.h"
#include "exporter/findings/node_judge.h"
#include "exporter/findings/node_watch.h"
#include "exporter/http/answer_budget.h"
#include "exporter/http/host_guard.h"
#include "exporter/http/http_server.h"
#include "exporter/http/tls_context.h"
#include "exporter/http/web_guard.h"
#include "exporter/ledger/book_source.h"
#include "exporter/ledger/ledger.h"
#include "exporter/ledger/systems_tmpfs.h"
#include "exporter/log.h"
#include "exporter/options.h"
#include "exporter/service_notifier.h"
#include "exporter/text/version.h"
#include "exporter/trace/trace_command.h"
#include "exporter/trace/trace_page.h"
#include "exporter/web/directory_states.h"
#include "exporter/web/scrape_page.h"
#include "exporter/web/web_pages.h"

namespace nccl_exporter::exporter {
namespace {

constexpr int kSuccess = 0;
constexpr int kRuntimeFailure = 1;
constexpr int kBadUsage = 2;

int Fail(int exit_code, const std::string& message) {
  std::fprintf(stderr, "nccl-exporter: %s\n", message.c_str());
  return exit_code;
}

int Print(const std::string& text) {
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return is_written ? kSuccess : Fail(kRuntimeFailure, "cannot write to standard output");
}

int Dump(const std::string& path) {
  collector::SegmentError error{};
  std::string detail;
  const std::optional<collector::ProcessSnapshot> process =
      collector::ReadSegmentFile(path, &error, &detail);
  if (process) return Print(DumpText(*process));
  if (error == collector::SegmentError::kCount)
    return Fail(kRuntimeFailure, path + ": not ready: " + detail);
  return Fail(kRuntimeFailure,
              path + ": " + std::string(NameOf(error)) + (detail.empty() ? "" : ": " + detail));
}

// The directories that are there and cannot be read; empty if there are none.
std::string UnreadableDirectories(const collector::NodeSnapshot& node) {
  std::string text;
  for (const collector::SegmentTrouble& trouble : node.segment_troubles) {
    if (trouble.error != collector::SegmentError::kDirectoryUnreadable || trouble.present == 0)
      continue;
    text += text.empty() ? "cannot read " : ", ";
    text += trouble.file + ": " + trouble.detail;
    if (trouble.present > 1)
      text += " (and " + std::to_string(trouble.present - 1) + " more of the same owner)";
  }
  return text;
}

// Empty if any of the watched directories exists: of those by default, some may not.
std::string MissingDirectories(const std::vector<std::string>& paths) {
  std::string text;
  for (const WatchedDirectory& directory : DirectoryStates(paths)) {
    if (directory.state != "missing") return "";
    text += (text.empty() ? "cannot read " : ", ") + directory.path;
  }
  return text + ": " + std::strerror(ENOENT);
}

// A failure unless all directories could be read, so that nothing there is never mistaken for
// nothing seen.
int PrintNode(const Options& options, const collector::NodeSnapshot& node,
              const std::string& text) {
  std::string unreadable = UnreadableDirectories(node);
  if (unreadable.empty() && node.processes.empty())
    unreadable = MissingDirectories(options.segment_dirs);
  if (unreadable.empty()) return Print(text);
  const int printed = node.processes.empty() ? kSuccess : Print(text);
  return printed == kSuccess ? Fail(kRuntimeFailure, unreadable) : printed;
}

// A collector that changes nothing: no segment is old enough to be removed.
collector::Collector CollectorOf(const Options& options) {
  return collector::Collector({.directories = options.segment_dirs,
                               .retention = std::chrono::nanoseconds::max(),
                               .splits_durations = options.metrics.splits_durations()});
}

// Throws where the file of thresholds is wrong.
Thresholds ThresholdsOf(const Options& options) {
  const Thresholds thresholds =
      options.findings_config.empty() ? Thresholds() : ReadThresholds(options.findings_config);
  return thresholds.Scaled(options.findings_time_scale);
}

LedgerTimes LedgerTimesOf(const Options& options, const Thresholds& thresholds) {
  LedgerTimes times = LedgerTimes().Scaled(options.findings_time_scale);
  times.longest_step_ns = thresholds.longest_step.count();
  return times;
}

std::shared_ptr<const Book> BookNow(collector::Collector& collector, Ledger& ledger) {
  const std::shared_ptr<const collector::NodeSnapshot> node = collector.Snapshot();
  const auto monotonic = std::chrono::steady_clock::now().time_since_epoch();
  return ledger.Enter(node, {.monotonic_ns = std::chrono::nanoseconds(monotonic).count(),
                             .realtime_ns = node->taken_realtime_ns});
}

int PrintInFlight(const Options& options) {
  const Thresholds thresholds = ThresholdsOf(options);
  const auto node = CollectorOf(options).Snapshot();
  const ShownJudgement shown = Shown(DaemonAt(options.daemon, options.segment_dirs)(),
                                     NodeJudge(thresholds).Judge(*node), node->taken_realtime_ns);
  return PrintNode(options, *node,
                   options.is_json ? InFlightJson(*node, shown)
                                   : shown.Line(node->taken_realtime_ns) + '\n' +
                                         InFlightText(*node, shown.judgement));
}

// A failure if any check is.
int PrintDoctor(const Options& options) {
  const auto node = CollectorOf(options).Snapshot();
  const std::vector<Check> checks = Examine({.segment_dirs = options.segment_dirs,
                                             .listen_addresses = options.listen_addresses,
                                             .pid = options.doctor_pid},
                                            *node);
  std::string text;
  for (const Check& check : checks) text += CheckLine(check) + '\n';
  const int printed = Print(text);
  const bool fails = std::ranges::count(checks, Verdict::kFail, &Check::verdict) != 0;
  return fails ? kRuntimeFailure : printed;
}

int PrintJob(const Options& options) {
  std::string fault;
  const std::string text = AnswerAbout(options.job, fault);
  return text.empty() ? Fail(kRuntimeFailure, fault) : Print(text);
}

int Top(const Options& options) {
  const Thresholds thresholds = ThresholdsOf(options);
  const TopSort sort = std::ranges::find(kTopSorts, options.sort, &CodeRow<TopSort>::name)->id;
  collector::Collector collector = CollectorOf(options);
  const auto first = collector.Snapshot();
  const std::string unreadable = UnreadableDirectories(*first);
  if (!unreadable.empty() && first->processes.empty()) return Fail(kRuntimeFailure, unreadable);
  std::optional<Terminal> terminal;
  const bool is_once = options.is_once || options.is_json;
  if (!is_once && Terminal::IsThere()) terminal.emplace();  // before the collector's thread
  collector.Start();                                        // compares arrivals
  Ledger ledger(LedgerTimesOf(options, thresholds));
  const auto books = [&] { return BookNow(collector, ledger); };
  const AskDaemon daemon = DaemonAt(options.daemon, options.segment_dirs);
  if (!terminal)
    return PrintNode(options, *first, TopOnce(books, daemon, sort, thresholds, options.is_json));
  ShowTop(books, daemon, sort, thresholds, *terminal);
  terminal.reset();
  return unreadable.empty() ? kSuccess : Fail(kRuntimeFailure, unreadable);
}

// What --web.config.file asks for; everything is null without one.
struct WebSecurity {
  std::unique_ptr<WebConfigFile> file;
  std::unique_ptr<TlsContext> tls;

  explicit WebSecurity(const std::string& path, std::string& error) {
    if (path.empty()) return;
    file = std::make_unique<WebConfigFile>(path, error);
    if (!error.empty() || !file->Current()->tls) return;
    tls = std::make_unique<TlsContext>([&config = *file] { return *config.Current()->tls; }, error);
  }

  // Reads what can be read again, and logs whether it is in force.
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
constexpr std::array kSignals{SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

bool EndsDaemon(int signal) { return signal == SIGTERM || signal == SIGINT; }

// Makes kSignals wait for WaitForSignal(), in this thread and those that it starts from now on.
// SIGPIPE is ignored: a write to a connection that is gone fails, and that is all.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kSignals) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

// Waits for a signal that ends the daemon. Meanwhile takes a snapshot as often as the watchdog
// wants to hear of us: a daemon whose collector does not answer is not alive.
int WaitForSignal(const sigset_t& signals, const ServiceNotifier& service, BookSource& books,
                  const WebSecurity& security) {
  for (;;) {
    const auto interval = service.watchdog_interval().value_or(std::chrono::hours(1));
    const auto seconds = std::chrono::floor<std::chrono::seconds>(interval);
    const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (interval - seconds).count()};
    const int signal = sigtimedwait(&signals, nullptr, &limit);
    if (signal > 0 && EndsDaemon(signal)) return signal;
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
  constexpr int kLargeBlockBytes = 1 << 20;
  constexpr int kKeptBytes = 8 << 20;
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, kLargeBlockBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

// As Kubernetes calls it where it tells us, else as the machine calls itself.
std::string NodeName() {
  if (const char* const name = std::getenv("NODE_NAME"); name != nullptr && *name != '\0')
    return name;
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
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
      const bool is_pattern = directory.ends_with("-*");
      if (is_directory && IsOnSystemsTmpfs(directory))
        spdlog::warn("{} is on a tmpfs that the system needs: any user can fill it", directory);
      spdlog::info("{} {}",
                   is_directory || is_pattern ? "watching" : "waiting for segment directory",
                   directory);
    }
  }
}

// Serves the findings to commands on this node, if the directory of the socket is there. Returns
// what is wrong, or an empty string.
std::string StartLocal(const std::string& path, HttpServer& server) {
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (path.empty() || !std::filesystem::is_directory(directory, error)) return "";
  return server.StartAtPath(path);
}

bool IsProcessOfJobs(const collector::ProcessSnapshot& process,
                     const std::vector<std::string>& wanted) {
  return IsOfJobs({.job = process.JobName(),
                   .name_space = process.Identity("POD_NAMESPACE"),
                   .pod = process.Identity("POD_NAME")},
                  wanted);
}

// SIGINT and SIGTERM are blocked.
bool IsStillWanted() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGINT) == 0 && sigismember(&pending, SIGTERM) == 0;
}

// Of a recording, SIGINT and SIGTERM end the window: what it has is written.
collector::NodeTrace TraceOf(const TraceRequest& request, collector::Collector& collector) {
  if (!request.length) return collector.Recent(request.last.value_or(kDefaultTraceLength));
  BlockSignals();
  std::optional<collector::DetailRequest> detail;
  if (request.level != TraceLevel::kOperations) {
    detail = {.with_steps = request.level == TraceLevel::kSteps,
              .communicator = request.communicator,
              .is_of_job = [&request](const collector::ProcessSnapshot& process) {
                return IsProcessOfJobs(process, request.wanted);
              }};
  }
  return collector.Record(*request.length, IsStillWanted, detail);
}

int Trace(const Options& options) {
  TraceResult result;
  if (options.command == Command::kTraceMerge) {
    result = MergeTraces(options.trace);
  } else if (options.command == Command::kTraceSummary) {
    result = SummarizeTraces(options.trace);
  } else {
    collector::Collector collector = CollectorOf(options);
    collector::NodeTrace trace = TraceOf(options.trace, collector);
    trace.node = NodeName();
    if (trace.processes.empty())
      return Fail(kRuntimeFailure, "no process has a segment here; see nccl-exporter doctor");
    result = WriteTrace(options.trace, std::move(trace));
  }
  if (!result.fault.empty()) return Fail(kRuntimeFailure, result.fault);
  std::fputs(result.notes.c_str(), stderr);
  return Print(result.text);
}

// A log that nobody reads: lines are lost, and whoever reads it last knows nothing of this daemon.
std::string FaultOfLog(const LogQueue& log) {
  return log.IsBlocked(LogQueue::Clock::now())
             ? "The log is blocked: its reader has taken nothing for " +
                   std::to_string(kLogBlockedLimit.count()) + " s"
             : "";
}

// Serves until a signal ends the daemon. Returns why it could not, or an empty string.
std::string ServeUntilSignal(const Options& options, const sigset_t& signals) {
  const Thresholds thresholds = ThresholdsOf(options);
  const ServiceNotifier service;
  const auto log = std::make_shared<LogQueue>(STDERR_FILENO);
  ConfigureLog(options.log_level, options.log_format, log);
  std::string error;
  const WebSecurity security(options.web_config_file, error);
  if (!error.empty()) return error;
  collector::Collector collector({.directories = options.segment_dirs,
                                  .retention = options.retention,
                                  .splits_durations = options.metrics.splits_durations()});
  Ledger ledger(LedgerTimesOf(options, thresholds));
  BookSource books([&] { return BookNow(collector, ledger); }, false);
  AnswerBudget budget;
  ScrapePage scrape_page(books, budget, kSeriesLimit, options.metrics, kCommit);
  NodeWatch watch(books, thresholds, [&](const Judgement& judgement) {
    scrape_page.SetFindings(judgement.findings);
    scrape_page.SetDroppedLogLines(log->dropped());
  });
  // Seldom, since it reads the mappings of all processes.
  const UnmeasuredWatch unmeasured(
      "/proc", std::chrono::minutes(1),
      [&](std::optional<uint64_t> count) { scrape_page.SetUnmeasuredProcesses(count); });
  TracePage trace(
      [&](std::chrono::nanoseconds last) {
        collector::NodeTrace recent = collector.Recent(last, kMostOperationsOfPage);
        recent.node = NodeName();
        return recent;
      },
      budget);
  WebPages pages(books, scrape_page, watch, budget,
                 {.node_name = NodeName(),
                  .telemetry_path = options.telemetry_path,
                  .start_realtime_ns = collector::Now().realtime_ns,
                  .segment_directories = options.segment_dirs,
                  .commit = kCommit,
                  .fault = [&log = *log] { return FaultOfLog(log); }},
                 options.serves_traces ? &trace : nullptr);
  HttpHandler handler = [&](const HttpRequest& request) { return pages.Answer(request); };
  const RefusalCounter on_refusal = [&](Refusal refusal) { scrape_page.Count(refusal); };
  std::unique_ptr<WebGuard> guard;
  if (security.file) {
    guard = std::make_unique<WebGuard>(*security.file, std::move(handler), on_refusal);
    handler = [&](const HttpRequest& request) { return guard->Answer(request); };
  }
  std::unique_ptr<HostGuard> hosts;
  if (!options.allowed_hosts.empty()) {
    hosts = std::make_unique<HostGuard>(options.allowed_hosts, std::move(handler), on_refusal);
    handler = [&](const HttpRequest& request) { return hosts->Answer(request); };
  }
  HttpServer server(std::move(handler), on_refusal);
  budget.SetGiveWay([&] { return pages.GiveWay() || server.GiveWay(); });
  const std::shared_ptr<void> until_the_server_ends(nullptr,
                                                    [&](void*) { budget.SetGiveWay(nullptr); });
  error = options.uses_systemd_socket ? server.StartAtPassedSockets(security.tls.get())
                                      : server.Start(options.listen_addresses, security.tls.get());
  if (!error.empty()) return "cannot serve: " + error;
  HttpServer health([&](const HttpRequest& request) { return pages.AnswerHealth(request); },
                    on_refusal);
  error = health.Start(options.health_addresses);
  if (!error.empty()) return "cannot serve: " + error;
  HttpServer local([&](const HttpRequest& request) { return pages.AnswerFindings(request); },
                   on_refusal);
  const std::string local_fault = StartLocal(options.findings_socket, local);
  LogStart(options, server, health, security);
  if (!local_fault.empty())
    spdlog::warn("no findings at {} for top and inflight: {}", options.findings_socket,
                 local_fault);
  if (const std::string taken = options.metrics.TakenFromRules(); !taken.empty()) {
    spdlog::warn("--metrics leaves out families or labels that the shipped rules need: {}", taken);
  }
  books.BeginLog();  // the first line of the log says where the daemon listens
  collector.Start();
  books.Take();
  service.Ready();
  const int signal = WaitForSignal(signals, service, books, security);
  spdlog::info("stopping on {}", signal == SIGTERM ? "SIGTERM" : "SIGINT");
  service.Stopping();
  local.Stop();
  health.Stop();
  server.Stop();
  return "";
}

int Serve(const Options& options) {
  UseOneHeap();
  RaiseDescriptorLimit();
  const sigset_t signals = BlockSignals();
  const std::string fault = ServeUntilSignal(options, signals);
  if (fault.empty()) return kSuccess;
  // Standard error may block: the signals end the process as by default.
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  return Fail(kRuntimeFailure, fault);
}

int Main(int argc, char** argv) {
  const sigset_t signals = BlockSignals();  // an end in the first milliseconds is one as any other
  std::string error;
  const Options options = ParseOptions(argc, argv, error, kCommit);
  if (options.command != Command::kServe || !error.empty()) {
    std::signal(SIGPIPE, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  }
  if (!error.empty()) return Fail(kBadUsage, error + " (see nccl-exporter --help)");
  if (options.command == Command::kPrint) return Print(options.text);
  try {
    if (options.command == Command::kDump) return Dump(options.dump_segment);
    if (options.command == Command::kTop) return Top(options);
    if (options.command == Command::kDoctor) return PrintDoctor(options);
    if (options.command == Command::kJob) return PrintJob(options);
    if (options.command == Command::kTrace || options.command == Command::kTraceMerge ||
        options.command == Command::kTraceSummary)
      return Trace(options);
    return options.command == Command::kInFlight ? PrintInFlight(options) : Serve(options);
  } catch (const std::exception& failure) {
    return Fail(kRuntimeFailure, failure.what());
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter

int main(int argc, char** argv) { return nccl_exporter::exporter::Main(argc, argv); }
