// SPDX-License-Identifier: Apache-2.0
// Faults of the file system and limits of the process that the plugin survives.
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include <atomic>
#include <cstdarg>
#include <fstream>
#include <random>
#include <thread>
#include <tuple>

#include "plugin/survival/survival_fixture.h"

namespace nccl_exporter::plugin::survival {
namespace {

std::string last_warning;

void KeepWarning(int level, unsigned long, const char*, int, const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  if (level == abi::kLogWarn) last_warning = line;
}

class StorageSurvival : public SurvivalTest {
 protected:
  // The job runs on, NCCL is asked for nothing, nothing is left behind, and one line says why.
  void ExpectOff(const std::string& why) const {
    Caller<6> caller({.logger = KeepWarning});
    EXPECT_EQ(caller.result, abi::kSuccess);
    EXPECT_EQ(caller.context, nullptr);
    EXPECT_EQ(caller.mask, 0);
    caller.Run();
    caller.Finalize();
    EXPECT_TRUE(Segments().empty());
    EXPECT_NE(last_warning.find(why), std::string::npos) << last_warning;
  }
  static void Limit(__rlimit_resource resource, rlim_t most) {
    rlimit limit{};
    getrlimit(resource, &limit);
    limit.rlim_cur = most;
    EXPECT_EQ(setrlimit(resource, &limit), 0);
  }
  // Makes root an owner like any other.
  static bool DropCapabilities() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
    return syscall(SYS_capset, &header, none) == 0;
  }
  static bool IsOnDisk(const std::string& path) {
    constexpr uint32_t kTmpfs = 0x01021994;
    struct statfs file_system {};
    return statfs(path.c_str(), &file_system) == 0 &&
           static_cast<uint32_t>(file_system.f_type) != kTmpfs;
  }
  // The path of one of this process's own descriptors.
  static std::string PathOf(int file) {
    char path[512];
    const ssize_t length =
        readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof(path));
    return std::string(path, length > 0 ? static_cast<size_t>(length) : 0);
  }
  // The plugin's own descriptor of the segment.
  int SegmentDescriptor() const {
    const std::string segment = Segments()[0];
    for (int file = 0; file < 256; ++file) {
      if (PathOf(file) == segment) return file;
    }
    return -1;
  }
};

constexpr size_t kLastOfDefault = 256;  // place of the overflow slot

TEST_F(StorageSurvival, SurvivesAFileSystemThatIsFull) {
  if (!MayMount()) GTEST_SKIP() << "no permission to mount";
  for (const char* size : {"size=4k", "size=16k", "size=64k", "size=112k", "nr_inodes=1"}) {
    SCOPED_TRACE(size);
    InChild([&] {
      ASSERT_TRUE(MountOwn(directory_, size));
      ExpectOff("No space left on device");
    });
  }
}

TEST_F(StorageSurvival, SurvivesAFileSystemThatFillsUpAfterTheStart) {
  if (!MayMount()) GTEST_SKIP() << "no permission to mount";
  InEveryVersion([&]<int kVersion>() {
    ASSERT_TRUE(MountOwn(directory_, "size=1m"));
    Caller<kVersion> early({.id = 1});
    const View view = Segment();
    {
      std::ofstream filler(directory_ + "/filler");
      while (filler.write("0123456789abcdef", 16) && filler.flush()) {
      }
    }
    Caller<kVersion> late({.id = 2});
    EXPECT_NE(late.context, nullptr);
    for (int i = 0; i < 1000; ++i) {
      early.Run();
      late.Run();
    }
    EXPECT_EQ(view.Started("AllReduce", 0), 1000u);
    EXPECT_GE(view.Ended("AllReduce", 0), 999u);
    EXPECT_EQ(view.Started("AllReduce", kLastOfDefault), 1000u);
    EXPECT_EQ(view.Timed("AllReduce", kLastOfDefault), 0u);
    std::filesystem::remove(directory_ + "/filler");
    Caller<kVersion> later({.id = 3});  // there is room again
    later.Run();
    EXPECT_EQ(view.Started("AllReduce", 1), 1u);
    EXPECT_EQ(view.Lost(), Only({{Loss::kReservationFailed, 1}}));
  });
}

uint64_t FreeMib(const char* path) {
  struct statvfs file_system {};
  statvfs(path, &file_system);
  return file_system.f_bavail * file_system.f_frsize >> 20;
}

