// SPDX-License-Identifier: Apache-2.0
#include "simulator/job/process_launcher.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "simulator/device/virtual_clock.h"
#include "simulator/job/ground_truth_file.h"
#include "simulator/job/stop_signals.h"
#include "simulator/job/training_process.h"

namespace nccl_exporter::sim {
namespace {

// %n, %r and %l stand for numbers of the process.
std::string Expanded(std::string_view text, const ClusterShape& shape, int process) {
  const int processes_per_node = shape.ranks_per_node / shape.ranks_per_process;
  std::string expanded;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '%' && i + 1 < text.size() ? text[i + 1] : '\0';
    if (next == 'n') {
      expanded += std::to_string(process / processes_per_node);
    } else if (next == 'r') {
      expanded += std::to_string(process);
    } else if (next == 'l') {
      expanded += std::to_string(process % processes_per_node);
    } else {
      expanded += text[i];
      continue;
    }
    ++i;
  }
  return expanded;
}

// Environment that a launcher such as torchrun or srun would set.
std::map<std::string, std::string> EnvironmentOf(const JobOptions& options, int process) {
  const ClusterShape& shape = options.workload.shape;
  const auto expanded = [&](std::string_view text) { return Expanded(text, shape, process); };
  std::map<std::string, std::string> environment{{"RANK", expanded("%r")},
                                                 {"LOCAL_RANK", expanded("%l")},
                                                 {"WORLD_SIZE", std::to_string(shape.processes())}};
  if (!options.slurm_job_id.empty()) {
    environment.emplace("SLURM_JOB_ID", options.slurm_job_id);
    environment.emplace("SLURM_STEP_ID", "0");
    environment.emplace("SLURM_PROCID", expanded("%r"));
  }
  if (!options.segment_directory.empty())
    environment["NCCL_EXPORTER_DIR"] = expanded(options.segment_directory);
  const auto set = [&](const std::string& pair) {
    const size_t equals = pair.find('=');
    environment[pair.substr(0, equals)] = expanded(std::string_view(pair).substr(equals + 1));
  };
  for (const std::string& pair : options.environment) set(pair);
  const int first_rank = process * shape.ranks_per_process;
  for (const JobOptions::OfRanks& of_ranks : options.environment_of_ranks) {
    if (first_rank >= of_ranks.first && first_rank <= of_ranks.last) set(of_ranks.pair);
  }
  return environment;
}

// Its name is not made of the pid: processes of several PID namespaces may share the file system.
std::filesystem::path MakeTemporaryDirectory() {
  std::string name = std::filesystem::temp_directory_path() / "nccl-sim-XXXXXX";
  if (mkdtemp(name.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), name);
  return name;
}

class Job {
 public:
  Job(int argc, char** argv, const JobOptions& options)
      : arguments_(argv, argv + argc), options_(options), parts_(MakeTemporaryDirectory()) {}
  ~Job() {
    std::error_code ignored;
    std::filesystem::remove_all(parts_, ignored);
  }

  int Run();

 private:
  std::string PartOf(int process) const { return parts_ / fmt::format("{}.json", process); }
  pid_t Start(int process, int64_t epoch_monotonic_ns) const;
  [[noreturn]] void Become(int process, int64_t epoch_monotonic_ns) const;
  bool StartAll(int64_t epoch_monotonic_ns);
  bool WaitForAll(bool must_stop, int64_t end_monotonic_ns);
  void SignalAll(int number) const;
  bool IsKilledOnPurpose(int process) const;
  bool EndedWell(int process, int status) const;
  nlohmann::json Truth(int64_t epoch_monotonic_ns) const;

