// SPDX-License-Identifier: Apache-2.0
#include "collector/gpu_numbers.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::collector {
namespace {

TEST(PciAddress, IsReadAsCudaAndTheKernelWriteIt) {
  EXPECT_EQ(PciAddress("0000:3b:00.0"), PciAddress("0000:3B:00.0"));
  EXPECT_EQ(PciAddress("00000000:3B:00.0"), PciAddress("0000:3b:00.0")) << "as NVML writes it";
  EXPECT_LT(PciAddress("0000:3b:00.0"), PciAddress("0000:5e:00.0"));
  EXPECT_LT(PciAddress("0000:ff:1f.7"), PciAddress("0001:00:00.0"));
  EXPECT_TRUE(PciAddress("10000:e1:00.0"));
  for (const char* text : {"", "3b:00.0", "0000:3b:00", "0000:3b:00.0 ", "0000:3b:20.0", "module",
                           "bind", "0000:3b:00.8", "0000:100:00.0", "x000:3b:00.0"})
    EXPECT_FALSE(PciAddress(text)) << text;
}

class GpuNumbersTest : public testing::Test {
 protected:
  int NumberOf(const std::string& pci_bus_id, int of_process = 0) {
    NodeSnapshot node;
    CommunicatorSnapshot communicator;
    communicator.pci_bus_id = pci_bus_id;
    communicator.gpu_index = of_process;
    node.processes.emplace_back().communicators.push_back(communicator);
    NumberGpus(node, directory_.path());
    return node.processes[0].communicators[0].gpu_index;
  }
  void Bind(const std::string& name) { std::ofstream(directory_.File(name)) << ""; }

  ScratchDirectory directory_;
};

// Regresses: in a container with the node's GPU 2 alone its number was 0.
TEST_F(GpuNumbersTest, ArePlacesAmongAllGpusOfTheNode) {
  for (const char* name : {"0000:87:00.0", "0000:1b:00.0", "0000:43:00.0", "bind", "module"})
    Bind(name);
  EXPECT_EQ(NumberOf("0000:1B:00.0"), 0);
  EXPECT_EQ(NumberOf("0000:43:00.0"), 1);
  EXPECT_EQ(NumberOf("0000:87:00.0"), 2);
  EXPECT_EQ(NumberOf("0000:88:00.0"), -1) << "of a virtual machine, or forged";
  EXPECT_EQ(NumberOf(""), -1);
}

TEST_F(GpuNumbersTest, StayThoseOfTheProcessesWhereTheNodeHasNoDriver) {
  EXPECT_EQ(NumberOf("0000:87:00.0", 5), 5);
}

}  // namespace
}  // namespace nccl_exporter::collector
