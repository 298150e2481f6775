// SPDX-License-Identifier: Apache-2.0
// Compares each page of one format with those before it: nothing that only grows may shrink, no
// series may be missing for a while, and none may go before its time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "tests/soak/findings.h"
#include "tests/soak/page_samples.h"

namespace nccl_exporter::soak {

// A subject is what series come and go with: a rank in a communicator, or a process, of one job.
// Its sign of life is a counter that grows, or nccl_process_alive of 1. Series may go when their
// subject has shown none for the retention time, and never come back, because no two jobs of a soak
// share an id.
//
// A fault of many series of a page is reported for the first few.
//
// Not thread-safe.
class SeriesWatch {
 public:
  SeriesWatch(std::string name, double retention_seconds, Findings* findings)
      : name_(std::move(name)), retention_seconds_(retention_seconds), findings_(findings) {}

  // A whole page; `now_seconds` is the time when it was asked for, by any clock that only goes
  // forward.
  bool Compare(PageFormat format, std::string_view page, double now_seconds);

  size_t series() const { return series_.size(); }
  uint64_t ended_series() const { return ended_series_; }

 private:
  struct Series {
    double value = 0;
    double created_seconds = 0;
    double* last_sign_of_life = nullptr;  // null: a series of the daemon itself
    uint64_t page = 0;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  void Take(const PageSample& sample, double now_seconds);
  void TakeNew(const PageSample& sample, double now_seconds);
  void DropUnseen(double now_seconds);
  void Complain(std::string_view key, const std::string& what);

  std::string name_;
  double retention_seconds_;
  Findings* findings_;
  uint64_t page_ = 0;
  size_t seen_ = 0;
  size_t complaints_ = 0;  // about this page
  uint64_t ended_series_ = 0;
  std::unordered_map<std::string, Series, Hash, std::equal_to<>> series_;
  std::unordered_map<std::string, double>
      last_signs_of_life_;            // of each subject; never erased, Series point to them
  std::unordered_set<size_t> ended_;  // hashes of keys: hundreds of thousands in a long soak
};

}  // namespace nccl_exporter::soak
