// SPDX-License-Identifier: Apache-2.0
// Asks the kernel for the lock that stands in the way of reading the file.
#include "collector/liveness.h"

#include <fcntl.h>
#include <unistd.h>

namespace nccl_exporter {

bool HasWriteLock(int descriptor) {
  struct flock lock {};
  lock.l_type = F_RDLCK;  // only a write lock conflicts with it: another reader's lock is no sign of a writer
  lock.l_whence = SEEK_SET;
  return ::fcntl(descriptor, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace nccl_exporter
