// SPDX-License-Identifier: Apache-2.0
// nccl-sim: the first process starts the others; each of those plays its ranks to the plugin.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "simulator/device/cuda_driver.h"
#include "simulator/device/virtual_clock.h"
#include "simulator/job/ground_truth_file.h"
#include "simulator/job/job_options.h"
#include "simulator/job/process_launcher.h"
#include "simulator/job/stop_signals.h"
#include "simulator/job/training_process.h"
#include "simulator/loader/nccl_library.h"
#include "simulator/loader/profiler_plugin.h"

namespace nccl_exporter::sim {
namespace {

void StartClock(int64_t epoch_monotonic_ns) {
  const int64_t realtime_ns = RealRealtimeNs() - RealMonotonicNs();  // of the machine's start
  SetJobEpoch({epoch_monotonic_ns, realtime_ns + epoch_monotonic_ns});
}

// The library that was asked for, or the one beside the program, or none.
std::unique_ptr<CudaDriver> LoadCuda(const JobOptions& options, std::string& error) {
  const std::string path =
      options.cuda.empty() ? SiblingPath(CudaDriver::kFile).string() : options.cuda;
  if (options.cuda.empty() && !std::filesystem::exists(path)) return nullptr;
  return CudaDriver::Load(path, error);
}

int PlayProcess(const JobOptions& options) {
  std::string error;
  const std::optional<NcclLibrary> nccl = NcclLibrary::Load(error);
  const std::unique_ptr<CudaDriver> cuda = LoadCuda(options, error);
  if (!error.empty()) {
    fmt::print(stderr, "nccl-sim: {}\n", error);
    return 1;
  }
  nccl->configure(options.play.release.nccl_version(), options.log_level, options.child->process);
  StartClock(options.child->epoch_monotonic_ns);
  for (const Incident& incident : options.incidents) {
    const int rank = options.child->process * options.workload.shape.ranks_per_process;
    if (incident.kind != IncidentKind::kClockStep ||
        !incident.Concerns(rank, options.workload.shape))
      continue;
    SetClockStep(incident.from_ns(), Incident::Ns(incident[Setting::kSeconds]));
  }
  const StopSignals signals;
  TrainingProcess process(options, options.child->process, *nccl, cuda.get(), signals.asked());
  process.Run();
  if (!WriteJson(options.child->truth_part, process.Truth())) {
    fmt::print(stderr, "nccl-sim: cannot write {}: {}\n", options.child->truth_part,
               std::strerror(errno));
    return 1;
  }
  if (process.IsKilled() && !signals.asked()) kill(getpid(), SIGKILL);
  return process.HasHung() ? kDestroyHangs : 0;
}

int Main(int argc, char** argv) {
  JobOptions options;
  if (const std::optional<int> exit_code = ParseJobOptions(argc, argv, options)) return *exit_code;
  BlockStopSignals();
  options.play.release = Release(options.play.release.nccl_version(), NcclSettingsOfEnvironment());
  return options.child ? PlayProcess(options) : RunJob(argc, argv, options);
}

}  // namespace
}  // namespace nccl_exporter::sim

int main(int argc, char** argv) { return nccl_exporter::sim::Main(argc, argv); }
