// SPDX-License-Identifier: Apache-2.0
// Counts what was wrong with files, by cause and owner, each fault once: a file that lies there
// broken for a day is one error, not 86,400. Of each cause and owner the latest file is remembered,
// for the log and /api/v1/node.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"
#include "collector/segments/segment_file.h"

namespace nccl_exporter::collector {

// Since the daemon started.
class SegmentErrorCounts {
 public:
  using Values = decltype(NodeSnapshot::segment_errors);

  void Add(SegmentError error, uint64_t uid, std::string file, std::string detail,
           uint64_t count = 1) {
    if (count == 0) return;
    values_[static_cast<size_t>(error)] += count;
    const std::optional<uint64_t> named = NamedUser(uid);
    SegmentTrouble& trouble = troubles_[{named, error}];
    trouble = {.error = error,
               .uid = named,
               .count = trouble.count + count,
               .file = std::move(file),
               .file_uid = uid,
               .detail = std::move(detail),
               .realtime_ns = now_realtime_ns_};
  }
  // When what is added from now on was seen.
  void SetNow(int64_t realtime_ns) { now_realtime_ns_ = realtime_ns; }

  const Values& values() const { return values_; }
  // Faults that exist now, by owner and cause. Each was counted when it was met.
  using Present = std::map<std::pair<uint64_t, SegmentError>, uint64_t>;
  std::vector<SegmentTrouble> Troubles(const Present& present) const {
    auto troubles = troubles_;
    for (const auto& [key, count] : present) {
      auto trouble = troubles.find({key.first, key.second});
      if (trouble == troubles.end()) trouble = troubles.find({std::nullopt, key.second});
      if (trouble != troubles.end()) trouble->second.present += count;
    }
    std::vector<SegmentTrouble> result;
    for (auto& [key, trouble] : troubles) result.push_back(std::move(trouble));
    return result;
  }

 private:
  // The first kMaxTroubledUsers are named for good, so that their counters never end; the others
  // are one.
  std::optional<uint64_t> NamedUser(uint64_t uid) {
    const bool is_known = troubles_.lower_bound({uid, SegmentError{}}) !=
                          troubles_.lower_bound({uid, SegmentError::kCount});
    if (!is_known && named_users_ == kMaxTroubledUsers) return std::nullopt;
    named_users_ += !is_known;
    return uid;
  }

  Values values_{};
  std::map<std::pair<std::optional<uint64_t>, SegmentError>, SegmentTrouble> troubles_;
  size_t named_users_ = 0;
  int64_t now_realtime_ns_ = 0;
};

// One file's place among the counts.
struct FileErrors {
  SegmentErrorCounts& all;
  const std::string& directory;
  const std::string& name;
  uint64_t uid = 0;

  void Add(SegmentError error, std::string detail, uint64_t count = 1) const {
    if (count != 0) all.Add(error, uid, directory + '/' + name, std::move(detail), count);
  }
};

// The fault of one file as it was last counted.
class CountedFault {
 public:
  // Counts the fault, unless it is the one counted last and the file is still the same.
  void Count(SegmentError error, const std::string& detail, const FileStamp& stamp,
             const FileErrors& errors) {
    if (error_ == error && stamp_ == stamp) return;
    error_ = error;
    stamp_ = stamp;
    errors.Add(error, detail);
  }

 private:
  std::optional<SegmentError> error_;
  std::optional<FileStamp> stamp_;
};

}  // namespace nccl_exporter::collector
