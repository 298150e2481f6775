// SPDX-License-Identifier: Apache-2.0
// KinetoFile, a trace file of PyTorch's profiler (Kineto) to which events are appended. Any text is
// allowed: it is checked before it is changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

class KinetoFile {
 public:
  // `fault` says in one line why it is no such file; empty if it is one.
  KinetoFile(std::string text, std::string& fault);

  // The time of the epoch at which its times begin; 0 in older files, whose times are of the
  // epoch themselves.
  int64_t base_ns() const { return base_ns_; }
  // Beyond the numbers of its processes, which are those of the system and of GPUs.
  int64_t first_free_pid() const { return first_free_pid_; }

  // The file with further events, which have commas between them, and a further key at its top.
  std::string With(std::string_view events, std::string_view key, std::string_view value) const;

 private:
  // Just behind the bracket of traceEvents; npos if there is none.
  size_t FindEvents() const;

  std::string text_;
  int64_t base_ns_ = 0;
  int64_t first_free_pid_ = 1;
  size_t events_at_ = std::string::npos;
  bool has_events_ = false;
};

}  // namespace nccl_exporter::exporter
