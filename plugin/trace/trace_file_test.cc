// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "plugin/trace/trace_session.h"

namespace nccl_exporter::plugin {
namespace {

// A child's exit status; -1 if a signal ended it.
template <typename Body>
int StatusOf(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Through /proc, as a requester does.
int OpenOwn() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target == std::string("/memfd:") + trace_ring::kFileName + " (deleted)")
      return open(entry.path().c_str(), O_RDWR);
  }
  return -1;
}

uint64_t BlocksOf(int file) {
  struct stat status {};
  fstat(file, &status);
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

int Limited(__rlimit_resource resource, rlim_t most) {
  return StatusOf([&] {
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    setrlimit(resource, &limit);
    const TraceFile made = MakeTraceFile(1);
    return made.file == nullptr && made.fault != nullptr && errno != 0 ? 0 : 1;
  });
}

TEST(TraceFileTest, HasItsWholeSizeOnePageOfMemoryAndSaysWhoseItIs) {
  EXPECT_EQ(StatusOf([] {
              const TraceFile made = MakeTraceFile(4711);
              const int file = OpenOwn();
              if (made.file == nullptr || file < 0) return 1;
              struct stat status {};
              fstat(file, &status);
              if (static_cast<uint64_t>(status.st_size) != sizeof(trace_ring::File)) return 2;
              if (BlocksOf(file) != 4096) return 3;
              if (made.file->control.version.load() != trace_ring::kVersion) return 4;
              return made.file->control.owner_start_ns == 4711 ? 0 : 5;
            }),
            0);
}

// A requester can only write: every address of the mapping stays valid.
TEST(TraceFileTest, CannotBeMadeShorterOrLongerAndTakesNoOtherSeal) {
  EXPECT_EQ(
      StatusOf([] {
        const TraceFile made = MakeTraceFile(1);
        const int file = OpenOwn();
        const off_t size = sizeof(trace_ring::File);
        for (const off_t other : {off_t{0}, off_t{4096}, size - 1, size + 1}) {
          if (ftruncate(file, other) == 0 || errno != EPERM) return 1;
        }
        if (fallocate(file, 0, size, 4096) == 0) return 2;
        if (fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) == 0 || errno != EPERM) return 3;
        // The last word of the last chunk, in a hole and behind a punched one.
        auto& last =
            made.file->chunks[trace_ring::kMostChunks - 1].words[trace_ring::Chunk::kWords - 1];
        last.store(1);
        if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size) != 0) return 4;
        if (last.load() != 0) return 5;
        last.store(1);
        return 0;
      }),
      0);
}

// None of them ends the process by a signal.
TEST(TraceFileTest, IsNotMadeWhereALimitForbidsIt) {
  EXPECT_EQ(Limited(RLIMIT_FSIZE, 0), 0);
  EXPECT_EQ(Limited(RLIMIT_FSIZE, sizeof(trace_ring::File) - 1), 0);
  EXPECT_EQ(Limited(RLIMIT_NOFILE, 3), 0);
#if !defined(NCCL_EXPORTER_ASAN) && !defined(NCCL_EXPORTER_TSAN)
  EXPECT_EQ(Limited(RLIMIT_AS, sizeof(trace_ring::File)), 0);
#endif
}

TEST(TraceFileTest, LeavesTheStandardStreamsFree) {
  EXPECT_EQ(StatusOf([] {
              for (int stream = 0; stream <= 2; ++stream) close(stream);
              if (MakeTraceFile(1).file == nullptr) return 1;
              struct stat status {};
              for (int stream = 0; stream <= 2; ++stream) {
                if (fstat(stream, &status) == 0) return 2;
              }
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace nccl_exporter::plugin