  const std::vector<std::string> arguments_;
  const JobOptions& options_;
  const std::filesystem::path parts_;
  std::map<pid_t, int> running_;  // process number by pid
  bool only_hung_ = true;         // all processes that did not end well
};

void Job::Become(int process, int64_t epoch_monotonic_ns) const {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // nothing outlives the job
  for (const auto& [name, value] : EnvironmentOf(options_, process))
    setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> arguments = arguments_;
  arguments.insert(arguments.end(), {fmt::format("--child-process={}", process),
                                     fmt::format("--child-epoch={}", epoch_monotonic_ns),
                                     fmt::format("--child-truth={}", PartOf(process))});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  // In an emulator that is a file of another machine, and the first argument is what starts it.
  if (errno == ENOEXEC) execv(argv[0], argv.data());
  fmt::print(stderr, "nccl-sim: cannot start process {}: {}\n", process, std::strerror(errno));
  _exit(1);
}

pid_t Job::Start(int process, int64_t epoch_monotonic_ns) const {
  const pid_t pid = fork();
  if (pid == 0) Become(process, epoch_monotonic_ns);
  return pid;
}

bool Job::IsKilledOnPurpose(int process) const {
  const ClusterShape& shape = options_.workload.shape;
  if (options_.kill && shape.ProcessOf(options_.kill->rank) == process) return true;
  return std::any_of(
      options_.incidents.begin(), options_.incidents.end(), [&](const Incident& incident) {
        return incident.kind == IncidentKind::kKill && shape.ProcessOf(incident.rank()) == process;
      });
}

bool Job::EndedWell(int process, int status) const {
  if (WIFEXITED(status)) return WEXITSTATUS(status) == 0;
  return WTERMSIG(status) == SIGKILL && IsKilledOnPurpose(process);
}

void Job::SignalAll(int number) const {
  for (const auto& [child, process] : running_) kill(child, number);
}

// `must_stop`: from the beginning, because not all could be started. What an incident has stopped
// is continued when the job is to end.
bool Job::WaitForAll(bool must_stop, int64_t end_monotonic_ns) {
  constexpr std::chrono::milliseconds kPoll(10);
  const StopSignals signals;
  bool is_well = true;
  bool has_handed_on = false;
  bool has_continued = false;
  while (!running_.empty()) {
    if ((must_stop || signals.asked()) && !has_handed_on) {
      SignalAll(SIGTERM);
      has_handed_on = true;
    }
    if ((has_handed_on || RealMonotonicNs() >= end_monotonic_ns) &&
        !std::exchange(has_continued, true)) {
      SignalAll(SIGCONT);
    }
    int status = 0;
    const auto ended = running_.find(waitpid(-1, &status, WNOHANG));
    if (ended == running_.end()) {
      std::this_thread::sleep_for(kPoll);
      continue;
    }
    if (!EndedWell(ended->second, status)) {
      const bool is_signal = WIFSIGNALED(status);
      fmt::print(stderr, "nccl-sim: process {} ended with {} {}\n", ended->second,
                 is_signal ? "signal" : "exit code",
                 is_signal ? WTERMSIG(status) : WEXITSTATUS(status));
      is_well = false;
      only_hung_ &= WIFEXITED(status) && WEXITSTATUS(status) == kDestroyHangs;
    }
    running_.erase(ended);
  }
  return is_well;
}

nlohmann::json Job::Truth(int64_t epoch_monotonic_ns) const {
  nlohmann::json truth{{"api_version", options_.play.release.api_version()},
                       {"nccl_version", options_.play.release.nccl_version()},
                       {"faults", options_.faults},
                       {"epoch_monotonic_ns", epoch_monotonic_ns},
                       {"ranks", nlohmann::json::array()}};
  for (int process = 0; process < options_.workload.shape.processes(); ++process) {
    std::ifstream part(PartOf(process));
    if (!part) continue;
    for (nlohmann::json& rank : nlohmann::json::parse(part))
      truth["ranks"].push_back(std::move(rank));
  }
  return truth;
}

bool Job::StartAll(int64_t epoch_monotonic_ns) {
  const ClusterShape& shape = options_.workload.shape;
  for (int process = 0; process < shape.processes(); ++process) {
    if (options_.node >= 0 && shape.NodeOf(process * shape.ranks_per_process) != options_.node)
      continue;
    const pid_t pid = Start(process, epoch_monotonic_ns);
    if (pid < 0) {
      fmt::print(stderr, "nccl-sim: cannot fork: {}\n", std::strerror(errno));
      return false;
    }
    running_[pid] = process;
  }
  return true;
}

int Job::Run() {
  const int64_t period_ns = StepPeriodNs(options_);
  const Release& release = options_.play.release;
  const WorkloadOptions& workload = options_.workload;
  const std::string played =
      workload.calls.empty() ? "layout " + workload.layout : "calls " + workload.calls;
  fmt::print("NCCL {}, profiler API v{}, {}, {} steps of {:.3f} ms\n", release.nccl_version(),
             release.api_version(), played, options_.steps, static_cast<double>(period_ns) / 1e6);
  std::fflush(stdout);  // before there are more processes to write it
  // Played fast, the last step ends about now; the machine must have been up when the first one
  // began.
  const int64_t length_ns = options_.is_real_time ? 0 : period_ns * options_.steps;
  const int64_t epoch_ns = std::max<int64_t>(RealMonotonicNs() - length_ns, 1000000000);
  const bool has_started = StartAll(epoch_ns);
  const bool has_ended_well = WaitForAll(!has_started, epoch_ns + period_ns * options_.steps);
  const nlohmann::json truth = Truth(epoch_ns);
  fmt::print("{}", SummaryOf(truth));
  if (!options_.ground_truth_file.empty() && !WriteJson(options_.ground_truth_file, truth)) {
    fmt::print(stderr, "nccl-sim: cannot write {}: {}\n", options_.ground_truth_file,
               std::strerror(errno));
    return 1;
  }
  if (!has_started) return 1;
  if (has_ended_well) return 0;
  return only_hung_ ? kDestroyHangs : 1;
}

}  // namespace

int RunJob(int argc, char** argv, const JobOptions& options) {
  try {
    return Job(argc, argv, options).Run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "nccl-sim: {}\n", error.what());
    return 1;
  }
}

}  // namespace nccl_exporter::sim
