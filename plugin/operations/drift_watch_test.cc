// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/drift_watch.h"

#include <gtest/gtest.h>

namespace nccl_exporter::plugin {
namespace {

OperationStart Send(uint64_t bytes, uint32_t channels, bool is_to_self = false) {
  OperationStart start;
  start.function = Function::kSend;
  start.message_bytes = bytes;
  start.channels = channels;
  start.is_to_self = is_to_self;
  start.peer = 1;
  return start;
}

OperationStart Replay() {
  OperationStart start;
  start.function = Function::kAllReduce;
  start.is_replay = true;
  return start;
}

TEST(PartsWithData, CutsAtMultiplesOf4KiB) {
  EXPECT_EQ(PartsWithData(262144, 16), 16u);
  EXPECT_EQ(PartsWithData(262145, 16), 13u);
  EXPECT_EQ(PartsWithData(1, 2), 1u);
  EXPECT_EQ(PartsWithData(0, 1), 1u);
  EXPECT_EQ(PartsWithData(0, 8), 1u);
  EXPECT_EQ(PartsWithData(8192, 2), 2u);
  EXPECT_EQ(PartsWithData(~uint64_t{0}, 64), 64u);
}

TEST(DriftWatch, SeesMessagesToSelfAndThoseWithEmptyParts) {
  DriftWatch watch;
  watch.Open({.hides_parts = true});
  EXPECT_EQ(watch.CauseIn(Send(1 << 20, 4, true)), DriftCause::kMessageToSelf);
  EXPECT_EQ(watch.CauseIn(Send(262145, 16)), DriftCause::kEmptyParts);
  EXPECT_EQ(watch.CauseIn(Send(262144, 16)), DriftCause::kNone);
  EXPECT_EQ(watch.CauseIn(Send(262145, 0)), DriftCause::kNone) << "not announced";
  watch.Open({});
  EXPECT_EQ(watch.CauseIn(Send(1 << 20, 4, true)), DriftCause::kNone);
  EXPECT_EQ(watch.CauseIn(Send(262145, 16)), DriftCause::kNone);
}

TEST(DriftWatch, SeesReplaysAfterAnEagerCall) {
  DriftWatch watch;
  watch.Open({.forgets_replays = true});
  watch.NoteCall(true);
  EXPECT_EQ(watch.CauseIn(Replay()), DriftCause::kNone);
  watch.NoteCall(false);
  EXPECT_EQ(watch.CauseIn(Replay()), DriftCause::kReplayAfterEagerCall);
  watch.NoteCall(true);
  EXPECT_EQ(watch.CauseIn(Replay()), DriftCause::kNone) << "though it was, until then";
}

OperationStart Collective(Function function, uint64_t sequence) {
  OperationStart start;
  start.function = function;
  start.sequence = sequence;
  return start;
}

TEST(DriftWatch, SeesCollectivesThatWereNotAnnounced) {
  DriftWatch watch;
  watch.Open({.forgets_unannounced = true});
  EXPECT_EQ(watch.CauseIn(Collective(Function::kAllReduce, 7)), DriftCause::kNone)
      << "the first says nothing";
  EXPECT_EQ(watch.CauseIn(Collective(Function::kAllReduce, 8)), DriftCause::kNone);
  EXPECT_EQ(watch.CauseIn(Collective(Function::kReduce, 0)), DriftCause::kNone)
      << "each function counts for itself";
  EXPECT_EQ(watch.CauseIn(Send(1 << 20, 1)), DriftCause::kNone) << "has no number";
  EXPECT_EQ(watch.CauseIn(Collective(Function::kAllReduce, 10)), DriftCause::kEventsOff);
  EXPECT_EQ(watch.CauseIn(Collective(Function::kReduce, 1)), DriftCause::kNone);
  watch.Open({.forgets_unannounced = true});
  EXPECT_EQ(watch.CauseIn(Collective(Function::kAllReduce, 30)), DriftCause::kNone)
      << "another communicator";
  watch.Open({});
  EXPECT_EQ(watch.CauseIn(Collective(Function::kAllReduce, 2)), DriftCause::kNone);
  EXPECT_EQ(watch.CauseIn(Collective(Function::kAllReduce, 9)), DriftCause::kNone);
}

}  // namespace
}  // namespace nccl_exporter::plugin
