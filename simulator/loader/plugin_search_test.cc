// SPDX-License-Identifier: Apache-2.0
#include "simulator/loader/plugin_search.h"

#include <gtest/gtest.h>

namespace nccl_exporter::sim {
namespace {

using Names = std::vector<std::string>;

Names LibrariesFor(int nccl_version, std::optional<std::string_view> value) {
  return PluginSearchOf(Release(nccl_version), value).libraries;
}

TEST(PluginSearch, TakesTheDefaultNameWhenNothingIsAskedFor) {
  for (const int release : kTypicalNcclVersions) {
    EXPECT_EQ(LibrariesFor(release, std::nullopt), Names{"libnccl-profiler.so"}) << release;
  }
}

TEST(PluginSearch, TakesTheValueOnlyAsGivenUpTo225) {
  for (const int release : {22304, 22403, 22501}) {
    EXPECT_EQ(LibrariesFor(release, "inspector"), (Names{"inspector", "inspector"})) << release;
    EXPECT_EQ(LibrariesFor(release, "/opt/p.so"), (Names{"/opt/p.so", "/opt/p.so"})) << release;
  }
}

TEST(PluginSearch, DecoratesEveryValueSecondIn226) {
  EXPECT_EQ(LibrariesFor(22606, "inspector"),
            (Names{"inspector", "libnccl-profiler-inspector.so"}));
  EXPECT_EQ(LibrariesFor(22602, "/opt/p.so"),
            (Names{"/opt/p.so", "libnccl-profiler-/opt/p.so.so"}));
}

TEST(PluginSearch, FailsForPathsIn2273) {
  EXPECT_EQ(LibrariesFor(22703, "/opt/p.so"), Names{"libnccl-profiler-/opt/p.so.so"});
  EXPECT_EQ(LibrariesFor(22703, "libp.so"), Names{"libp.so"});
  EXPECT_EQ(LibrariesFor(22703, "inspector"), Names{"libnccl-profiler-inspector.so"});
  EXPECT_FALSE(PluginSearchOf(Release(22703), "STATIC_PLUGIN").is_in_main_program);
}

TEST(PluginSearch, DecoratesOnlyShortNamesFrom2275) {
  for (const int release : {22705, 22707, 22809, 23007, 23103}) {
    EXPECT_EQ(LibrariesFor(release, "inspector"),
              (Names{"inspector", "libnccl-profiler-inspector.so"}))
        << release;
    EXPECT_EQ(LibrariesFor(release, "/opt/p.so"), Names{"/opt/p.so"}) << release;
    EXPECT_EQ(LibrariesFor(release, "libp.so"), Names{"libp.so"}) << release;
  }
}

TEST(PluginSearch, KnowsNoneFrom228) {
  EXPECT_TRUE(PluginSearchOf(Release(22809), "NONE").is_disabled);
  EXPECT_FALSE(PluginSearchOf(Release(22707), "none").is_disabled);
  EXPECT_EQ(LibrariesFor(22707, "none"), (Names{"none", "libnccl-profiler-none.so"}));
}

TEST(PluginSearch, FindsAStaticPluginByAnyPrefixOfTheWord) {
  EXPECT_TRUE(PluginSearchOf(Release(22809), "static_plugin").is_in_main_program);
  EXPECT_TRUE(PluginSearchOf(Release(22809), "s").is_in_main_program);
  EXPECT_FALSE(PluginSearchOf(Release(22809), "static_plugin2").is_in_main_program);
}

TEST(PluginSearch, CutsLongNamesFrom226) {
  const std::string long_name(300, 'x');
  EXPECT_EQ(LibrariesFor(22606, long_name)[0].size(), 254u);
  EXPECT_EQ(LibrariesFor(22501, long_name)[0].size(), 300u);
}

TEST(PluginSearch, LooksForTheNewestSymbolFirst) {
  EXPECT_EQ(PluginSymbols(Release(22304)), Names{"ncclProfiler_v1"});
  EXPECT_EQ(PluginSymbols(Release(22501)), (Names{"ncclProfiler_v2", "ncclProfiler_v1"}));
  EXPECT_EQ(PluginSymbols(Release(23103)).size(), 7u);
  EXPECT_EQ(PluginSymbols(Release(23103)).front(), "ncclProfiler_v7");
  EXPECT_EQ(PluginSymbols(Release(22907)).front(), "ncclProfiler_v6");
}

}  // namespace
}  // namespace nccl_exporter::sim
