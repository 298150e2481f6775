// SPDX-License-Identifier: Apache-2.0
// Serve(), the daemon: signals, log, collector, judge and servers. For the first thread.
#pragma once

#include <csignal>

#include "exporter/cli/options.h"

namespace nccl_exporter::exporter {

// Makes the signals of the daemon wait for Serve(), in this thread and those that it starts from
// now on, and ignores SIGPIPE: a write to a connection that is gone fails, and that is all. An end
// in the first milliseconds is then one as any other.
void BlockSignals();
// Signals have their defaults again.
void UnblockSignals();

// Serves until a signal ends the daemon. Returns the exit code. Call BlockSignals() before.
int Serve(const Options& options);

}  // namespace nccl_exporter::exporter
