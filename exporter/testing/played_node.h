// SPDX-License-Identifier: Apache-2.0
// PlayedNode, a node whose counts a test makes operation by operation.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "exporter/ledger/ledger.h"
#include "exporter/testing/example_snapshot.h"

namespace nccl_exporter::exporter {

constexpr int64_t kSecondNs = LedgerTimes::kSecondNs;

// One process; its communicators are added by the test.
class PlayedNode {
 public:
  PlayedNode() {
    node_.processes.push_back(EmptyProcess(4711));
    node_.processes.back().start_realtime_ns = now_.realtime_ns;
  }

  // A communicator in `slot`, created now, on two nodes.
  collector::CommunicatorSnapshot& Add(uint32_t slot, uint64_t generation = 1) {
    collector::CommunicatorSnapshot communicator = EmptyCommunicator(slot + 100, 0);
    communicator.slot = slot;
    communicator.generation = generation;
    communicator.created_realtime_ns = now_.realtime_ns;
    communicator.nodes = 2;
    process().communicators.push_back(std::move(communicator));
    return process().communicators.back();
  }
  void Pass(int64_t ns) {
    now_.monotonic_ns += ns;
    now_.realtime_ns += ns;
  }

  collector::NodeSnapshot& node() { return node_; }
  collector::ProcessSnapshot& process() { return node_.processes.front(); }
  collector::CommunicatorSnapshot& comm(size_t i = 0) { return process().communicators[i]; }
  const Moment& now() const { return now_; }

  void Enter(Ledger& ledger) {
    book_ = ledger.Enter(std::make_shared<const collector::NodeSnapshot>(node_), now_);
  }
  // Counts in the book of the latest snapshot.
  const RankCounts& Counts(size_t i = 0) const { return *book_->rows.front().ranks[i]; }
  const ProcessCounts& ProcessSums() const { return *book_->rows.front().counts; }

  const RankCounts& See(Ledger& ledger, size_t i = 0) {
    Enter(ledger);
    return Counts(i);
  }
  uint64_t KernelNs(Ledger& ledger, size_t i = 0) { return See(ledger, i).kernel_ns.front(); }

 private:
  collector::NodeSnapshot node_;
  std::shared_ptr<const Book> book_;
  Moment now_{.monotonic_ns = 1000 * kSecondNs, .realtime_ns = 1'700'000'000 * kSecondNs};
};

}  // namespace nccl_exporter::exporter
