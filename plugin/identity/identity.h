// SPDX-License-Identifier: Apache-2.0
// Identity of this process: facts for the segment's header, taken at the first init from the kernel
// and from the environment variables of proto/identity_variables.h. No other variable is ever
// copied, but for NCCL's own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {

inline constexpr char kPluginVersion[] = "0.1.0";

// Copies at most size - 1 bytes of `text` (nullptr: nothing), ends with NUL, and never cuts a UTF-8
// character in two.
void CopyText(char* field, size_t size, const char* text);
// Copies at most 128 bytes of a text that may not be mapped any more, in which case it is empty:
// the kernel reads it first. A communicator that is split with no configuration has the pointer of
// its parent's name, which the program may have freed (NCCL 2.30.7 init.cc :2244, :2442).
void CopyUncertainText(char* field, size_t size, const char* text);

// Fills pid, uid, host name, executable, identity pairs and version of a header that is not
// published yet. `labels`: a list of proto/user_labels.h; nullptr: none. NCCL's own variables are
// those of `environment`, a list like environ; nullptr: none.
void WriteProcessIdentity(layout::SegmentHeader* header, const char* (*get)(const char* name),
                          const char* labels = nullptr, char* const* environment = nullptr);

// Ranks of this job, at least 1 each.
struct LocalRanks {
  uint32_t on_node = 1;
  uint32_t in_process = 1;  // that share the CPUs which this process is bound to
};

// The launcher's processes per node (torchrun, Slurm, Open MPI), or the ranks per node of a
// communicator where these are more: a process may hold several ranks. Where no launcher shows it,
// a communicator with one rank per node says nothing of the job's others; then and where nothing is
// known it is 8, the usual number of GPUs.
LocalRanks FindLocalRanks(const char* (*get)(const char* name), int ranks = 0, int nodes = 0);

// 0: not known, or without a limit.
struct CpuAllowance {
  uint32_t affinity = 0;     // CPUs that the calling thread may run on; NCCL's threads inherit them
  uint32_t online = 0;       // CPUs of the node
  uint32_t quota_milli = 0;  // of the process's cgroup, in thousandths of a CPU
};

// `root` is prepended to /proc and /sys: empty but in tests. Knows cgroup v2 and v1. The quota is
// that of the process's own cgroup, or of the mount where that is not found, as in a container.
CpuAllowance ReadCpuAllowance(const char* root = "");

// Thousandths of a CPU for each rank; the greatest number where nothing is known. The ranks of a
// process share its affinity; all ranks of the node share its CPUs and the quota. That several
// processes are bound to the same CPUs is not seen.
uint32_t MilliCpusPerRank(const CpuAllowance& allowance, const LocalRanks& ranks);

// The numbers that a launcher gives to the ranks of a job (torchrun, Slurm). At the init of each
// communicator, since elastic frameworks number the ranks again. -1, or 0 for the size: not proven.
struct RankNumbers {
  int32_t global_rank = -1;
  int32_t local_rank = -1;
  int32_t world_size = 0;
};

// A number is proven if it is a plain decimal number below the size that the launcher gives beside
// it: RANK with WORLD_SIZE; without RANK, SLURM_PROCID with SLURM_STEP_NUM_TASKS. A rank on the
// node needs a global rank, and LOCAL_RANK or SLURM_LOCALID.
RankNumbers FindRankNumbers(const char* (*get)(const char* name));

// Whether the launcher has started fewer processes than a communicator has ranks, on all nodes or
// on one, so that RANK, or without it SLURM_PROCID, numbers no ranks. False where that is not
// known: `ranks` or `nodes` 0, a launcher that does not say.
bool HasMoreRanksThanProcesses(const char* (*get)(const char* name), int ranks, int nodes);

// The GPU of the calling thread, asked of the CUDA driver that the process has already loaded. In
// init only: later callbacks may run where CUDA calls are forbidden. Without a driver, or without a
// current context, nothing is known.
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
