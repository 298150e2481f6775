// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/state_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "collector/testing/scratch_directory.h"

namespace nccl_exporter::exporter {
namespace {

using collector::StateError;

class StateOnDisk : public testing::Test {
 protected:
  std::optional<std::vector<uint64_t>> Read() { return StateFile(directory_).Read(fault_); }
  void Write() { EXPECT_FALSE(StateFile(directory_).Write(words_).has_value()); }
  std::string Path() const { return StateFile(directory_).path(); }
  // Changes one byte of the file.
  void Damage(std::streamoff at) {
    std::fstream file(Path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  }

  collector::ScratchDirectory scratch_;
  std::string directory_ = scratch_.File("state");
  std::vector<uint64_t> words_{1, 2, ~uint64_t{0}, 4};
  std::optional<StateFault> fault_;
};

TEST_F(StateOnDisk, IsReadAsItWasWritten) {
  Write();
  EXPECT_EQ(Read(), words_);
  EXPECT_FALSE(fault_.has_value());
  words_.clear();
  Write();
  EXPECT_EQ(Read(), words_);
}

TEST_F(StateOnDisk, NoFileIsNoFault) {
  EXPECT_FALSE(Read().has_value());
  EXPECT_FALSE(fault_.has_value());
}

TEST_F(StateOnDisk, DamageInAnyPlaceIsFound) {
  Write();
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(Path()));
  for (std::streamoff at = 0; at < size; ++at) {
    Write();
    Damage(at);
    EXPECT_FALSE(Read().has_value()) << at;
    // The boot id is in bytes 8 to 23: a state of another start of the machine is no fault.
    const bool is_boot = at >= 8 && at < 24;
    EXPECT_EQ(fault_.has_value(), !is_boot) << at;
    if (fault_) {
      EXPECT_EQ(fault_->error, StateError::kDamaged);
    }
  }
}

TEST_F(StateOnDisk, ACutFileIsDamaged) {
  for (const uintmax_t size : {0, 7, 40, 50}) {
    Write();
    std::filesystem::resize_file(Path(), size);
    EXPECT_FALSE(Read().has_value());
    ASSERT_TRUE(fault_.has_value());
    EXPECT_EQ(fault_->error, StateError::kDamaged);
  }
}

TEST_F(StateOnDisk, WhatOthersMayWriteIsNotRead) {
  Write();
  ASSERT_EQ(chmod(Path().c_str(), 0666), 0);
  EXPECT_FALSE(Read().has_value());
  ASSERT_TRUE(fault_.has_value());
  EXPECT_EQ(fault_->error, StateError::kForeign);
  ASSERT_EQ(chmod(Path().c_str(), 0600), 0);
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  EXPECT_FALSE(Read().has_value());
  ASSERT_TRUE(fault_.has_value());
  EXPECT_EQ(fault_->error, StateError::kForeign);
  fault_ = StateFile(directory_).Write(words_);
  ASSERT_TRUE(fault_.has_value());
  EXPECT_EQ(fault_->error, StateError::kForeign);
}

TEST_F(StateOnDisk, ALinkIsNotFollowed) {
  Write();
  std::filesystem::rename(Path(), scratch_.File("elsewhere"));
  std::filesystem::create_symlink(scratch_.File("elsewhere"), Path());
  EXPECT_FALSE(Read().has_value());
  ASSERT_TRUE(fault_.has_value());
  EXPECT_EQ(fault_->error, StateError::kUnreadable);
}

TEST_F(StateOnDisk, WhatCannotBeWrittenIsAFault) {
  const StateFile file(scratch_.File("none/state"));
  fault_ = file.Write(words_);
  ASSERT_TRUE(fault_.has_value());
  EXPECT_EQ(fault_->error, StateError::kUnwritable);
  EXPECT_NE(fault_->detail.find("none/state"), std::string::npos);
}

// The next daemon would go back to it.
TEST_F(StateOnDisk, AFaultLeavesNoOldState) {
  const auto expect_none = [&](const char* fault) {
    fault_ = StateFile(directory_).Write(words_);
    EXPECT_TRUE(fault_.has_value()) << fault;
    EXPECT_FALSE(std::filesystem::exists(Path())) << fault;
    EXPECT_FALSE(std::filesystem::is_regular_file(Path() + ".next")) << fault;
  };
  Write();
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{.rlim_cur = 48, .rlim_max = limit.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  expect_none("no room");
  setrlimit(RLIMIT_FSIZE, &limit);

  Write();
  std::filesystem::create_directories(Path() + ".next/full");
  expect_none("no place");
  std::filesystem::remove_all(Path() + ".next");

  Write();
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  expect_none("foreign");
  ASSERT_EQ(chmod(directory_.c_str(), 0700), 0);

  Write();
  words_.resize(kMostStateWords + 1);
  expect_none("too large");
  words_.resize(kMostStateWords);
  Write();
  EXPECT_LE(2 * std::filesystem::file_size(Path()), uintmax_t{64} << 20) << "old and new state";
}

TEST_F(StateOnDisk, WhatAKilledDaemonLeftHalfWrittenIsReplaced) {
  Write();
  std::ofstream(Path() + ".next") << "half";
  words_.push_back(5);
  Write();
  EXPECT_EQ(Read(), words_);
  EXPECT_FALSE(std::filesystem::exists(Path() + ".next"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
