// SPDX-License-Identifier: Apache-2.0
#include "simulator/testing/recorded_job.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "simulator/device/virtual_clock.h"
#include "simulator/job/training_process.h"
#include "simulator/loader/nccl_library.h"
#include "simulator/loader/profiler_plugin.h"

namespace nccl_exporter::sim {
namespace {

std::string PluginPath() { return SiblingPath("librecording-plugin.so"); }

// Kept open, so that the recording outlives NCCL's dlclose.
template <typename Function>
Function* Find(const char* name) {
  static void* const plugin = dlopen(PluginPath().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function*>(dlsym(plugin, name));
}

}  // namespace

std::vector<std::string> RecordedJob::Starting(const std::string& start) const {
  std::vector<std::string> found;
  for (const std::string& line : lines) {
    if (line.starts_with(start)) found.push_back(line);
  }
  return found;
}

std::string RecordedJob::Order(char thread) const {
  std::string order;
  for (const std::string& line : lines) {
    if (line[0] != thread || line[1] != ' ') continue;
    order += (order.empty() ? "" : " ") + line.substr(2, line.find(' ', 2) - 2);
  }
  return order;
}

std::string RecordedJob::ValueOf(const std::string& line, const std::string& key) {
  const size_t at = line.find(" " + key);
  if (at == std::string::npos) return "";
  const size_t value = at + 1 + key.size();
  return line.substr(value, line.find(' ', value) - value);
}

std::string RecordedJob::HandleOf(const std::string& line) {
  const size_t at = line.find('#');
  return line.substr(at, line.find(' ', at) - at);
}

const nlohmann::json& RecordedJob::TruthOf(const std::string& function) const {
  return ranks[0]["communicators"][0]["functions"][function];
}

uint64_t RecordedJob::SumOfSizes(const std::string& function, const std::string& count) const {
  uint64_t sum = 0;
  for (const nlohmann::json& size : TruthOf(function)["sizes"]) sum += size[count].get<uint64_t>();
  return sum;
}

JobOptions OneAllReduce(int nccl_version) {
  JobOptions options;
  options.play.release = Release(nccl_version);
  options.workload.layout = "single";
  options.workload.shape.ranks_per_node = 2;
  options.steps = 1;
  return options;
}

RecordedJob Record(const JobOptions& options, const RecordingSettings& settings, int process) {
  Find<decltype(RecordingConfigure)>("RecordingConfigure")(&settings);
  std::string error;
  const std::optional<NcclLibrary> nccl = NcclLibrary::Load(error);
  if (!nccl) throw std::runtime_error(error);
  *nccl->event_mask = 0;
  nccl->configure(options.play.release.nccl_version(), 0, process);
  SetJobEpoch({1000000000, 1700000000000000000});

  JobOptions with_plugin = options;
  with_plugin.plugin = PluginPath();
  const std::atomic<bool> stop_asked = false;
  RecordedJob job;
  {
    TrainingProcess played(with_plugin, process, *nccl, nullptr, stop_asked);
    played.Run();
    job.ranks = played.Truth();
  }
  std::istringstream lines(Find<decltype(RecordingTake)>("RecordingTake")());
  for (std::string line; std::getline(lines, line);) job.lines.push_back(line);
  return job;
}

}  // namespace nccl_exporter::sim
