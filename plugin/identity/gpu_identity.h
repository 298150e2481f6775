// SPDX-License-Identifier: Apache-2.0
// The GPU of the calling thread, asked of the CUDA driver that the process has already loaded.
// Called in init only: later callbacks may run where CUDA calls are forbidden. Without a driver, or
// without a current context, nothing is known.
#pragma once

#include <cstdint>

namespace nccl_exporter::plugin {

struct GpuIdentity {
  int index = -1;      // on the node; -1: unknown
  char uuid[64] = "";  // as NVML and DCGM write it: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx
  char pci_bus_id[64] = "";
};

// `visible_devices` is CUDA_VISIBLE_DEVICES or nullptr: it maps CUDA's ordinal to the node's index
// where it lists numbers.
GpuIdentity FindGpu(const char* visible_devices);

// Entry `ordinal` of a list of numbers ("3,1,0"), `ordinal` itself for nullptr or an empty list, -1
// if that cannot be told.
int NodeIndex(const char* visible_devices, int ordinal);

// Writes "GPU-" and the 16 bytes in the usual groups.
void FormatUuid(const unsigned char bytes[16], char* text, int size);

}  // namespace nccl_exporter::plugin
