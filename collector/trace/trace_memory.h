// SPDX-License-Identifier: Apache-2.0
// TraceMemory, the trace file of another process (proto/trace_ring.h), opened as its requester. Not
// thread-safe.
//
// The other process may be hostile to this one, which may be root. So the file is mapped only if it
// is of tmpfs, has the size of a trace file and is sealed against a change of it; and every word is
// checked before it is used.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collector/segments/file_descriptor.h"
#include "proto/trace_ring.h"

namespace nccl_exporter::collector {

class TraceMemory {
 public:
  struct Request {
    trace_ring::Level level = trace_ring::Level::kNone;
    int64_t begin_realtime_ns = 0;
    int64_t end_realtime_ns = 0;
    std::optional<uint64_t> communicator;  // nothing: all
  };
  // A record, whose number of words is that of its type.
  using Visit = std::function<void(uint32_t slot, std::span<const uint64_t> record)>;

  // The file of the process `pid`, in the caller's PID namespace, whose segment was made at that
  // time (CLOCK_MONOTONIC). nullptr: `fault` says why, in words that follow "it".
  static std::unique_ptr<TraceMemory> Open(pid_t pid, int64_t owner_start_ns, std::string& fault);
  // Ends the request, if there is one.
  ~TraceMemory();
  TraceMemory(const TraceMemory&) = delete;
  TraceMemory& operator=(const TraceMemory&) = delete;

  // Allocates what is needed, and asks. False: there is no memory.
  bool Ask(const Request& request, std::string& fault);
  // Answer of the process; nothing: it has not begun an operation since.
  std::optional<trace_ring::Answer> answer() const;

  // Visits the records that have come since the last call, those of a chunk in their order.
  void Read(const Visit& visit);
  // Since the request. `slot` is one of the segment.
  uint64_t LostBy(uint32_t slot, trace_ring::Role role) const;
  // Records of that lane that were not read because one before them in their chunk was never
  // written: its thread slept, or has died. At most so many; known after the last Read().
  uint64_t HiddenOf(uint32_t slot, trace_ring::Role role) const;

 private:
  TraceMemory(FileDescriptor file, trace_ring::File* memory);
  void ReadChunk(uint64_t number, const Visit& visit);
  uint64_t ChunksOf(trace_ring::Level level) const;

  const FileDescriptor file_;  // with the lock
  trace_ring::File* const memory_;
  bool has_asked_ = false;
  uint64_t generation_ = 0;
  uint64_t chunks_ = 0;
  std::vector<uint64_t> read_words_;  // by chunk
  std::vector<uint64_t> owners_;      // by chunk, when those were read
  std::vector<uint64_t> lost_before_;
};

// "took no request", and why.
std::string AnswerText(std::optional<trace_ring::Answer> answer);

}  // namespace nccl_exporter::collector
