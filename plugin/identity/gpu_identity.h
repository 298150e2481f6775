// SPDX-License-Identifier: Apache-2.0
// The GPU of the calling thread, asked of the CUDA driver that the process has already loaded.
// Called in init only: later callbacks may run where CUDA calls are forbidden. Without a driver, or
// without a current context, nothing is known.
#pragma once

#include <cstdint>

namespace nccl_exporter::plugin {

struct GpuIdentity {
  int index = -1;  // on the node; -1: unknown
  // As NVML and DCGM write it: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, MIG-... of an instance.
  char uuid[64] = "";
  char pci_bus_id[64] = "";
};

// `get` reads the environment.
GpuIdentity FindGpu(const char* (*get)(const char* name));

// Whether a GPU that the process sees takes part in multicast (NVLink SHARP), as NCCL asks before
// it uses NVLS (transport/nvls.cc ncclNvlsInit): the communicators to come may use each of them.
// False with a driver older than CUDA 12.1, which has no multicast.
bool MayMulticast();

struct CudaUuid {
  unsigned char bytes[16];
};

// Functions of the driver that is loaded; nullptr where it has none.
struct CudaDriver {
  int (*get_device)(int* device) = nullptr;
  int (*get_uuid)(CudaUuid* uuid, int device) = nullptr;     // of the GPU
  int (*get_uuid_v2)(CudaUuid* uuid, int device) = nullptr;  // of the MIG instance, if it is one
  int (*get_pci_bus_id)(char* text, int size, int device) = nullptr;
};
GpuIdentity AskDriver(const CudaDriver& driver, const char* (*get)(const char* name));

// Whether the process sees all GPUs of its node, as far as its environment says: then CUDA's
// numbers are the node's. NVIDIA's container runtime and Slurm hide GPUs, and number the others
// from 0.
bool SeesAllGpus(const char* (*get)(const char* name));

// Entry `ordinal` of a list of numbers ("3,1,0"), `ordinal` itself for nullptr or an empty list, -1
// if that is not known.
int NodeIndex(const char* visible_devices, int ordinal);

// Writes the prefix and the 16 bytes in the usual groups.
void FormatUuid(const char* prefix, const unsigned char bytes[16], char* text, int size);

}  // namespace nccl_exporter::plugin
