// SPDX-License-Identifier: Apache-2.0
// Whether the writer of a segment is alive: it holds a POSIX write lock on the file, which goes with the process, also
// at SIGKILL, and which no child inherits. A process id would mean nothing across PID namespaces and be reused.
#pragma once

namespace nccl_exporter {

// `descriptor` may be read-only. If the file system cannot tell, the writer is taken for alive: nothing of it is lost
// then. Locks of the calling process itself are not seen.
bool HasWriteLock(int descriptor);

}  // namespace nccl_exporter
