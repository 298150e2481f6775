// SPDX-License-Identifier: Apache-2.0
// Small jobs in real time: what a node's daemon sees of them is what counts, not what they do.
#include "tests/soak/job_mill.h"

#include <fmt/format.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/soak/scraper.h"
#include "tests/system/daemon.h"

namespace nccl_exporter::soak {
namespace {

constexpr int kStepsPerSecond = 20;

struct Kind {
  const char* name;
  std::vector<std::string> options;
  bool is_killed = false;  // all of its processes, by SIGKILL
};

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds{
      {"dp", {"--layout", "dp", "--ranks-per-node", "4"}},
      {"fsdp-anew", {"--layout", "fsdp", "--ranks-per-node", "2", "--recreate-every", "60"}},
      {"tp-in-one-process",
       {"--layout", "tp", "--ranks-per-node", "4", "--ranks-per-process", "4",
        "--thread-per-rank"}},
      {"dp-killed", {"--layout", "dp", "--ranks-per-node", "4"}, true},
      {"3d", {"--layout", "3d", "--ranks-per-node", "4", "--api-version", "5"}},
      {"single-anew", {"--layout", "single", "--ranks-per-node", "4", "--recreate-every", "10"}},
      {"fsdp-one-rank-killed",
       {"--layout", "fsdp", "--ranks-per-node", "4", "--kill-rank", "1", "--kill-step", "30"}},
      {"moe-split", {"--layout", "moe", "--ranks-per-node", "2", "--split-at-step", "30"}},
      {"tp-not-finalized",
       {"--layout", "tp", "--ranks-per-node", "4", "--api-version", "4", "--no-finalize"}},
      {"mixed-anew-killed",
       {"--layout", "mixed", "--ranks-per-node", "2", "--recreate-every", "200"},
       true},
      {"pp", {"--layout", "pp", "--ranks-per-node", "4", "--api-version", "7"}},
      {"graph-shrink",
       {"--layout", "dp", "--ranks-per-node", "4", "--graph", "--shrink-at-step", "30"}},
      {"ladder-old",
       {"--layout", "ladder", "--ranks-per-node", "2", "--network", "all", "--api-version", "2"}},
  };
  return kinds;
}

pid_t ParentOf(const std::string& process) {
  std::ifstream status("/proc/" + process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("PPid:")) return std::stoi(line.substr(5));
  }
  return 0;
}

}  // namespace

JobMill::JobMill(const std::string& segment_directory, double retention_seconds, Findings* findings)
    : segment_directory_(segment_directory),
      retention_seconds_(retention_seconds),
      findings_(findings),
      jobs_(kJobsAtATime) {}

void JobMill::Turn() {
  for (Job& job : jobs_) {
    if (job.process != nullptr && job.kill_at_seconds > 0 && Now() >= job.kill_at_seconds)
      Kill(job);
    if (job.process != nullptr && !job.process->IsRunning()) End(job);
    if (job.process == nullptr) Start(job);
  }
}

void JobMill::Start(Job& job) {
  const Kind& kind = Kinds()[started_ % Kinds().size()];
  const uint64_t id = ++started_;
  const double seconds = std::uniform_real_distribution(0.5, 2.5)(random_) * retention_seconds_;
  std::vector<std::string> options = kind.options;
  options.insert(options.end(), {"--pace", "real", "--rate", std::to_string(kStepsPerSecond)});
  options.insert(options.end(),
                 {"--duration", fmt::format("{:.1f}", seconds), "--seed", std::to_string(id)});
  options.insert(options.end(), {"--slurm-job-id", std::to_string(id)});
  // Slots of the plugin are used again, and soon.
  options.insert(options.end(), {"--env", fmt::format("NCCL_EXPORTER_RETENTION_SECONDS={:.0f}",
                                                      std::ceil(retention_seconds_))});
  job.name = fmt::format("job {}, {}", id, kind.name);
  job.is_killed = false;
  job.kill_at_seconds = kind.is_killed ? Now() + seconds / 2 : 0;
  const std::string truth = fmt::format("{}/{}.json", truths_.path(), &job - jobs_.data());
  job.process = std::make_unique<exporter::ChildProcess>(
      SimulatorCommand(segment_directory_, truth, options));
}

// The processes of the job are children of the launcher, which lives on to clean up.
void JobMill::Kill(Job& job) {
  job.kill_at_seconds = 0;
  job.is_killed = true;
  ++killed_;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string process = entry.path().filename();
    if (process.find_first_not_of("0123456789") == std::string::npos &&
        ParentOf(process) == job.process->pid()) {
      kill(std::stoi(process), SIGKILL);
    }
  }
}

void JobMill::End(Job& job) {
  if (const int code = job.process->Wait(); code != 0 && !job.is_killed) {
    findings_->Add(fmt::format("{}: exit code {}: {}", job.name, code, job.process->AllOutput()));
  }
  job.process.reset();
}

void JobMill::StopAll() {
  for (Job& job : jobs_) {
    if (job.process == nullptr) continue;
    Kill(job);
    End(job);
  }
}

}  // namespace nccl_exporter::soak