// NCCL's own files lie there, and fail without room.
TEST_F(StorageSurvival, LeavesARestOfSharedMemory) {
  if (!MayMount()) GTEST_SKIP() << "no permission to mount";
  for (const auto& [size, filled_mib, rest_mib] :
       {std::tuple{"size=64m", 0, 32u}, {"size=64m", 28, 32u}, {"size=512m", 380, 128u}}) {
    SCOPED_TRACE(size);
    InChild([&] {
      ASSERT_TRUE(MountOwn("/dev/shm", size));
      ASSERT_EQ(mkdir("/dev/shm/segments", 0755), 0);
      setenv("NCCL_EXPORTER_DIR", "/dev/shm/segments", 1);
      setenv("NCCL_EXPORTER_COMMUNICATORS", "4095", 1);
      const int filler = open("/dev/shm/filler", O_CREAT | O_RDWR, 0600);
      ASSERT_TRUE(filled_mib == 0 || posix_fallocate(filler, 0, off_t{filled_mib} << 20) == 0);
      std::vector<Caller<6>> callers;
      for (uint64_t id = 1; id <= 300; ++id) callers.push_back(Caller<6>({.id = id}));
      for (Caller<6>& caller : callers) caller.Run();
      EXPECT_EQ(FreeMib("/dev/shm"), rest_mib);
      const auto first = std::filesystem::directory_iterator("/dev/shm/segments");
      const View view(first->path());
      const uint64_t refused = view.Lost(Loss::kReservationFailed);
      EXPECT_GT(refused, 0u);
      EXPECT_LT(refused, 290u);
      EXPECT_EQ(view.Started("AllReduce", view.header()->slot_count - 1), refused);
      // A slot that is claimed again takes nothing more.
      callers[0].Finalize();
      Caller<6> later({.id = 1000});
      EXPECT_EQ(view.Slot(0)->communicator_id, 1000u);
    });
  }
}

TEST_F(StorageSurvival, TakesNothingOfASmallSharedMemory) {
  if (!MayMount()) GTEST_SKIP() << "no permission to mount";
  InChild([&] {
    ASSERT_TRUE(MountOwn("/dev/shm", "size=32m"));
    setenv("NCCL_EXPORTER_DIR", "/dev/shm", 1);
    ExpectOff("the rest of /dev/shm is NCCL's");
    EXPECT_TRUE(std::filesystem::is_empty("/dev/shm"));
  });
}

TEST_F(StorageSurvival, SaysWhereASegmentIsOnADisk) {
  if (!MayMount()) GTEST_SKIP() << "no permission to mount";
  InChild([&] {
    ASSERT_TRUE(MountOwn(directory_, "size=1m"));
    Caller<6> caller({.logger = KeepWarning});
    EXPECT_EQ(last_warning, "");
  });
  if (!IsOnDisk(directory_)) GTEST_SKIP() << "the folder for tests is in memory";
  InChild([&] {
    Caller<6> caller({.logger = KeepWarning});
    caller.Run();
    EXPECT_NE(last_warning.find("is on a disk"), std::string::npos) << last_warning;
    EXPECT_EQ(Segment().Timed(), 1u);
  });
}

TEST_F(StorageSurvival, SurvivesAReadOnlyMount) {
  if (!MayMount()) GTEST_SKIP() << "no permission to mount";
  InChild([&] {
    ASSERT_TRUE(MountOwn(directory_, "size=1m", MS_RDONLY));
    ExpectOff("Read-only file system");
  });
}

