// SPDX-License-Identifier: Apache-2.0
// `nccl-exporter catalogue` has every row of the tables.
#include "exporter/catalogue_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "exporter/options.h"
#include "proto/loss.h"
#include "proto/metric_catalogue.h"

namespace nccl_exporter::exporter {
namespace {

using nlohmann::json;

json FamilyOf(Metric metric) {
  return json::parse(CatalogueJson())["families"][static_cast<size_t>(metric)];
}

TEST(CatalogueJson, HasEveryFamilyInTheOrderOfAScrape) {
  const json catalogue = json::parse(CatalogueJson());
  ASSERT_EQ(catalogue["families"].size(), kMetrics.size());
  for (const MetricRow& row : kMetrics) {
    const json& family = catalogue["families"][static_cast<size_t>(row.id)];
    EXPECT_EQ(family["name"], row.name);
    EXPECT_EQ(family["unit"], row.unit) << row.name;
    EXPECT_EQ(family["help"], row.help) << row.name;
  }
}

TEST(CatalogueJson, HasTypeScopeAndLabelsOfAFamily) {
  const json bytes = FamilyOf(Metric::kCollectiveBytes);
  EXPECT_EQ(bytes["type"], "counter");
  EXPECT_EQ(bytes["scope"], "communicator");
  EXPECT_EQ(bytes["labels"], json::array({"collective", "size"}));
  EXPECT_EQ(bytes["has_further_labels"], false);
  EXPECT_EQ(bytes["part"], "detail");
  const json info = FamilyOf(Metric::kRankInfo);
  EXPECT_EQ(info["type"], "info");
  EXPECT_EQ(info["labels"].back(), "plugin_version");
  EXPECT_EQ(info["has_further_labels"], true);
  const json threads = FamilyOf(Metric::kProcessThreads);
  EXPECT_EQ(info["part"], "alerts");
  EXPECT_EQ(threads["scope"], "daemon");
  EXPECT_EQ(threads["labels"], json::array());
  EXPECT_EQ(threads["part"], "detail");
}

TEST(CatalogueJson, HasEveryCauseOfLossWithItsMeaning) {
  const json losses = json::parse(CatalogueJson())["losses"];
  ASSERT_EQ(losses.size(), kLosses.size());
  const json& full = losses[static_cast<size_t>(Loss::kInFlightFull)];
  EXPECT_EQ(full["kind"], "dropped");
  EXPECT_EQ(full["reason"], "in_flight_full");
  EXPECT_EQ(full["meaning"], TraitsOf(Loss::kInFlightFull).meaning);
}

TEST(CatalogueJson, HasNoNameTwiceInAList) {
  const json catalogue = json::parse(CatalogueJson());
  for (const char* const list : {"scopes", "timing_sources", "timing_reasons", "drift_causes",
                                 "segment_errors", "uncompared_reasons", "refusals"}) {
    std::set<std::string> names;
    for (const json& row : catalogue.at(list)) {
      EXPECT_TRUE(names.insert(row.at("name")).second) << row;
      EXPECT_NE(row.at("meaning"), "") << row;
    }
    EXPECT_FALSE(names.empty()) << list;
  }
}

TEST(CatalogueJson, HasEveryFlagWithItsDefault) {
  const json options = json::parse(CatalogueJson())["options"];
  ASSERT_EQ(options.size(), kOptions.size());
  for (size_t i = 0; i < kOptions.size(); ++i) {
    EXPECT_EQ(options[i]["name"], kOptions[i].name);
    EXPECT_EQ(options[i]["default"], kOptions[i].default_value);
    EXPECT_EQ(options[i]["help"], kOptions[i].help);
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
