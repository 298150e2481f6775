// SPDX-License-Identifier: Apache-2.0
#include "plugin/timing/work_items.h"

#include <gtest/gtest.h>

#include <memory>

namespace nccl_exporter::plugin {
namespace {

constexpr uint64_t kUnitNs = WorkItems::kCallUnitNs;

// Calls outside of groups, one per 10 units.
class WorkItemsTest : public testing::Test {
 protected:
  WorkItemsTest() {
    items_->Open();
    for (uint64_t call = 1; call <= 12; ++call) {
      items_->NoteGroup(1);
      items_->NoteCall(TimeOf(call));
    }
  }
  static uint64_t TimeOf(uint64_t call) { return call * 10 * kUnitNs; }

  std::unique_ptr<WorkItems> items_ = std::make_unique<WorkItems>();
};

TEST_F(WorkItemsTest, EachCallOutsideOfGroupsIsItsOwnFirstItem) {
  for (uint64_t call = 1; call <= 12; ++call)
    EXPECT_EQ(items_->NoteOperation(TimeOf(call), 0), call - 1);
}

// Two threads start operations at once. The one with the later call does not get the lock.
TEST_F(WorkItemsTest, AnUnorderedOperationMovesNoGroup) {
  for (uint64_t call = 1; call <= 9; ++call) items_->NoteOperation(TimeOf(call), 0);
  items_->NoteUnordered(TimeOf(11));
  // Its item lies before the groups that begin after it.
  EXPECT_EQ(items_->NoteOperation(TimeOf(10), 0), 1 + 9u);
  EXPECT_EQ(items_->NoteOperation(TimeOf(12), 0), 1 + 11u);
}

TEST_F(WorkItemsTest, AnUnorderedOperationCountsAsAnItem) {
  const uint32_t first = items_->NoteOperation(TimeOf(1), 0);
  EXPECT_EQ(items_->OverwritableSince(first), WorkItems::kNotYet);
  for (uint64_t i = 12; i < WorkItems::kRingEntries; ++i) items_->NoteUnordered(TimeOf(20));
  EXPECT_EQ(items_->OverwritableSince(first), WorkItems::kNotYet);
  items_->NoteUnordered(TimeOf(21));
  EXPECT_EQ(items_->OverwritableSince(first), TimeOf(21));
}

}  // namespace
}  // namespace nccl_exporter::plugin
