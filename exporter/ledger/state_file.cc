// SPDX-License-Identifier: Apache-2.0
#include "exporter/ledger/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

using collector::StateError;

// "NCCLDRV" and the version of what follows: states of other versions are damaged ones.
constexpr uint64_t kMagic = 0x4e43434c44525605;

struct Header {
  uint64_t magic = kMagic;
  std::array<uint64_t, 2> boot{};
  uint64_t words = 0;
  uint64_t checksum = 0;
};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  bool Close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || close(fd) == 0;
  }

 private:
  int fd_;
};

bool ReadAll(int fd, void* into, size_t bytes) {
  for (auto* at = static_cast<char*>(into); bytes > 0;) {
    const ssize_t got = read(fd, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int fd, const void* from, size_t bytes) {
  for (const auto* at = static_cast<const char*>(from); bytes > 0;) {
    const ssize_t put = write(fd, at, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<size_t>(put);
  }
  return true;
}

// FNV-1a by words.
uint64_t ChecksumOf(std::span<const uint64_t> words) {
  uint64_t sum = 0xcbf29ce484222325;
  for (const uint64_t word : words) sum = (sum ^ word) * 0x100000001b3 ^ sum >> 29;
  return sum;
}

// Of this start of the machine; zeros if the kernel does not say.
std::array<uint64_t, 2> BootId() {
  std::array<char, 36> text{};
  std::array<uint64_t, 2> id{};
  const Descriptor file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || !ReadAll(file.get(), text.data(), text.size())) return id;
  for (const char c : text) {
    id[0] = (id[0] ^ static_cast<uint64_t>(c)) * 0x100000001b3;
    id[1] = id[1] * 31 + static_cast<uint64_t>(c);
  }
  return id;
}

bool IsOwn(const struct stat& status) {
  return status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string Reason(const std::string& path) { return path + ": " + std::strerror(errno); }

}  // namespace

StateFile::StateFile(std::string directory)
    : directory_(std::move(directory)),
      path_(directory_ + "/derived-counters"),
      next_path_(path_ + ".next") {}

std::optional<StateFault> StateFile::FaultOfDirectory() const {
  struct stat status {};
  if (stat(directory_.c_str(), &status) != 0)
    return StateFault{StateError::kUnreadable, Reason(directory_)};
  if (!S_ISDIR(status.st_mode))
    return StateFault{StateError::kUnreadable, directory_ + ": not a directory"};
  if (!IsOwn(status)) {
    return StateFault{StateError::kForeign,
                      directory_ + ": another user owns it, or may write to it"};
  }
  return std::nullopt;
}

std::optional<std::vector<uint64_t>> StateFile::Read(std::optional<StateFault>& fault) const {
  fault.reset();
  const Descriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT) return std::nullopt;
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) {
    fault = StateFault{StateError::kUnreadable, Reason(path_)};
    return std::nullopt;
  }
  fault = FaultOfDirectory();
  if (fault) return std::nullopt;
  if (!S_ISREG(status.st_mode) || !IsOwn(status)) {
    fault = StateFault{StateError::kForeign, path_ + ": not a file of this user alone"};
    return std::nullopt;
  }
  Header header;
  std::vector<uint64_t> words;
  const auto damaged = [&] {
    fault = StateFault{StateError::kDamaged, path_ + ": not a state that this daemon writes"};
    return std::nullopt;
  };
  if (!ReadAll(file.get(), &header, sizeof(header)) || header.magic != kMagic ||
      header.words > kMostStateWords ||
      static_cast<uint64_t>(status.st_size) != sizeof(header) + header.words * sizeof(uint64_t))
    return damaged();
  if (header.boot != BootId()) return std::nullopt;
  words.resize(header.words);
  if (!ReadAll(file.get(), words.data(), words.size() * sizeof(uint64_t)) ||
      ChecksumOf(words) != header.checksum)
    return damaged();
  return words;
}

std::optional<StateFault> StateFile::Write(std::span<const uint64_t> words) const {
  std::optional<StateFault> fault = Replace(words);
  if (fault) {
    unlink(next_path_.c_str());
    unlink(path_.c_str());
  }
  return fault;
}

std::optional<StateFault> StateFile::Replace(std::span<const uint64_t> words) const {
  const auto unwritable = [](const std::string& detail) {
    return StateFault{StateError::kUnwritable, detail};
  };
  if (words.size() > kMostStateWords) return unwritable(path_ + ": the state is too large");
  if (mkdir(directory_.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return unwritable(Reason(directory_));
  if (std::optional<StateFault> fault = FaultOfDirectory()) return fault;
  // What a killed daemon left half written. Nobody else writes in this directory.
  unlink(next_path_.c_str());
  Descriptor file(open(next_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                       S_IRUSR | S_IWUSR));
  const Header header{.boot = BootId(), .words = words.size(), .checksum = ChecksumOf(words)};
  if (file.get() < 0 || !WriteAll(file.get(), &header, sizeof(header)) ||
      !WriteAll(file.get(), words.data(), words.size() * sizeof(uint64_t)) || !file.Close() ||
      rename(next_path_.c_str(), path_.c_str()) != 0)
    return unwritable(Reason(path_));
  return std::nullopt;
}

}  // namespace nccl_exporter::exporter
