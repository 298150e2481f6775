// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/handle.h"

#include <gtest/gtest.h>

namespace nccl_exporter::plugin {
namespace {

TEST(Handle, GivesBackEveryFieldItWasMadeOf) {
  const Handle handle =
      Handle::Of(0xbeef, HandleKind::kKernelChannel, 4095, Handle::kTicketMask, 63);
  EXPECT_EQ(handle.Salt(), 0xbeef);
  EXPECT_EQ(handle.Kind(), HandleKind::kKernelChannel);
  EXPECT_EQ(handle.Slot(), 4095u);
  EXPECT_EQ(handle.Ticket(), Handle::kTicketMask);
  EXPECT_EQ(handle.Channel(), 63u);
}

TEST(Handle, FieldsDoNotSpillIntoEachOther) {
  EXPECT_EQ(Handle::Of(1, HandleKind::kGroup, 0, Handle::kTicketMask + 1).Slot(), 0u);
  EXPECT_EQ(Handle::Of(1, HandleKind::kGroup, 0, Handle::kTicketMask + 1).Ticket(), 0u);
  EXPECT_EQ(Handle::Of(1, HandleKind::kCall, ~uint64_t{0}).Kind(), HandleKind::kCall);
  EXPECT_EQ(Handle::Of(1, HandleKind::kCall, ~uint64_t{0}).Salt(), 1);
}

TEST(Handle, IsNeverNullForASaltThatIsNot) {
  EXPECT_NE(Handle::Of(1, HandleKind::kInvalid, 0, 0).Pointer(), nullptr);
}

TEST(Handle, OfACallHasWhetherStepsAreReportedBesideItsPayload) {
  constexpr uint64_t kMostOfPayload = Handle::kHasStepsFlag - 1;
  for (const uint64_t payload : {uint64_t{0}, uint64_t{4711}, kMostOfPayload}) {
    for (const bool has_steps : {false, true}) {
      const Handle call = Handle::Of(3, HandleKind::kCall, payload).WithSteps(has_steps);
      EXPECT_EQ(call.Kind(), HandleKind::kCall);
      EXPECT_EQ(call.Salt(), 3);
      EXPECT_EQ(call.CallPayload(), payload);
      EXPECT_EQ(call.HasSteps(), has_steps);
    }
  }
}

TEST(Handle, ChangesKindAndNothingElse) {
  const Handle channel = Handle::Of(7, HandleKind::kKernelChannel, 9, 11, 13);
  const Handle operation = channel.As(HandleKind::kOperation);
  EXPECT_EQ(operation.Kind(), HandleKind::kOperation);
  EXPECT_EQ(operation.Payload(), channel.Payload());
  EXPECT_EQ(operation.Salt(), channel.Salt());
}

}  // namespace
}  // namespace nccl_exporter::plugin
