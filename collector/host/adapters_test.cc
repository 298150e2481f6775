// SPDX-License-Identifier: Apache-2.0
// The nearest adapters in small trees of sysfs, made up after real nodes.
#include "collector/host/adapters.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::collector {
namespace {

class AdaptersTest : public testing::Test {
 protected:
  // A device on the PCI bus: `path` is that below /sys/devices, and ends with its address.
  void AddDevice(const std::string& path, int numa_node = 0) {
    const std::filesystem::path device = sys_.path() + "/devices/" + path;
    std::filesystem::create_directories(device);
    std::ofstream(device / "numa_node") << numa_node << '\n';
    const std::string buses = sys_.path() + "/bus/pci/devices";
    std::filesystem::create_directories(buses);
    std::filesystem::create_directory_symlink(device, buses / device.filename());
  }
  void AddAdapter(const std::string& kind, const std::string& name, const std::string& path,
                  int numa_node = 0, const std::string& state = "4: ACTIVE") {
    AddDevice(path, numa_node);
    const std::filesystem::path adapter = sys_.path() + "/class/" + kind + "/" + name;
    std::filesystem::create_directories(adapter);
    if (kind == "infiniband") {
      std::filesystem::create_directories(adapter / "ports/1");
      std::ofstream(adapter / "ports/1/state") << state << '\n';
    }
    std::filesystem::create_directory_symlink(sys_.path() + "/devices/" + path, adapter / "device");
  }
  std::string Nearest(const std::string& gpu) const { return Adapters(sys_.path()).NearestTo(gpu); }

