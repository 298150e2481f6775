// SPDX-License-Identifier: Apache-2.0
// Whether the writer of a segment is alive: it holds a POSIX write lock on the file, which goes
// with the process, also at SIGKILL, and which no child inherits. A process id would mean nothing
// across PID namespaces and be reused.
#pragma once

#include <sys/types.h>

#include <optional>

namespace nccl_exporter::collector {

struct Writer {
  bool is_alive = false;
  pid_t pid = 0;  // in the caller's PID namespace; 0: it has none there
};

// Who holds the write lock. `descriptor` may be read-only. If the file system cannot tell, the
// writer is taken for alive: nothing of it is lost then. Locks of the calling process itself are
// not seen.
Writer FindWriter(int descriptor);

// Whether the writer, as it was just found, is stopped by a signal or a debugger. Nothing if there
// is none, or if /proc does not show it: in a PID namespace that the caller does not see into, or
// hidden by the mount option hidepid.
std::optional<bool> IsStopped(const Writer& writer);

}  // namespace nccl_exporter::collector