TEST_F(StorageSurvival, SurvivesALimitOnTheSizeOfFiles) {
  InChild([&] {
    Limit(RLIMIT_FSIZE, 4096);
    ExpectOff("File too large");
  });
  InChild([&] {
    Limit(RLIMIT_FSIZE, 500'000);  // room for a few communicators
    Caller<6> callers[8];
    const size_t overflow = Segment().header()->slot_count - 1;
    EXPECT_LT(overflow, 8u);
    EXPECT_GE(overflow, 1u);
    for (Caller<6>& caller : callers) caller.Run();
    EXPECT_EQ(Segment().Started("AllReduce", overflow), 8 - overflow);
    EXPECT_EQ(Segment().Lost(), Only({{Loss::kNoFreeCommunicatorSlot, 8 - overflow}}));
  });
  InChild([&] {
    Caller<6> early;
    Limit(RLIMIT_FSIZE, 0);  // from now on
    Caller<6> late;
    early.Run();
    late.Run();
    EXPECT_EQ(Segment().Timed("AllReduce", 0), 1u);
    const uint64_t own = Segment().Started("AllReduce", 1);
    EXPECT_EQ(own + Segment().Started("AllReduce", kLastOfDefault), 1u);
    EXPECT_EQ(Segment().Lost(Loss::kReservationFailed), 1 - own);
  });
}

TEST_F(StorageSurvival, SurvivesADirectoryThatCannotBeWritten) {
  InChild([&] {
    std::filesystem::permissions(directory_, std::filesystem::perms{0555});
    ASSERT_TRUE(DropCapabilities());
    ExpectOff("Permission denied");
  });
  std::filesystem::permissions(directory_, std::filesystem::perms{0755});
}

TEST_F(StorageSurvival, SurvivesAFileInPlaceOfTheDirectory) {
  const std::string file = directory_ + "/file";
  std::ofstream(file) << "text";
  setenv("NCCL_EXPORTER_DIR", file.c_str(), 1);
  EXPECT_EQ(StatusOf([&] {
              Caller<6> caller({.logger = KeepWarning});
              caller.Run();
              EXPECT_EQ(caller.context, nullptr);
              EXPECT_NE(last_warning.find("Not a directory"), std::string::npos) << last_warning;
            }),
            0);
}

TEST_F(StorageSurvival, SurvivesHundredsOfCommunicators) {
  InEach<1, 3, 4, 7>([&]<int kVersion>() {
    constexpr size_t kCommunicators = 400;
    std::vector<Caller<kVersion>> callers;
    for (size_t i = 0; i < kCommunicators; ++i) callers.push_back(Caller<kVersion>({.id = i}));
    for (Caller<kVersion>& caller : callers) caller.Run();
    for (Caller<kVersion>& caller : callers) caller.Finalize();
    const View view = Segment();
    for (size_t slot = 0; slot < kLastOfDefault; ++slot) {
      EXPECT_EQ(view.Started("AllReduce", slot), 1u);
      EXPECT_EQ(view.Ended("AllReduce", slot), 1u);
    }
    EXPECT_EQ(view.Started("AllReduce", kLastOfDefault), kCommunicators - kLastOfDefault);
    EXPECT_EQ(view.State(kLastOfDefault), layout::SlotState::kLive);
    EXPECT_EQ(view.Lost(),
              Only({{Loss::kNoFreeCommunicatorSlot, kCommunicators - kLastOfDefault}}));
  });
}

TEST_F(StorageSurvival, SurvivesAWriterThatScribblesAllOverTheSegment) {
  InEveryVersion([&]<int kVersion>() {
    Caller<kVersion> caller;
    const View view = Segment();
    const int file = open(Segments()[0].c_str(), O_RDWR);
    const size_t bytes = sizeof(layout::SegmentHeader) + 4 * sizeof(layout::CommunicatorSlot);
    auto* words = static_cast<layout::AtomicU64*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    std::atomic<bool> is_over{false};
    std::atomic<uint64_t> scribbled{0};
    std::thread scribbler([&] {
      std::mt19937_64 random(kVersion);
      while (!is_over.load()) {
        words[random() % (bytes / sizeof(layout::AtomicU64))].store(random());
        scribbled.fetch_add(1);
      }
    });
    while (scribbled.load() < 100'000) std::this_thread::yield();
    const int asked_for = caller.mask;
    std::vector<Caller<kVersion>> others;
    for (uint64_t round = 0; round < 20; ++round) {
      others.push_back(Caller<kVersion>({.id = round}));
      for (int i = 0; i < 300; ++i) {
        caller.Run();
        others.back().Run();
        caller.Announce();
      }
      if (round % 2 == 0) others.back().Finalize();
    }
    caller.Finalize();
    is_over.store(true);
    scribbler.join();
    // Neither a decision nor a handle depended on what was read there.
    for (const Caller<kVersion>& other : others) {
      // Each has a mask of its own, as copies of libnccl: the first four have network time.
      EXPECT_EQ(other.mask | abi::kProxyStep, asked_for | abi::kProxyStep);
      EXPECT_NE(other.context, nullptr);
    }
    const uint64_t before = view.Started("AllReduce", 16);
    others[15].Run();
    EXPECT_EQ(view.Started("AllReduce", 16), before + 1);
  });
}

TEST_F(StorageSurvival, SurvivesAnyUmask) {
  InChild([&] {
    umask(0777);
    Caller<6> caller;
    struct stat status {};
    EXPECT_EQ(stat(Segments()[0].c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0644u)
        << "the daemon reads as another user, and writes as nobody";
    EXPECT_EQ(umask(0), 0777u) << "left as it was";
  });
}

TEST_F(StorageSurvival, SurvivesHavingNoDescriptorsLeft) {
  InChild([&] {
    LoadTable<6>();
    const int next = dup(0);
    close(next);
    const std::string directory = directory_;
    Limit(RLIMIT_NOFILE, static_cast<rlim_t>(next));
    Caller<6> caller({.logger = KeepWarning});
    caller.Run();
    EXPECT_EQ(caller.context, nullptr);
    EXPECT_NE(last_warning.find("Too many open files"), std::string::npos) << last_warning;
    Limit(RLIMIT_NOFILE, 1024);
    EXPECT_TRUE(Segments().empty());
  });
  InChild([&] {  // room for the directory, none for the file
    LoadTable<6>();
    const int next = dup(0);
    close(next);
    Limit(RLIMIT_NOFILE, static_cast<rlim_t>(next + 1));
    Caller<6> caller({.logger = KeepWarning});
    EXPECT_EQ(caller.context, nullptr);
    const int still_free = dup(0);
    EXPECT_EQ(still_free, next) << "no descriptor is left open";
    Limit(RLIMIT_NOFILE, 1024);
    EXPECT_TRUE(Segments().empty());
  });
}

TEST_F(StorageSurvival, SurvivesALimitOnAddressSpace) {
  if (kHasThreadSanitizer) GTEST_SKIP() << "it takes address space itself";
  for (const uint64_t spare :
       {0u, 64u << 10, 256u << 10, 1u << 20, 16u << 20, 29u << 20, 30u << 20}) {
    SCOPED_TRACE(spare);
    InEach<6, 7>([&]<int kVersion>() {
      LoadTable<kVersion>();
      uint64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      std::vector<Caller<kVersion>> callers;
      callers.reserve(16);
      Limit(RLIMIT_AS, pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + spare);
      for (uint64_t id = 0; id < 16; ++id)
        callers.push_back(Caller<kVersion>({.id = id, .logger = KeepWarning}));
      for (Caller<kVersion>& caller : callers) caller.Run();
      for (Caller<kVersion>& caller : callers) caller.Finalize();
      Limit(RLIMIT_AS, RLIM_INFINITY);
      if (callers[0].context == nullptr) {
        EXPECT_TRUE(Segments().empty());
        return;
      }
      uint64_t own = 0;
      for (size_t slot = 0; slot < 16; ++slot) own += Segment().Started("AllReduce", slot);
      const uint64_t shared = Segment().Started("AllReduce", kLastOfDefault);
      const uint64_t refused = Segment().Lost(Loss::kReservationFailed);
      EXPECT_EQ(own, 16 - refused);
      EXPECT_TRUE(shared == refused || shared == 0)
          << "counted together, if there was memory for that";
    });
  }
}

TEST_F(StorageSurvival, SurvivesStandardStreamsThatAreClosed) {
  InChild([&] {
    const int kept = dup(STDOUT_FILENO);
    const int errors = dup(STDERR_FILENO);
    for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
    Caller<6> caller;
    caller.Run();
    const int descriptor = SegmentDescriptor();
    // Output of the job must not go into the segment.
    const ssize_t printed = write(STDOUT_FILENO, "printed", 7);
    dup2(kept, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    EXPECT_GT(descriptor, STDERR_FILENO);
    EXPECT_EQ(printed, -1);
    EXPECT_EQ(Segment().header()->magic, layout::kMagic);
    EXPECT_EQ(Segment().Timed(), 1u);
  });
}

TEST_F(StorageSurvival, SurvivesThatTheJobClosesOurDescriptorAndReusesItsNumber) {
  InChild([&] {
    Caller<6> early;
    const int descriptor = SegmentDescriptor();
    const View view = Segment();
    ASSERT_GE(descriptor, 0);
    close(descriptor);  // as programs do that close all they do not know
    const std::string own = testing::TempDir() + "of_the_job" + std::to_string(getpid());
    const int file = open(own.c_str(), O_CREAT | O_RDWR, 0600);
    ASSERT_EQ(file, descriptor);
    Caller<6> late({.id = 2});
    early.Run();
    late.Run();
    EXPECT_EQ(std::filesystem::file_size(own), 0u) << "the job's file is not ours to reserve";
    EXPECT_EQ(view.Timed("AllReduce", 0), 1u);
    EXPECT_EQ(view.Started("AllReduce", kLastOfDefault), 1u);
    EXPECT_EQ(view.Lost(), Only({{Loss::kReservationFailed, 1}}));
    std::filesystem::remove(own);
  });
}

}  // namespace
}  // namespace nccl_exporter::plugin::survival
