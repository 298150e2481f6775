// SPDX-License-Identifier: Apache-2.0
#include "plugin/segment/segment.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "plugin/identity/identity.h"
#include "plugin/segment/own_file.h"

namespace nccl_exporter::plugin {
namespace {

constexpr char kRunDirectory[] = "/run/nccl-exporter";
constexpr char kSharedMemoryDirectory[] = "/dev/shm/nccl-exporter";
// Accounts below are the system's (UID_MIN of login.defs on every distribution): root made them, as
// the daemon's is made.
constexpr uid_t kFirstUser = 1000;
// User id that the kernel shows for root, and for others, if our user namespace does not have them.
constexpr uid_t kUnknownUser = 65534;

// Mode of a directory of our own; the daemon, another user, lists it.
constexpr mode_t kPrivateMode = 0755;
constexpr mode_t kFileMode = 0644;  // the daemon reads as another user
// Until it is locked: who may read it could be the first to lock it.
constexpr mode_t kNewFileMode = 0600;

// Space of /dev/shm that stays free for NCCL and for the job: the greater of the two. NCCL's proxy
// takes 34 MB of it (2.28.9).
constexpr uint64_t kSharedMemoryRest = 32 << 20;
constexpr uint64_t kSharedMemoryRestPart = 4;
// Types of file systems in memory, of <linux/magic.h>.
constexpr uint32_t kTmpfs = 0x01021994, kRamfs = 0x858458f6;

constexpr size_t kHeaderBytes = sizeof(layout::SegmentHeader);
constexpr size_t kSlotBytes = sizeof(layout::CommunicatorSlot);

// tmpfs and every local file system reserve in the kernel; glibc writes zeros where one cannot.
bool ReserveBytes(int file, size_t offset, size_t bytes) {
  int failure = 0;
  do {
    failure = posix_fallocate(file, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (failure == EINTR);
  errno = failure;
  return failure == 0;
}

uint32_t SlotsWithinFileLimit(uint32_t wanted) {
  const uint64_t most_bytes = MostFileBytes();
  if (most_bytes < kHeaderBytes + kSlotBytes) return 0;
  return static_cast<uint32_t>(
      std::min<uint64_t>((most_bytes - kHeaderBytes) / kSlotBytes, wanted));
}

// Atomic, for a late event of the former communicator may still come.
void Clear(void* memory, size_t bytes) {
  AtomicU64* words = static_cast<AtomicU64*>(memory);
  for (size_t i = 0; i < bytes / sizeof(AtomicU64); ++i) StoreRelease(words[i], 0);
}

}  // namespace

bool Segment::Fail(const char* what, const char* where) {
  std::snprintf(error_, error_size_, "%s %s: %s", what, where, std::strerror(errno));
  return false;
}

bool Segment::Create(const Options& options, const char* (*get)(const char* name), char* error,
                     size_t error_size) {
  error_ = error;
  error_size_ = error_size;
  if (!OpenDirectory(options)) return Abandon(), false;
  RemoveDeadSegments(directory_, options.retention_ns);
  if (CreateFile() && SizeAndMap(options.communicators + 1)) {
    FillHeader(options, get);
    close(directory_);
    directory_ = -1;
    return true;
  }
  Abandon();
  return false;
}

// The owner of a directory may remove and replace everybody's files in it, and so may every user
// who can write to it where the sticky bit is missing. So it must belong to root, an account of the
// system or us, or have been put where it is by root or by us: then its owner is the daemon's user.
// Only root, or the user who set up our mount namespace, makes a mount point, or a directory whose
// parent nobody else may write to. In /tmp and /dev/shm anybody may have been first. A mount point
// of root's needs no sticky bit: it is one pod's, as kubelet makes it for a subPath. It lacks the
// bit so that the daemon may remove what the pod leaves.
bool Segment::TrustsDirectory() {
  struct stat directory {
  }, parent{};
  const int parent_directory = openat(directory_, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
  const bool is_seen = parent_directory >= 0 && ReadStatus(directory_, &directory) &&
                       ReadStatus(parent_directory, &parent);
  if (!is_seen) Fail("cannot see segment directory", path_);
  if (parent_directory >= 0) close(parent_directory);
  if (!is_seen) return false;
  // Whom we share a directory of our own with is our choice.
  const mode_t others = directory.st_uid == geteuid() ? S_IWOTH : S_IWGRP | S_IWOTH;
  const bool is_mount = directory.st_dev != parent.st_dev;
  const bool is_roots = directory.st_uid == 0 || directory.st_uid == kUnknownUser;
  const bool is_sticky = (directory.st_mode & S_ISVTX) != 0 || (is_mount && is_roots);
  if ((directory.st_mode & others) != 0 && !is_sticky) {
    std::snprintf(error_, error_size_,
                  "others may remove files in segment directory %s: it needs the sticky bit",
                  path_);
    return false;
  }
  const auto is_ours = [](const struct stat& status) {
    return status.st_uid < kFirstUser || status.st_uid == geteuid();
  };
  const bool is_parent_closed = is_ours(parent) && (parent.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (is_ours(directory) || is_parent_closed || is_mount) return true;
  std::snprintf(error_, error_size_,
                "segment directory %s belongs to user %u, who could remove what is in it", path_,
                static_cast<unsigned>(directory.st_uid));
  return false;
}

bool Segment::OpenShared(const char* path, int flags) {
  std::snprintf(path_, sizeof(path_), "%s", path);
  directory_ = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | flags);
  if (directory_ < 0) return Fail("cannot open segment directory", path);
  if (TrustsDirectory()) return true;
  close(directory_);
  directory_ = -1;
  return false;
}

// Where no directory is shared, each user has one of his own, which the daemon knows by its name
// and owner.
bool Segment::OpenPrivate() {
  std::snprintf(path_, sizeof(path_), "%s-%u", kSharedMemoryDirectory,
                static_cast<unsigned>(geteuid()));
  mkdir(path_, kPrivateMode);
  directory_ = open(path_, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory_ < 0) return Fail("cannot open segment directory", path_);
  struct stat status {};
  if (!ReadStatus(directory_, &status)) return Fail("cannot see segment directory", path_);
  if (status.st_uid != geteuid()) {
    std::snprintf(error_, error_size_, "segment directory %s belongs to user %u", path_,
                  static_cast<unsigned>(status.st_uid));
    return false;
  }
  if ((status.st_mode & 07777) != kPrivateMode)
    fchmod(directory_, kPrivateMode);  // whatever the umask
  return true;
}

bool Segment::OpenDirectory(const Options& options) {
  if (options.directory != nullptr) return OpenShared(options.directory, 0);
  for (const char* shared : {kRunDirectory, kSharedMemoryDirectory}) {
    if (access(shared, W_OK | X_OK) == 0 && OpenShared(shared, O_NOFOLLOW)) return true;
  }
  return OpenPrivate();
}

bool Segment::CreateFile() {
  constexpr int kAttempts = 8;
  for (int attempt = 0; attempt < kAttempts && file_ < 0; ++attempt) {
    uint64_t random = 0;
    if (!FillRandom(&random, sizeof(random))) random = NowNs() ^ reinterpret_cast<uintptr_t>(this);
    std::snprintf(name_, sizeof(name_), "%016llx-%016llx%s",
                  static_cast<unsigned long long>(ReadClock(CLOCK_BOOTTIME)),
                  static_cast<unsigned long long>(random), layout::kFileSuffix);
    file_ =
        openat(directory_, name_, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, kNewFileMode);
    if (file_ < 0 && errno != EEXIST) break;
  }
  if (file_ < 0) return name_[0] = '\0', Fail("cannot create a segment in", path_);
  file_ = AboveStandardStreams(file_);  // before the lock is taken, which a close would drop
  if (file_ < 0) return Fail("no descriptor for a segment in", path_);
  struct stat status {};
  if (!ReadStatus(file_, &status)) return Fail("cannot see a segment in", path_);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  LookAtFileSystem();

  if (!Lock()) return Fail("cannot lock a segment in", path_);
  fchmod(file_, kFileMode);  // whatever the umask
  const size_t length = std::strlen(path_);
  std::snprintf(path_ + length, sizeof(path_) - length, "/%s", name_);
  return true;
}

bool Segment::SizeAndMap(uint32_t slots) {
  slot_count_ = SlotsWithinFileLimit(slots);
  errno = EFBIG;
  if (slot_count_ < 2) return Fail("cannot size segment", path_);
  if (!LeavesRest(kHeaderBytes + kSlotBytes)) {
    std::snprintf(error_, error_size_, "no room for segment %s: the rest of /dev/shm is NCCL's",
                  path_);
    return false;
  }
  if (ftruncate(file_, static_cast<off_t>(Bytes())) != 0) return Fail("cannot size segment", path_);
  if (!ReserveBytes(file_, 0, kHeaderBytes)) return Fail("no room for segment", path_);
  void* memory = MapSparse(file_, Bytes());
  if (memory == MAP_FAILED) return Fail("cannot map segment", path_);
  header_ = static_cast<layout::SegmentHeader*>(memory);
  return Reserve(overflow_slot(), 1) || Fail("no room for segment", path_);
}

void Segment::FillHeader(const Options& options, const char* (*get)(const char* name)) {
  header_->magic = layout::kMagic;
  header_->header_bytes = kHeaderBytes;
  header_->slot_bytes = kSlotBytes;
  header_->slot_count = slot_count_;
  header_->file_bytes = kHeaderBytes + slot_count_ * kSlotBytes;
  header_->start_monotonic_ns = NowNs();
  header_->start_realtime_ns = ReadClock(CLOCK_REALTIME);
  header_->retention_ns = options.retention_ns;
  WriteProcessIdentity(header_, get, options.labels, environ);
}

// A job may have closed every descriptor that it does not know, and ours may be the number of a
// file of its own.
bool Segment::HoldsFile() const {
  struct stat status {};
  return ReadStatus(file_, &status) && status.st_dev == device_ && status.st_ino == inode_;
}

// The daemon takes the POSIX lock for the sign that we live. The kernel drops it whenever the job
// closes any descriptor of the file: so each new communicator takes it again. The kernel keeps the
// lock of flock() for as long as the file is mapped, in us or in a child that we forked:
// RemoveDeadSegments() goes by it, too.
bool Segment::Lock() const {
  flock(file_, LOCK_EX | LOCK_NB);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(file_, F_SETLK, &lock) == 0;
}

void Segment::LookAtFileSystem() {
  struct statfs file_system {};
  if (fstatfs(file_, &file_system) == 0) {
    const auto type = static_cast<uint32_t>(file_system.f_type);
    is_on_disk_ = type != kTmpfs && type != kRamfs;
  }
  struct stat shared_memory {};
  is_in_shared_memory_ =
      ReadStatusAt(AT_FDCWD, "/dev/shm", &shared_memory, 0) && shared_memory.st_dev == device_;
}

bool Segment::LeavesRest(size_t bytes) const {
  struct statvfs file_system {};
  if (!is_in_shared_memory_ || fstatvfs(file_, &file_system) != 0 || file_system.f_blocks == 0)
    return true;
  const uint64_t block_bytes = file_system.f_frsize;
  const uint64_t rest_bytes =
      std::max(kSharedMemoryRest, file_system.f_blocks / kSharedMemoryRestPart * block_bytes);
  return file_system.f_bavail * block_bytes >= bytes + rest_bytes;
}

// The state comes first: a reader that found the slot free would look at none behind it, and one
// that found it closed would take zeros for its counts.
bool Segment::Reserve(uint32_t index, uint64_t generation) {
  const bool is_reserved = generation > 1;
  if (!HoldsFile() || (!is_reserved && index != overflow_slot() && !LeavesRest(kSlotBytes)) ||
      !ReserveBytes(file_, kHeaderBytes + index * kSlotBytes, kSlotBytes))
    return false;
  Lock();
  static_assert(offsetof(layout::CommunicatorSlot, state) == 0);
  StoreRelaxed(slot(index)->state, layout::StateWord(generation, layout::SlotState::kClaimed));
  Clear(reinterpret_cast<AtomicU64*>(slot(index)) + 1, kSlotBytes - sizeof(AtomicU64));
  return true;
}

size_t Segment::Bytes() const { return kHeaderBytes + slot_count_ * kSlotBytes; }

void Segment::Abandon() {
  if (header_ != nullptr) munmap(header_, Bytes());
  header_ = nullptr;
  if (name_[0] != '\0') unlinkat(directory_, name_, 0);
  if (file_ >= 0) close(file_);
  if (directory_ >= 0) close(directory_);
  file_ = directory_ = -1;
}

}  // namespace nccl_exporter::plugin
