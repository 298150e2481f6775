// SPDX-License-Identifier: Apache-2.0
// SegmentTrouble, why files in the segment directories could not be used, by owner. Plain data, for
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/code_table.h"

namespace nccl_exporter::collector {

// Why a file in a segment directory, or one of labels, could not be used. Append only: each is a
// label value `reason`.
enum class SegmentError : uint8_t {
  kOpenFailed,
  kNotARegularFile,
  kBadMagic,
  kUnknownMajor,
  kBadGeometry,
  kTruncated,
  kChangedWhileRead,
  kReadFailed,
  kUnlinkFailed,
  kDirectoryUnreadable,
  kTooManySegments,
  kLockLost,
  kForeignClock,
  kBadLabels,
  kCount
};
inline constexpr CodeTable<SegmentError> kSegmentErrors{{
    {SegmentError::kOpenFailed, "open_failed", "the file could not be opened"},
    {SegmentError::kNotARegularFile, "not_a_regular_file",
     "a link, a directory, a device or a mount with a segment's name"},
    {SegmentError::kBadMagic, "bad_magic", "the file is no segment"},
    {SegmentError::kUnknownMajor, "unknown_major", "written by a plugin with another layout"},
    {SegmentError::kBadGeometry, "bad_geometry",
     "sizes in the header contradict each other, the limits or the file"},
    {SegmentError::kTruncated, "truncated", "shorter than its header says, or its header is gone"},
    {SegmentError::kChangedWhileRead, "changed_while_read",
     "a slot was claimed again during the copy; the next reading tries again"},
    {SegmentError::kReadFailed, "read_failed", "the file could not be read"},
    {SegmentError::kUnlinkFailed, "unlink_failed",
     "a file that is no longer used could not be removed"},
    {SegmentError::kDirectoryUnreadable, "directory_unreadable",
     "the directory could not be listed"},
    {SegmentError::kTooManySegments, "too_many_segments",
     "no room for more files, directories, communicators or slots"},
    {SegmentError::kLockLost, "lock_lost", "not locked any more, while its process goes on"},
    {SegmentError::kForeignClock, "foreign_clock",
     "its times are in the future, as in a time namespace that the daemon does not see"},
    {SegmentError::kBadLabels, "bad_labels",
     "a file of labels, or their directory, is wrong; the labels of before stay"},
}};
static_assert(IsInOrder(kSegmentErrors));
constexpr std::string_view NameOf(SegmentError error) { return RowIn(kSegmentErrors, error).name; }

// Owners of files that errors are counted by; those of further users are counted together. A node
// has few users, and a process that makes files under many ids must not make series without end.
inline constexpr size_t kMaxTroubledUsers = 32;

// One cause of errors and one owner of files: how many, and the latest file.
struct SegmentTrouble {
  SegmentError error = SegmentError::kOpenFailed;
  std::optional<uint64_t> uid;  // none: users beyond kMaxTroubledUsers together
  uint64_t count = 0;           // since the daemon started
  std::string file;             // path
  uint64_t file_uid = 0;        // its owner
  std::string detail;           // such as the text of errno
  int64_t realtime_ns = 0;      // when it was counted
  // Files and directories that have the fault now; 1 for a user without further room.
  uint64_t present = 0;
};

}  // namespace nccl_exporter::collector
