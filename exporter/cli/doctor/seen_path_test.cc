// SPDX-License-Identifier: Apache-2.0
// Paths that a process chooses: what root opens, and what it does not.
#include "exporter/cli/doctor/seen_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "collector/testing/scratch_directory.h"
#include "exporter/cli/doctor/checks.h"

namespace nccl_exporter::exporter {
namespace {

class SeenPathTest : public testing::Test {
 protected:
  SeenPathTest() {
    std::filesystem::create_directories(root_ + "/opt/lib");
    std::ofstream(root_ + "/opt/lib/x.so") << "inside";
    std::ofstream(directory_.File("secret")) << "outside";
  }

  void Link(const std::string& target, const std::string& name) const {
    std::filesystem::create_symlink(target, root_ + name);
  }
  // The content, or the fault in parentheses.
  std::string Read(const std::string& path) const {
    std::string fault;
    const OpenedFile file = OpenRegular(SeenPath(root_, path), fault);
    if (!file.is_open()) return "(" + fault + ")";
    char text[100];
    const ssize_t bytes = ::read(file.number(), text, sizeof text);
    return {text, static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
  }

  const collector::ScratchDirectory directory_;
  const std::string root_ = directory_.path() + "/root";
};

// Regression: an absolute link of a container led to a file of the node.
TEST_F(SeenPathTest, LinksAreFollowedInsideTheRoot) {
  Link("/opt/lib/x.so", "/absolute.so");
  Link("/opt", "/usr");
  Link("lib/../lib/./x.so", "/opt/relative.so");
  Link("../../../../../../../opt/lib/x.so", "/opt/lib/above.so");
  for (const char* const path :
       {"/opt/lib/x.so", "/absolute.so", "/usr/lib/x.so", "/usr/relative.so", "/opt/lib/above.so",
        "opt/lib/x.so", "/../../opt/lib/x.so", "//opt//lib/x.so"})
    EXPECT_EQ(Read(path), "inside") << path;
}

TEST_F(SeenPathTest, NothingLeadsOutOfTheRoot) {
  Link(directory_.File("secret"), "/absolute");
  Link("../secret", "/relative");
  Link("/proc/self/cwd", "/magic");
  for (const char* const path : {"/absolute", "/relative", "/../secret", "/magic"})
    EXPECT_EQ(Read(path), "(No such file or directory)") << path;
}

// Opening a FIFO waits, opening a device may do anything.
TEST_F(SeenPathTest, NothingButARegularFileIsOpened) {
  ASSERT_EQ(::mkfifo((root_ + "/fifo").c_str(), 0666), 0);
  Link("/fifo", "/to-fifo");
  for (const char* const path : {"/fifo", "/to-fifo", "/opt", "/"})
    EXPECT_EQ(Read(path), "(it is no regular file)") << path;
  std::string fault;
  EXPECT_FALSE(OpenRegular("/dev/null", fault).is_open());
  EXPECT_EQ(fault, "it is no regular file");
  EXPECT_TRUE(Find("/dev/null").is_open()) << "without opening the device";
}

TEST_F(SeenPathTest, CirclesAndDepthsEnd) {
  Link("/b", "/a");
  Link("/a", "/b");
  EXPECT_EQ(Read("/a"), "(Too many levels of symbolic links)");
  std::filesystem::create_directory(root_ + "/d");
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "/d/..";
  EXPECT_EQ(Read(deep + "/opt/lib/x.so"), "inside");
  std::filesystem::create_symlink("d", root_ + "/d/d");
  EXPECT_EQ(Read("/d/d/x"), "(Too many levels of symbolic links)");
}

// Regression: doctor read a sparse libnccl.so of any size to its end.
TEST_F(SeenPathTest, AHugeLibraryIsNotReadForItsVersion) {
  const std::string huge = root_ + "/libnccl.so.2";
  std::ofstream(huge) << "NCCL version 2.30.7";
  EXPECT_EQ(NcclVersionOfLibrary(SeenPath(root_, "/libnccl.so.2")), 23007);
  ASSERT_EQ(::truncate(huge.c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(NcclVersionOfLibrary(SeenPath(root_, "/libnccl.so.2")), 0);
}

}  // namespace
}  // namespace nccl_exporter::exporter
