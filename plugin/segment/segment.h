// SPDX-License-Identifier: Apache-2.0
// The writer's side of the segment file: created, locked and mapped once; slots reserved one by one
// before they are touched, because a write to a page that a full tmpfs cannot give is a SIGBUS in
// the training process.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugin/options.h"
#include "plugin/segment/atomics.h"
#include "proto/shm_layout.h"

namespace nccl_exporter::plugin {

// Removes segments that dead processes of this user left in a directory: where no daemon may do it,
// they would fill the memory of the node. At init only.
//
// Removed is a regular file of our own user, with the name of a segment, whose two locks
// (Segment::Lock) nobody holds. The kernel keeps one of them for as long as the file is mapped, so
// the file of a living process stays, whatever the process has closed. The first start that finds
// a dead file makes it read-only. A later one removes it if no system call has changed it since
// then for as long as its writer wanted it kept (retention_ns): a daemon has served it for that
// time, or holds it open. Links, pipes and the like are not opened.
//
// A close of any descriptor of a file drops the POSIX lock that the process holds on it. So nothing
// is opened where another copy of the plugin in this process has a segment. `retention_ns`: of
// files whose writer does not say.
void RemoveDeadSegments(int directory, uint64_t retention_ns);

// In one start: names that are listed, and files that are opened.
inline constexpr uint32_t kMostListedNames = 4096;
inline constexpr uint32_t kMostDeadSegments = 64;

class Segment {
 public:
  // Creates the file. On failure nothing is left behind, and `error` says why in one line.
  bool Create(const Options& options, const char* (*get)(const char* name), char* error,
              size_t error_size);
  // Readers take the header for complete from here on.
  void Publish() { StoreRelease(header_->version, layout::kVersion); }

  // Makes every write to the slot and its table of peers safe, marks it as claimed, with this
  // generation, and fills the rest with zeros. False, and the slot is as it was, if the file system
  // has no room.
  bool Reserve(uint32_t slot, uint64_t generation);

  layout::SegmentHeader* header() const { return header_; }
  layout::CommunicatorSlot* slot(uint32_t index) const {
    return reinterpret_cast<layout::CommunicatorSlot*>(reinterpret_cast<char*>(header_) +
                                                       sizeof(layout::SegmentHeader)) +
           index;
  }
  uint32_t slot_count() const { return slot_count_; }  // the overflow slot included
  uint32_t overflow_slot() const { return slot_count_ - 1; }
  const char* path() const { return path_; }
  // Whether a write to the file may wait for a disk.
  bool is_on_disk() const { return is_on_disk_; }

 private:
  bool Fail(const char* what, const char* where);  // with errno
  bool OpenDirectory(const Options& options);
  bool OpenShared(const char* path, int flags);
  bool OpenPrivate();
  bool TrustsDirectory();
  bool CreateFile();
  bool HoldsFile() const;  // whether file_ is still ours
  bool Lock() const;
  void LookAtFileSystem();
  // Whether so much may be taken of the file system: the rest of /dev/shm is NCCL's, which fails
  // without it.
  bool LeavesRest(size_t bytes) const;
  bool SizeAndMap(uint32_t slots);
  void FillHeader(const Options& options, const char* (*get)(const char* name));
  void Abandon();
  size_t Bytes() const;  // of the whole file

  char* error_ = nullptr;  // Create()'s
  size_t error_size_ = 0;
  layout::SegmentHeader* header_ = nullptr;
  uint32_t slot_count_ = 0;
  int directory_ = -1;
  int file_ = -1;  // open for the life of the process: closing any descriptor of the file would
                   // drop the lock
  uint64_t device_ = 0;  // where the file lies, and its number there
  uint64_t inode_ = 0;
  bool is_on_disk_ = false;
  bool is_in_shared_memory_ = false;  // in the file system of /dev/shm
  char name_[64] = "";
  char path_[512] = "";
};

}  // namespace nccl_exporter::plugin
