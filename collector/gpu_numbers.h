// SPDX-License-Identifier: Apache-2.0
// Numbers of the node's NVIDIA GPUs by their addresses on the PCI bus. For any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "collector/node_snapshot.h"

namespace nccl_exporter::collector {

// Address on the PCI bus as one number; nothing if the text is no address, as 0000:3b:00.0 is.
std::optional<uint64_t> PciAddress(std::string_view text);

// Numbers each GPU by its place among all of the node, as nvidia-smi does: a process in a container
// may see some of them only, and number these from 0. A GPU that is not among them has no number.
// The directory of the driver has an entry for each GPU, in containers as well. Where the node has
// no such driver, the numbers stay those of the processes.
void NumberGpus(NodeSnapshot& snapshot,
                const std::string& directory = "/sys/bus/pci/drivers/nvidia");

}  // namespace nccl_exporter::collector
