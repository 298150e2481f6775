// SPDX-License-Identifier: Apache-2.0
// StateFile, the file in which the daemon keeps the state of its derived counters for its
// successor. For one thread at a time.
//
// It is written as a whole beside its place and then renamed, so a reader finds a complete one. It
// is not flushed to a disk: what kills a machine ends the jobs, and the boot id tells. Contents:
// magic and version, boot id (two words), number of words, checksum of them, words.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collector/node_snapshot.h"

namespace nccl_exporter::exporter {

// More than the largest node needs: 2,048 communicators of ten collectives and sizes take 3 MiB.
// The old and the new state fit the volume of the manifests and the chart (sizeLimit: 64Mi), whose
// pod Kubernetes evicts otherwise.
inline constexpr size_t kMostStateWords = size_t{31} << 17;  // 31 MiB

struct StateFault {
  collector::StateError error = collector::StateError::kUnreadable;
  std::string detail;  // one line with the path
};

class StateFile {
 public:
  // `directory` need not exist; its parent must. It belongs to the daemon's user alone.
  explicit StateFile(std::string directory);

  // Nothing without a fault: there is no file, or it is from before the machine's start.
  std::optional<std::vector<uint64_t>> Read(std::optional<StateFault>& fault) const;
  // With a fault there is no file afterwards, as far as it can be removed: with an old state the
  // counters of the next daemon would be lower than what was served, which PromQL takes for a
  // reset.
  std::optional<StateFault> Write(std::span<const uint64_t> words) const;

  const std::string& path() const { return path_; }

 private:
  std::optional<StateFault> FaultOfDirectory() const;
  std::optional<StateFault> Replace(std::span<const uint64_t> words) const;

  std::string directory_;
  std::string path_;
  std::string next_path_;
};

}  // namespace nccl_exporter::exporter
