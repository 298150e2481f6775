// SPDX-License-Identifier: Apache-2.0
// RequestQueue, the requests that wait to be pushed, the oldest first: a file each, or in memory.
// For one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace nccl_exporter::exporter::otlp {

class RequestQueue {
 public:
  // Takes over what an earlier process has left in `directory`, which exists and which no other
  // process uses then: else throws std::runtime_error with one line. Empty: in memory.
  RequestQueue(std::string directory, size_t limit_bytes);
  ~RequestQueue();
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Drops the oldest ones where there is no room, and `body` if it alone has none. Keeps it in
  // memory where it cannot be written. Returns a line about what went wrong; empty if nothing did.
  std::string Add(std::string body);

  // The oldest one; nothing if there is none. A file that cannot be read is dropped.
  struct Request {
    uint64_t number;
    std::string body;
  };
  std::optional<Request> Oldest();
  // Forgets it, unless Add() has dropped it.
  void Remove(uint64_t number);

  size_t count() const { return entries_.size(); }
  size_t bytes() const { return bytes_; }
  uint64_t dropped() const { return dropped_; }  // without being pushed

 private:
  struct Entry {
    size_t bytes = 0;
    std::string body = {};  // of those in memory
  };

  std::string PathOf(uint64_t number) const;
  void Load();
  bool Write(uint64_t number, const std::string& body) const;

  const std::string directory_;
  const size_t limit_bytes_;
  int lock_ = -1;                      // the directory, which is locked
  std::map<uint64_t, Entry> entries_;  // by number
  size_t bytes_ = 0;
  uint64_t next_number_ = 1;
  uint64_t dropped_ = 0;
};

}  // namespace nccl_exporter::exporter::otlp
