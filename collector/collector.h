// SPDX-License-Identifier: Apache-2.0
// The collector: segment directories on one side, snapshots of the node on the other. A thread of
// its own looks after liveness, retention and the files of the dead, and reads what ranks
// completed, also while nobody scrapes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collector/node_snapshot.h"
#include "collector/reader/moment.h"
#include "collector/segments/file_descriptor.h"
#include "collector/segments/segment_file.h"
#include "collector/trace/node_trace.h"

namespace nccl_exporter::collector {

struct CollectorOptions {
  std::vector<std::string> directories;
  // For how long the counts of a process that has gone, or of a finalized communicator, are served.
  std::chrono::nanoseconds retention = std::chrono::minutes(5);
  // Whether snapshots have the durations by size: see ReadTerms.
  bool splits_durations = false;
  std::string label_directory = {};  // see LabelFiles
};

class ArrivalObserver;
class HostReader;
class LabelFiles;
class SegmentTable;

class Collector {
 public:
  explicit Collector(CollectorOptions options);
  Collector(CollectorOptions options, Clock clock);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // Begins the background thread: directory watch, liveness, unlinking of the dead, comparison of
  // arrivals. At most once.
  void Start();

  // Returns the contents of the segments now. Any thread; callers wait for each other. Every
  // snapshot looks at the directories first. After Start() it waits for one part of that look (see
  // kNamesPerPart), and the thread goes on with the rest; the first snapshots, and all without
  // Start(), wait for the whole.
  std::shared_ptr<NodeSnapshot> Snapshot();

  // Operations that the rings hold of the last `length`; of a busy communicator fewer, see
  // TracedCommunicator::whole_since_ns. At most `most_operations`, which users share. As Snapshot()
  // for threads and locks.
  NodeTrace Recent(std::chrono::nanoseconds length, size_t most_operations = kMostTracedOperations);

  // All operations from now on, for `length` or until `is_wanted` returns false, which is asked
  // every kRingReadInterval. On the caller's thread.
  NodeTrace Record(std::chrono::nanoseconds length, const std::function<bool()>& is_wanted);

 private:
  // Called behind the segments of a snapshot, with the moment at which it was taken.
  using Follow = std::function<void(const NodeSnapshot&, const SegmentLooks&, const Moment&)>;
  std::shared_ptr<NodeSnapshot> Snapshot(const Follow& follow);
  std::shared_ptr<NodeSnapshot> SnapshotOf(SegmentLooks looks, const Moment& now);
  bool MustWaitForDiscovery() const;
  void Refresh();
  bool GoOnDiscovering();
  SegmentLooks Look(const Moment& now);  // at all segments, for arrivals as well
  bool ReadCompletions();
  void Run();

  const Clock clock_;
  std::mutex mutex_;  // guards what table_, arrivals_, host_ and labels_ point to, and has_thread_
  bool has_thread_ = false;
  const std::unique_ptr<SegmentTable> table_;
  const std::unique_ptr<ArrivalObserver> arrivals_;
  const std::unique_ptr<HostReader> host_;
  const std::unique_ptr<LabelFiles> labels_;
  const FileDescriptor stop_;  // eventfd: readable when the thread shall end
  std::thread thread_;
};

}  // namespace nccl_exporter::collector
