// SPDX-License-Identifier: Apache-2.0
#include "plugin/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "plugin/identity.h"
#include "plugin/word.h"

namespace nccl_exporter {
namespace {

constexpr char kRunDirectory[] = "/run/nccl-exporter";
constexpr char kSharedMemoryDirectory[] = "/dev/shm/nccl-exporter";
constexpr mode_t kDirectoryMode = 01777;  // every user's jobs write here, and only their owner removes a file
constexpr mode_t kFileMode = 0644;        // the daemon reads as another user

constexpr size_t kHeaderBytes = sizeof(layout::SegmentHeader);
constexpr size_t kSlotBytes = sizeof(layout::CommunicatorSlot);

bool Fail(char* error, size_t size, const char* what, const char* where) {
  std::snprintf(error, size, "%s %s: %s", what, where, std::strerror(errno));
  return false;
}

// tmpfs and every local file system reserve in the kernel; glibc writes zeros where one cannot.
bool ReserveBytes(int file, size_t offset, size_t bytes) {
  int failure = 0;
  do {
    failure = posix_fallocate(file, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (failure == EINTR);
  errno = failure;
  return failure == 0;
}

// Growing a file beyond RLIMIT_FSIZE is a signal that kills the process, not an error.
uint32_t SlotsWithinFileLimit(uint32_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  if (limit.rlim_cur < kHeaderBytes + kSlotBytes) return 0;
  const uint64_t most = (limit.rlim_cur - kHeaderBytes) / kSlotBytes;
  return most < wanted ? static_cast<uint32_t>(most) : wanted;
}

}  // namespace

bool Segment::Create(const Options& options, const char* (*get)(const char* name), char* error, size_t error_size) {
  if (OpenDirectory(options, error, error_size) && CreateFile(error, error_size) &&
      SizeAndMap(options.communicators + 1, error, error_size)) {
    Publish(options, get);
    close(directory_);
    directory_ = -1;
    return true;
  }
  Abandon();
  return false;
}

bool Segment::OpenDirectory(const Options& options, char* error, size_t error_size) {
  const char* directory = options.directory;
  if (directory == nullptr) directory = access(kRunDirectory, W_OK | X_OK) == 0 ? kRunDirectory : nullptr;
  if (directory == nullptr) {
    directory = kSharedMemoryDirectory;
    if (mkdir(directory, 0700) == 0) chmod(directory, kDirectoryMode);
  }
  std::snprintf(path_, sizeof(path_), "%s", directory);
  directory_ = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC | (options.directory == nullptr ? O_NOFOLLOW : 0));
  return directory_ >= 0 || Fail(error, error_size, "cannot open segment directory", directory);
}

bool Segment::CreateFile(char* error, size_t error_size) {
  constexpr int kAttempts = 8;
  for (int attempt = 0; attempt < kAttempts && file_ < 0; ++attempt) {
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
      random = NowNs() ^ reinterpret_cast<uintptr_t>(this);
    std::snprintf(name_, sizeof(name_), "%016llx-%016llx%s", static_cast<unsigned long long>(ReadClock(CLOCK_BOOTTIME)),
                  static_cast<unsigned long long>(random), layout::kFileSuffix);
    file_ = openat(directory_, name_, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, kFileMode);
    if (file_ < 0 && errno != EEXIST) break;
  }
  if (file_ < 0) return name_[0] = '\0', Fail(error, error_size, "cannot create a segment in", path_);
  fchmod(file_, kFileMode);  // whatever the umask

  if (!LeaveStandardStreams()) return Fail(error, error_size, "no descriptor for a segment in", path_);
  struct stat status {};
  if (fstat(file_, &status) != 0) return Fail(error, error_size, "cannot see a segment in", path_);
  device_ = status.st_dev;
  inode_ = status.st_ino;

  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(file_, F_SETLK, &lock) != 0) return Fail(error, error_size, "cannot lock a segment in", path_);
  const size_t length = std::strlen(path_);
  std::snprintf(path_ + length, sizeof(path_) - length, "/%s", name_);
  return true;
}

bool Segment::SizeAndMap(uint32_t slots, char* error, size_t error_size) {
  slot_count_ = SlotsWithinFileLimit(slots);
  errno = EFBIG;
  if (slot_count_ < 2) return Fail(error, error_size, "cannot size segment", path_);
  const size_t bytes = kHeaderBytes + slot_count_ * kSlotBytes;
  if (ftruncate(file_, static_cast<off_t>(bytes)) != 0) return Fail(error, error_size, "cannot size segment", path_);
  if (!ReserveBytes(file_, 0, kHeaderBytes)) return Fail(error, error_size, "no room for segment", path_);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) return Fail(error, error_size, "cannot map segment", path_);
  header_ = static_cast<layout::SegmentHeader*>(memory);
  return Reserve(overflow_slot(), 1) || Fail(error, error_size, "no room for segment", path_);
}

void Segment::Publish(const Options& options, const char* (*get)(const char* name)) {
  header_->magic = layout::kMagic;
  header_->header_bytes = kHeaderBytes;
  header_->slot_bytes = kSlotBytes;
  header_->slot_count = slot_count_;
  header_->file_bytes = kHeaderBytes + slot_count_ * kSlotBytes;
  header_->start_monotonic_ns = NowNs();
  header_->start_realtime_ns = ReadClock(CLOCK_REALTIME);
  header_->retention_ns = options.retention_ns;
  WriteProcessIdentity(header_, get);
  StoreRelease(header_->version, layout::kVersion);
}

// Where the job runs with its standard streams closed, what it prints would go into the file.
bool Segment::LeaveStandardStreams() {
  if (file_ > STDERR_FILENO) return true;
  const int higher = fcntl(file_, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (higher < 0) return false;
  close(file_);  // before the lock is taken, which a close would drop
  file_ = higher;
  return true;
}

// A job may have closed every descriptor that it does not know, and ours may be the number of a file of its own.
bool Segment::HoldsFile() const {
  struct stat status {};
  return fstat(file_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

// The state comes first: a reader that found the slot free would look at none behind it, and one that found it closed
// would take zeros for its counts.
bool Segment::Reserve(uint32_t index, uint64_t generation) {
  if (!HoldsFile() || !ReserveBytes(file_, kHeaderBytes + index * kSlotBytes, kSlotBytes)) return false;
  static_assert(offsetof(layout::CommunicatorSlot, state) == 0);
  StoreRelaxed(slot(index)->state, layout::StateWord(generation, layout::SlotState::kClaimed));
  Word* words = reinterpret_cast<Word*>(slot(index));  // a late event of the slot's former communicator may still come
  for (size_t i = 1; i < kSlotBytes / sizeof(Word); ++i) StoreRelease(words[i], 0);
  return true;
}

void Segment::Abandon() {
  if (header_ != nullptr) munmap(header_, kHeaderBytes + slot_count_ * kSlotBytes);
  header_ = nullptr;
  if (file_ >= 0) {
    unlinkat(directory_, name_, 0);
    close(file_);
  }
  if (directory_ >= 0) close(directory_);
  file_ = directory_ = -1;
}

}  // namespace nccl_exporter
