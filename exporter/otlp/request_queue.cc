// SPDX-License-Identifier: Apache-2.0
#include "exporter/otlp/request_queue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "exporter/text/number_in.h"

namespace nccl_exporter::exporter::otlp {
namespace {

constexpr const char* kSuffix = ".otlp";
constexpr const char* kUnfinished = "/unfinished";  // renamed when it is whole

}  // namespace

RequestQueue::RequestQueue(std::string directory, size_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {
  if (directory_.empty()) return;
  lock_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (lock_ >= 0) ::close(lock_);
    throw std::runtime_error(
        fmt::format("cannot use --queue.dir={}: {}", directory_,
                    error == EWOULDBLOCK ? "another process uses it" : std::strerror(error)));
  }
  Load();
}

RequestQueue::~RequestQueue() {
  if (lock_ >= 0) ::close(lock_);
}

std::string RequestQueue::PathOf(uint64_t number) const {
  return fmt::format("{}/{:020}{}", directory_, number, kSuffix);
}

// Other files in the directory stay as they are.
void RequestQueue::Load() {
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(directory_, error)) {
    const auto number = NumberIn<uint64_t>(file.path().stem().string());
    if (!number || file.path() != PathOf(*number) || !file.is_regular_file(error)) continue;
    const size_t bytes = file.file_size(error);
    if (error) continue;
    entries_[*number].bytes = bytes;
    bytes_ += bytes;
  }
  if (!entries_.empty()) next_number_ = entries_.rbegin()->first + 1;
}

void RequestQueue::Remove(uint64_t number) {
  const auto entry = entries_.find(number);
  if (entry == entries_.end()) return;
  if (!directory_.empty()) ::unlink(PathOf(number).c_str());
  bytes_ -= entry->second.bytes;
  entries_.erase(entry);
}

std::string RequestQueue::Add(std::string body) {
  std::string fault;
  if (body.size() > limit_bytes_) {
    ++dropped_;
    return "a request is longer than --queue.size, and dropped";
  }
  for (; bytes_ + body.size() > limit_bytes_; ++dropped_) {
    fault = "the queue is full, and the oldest requests are dropped";
    Remove(entries_.begin()->first);
  }
  Entry& entry = entries_[next_number_];
  bytes_ += entry.bytes = body.size();
  if (directory_.empty() || !Write(next_number_, body)) {
    if (!directory_.empty())
      fault = fmt::format("cannot write to {}: {}; requests are kept in memory", directory_,
                          std::strerror(errno));
    entry.body = std::move(body);
  }
  ++next_number_;
  return fault;
}

bool RequestQueue::Write(uint64_t number, const std::string& body) const {
  const std::string unfinished = directory_ + kUnfinished;
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file.write(body.data(), static_cast<std::streamsize>(body.size()));
  file.close();
  return file && ::rename(unfinished.c_str(), PathOf(number).c_str()) == 0;
}

std::optional<RequestQueue::Request> RequestQueue::Oldest() {
  while (!entries_.empty()) {
    const auto& [number, entry] = *entries_.begin();
    if (!entry.body.empty()) return Request{.number = number, .body = entry.body};
    std::string body(entry.bytes, '\0');
    std::ifstream file(PathOf(number), std::ios::binary);
    file.read(body.data(), static_cast<std::streamsize>(body.size()));
    if (file && !body.empty()) return Request{.number = number, .body = std::move(body)};
    Remove(number);
    ++dropped_;
  }
  return std::nullopt;
}

}  // namespace nccl_exporter::exporter::otlp
