// SPDX-License-Identifier: Apache-2.0
#include "plugin/communicator_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

namespace nccl_exporter::plugin {
namespace {

constexpr uint16_t kSalt = 0x5a17;
constexpr uint32_t kCommunicators = 2;
constexpr uint32_t kOverflow = kCommunicators;
constexpr uint64_t kRetentionNs = 60'000'000'000;

const char* Nothing(const char*) { return nullptr; }

class CommunicatorTableTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tableXXXXXX";
    directory_ = mkdtemp(pattern.data());
    Options options;
    options.directory = directory_.c_str();
    options.communicators = kCommunicators;
    char error[256] = "";
    ASSERT_TRUE(segment_.Create(options, Nothing, error, sizeof(error))) << error;
    table_->Open(segment_.slot_count());
    table_->StoreSalt(kSalt);
    ASSERT_TRUE(table_->Prepare(segment_, kOverflow));
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  uint32_t Claim(Loss* why) { return table_->Claim(segment_, kRetentionNs, why); }
  // The context of a new communicator in that slot.
  Handle OpenIn(uint32_t slot) {
    Loss why{};
    EXPECT_EQ(Claim(&why), slot);
    return table_->OpenSlot(slot);
  }
  void Close(uint32_t slot, uint64_t closed_ns) {
    table_->CloseSlot(slot);
    table_->NoteFinalized(slot, closed_ns);
  }

  std::string directory_;
  Segment segment_;
  std::unique_ptr<CommunicatorTable> table_ = std::make_unique<CommunicatorTable>();
};

TEST_F(CommunicatorTableTest, FindsTheCommunicatorOfAContext) {
  const Handle first = OpenIn(0);
  const Handle second = OpenIn(1);
  EXPECT_NE(table_->Find(first), nullptr);
  EXPECT_EQ(table_->Find(first), table_->InSlot(0));
  EXPECT_EQ(table_->Find(second), table_->InSlot(1));
  EXPECT_NE(table_->Find(first), table_->Find(second));
}

TEST_F(CommunicatorTableTest, FindsNothingForBitsThatAreNoContextOfItsOwn) {
  const Handle context = OpenIn(0);
  EXPECT_EQ(table_->Find(Handle{}), nullptr);
  EXPECT_EQ(table_->Find(Handle{context.bits ^ uint64_t{1} << 48}), nullptr) << "another salt";
  EXPECT_EQ(table_->Find(context.With(HandleKind::kContext, context.Ticket() + 1)), nullptr)
      << "another generation";
  EXPECT_EQ(table_->Find(context.With(HandleKind::kGroup, context.Ticket())), nullptr)
      << "another kind";
  EXPECT_EQ(table_->Find(Handle::Of(kSalt, HandleKind::kContext, 1, 1)), nullptr)
      << "a slot that is not in use";
}

TEST_F(CommunicatorTableTest, FindsACommunicatorNoMoreOnceItsSlotIsClosed) {
  const Handle context = OpenIn(0);
  table_->CloseSlot(0);
  EXPECT_EQ(table_->Find(context), nullptr);
}

TEST_F(CommunicatorTableTest, UsesASlotAgainAfterTheRetentionTime) {
  const Handle former = OpenIn(0);
  const Communicator* const communicator = table_->InSlot(0);
  Close(0, NowNs() - 2 * kRetentionNs);
  const Handle later = OpenIn(0);
  EXPECT_EQ(table_->InSlot(0), communicator) << "its memory is used again";
  EXPECT_NE(later.bits, former.bits);
  EXPECT_EQ(table_->Find(former), nullptr);
  EXPECT_EQ(table_->Find(later), communicator);
}

TEST_F(CommunicatorTableTest, KeepsASlotThatWasJustClosed) {
  OpenIn(0);
  Close(0, NowNs());
  OpenIn(1);
}

TEST_F(CommunicatorTableTest, GivesUpTheSlotClosedLongestAgoWhenNoneIsFree) {
  const Handle former = OpenIn(0);
  OpenIn(1);
  const uint64_t now_ns = NowNs();
  Close(1, now_ns - 2);
  Close(0, now_ns - 1);
  OpenIn(1);
  const Handle later = OpenIn(0);
  EXPECT_EQ(table_->Find(former), nullptr);
  EXPECT_NE(table_->Find(later), nullptr);
  Loss why{};
  EXPECT_TRUE(table_->IsOverflow(Claim(&why))) << "live ones are not given up";
}

TEST_F(CommunicatorTableTest, HasNoSlotWhenAllAreInUse) {
  OpenIn(0);
  OpenIn(1);
  Loss why{};
  EXPECT_TRUE(table_->IsOverflow(Claim(&why)));
  EXPECT_EQ(why, Loss::kNoFreeCommunicatorSlot);
}

TEST_F(CommunicatorTableTest, FindsTheSharedCommunicatorByEveryContextOfTheOverflowSlot) {
  for (const uint64_t ranks : {8u, 9u}) {
    const Handle context = Handle::Of(kSalt, HandleKind::kContext, kOverflow, ranks);
    Communicator* const communicator = table_->Find(context);
    ASSERT_EQ(communicator, table_->InSlot(kOverflow));
    EXPECT_EQ(table_->RanksOf(context, *communicator), ranks);
  }
  EXPECT_EQ(table_->Find(Handle::Of(kSalt + 1, HandleKind::kContext, kOverflow, 8)), nullptr);
  EXPECT_EQ(table_->Find(Handle::Of(kSalt, HandleKind::kGroup, kOverflow, 8)), nullptr);
}

TEST_F(CommunicatorTableTest, KnowsItsHandlesBySaltAndKind) {
  const Handle own = Handle::Of(kSalt, HandleKind::kOperation, 1, 7, 3);
  const Handle foreign = Handle::Of(kSalt + 1, HandleKind::kOperation, 1, 7, 3);
  EXPECT_EQ(table_->KindOf(own), HandleKind::kOperation);
  EXPECT_EQ(table_->KindOf(foreign), HandleKind::kInvalid);
  EXPECT_TRUE(table_->Fits(own, HandleKind::kOperation));
  EXPECT_FALSE(table_->Fits(own, HandleKind::kGroup));
  EXPECT_FALSE(table_->Fits(foreign, HandleKind::kOperation));
  EXPECT_EQ(table_->Owner(foreign, HandleKind::kOperation), nullptr);
}

TEST_F(CommunicatorTableTest, FindsNothingInAForkedChild) {
  const auto cleared = std::make_unique<CommunicatorTable>();  // by the kernel (MADV_WIPEONFORK)
  const Handle context = OpenIn(0);
  EXPECT_EQ(cleared->Find(context), nullptr);
  EXPECT_EQ(cleared->Owner(context.With(HandleKind::kOperation, 1), HandleKind::kOperation),
            nullptr);
  EXPECT_EQ(cleared->OwnerOf(Handle::Of(0, HandleKind::kOperation, 0, 1)), nullptr);
}

TEST_F(CommunicatorTableTest, VisitsTheCommunicatorsWithASlotOfTheirOwn) {
  OpenIn(0);
  std::set<const Communicator*> visited;
  table_->ForEach([&](const Communicator& communicator) { visited.insert(&communicator); });
  EXPECT_EQ(visited, std::set<const Communicator*>{table_->InSlot(0)});
}

}  // namespace
}  // namespace nccl_exporter::plugin
