// SPDX-License-Identifier: Apache-2.0
// nccl-exporter: runs the command of the command line, or the daemon.
#include <exception>
#include <string>

#include "exporter/cli/command_line.h"
#include "exporter/commit.h"
#include "exporter/serve.h"

namespace nccl_exporter::exporter {
namespace {

int Main(int argc, char** argv) {
  BlockSignals();
  CommandLine line(kCommit);
  const std::string fault = line.Parse(argc, argv);
  if (!line.is_daemon() || !fault.empty()) UnblockSignals();
  if (!fault.empty()) return Fail(kBadUsage, fault + " (see nccl-exporter --help)");
  try {
    return line.is_daemon() ? Serve(line.options()) : line.Run();
  } catch (const std::exception& failure) {
    return Fail(kRuntimeFailure, failure.what());
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter

int main(int argc, char** argv) { return nccl_exporter::exporter::Main(argc, argv); }
