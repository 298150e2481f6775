// SPDX-License-Identifier: Apache-2.0
// LabelFiles, the directory of --labels.dir. Not thread-safe: its owner locks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "collector/labels/label_rules.h"
#include "collector/node_snapshot.h"
#include "collector/segments/segment_errors.h"
#include "collector/segments/segment_file.h"

namespace nccl_exporter::collector {

// Files that are read at most, in the order of their names.
inline constexpr size_t kMostLabelFiles = 64;

class LabelFiles {
 public:
  // `directory` need not exist yet. Empty: there are no labels.
  explicit LabelFiles(std::string directory);

  // Reads the files that have changed: those whose names end with .json and begin with no dot. Sets
  // ProcessSnapshot::site_labels. Where several files have a rule with the same "match", processes
  // have the labels of all: of labels with one name that of the file whose name is later, and if
  // they are too many, those of later names.
  // A file that is wrong keeps its rules of before, and so do all files of a directory that is
  // wrong. Each fault is counted once as SegmentError::kBadLabels: until the file changes. Only
  // files of root and of the daemon's user are taken, which nobody else may write, in a directory
  // of which the same is true.
  void AddTo(NodeSnapshot& snapshot);

 private:
  // Signs of a change. The clock of `stamp` has steps of some milliseconds.
  struct Sight {
    FileStamp stamp;
    FileKey key;
    mode_t mode;
    uint64_t uid;

    explicit Sight(const struct stat& status)
        : stamp(status), key(KeyOf(status)), mode(status.st_mode), uid(status.st_uid) {}
    bool operator==(const Sight&) const = default;
  };
  struct File {
    Sight sight;
    LabelRules rules = {};
    bool is_wrong = false;
  };

  // Nothing if the directory is wrong: that is counted then.
  std::optional<std::map<std::string, Sight>> List();
  void Read(const std::string& name, const Sight& sight);
  void Refuse(const std::string& path, uint64_t uid, const std::string& why);
  void Merge();

  const std::string directory_;
  std::map<std::string, File> files_;
  LabelRules rules_;   // of all files
  std::string fault_;  // of the directory, as counted last; empty: none
  uint64_t directory_uid_ = 0;
  SegmentErrorCounts errors_;
};

}  // namespace nccl_exporter::collector
