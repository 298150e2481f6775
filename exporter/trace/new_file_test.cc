// SPDX-License-Identifier: Apache-2.0
#include "exporter/trace/new_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::exporter {
namespace {

class NewFileTest : public testing::Test {
 protected:
  static std::string Text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  size_t FilesHere() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory_.path()),
                                             std::filesystem::directory_iterator()));
  }

  const collector::ScratchDirectory directory_;
  const std::string path_ = directory_.File("trace.json");
};

TEST_F(NewFileTest, ReplacesAFileAsAWhole) {
  EXPECT_EQ(WriteNewFile(path_, "first"), "");
  EXPECT_EQ(WriteNewFile(path_, "second"), "");
  EXPECT_EQ(Text(path_), "second");
  EXPECT_EQ(FilesHere(), 1u);
  const mode_t mask = ::umask(027);
  EXPECT_EQ(WriteNewFile(path_, "third"), "");
  ::umask(mask);
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0640u);
}

// Regression: root's trace overwrote the file that a link of a user led to, and waited for a reader
// of a FIFO.
TEST_F(NewFileTest, FollowsNoLinkAndWaitsForNoReader) {
  const std::string victim = directory_.File("victim");
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, path_);
  EXPECT_THAT(WriteNewFile(path_, "trace"), testing::HasSubstr("it is a link"));
  EXPECT_EQ(Text(victim), "precious");
  const std::string fifo = directory_.File("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
  EXPECT_THAT(WriteNewFile(fifo, "trace"), testing::HasSubstr("no regular file"));
  EXPECT_THAT(WriteNewFile("/dev/null", "trace"), testing::HasSubstr("no regular file"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(WriteNewFile(directory_.path() + "/none/x", "trace"),
            directory_.path() + "/none/x: No such file or directory");
}

TEST_F(NewFileTest, AFullDiskLeavesWhatWasThere) {
  EXPECT_EQ(WriteNewFile(path_, "before"), "");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{.rlim_cur = 1000, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string fault = WriteNewFile(path_, std::string(5000, 't'));
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_EQ(fault, path_ + ": File too large");
  EXPECT_EQ(Text(path_), "before");
  EXPECT_EQ(FilesHere(), 1u);
}

// As Ctrl-C does, whenever it comes.
TEST_F(NewFileTest, ASignalLeavesAWholeFileOrNone) {
  const std::string content(16 << 20, 't');
  int whole = 0, none = 0;
  for (useconds_t delay_us = 0; delay_us < 20000; delay_us += 500) {
    const pid_t writer = ::fork();
    if (writer == 0) {
      std::signal(SIGINT, SIG_DFL);
      ::_exit(WriteNewFile(path_, content).empty() ? 0 : 1);
    }
    ::usleep(delay_us);
    ::kill(writer, SIGINT);
    ASSERT_EQ(::waitpid(writer, nullptr, 0), writer);
    ASSERT_LE(FilesHere(), 1u) << delay_us;
    if (!std::filesystem::exists(path_)) {
      ++none;
      ASSERT_EQ(FilesHere(), 0u) << delay_us;
      continue;
    }
    ++whole;
    ASSERT_EQ(std::filesystem::file_size(path_), content.size()) << delay_us;
    std::filesystem::remove(path_);
  }
  EXPECT_GT(whole, 0) << none;
}

}  // namespace
}  // namespace nccl_exporter::exporter
