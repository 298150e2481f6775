// SPDX-License-Identifier: Apache-2.0
#include "exporter/extension/gifts.h"

#include <gtest/gtest.h>

#include <string>

#include "exporter/extension/extension_host.h"

namespace nccl_exporter::exporter {
namespace {

nccl_ext_extension Named(const char* name, uint32_t capabilities) {
  nccl_ext_extension extension{};
  extension.name = name;
  extension.capabilities = capabilities;
  return extension;
}

class ExtensionRoundTest : public testing::Test {
 protected:
  ExtensionRoundTest() {
    snapshot_.families.push_back({.name = "nccl_rank_info", .help = "", .samples = {{}, {}}});
    for (const PlainSample& sample : snapshot_.families[0].samples)
      snapshot_.processes.push_back(&sample);
    round_.Begin(Named("one-more", NCCL_EXT_LABELS | NCCL_EXT_FAMILIES | NCCL_EXT_SINK));
  }
  nccl_ext_status Add(const char* family, std::vector<const char*> names,
                      std::vector<const char*> values) {
    return round_.AddSample(family, names.size(), names.data(), values.data(), 1);
  }

  ExtensionSnapshot snapshot_;
  ExtensionRound round_{snapshot_};
};

TEST_F(ExtensionRoundTest, TheFirstToClaimALabelHasIt) {
  EXPECT_EQ(round_.ClaimLabel(0, "team"), NCCL_EXT_OK);
  EXPECT_EQ(round_.ClaimLabel(0, "team"), NCCL_EXT_OK);
  EXPECT_EQ(round_.SetLabel(0, "team", "x"), NCCL_EXT_OK);
  EXPECT_EQ(round_.SetLabel(1, "team", "x"), NCCL_EXT_NOT_CLAIMED);
  EXPECT_EQ(round_.SetLabel(2, "team", "x"), NCCL_EXT_BAD_INDEX);
  EXPECT_EQ(round_.End().labels.at(0).at("team"), "x");
  round_.Begin(Named("other", NCCL_EXT_LABELS));
  EXPECT_EQ(round_.ClaimLabel(0, "team"), NCCL_EXT_NOT_CLAIMED);
  EXPECT_EQ(round_.SetLabel(0, "team", "y"), NCCL_EXT_NOT_CLAIMED);
  EXPECT_EQ(round_.ClaimLabel(1, "team"), NCCL_EXT_OK);
  EXPECT_EQ(round_.SetLabel(1, "team", "y"), NCCL_EXT_OK);
}

TEST_F(ExtensionRoundTest, ReservedAndWrongLabelsAreRefused) {
  for (const char* const name : {"rank", "job", "a-b", "", "__a"})
    EXPECT_EQ(round_.ClaimLabel(0, name), NCCL_EXT_REFUSED) << name;
  EXPECT_EQ(round_.ClaimLabel(0, nullptr), NCCL_EXT_REFUSED);
  for (char letter = 'a'; letter < 'i'; ++letter)
    EXPECT_EQ(round_.ClaimLabel(0, std::string(1, letter).c_str()), NCCL_EXT_OK);
  EXPECT_EQ(round_.ClaimLabel(0, "ninth"), NCCL_EXT_REFUSED);
  for (const std::string& value : {std::string(), std::string(65, 'x'), std::string("\xff")})
    EXPECT_EQ(round_.SetLabel(0, "a", value.c_str()), NCCL_EXT_REFUSED);
}

TEST_F(ExtensionRoundTest, FamiliesAreItsOwnByTheirNames) {
  EXPECT_EQ(round_.ClaimFamily("done_total", "Done.", NCCL_EXT_COUNTER), NCCL_EXT_OK);
  EXPECT_EQ(round_.ClaimFamily("done_total", "Done.", NCCL_EXT_COUNTER), NCCL_EXT_REFUSED);
  EXPECT_EQ(round_.ClaimFamily("done", "Done.", NCCL_EXT_COUNTER), NCCL_EXT_REFUSED);
  EXPECT_EQ(round_.ClaimFamily("left_total", "Left.", NCCL_EXT_GAUGE), NCCL_EXT_REFUSED);
  EXPECT_EQ(round_.ClaimFamily("times", "Times.", NCCL_EXT_HISTOGRAM), NCCL_EXT_REFUSED);
  EXPECT_EQ(round_.ClaimFamily("Times", "Times.", NCCL_EXT_GAUGE), NCCL_EXT_REFUSED);
  EXPECT_EQ(Add("done_total", {"a", "rank"}, {"x", "0"}), NCCL_EXT_OK);
  EXPECT_EQ(Add("done_total", {"rank", "a"}, {"0", "x"}), NCCL_EXT_REFUSED) << "the same series";
  EXPECT_EQ(Add("done_total", {"job"}, {"x"}), NCCL_EXT_REFUSED);
  EXPECT_EQ(Add("done_total", {"a", "a"}, {"x", "y"}), NCCL_EXT_REFUSED);
  EXPECT_EQ(Add("other", {}, {}), NCCL_EXT_NOT_CLAIMED);
  const ExtensionGifts gifts = round_.End();
  ASSERT_EQ(gifts.families.size(), 1u);
  EXPECT_EQ(gifts.families[0].name, "nccl_ext_one_more_done_total");
  EXPECT_EQ(gifts.families[0].samples.size(), 1u);
}

TEST_F(ExtensionRoundTest, SamplesAndBytesHaveLimits) {
  ASSERT_EQ(round_.ClaimFamily("own", "Own.", NCCL_EXT_GAUGE), NCCL_EXT_OK);
  for (size_t i = 0; i < kMostExtensionSamples; ++i)
    ASSERT_EQ(Add("own", {"i"}, {std::to_string(i).c_str()}), NCCL_EXT_OK);
  EXPECT_EQ(Add("own", {"i"}, {"x"}), NCCL_EXT_REFUSED);
  const std::string bytes(kMostExtensionFileBytes, 'x');
  EXPECT_EQ(round_.Append("a.csv", bytes.data(), bytes.size()), NCCL_EXT_OK);
  EXPECT_EQ(round_.Append("a.csv", bytes.data(), 1), NCCL_EXT_REFUSED);
  for (const char* const name : {"../a", ".a", "", "a/b"})
    EXPECT_EQ(round_.Append(name, "", 0), NCCL_EXT_REFUSED) << name;
}

TEST_F(ExtensionRoundTest, FamiliesAndTheirTextsHaveLimits) {
  const auto claim = [this](const std::string& name, size_t help_bytes) {
    return round_.Count(
        "family", name.c_str(),
        round_.ClaimFamily(name.c_str(), std::string(help_bytes, 'x').c_str(), NCCL_EXT_GAUGE));
  };
  EXPECT_EQ(claim("talkative", 513), NCCL_EXT_REFUSED);
  for (size_t i = 0; i < 64; ++i) ASSERT_EQ(claim("own" + std::to_string(i), 512), NCCL_EXT_OK);
  EXPECT_EQ(claim("one_more", 512), NCCL_EXT_REFUSED);
  const std::map<std::string, std::string> refusals{
      {"family \"talkative\"", "no help of at most 512 bytes"},
      {"family \"one_more\"", "more than 64"}};
  EXPECT_EQ(round_.refusals(), refusals);
  std::vector<std::string> texts;
  for (char letter = 'a'; letter <= 'q'; ++letter) texts.emplace_back(1, letter);
  std::vector<const char*> names, values(16, "x");
  for (const std::string& text : texts) names.push_back(text.c_str());
  names.resize(16);
  EXPECT_EQ(Add("own0", names, values), NCCL_EXT_OK);
  names.push_back(texts[16].c_str());
  values.push_back("x");
  EXPECT_EQ(Add("own0", names, values), NCCL_EXT_REFUSED);
  EXPECT_EQ(Add("own0", {"a"}, {std::string(128, 'x').c_str()}), NCCL_EXT_OK);
  EXPECT_EQ(Add("own0", {"a"}, {std::string(129, 'x').c_str()}), NCCL_EXT_REFUSED);
  EXPECT_EQ(round_.End().families[0].samples.size(), 2u);
}

TEST_F(ExtensionRoundTest, ClaimsAreNamedOnce) {
  EXPECT_EQ(round_.Claims(), "nothing");
  for (const char* const name : {"team", "queue", "rank"}) {
    for (const size_t process : {0, 1}) round_.ClaimLabel(process, name);
  }
  round_.ClaimFamily("own", "Own.", NCCL_EXT_GAUGE);
  EXPECT_EQ(round_.Claims(), "family nccl_ext_one_more_own, label queue, label team");
  round_.Begin(Named("other", NCCL_EXT_LABELS));
  round_.ClaimLabel(0, "team");
  EXPECT_EQ(round_.Claims(), "nothing");
}

TEST_F(ExtensionRoundTest, WhatItIsNotCapableOfIsRefused) {
  round_.Begin(Named("sink", NCCL_EXT_SINK));
  EXPECT_EQ(round_.ClaimLabel(0, "team"), NCCL_EXT_REFUSED);
  EXPECT_EQ(round_.ClaimFamily("own", "Own.", NCCL_EXT_GAUGE), NCCL_EXT_REFUSED);
  round_.Begin(Named("labels", NCCL_EXT_LABELS));
  EXPECT_EQ(round_.Append("a.csv", "x", 1), NCCL_EXT_REFUSED);
}

TEST_F(ExtensionRoundTest, RefusalsAreNamedWithTheirFirstReason) {
  const auto label = [this](const char* name, nccl_ext_status status) {
    round_.Count("label", name, status);
  };
  label("rank", round_.ClaimLabel(0, "rank"));
  label("rank", round_.SetLabel(0, "rank", "x"));
  label("a-b", round_.ClaimLabel(0, "a-b"));
  label(nullptr, round_.ClaimLabel(0, nullptr));
  label("team", round_.ClaimLabel(0, "team"));
  label("team", round_.SetLabel(0, "team", nullptr));
  label("late", round_.SetLabel(0, "late", "x"));
  label("gone", round_.ClaimLabel(2, "gone"));
  round_.Count("family", "done", round_.ClaimFamily("done", "Done.", NCCL_EXT_COUNTER));
  round_.Count("family", "left", round_.ClaimFamily("left", nullptr, NCCL_EXT_GAUGE));
  round_.Count("file", "../a", round_.Append("../a", "", 0));
  const std::map<std::string, std::string> refusals{
      {"label \"rank\"", "reserved"},
      {"label \"a-b\"", "no name of a label"},
      {"label", "no name of 1 to 64 bytes"},
      {"label \"team\"", "no value of 1 to 64 bytes"},
      {"label \"late\"", "not claimed, or by another extension"},
      {"label \"gone\"", "no such process"},
      {"family \"done\"", "counters alone end with _total"},
      {"family \"left\"", "no help of at most 512 bytes"},
      {"file \"../a\"", "no name of a file"}};
  EXPECT_EQ(round_.refusals(), refusals);
  round_.Begin(Named("labels", NCCL_EXT_LABELS));
  round_.Count("family", "own", round_.ClaimFamily("own", "Own.", NCCL_EXT_GAUGE));
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    const std::string name(2, letter);
    round_.Count("label", name.c_str(), round_.SetLabel(0, name.c_str(), "x"));
  }
  EXPECT_EQ(round_.refusals().at("family \"own\""), "not among its capabilities");
  EXPECT_EQ(round_.refusals().size(), 16u);
}

TEST(ExtensionSnapshotTest, BytesThatAreNoAnswerAreNone) {
  for (const char* const bytes : {"x", "\x05hallo", "\x02\x0a\x05"})
    EXPECT_FALSE(ExtensionSnapshot::Of(bytes)) << bytes;
  EXPECT_TRUE(ExtensionSnapshot::Of(""));
}

}  // namespace
}  // namespace nccl_exporter::exporter
