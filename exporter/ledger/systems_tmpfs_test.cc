// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/systems_tmpfs.h"

#include <gtest/gtest.h>

#include <string>

namespace nccl_exporter::exporter {
namespace {

// The device of this directory, which exists everywhere.
const std::string kDirectory = "/proc";

dev_t Number() {
  struct stat status {};
  EXPECT_EQ(::stat(kDirectory.c_str(), &status), 0);
  return status.st_dev;
}

std::string Device() {
  return std::to_string(major(Number())) + ':' + std::to_string(minor(Number()));
}

bool IsSystems(const std::string& mounts) {
  std::istringstream mountinfo(mounts);
  return IsOnSystemsTmpfs(kDirectory, Number(), mountinfo);
}

std::string Mount(const std::string& root, const std::string& mount_point,
                  const std::string& options, const std::string& type = "tmpfs") {
  return "36 35 " + Device() + ' ' + root + ' ' + mount_point + " rw,nosuid shared:7 - " + type +
         " tmpfs " + options + '\n';
}

TEST(SystemsTmpfsTest, IsThatOfRunOnTheNodeAndInAContainer) {
  EXPECT_TRUE(IsSystems(Mount("/", "/run", "rw,size=1638400k,nr_inodes=819200,mode=755")));
  EXPECT_TRUE(IsSystems(Mount("/nccl-exporter", kDirectory, "rw,size=1638400k,mode=755,inode64")));
  EXPECT_TRUE(IsSystems("1 0 0:1 / / rw - overlay overlay rw\n" +
                        Mount("/nccl-exporter/uid", "/elsewhere", "rw,mode=755")));
}

TEST(SystemsTmpfsTest, IsNoneOfADirectorysOwnNorOneForEverybody) {
  EXPECT_FALSE(IsSystems(Mount("/", kDirectory, "rw,size=5%,nr_inodes=65536")));
  EXPECT_FALSE(IsSystems(Mount("/", kDirectory, "rw,mode=755"))) << "chmod came later";
  EXPECT_FALSE(IsSystems(Mount("/", "/dev/shm", "rw")));
  EXPECT_FALSE(IsSystems(Mount("/segments", kDirectory, "rw,size=262144k")));
}

TEST(SystemsTmpfsTest, IsNoOtherFileSystemAndNothingUnknown) {
  EXPECT_FALSE(IsSystems(Mount("/", "/run", "rw,mode=755", "ext4")));
  EXPECT_FALSE(IsSystems("36 35 0:0 / /run rw - tmpfs tmpfs rw,mode=755\n"));
  EXPECT_FALSE(IsSystems(""));
  EXPECT_FALSE(IsSystems("36\n\n36 35 " + Device() + " / /run\n"));
  EXPECT_FALSE(IsOnSystemsTmpfs("/no/such/directory"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
