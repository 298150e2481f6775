// SPDX-License-Identifier: Apache-2.0
// Whether a GPU of this process takes part in multicast (NVLink SHARP), asked of the CUDA driver
// that the process has already loaded. At init only.
#pragma once

namespace nccl_exporter::plugin {

// Asks the driver whether any GPU that the process sees can multicast, as NCCL does before it uses
// NVLS (transport/nvls.cc ncclNvlsInit): the communicators to come may use each of them. False
// without a driver, and with one older than CUDA 12.1, which has no multicast.
bool MayMulticast();

}  // namespace nccl_exporter::plugin
