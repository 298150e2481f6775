// SPDX-License-Identifier: Apache-2.0
// segments_as_json DIRECTORY: what the collector reads from the segments of a directory, for the
// tests in Python. One JSON object, a member for each file.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "collector/collector.h"
#include "collector/node_snapshot.h"
#include "proto/collective.h"
#include "proto/loss.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

json FunctionJson(const collector::FunctionSnapshot& function) {
  json sizes = json::object();
  uint64_t timed = 0;
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    const collector::SizeClassSnapshot& size = function.sizes[i];
    timed += size.timed_operations;
    if (size.IsUsed())
      sizes[std::to_string(kSizeClassBounds[i])] = {{"operations", size.operations},
                                                    {"bytes", size.bytes}};
  }
  return {{"calls", function.calls}, {"sizes", std::move(sizes)}, {"timed", timed}};
}

json CommunicatorJson(const collector::CommunicatorSnapshot& communicator) {
  json functions = json::object();
  for (size_t i = 0; i < kFunctionCount; ++i) {
    if (communicator.functions[i].IsUsed())
      functions[std::string(TraitsOf(static_cast<Function>(i)).name)] =
          FunctionJson(communicator.functions[i]);
  }
  return {{"id", communicator.id},
          {"name", communicator.name},
          {"rank", communicator.rank},
          {"timing_source", NameOf(communicator.timing_source)},
          {"timing_reason", NameOf(communicator.timing_reason)},
          {"functions", std::move(functions)}};
}

json ProcessJson(const collector::ProcessSnapshot& process) {
  json losses = json::object(), communicators = json::array();
  for (const LossTraits& loss : kLosses) {
    const uint64_t count = process.losses[static_cast<size_t>(loss.id)];
    if (count != 0) losses[std::string(loss.reason)] = count;
  }
  for (const collector::CommunicatorSnapshot& communicator : process.communicators)
    communicators.push_back(CommunicatorJson(communicator));
  return {{"pid", process.pid},
          {"losses", std::move(losses)},
          {"communicators", std::move(communicators)}};
}

}  // namespace
}  // namespace nccl_exporter

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: segments_as_json DIRECTORY\n", stderr);
    return 2;
  }
  try {
    nccl_exporter::collector::Collector collector({.directories = {argv[1]}});
    nlohmann::json processes = nlohmann::json::object();
    const auto snapshot = collector.Snapshot();
    for (const auto& process : snapshot->processes)
      processes[process.segment] = nccl_exporter::ProcessJson(process);
    std::printf("%s\n", processes.dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "segments_as_json: %s\n", error.what());
    return 1;
  }
}
