// SPDX-License-Identifier: Apache-2.0
// The real daemon on a free port of the loopback interface, and the simulated job that it watches.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collector/testing/scratch_directory.h"
#include "exporter/testing/child_process.h"
#include "exporter/testing/eventually.h"
#include "exporter/testing/http_client.h"
#include "tests/system/exposition.h"

namespace nccl_exporter {

// A TCP port that was free a moment ago. None of those that the kernel gives to clients: it would
// be taken before the daemon listens at it.
int FreePort();

inline constexpr char kDaemonPath[] = "exporter/nccl-exporter";
inline constexpr char kSimulatorPath[] = "simulator/nccl-sim";
inline constexpr char kPluginPath[] = "plugin/libnccl-profiler-exporter.so";

class Daemon {
 public:
  // Starts it over one segment directory and waits until it is ready.
  explicit Daemon(const std::string& segment_directory, std::vector<std::string> options = {},
                  const std::string& program = kDaemonPath);

  std::string Url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  exporter::HttpAnswer Get(const std::string& path,
                           const std::vector<std::string>& headers = {}) const {
    return exporter::HttpGet(Url(path), headers);
  }
  Exposition Scrape() const;
  int port() const { return port_; }
  exporter::ChildProcess& process() { return *process_; }

 private:
  int port_;
  std::unique_ptr<exporter::ChildProcess> process_;
};

// The command that simulates a job with the real plugin, and writes its ground truth to `truth`.
// Broadcasts are ordinary, so that kernel events neither drift nor hang a destruction: `--env
// NCCL_ALLGATHERV_ENABLE=1` in `options` is NCCL's default.
std::vector<std::string> SimulatorCommand(const std::string& segment_directory,
                                          const std::string& truth,
                                          std::vector<std::string> options);

}  // namespace nccl_exporter
