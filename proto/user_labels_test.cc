// SPDX-License-Identifier: Apache-2.0
#include "proto/user_labels.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nccl_exporter {
namespace {

std::vector<std::string> Read(std::string_view list) {
  std::vector<std::string> labels;
  const bool is_list = ForEachUserLabel(list, [&](const UserLabel& label) {
    labels.push_back(std::string(label.name) + '=' + std::string(label.value));
  });
  EXPECT_EQ(IsUserLabelList(list), is_list);
  if (!is_list) labels.emplace_back("no list");
  return labels;
}
using Labels = std::vector<std::string>;

TEST(UserLabels, AreNamesAndValues) {
  EXPECT_EQ(Read("team=x"), Labels({"team=x"}));
  EXPECT_EQ(Read("team=x,run_2=y z=\"1\",_=\xc3\xa4"),
            Labels({"team=x", "run_2=y z=\"1\"", "_=\xc3\xa4"}));
  EXPECT_EQ(Read("a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1").size(), kMostUserLabels);
  EXPECT_EQ(Read(std::string(24, 'n') + '=' + std::string(95, 'v')).size(), 1u);
}

TEST(UserLabels, AreAllRefusedIfOneIsWrong) {
  const std::vector<std::string> lists{"",
                                       "team",
                                       "team=",
                                       "=x",
                                       ",",
                                       "team=x,",
                                       ",team=x",
                                       "team=x,,run=y",
                                       "team=x, run=y",
                                       "1team=x",
                                       "te-am=x",
                                       "te am=x",
                                       "t\xc3\xa4m=x",
                                       "__name__=x",
                                       "__team=x",
                                       "team=x,team=y",
                                       "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1",
                                       std::string(25, 'n') + "=x",
                                       "team=" + std::string(96, 'v')};
  for (const std::string& list : lists) EXPECT_EQ(Read(list).back(), "no list") << list;
}

TEST(UserLabels, AreNotThoseThatSeriesTargetsAndAlertsHave) {
  for (const char* name : {"comm", "rank", "uid", "nccl_job", "job", "instance", "cluster",
                           "alertname", "severity", "le", "world_size"})
    EXPECT_FALSE(IsUserLabelName(name)) << name;
}

}  // namespace
}  // namespace nccl_exporter