  ScratchDirectory sys_;
};

// Each GPU is behind a switch with one adapter; two more adapters are for storage.
TEST_F(AdaptersTest, OfDgxH100AreBehindTheSameSwitch) {
  const char* const bridges[] = {"15", "3a", "48", "5c", "84", "b1", "c6", "da"};
  for (int i = 0; i < 8; ++i) {
    const std::string bus = bridges[i];
    const std::string behind = "pci0000:" + bus + "/0000:" + bus + ":01.0/0000:" + bus + ":02.0/";
    AddDevice(behind + "0000:" + bus + ":04.0/0000:1" + std::to_string(i) + ":00.0", i / 4);
    AddAdapter("infiniband", "mlx5_" + std::to_string(i),
               behind + "0000:" + bus + ":05.0/0000:2" + std::to_string(i) + ":00.0", i / 4);
  }
  AddAdapter("infiniband", "mlx5_8", "pci0000:26/0000:26:01.0/0000:29:00.0", 0);
  AddAdapter("net", "eno3", "pci0000:00/0000:00:1c.0/0000:01:00.0", 0);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(Nearest("0000:1" + std::to_string(i) + ":00.0"), "mlx5_" + std::to_string(i));
}

TEST_F(AdaptersTest, OfHgxAreSharedByTwoGpus) {
  AddDevice("pci0000:15/0000:15:01.0/0000:16:00.0/0000:1A:00.0");
  AddDevice("pci0000:15/0000:15:01.0/0000:16:00.0/0000:1b:00.0");
  AddAdapter("infiniband", "mlx5_0", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:1c:00.0");
  AddDevice("pci0000:9a/0000:9a:01.0/0000:9b:00.0/0000:9d:00.0");
  AddAdapter("infiniband", "mlx5_1", "pci0000:9a/0000:9a:01.0/0000:9b:00.0/0000:9e:00.0");
  EXPECT_EQ(Nearest("0000:1b:00.0"), "mlx5_0");
  EXPECT_EQ(Nearest("0000:1B:00.0"), "mlx5_0") << "CUDA writes large letters";
  EXPECT_EQ(Nearest("0000:9d:00.0"), "mlx5_1");
}

TEST_F(AdaptersTest, AreBothOfTwoThatAreEquallyNear) {
  AddDevice("pci0000:15/0000:15:01.0/0000:1a:00.0");
  AddAdapter("infiniband", "mlx5_0", "pci0000:15/0000:15:02.0/0000:1b:00.0");
  AddAdapter("infiniband", "mlx5_1", "pci0000:15/0000:15:03.0/0000:1c:00.0");
  AddAdapter("infiniband", "mlx5_2", "pci0000:9a/0000:9a:01.0/0000:9b:00.0");
  EXPECT_EQ(Nearest("0000:1a:00.0"), "mlx5_0,mlx5_1");
}

// All devices are on one bus: nothing is known of what is below.
TEST_F(AdaptersTest, OfACloudMachineWithoutTopologyAreNotKnown) {
  for (int i = 1; i <= 4; ++i) {
    AddDevice("pci0000:00/0000:00:0" + std::to_string(i) + ".0", -1);
    AddAdapter("infiniband", "mlx5_" + std::to_string(i),
               "pci0000:00/0000:00:1" + std::to_string(i) + ".0", -1);
  }
  EXPECT_EQ(Nearest("0000:00:02.0"), "");
}

TEST_F(AdaptersTest, OfACloudMachineWithOneIsThatOne) {
  AddDevice("pci0000:00/0000:00:04.0", -1);
  AddAdapter("net", "eth0", "pci0000:00/0000:00:03.0", -1);
  std::filesystem::create_directories(sys_.path() + "/class/net/lo");
  EXPECT_EQ(Nearest("0000:00:04.0"), "eth0");
  EXPECT_FALSE(Adapters(sys_.path()).HasVerbs());
}

// An instance has the address of its GPU.
TEST_F(AdaptersTest, OfAMigInstanceAreThoseOfItsGpu) {
  AddDevice("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0");
  AddAdapter("infiniband", "mlx5_0", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0");
  AddAdapter("infiniband", "mlx5_1", "pci0000:9a/0000:9a:01.0/0000:9b:00.0");
  EXPECT_EQ(Nearest("0000:17:00.0"), "mlx5_0");
}

// Each GPU and each adapter has a bus of its own; two of each belong to one Grace.
TEST_F(AdaptersTest, OfGb200AreThoseOfTheSameGrace) {
  const char* const gpus[] = {"0008", "0009", "0018", "0019"};
  const char* const adapters[] = {"0000", "0002", "0010", "0012"};
  for (int i = 0; i < 4; ++i) {
    const std::string gpu = gpus[i], adapter = adapters[i];
    AddDevice("pci" + gpu + ":00/" + gpu + ":00:00.0/" + gpu + ":01:00.0", i / 2);
    AddAdapter("infiniband", "mlx5_" + std::to_string(i),
               "pci" + adapter + ":00/" + adapter + ":00:00.0/" + adapter + ":01:00.0", i / 2);
  }
  EXPECT_EQ(Nearest("0008:01:00.0"), "mlx5_0,mlx5_1");
  EXPECT_EQ(Nearest("0009:01:00.0"), "mlx5_0,mlx5_1");
  EXPECT_EQ(Nearest("0019:01:00.0"), "mlx5_2,mlx5_3");
}

// One adapter with two ports is four devices on two buses, and the GPU is on a third.
TEST_F(AdaptersTest, OfDgxSparkAreNotKnown) {
  AddDevice("pci000f:00/000f:00:00.0/000f:01:00.0", -1);
  AddAdapter("infiniband", "rocep1s0f0", "pci0000:00/0000:00:00.0/0000:01:00.0", -1);
  AddAdapter("infiniband", "rocep1s0f1", "pci0000:00/0000:00:00.0/0000:01:00.1", -1);
  AddAdapter("infiniband", "roceP2p1s0f0", "pci0002:00/0002:00:00.0/0002:01:00.0", -1);
  AddAdapter("infiniband", "roceP2p1s0f1", "pci0002:00/0002:00:00.0/0002:01:00.1", -1);
  EXPECT_EQ(Nearest("000f:01:00.0"), "");
  EXPECT_TRUE(Adapters(sys_.path()).HasVerbs());
}

TEST_F(AdaptersTest, OfUnknownGpusAreNotKnown) {
  AddDevice("pci0000:15/0000:15:01.0/0000:17:00.0");
  AddAdapter("infiniband", "mlx5_0", "pci0000:15/0000:15:01.0/0000:18:00.0");
  for (const char* gpu : {"", "0000:99:00.0", "../../../../etc", "0000:17:00.0/../0000:18:00.0"})
    EXPECT_EQ(Nearest(gpu), "") << gpu;
  EXPECT_EQ(Adapters(sys_.path() + "/missing").NearestTo("0000:17:00.0"), "");
}

TEST_F(AdaptersTest, HaveVerbsIfAPortHasALink) {
  AddAdapter("infiniband", "mlx5_0", "pci0000:15/0000:15:01.0/0000:18:00.0", 0, "1: DOWN");
  EXPECT_FALSE(Adapters(sys_.path()).HasVerbs());
  AddAdapter("infiniband", "mlx5_1", "pci0000:15/0000:15:01.0/0000:19:00.0", 0, "4: ACTIVE");
  EXPECT_TRUE(Adapters(sys_.path()).HasVerbs());
}

}  // namespace
}  // namespace nccl_exporter::collector
