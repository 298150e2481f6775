// SPDX-License-Identifier: Apache-2.0
// Test support: jobs in real time, and commands that ask them for something.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collector/collector.h"
#include "collector/testing/scratch_directory.h"
#include "collector/trace/node_trace.h"
#include "exporter/testing/child_process.h"
#include "exporter/testing/gunzip.h"
#include "exporter/trace/trace_section.h"
#include "proto/trace_ring.h"
#include "tests/system/daemon.h"
#include "tests/system/truth_comparison.h"

namespace nccl_exporter {

using collector::NodeTrace;
using collector::TracedCommunicator;
using collector::TracedDetail;
using Options = std::vector<std::string>;

class RequestTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return results_.File(name); }

  // A job in real time.
  using Environment = std::map<std::string, std::string>;
  std::unique_ptr<exporter::ChildProcess> StartJob(
      const std::string& segments, const Options& options,
      const Environment& environment = {{"NCCL_EXPORTER_KERNEL_TIMING", "on"},
                                        {"NCCL_EXPORTER_NETWORK_TIMING", "always"}}) const {
    Options all{"--pace", "real", "--truth-operations"};
    all.insert(all.end(), options.begin(), options.end());
    return std::make_unique<exporter::ChildProcess>(
        SimulatorCommand(segments, Path("truth.json"), all), environment);
  }
  // Waits until so many processes have a communicator each.
  static void WaitForSegments(const std::string& directory, size_t count) {
    for (int i = 0; i < 600; ++i) {
      size_t found = 0;
      if (std::filesystem::exists(directory)) {
        for (const auto& process : Look(directory)->processes)
          found += process.communicators.empty() ? 0 : 1;
      }
      if (found >= count) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "the job has made no segments";
  }
  static std::shared_ptr<collector::NodeSnapshot> Look(const std::string& directory) {
    return collector::Collector({.directories = {directory}}).Snapshot();
  }
  struct Counts {
    uint64_t completed = 0;
    uint64_t timed = 0;
    collector::NetworkCounts network;
  };
  static Counts CountsOf(const collector::NodeSnapshot& node, uint64_t communicator_id) {
    Counts counts;
    for (const collector::ProcessSnapshot& process : node.processes) {
      for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
        if (communicator.id != communicator_id) continue;
        for (size_t i = 0; i < kFunctionCount; ++i) {
          if (!communicator.functions.IsInUse(i)) continue;
          counts.completed += communicator.functions[i].completed;
          for (const auto& size : communicator.functions[i].sizes)
            counts.timed += size.timed_operations;
        }
        if (communicator.network) counts.network += *communicator.network;
      }
    }
    return counts;
  }
  // Waits until the process has a request, which it may have taken or not.
  static void WaitForRequest(pid_t pid, uint64_t generation = 1) {
    const std::string link = std::string("/memfd:") + trace_ring::kFileName + " (deleted)";
    for (int i = 0; i < 600; ++i) {
      for (const auto& entry :
           std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
        std::error_code gone;
        if (std::filesystem::read_symlink(entry.path(), gone) != link) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        uint64_t present = 0;
        file.seekg(offsetof(trace_ring::File, control.generation));
        file.read(reinterpret_cast<char*>(&present), sizeof(present));
        if (present >= generation) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ADD_FAILURE() << "nobody has asked process " << pid;
  }
  Options TraceCommand(const std::string& segments, const std::string& level,
                       const std::string& output, const std::string& seconds = "2") const {
    return {kDaemonPath, "--segment.dir=" + segments,
            "trace",     "--level",
            level,       "--seconds",
            seconds,     "-o",
            Path(output)};
  }
  std::vector<NodeTrace> Read(const std::string& output) const {
    std::ifstream file(Path(output), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::string fault;
    std::vector<NodeTrace> nodes = exporter::ReadTraceSection(exporter::Gunzip(text), fault);
    EXPECT_EQ(fault, "");
    return nodes;
  }
  // Visits the communicators that have a detail, with their part of the ground truth.
  template <typename Check>
  static size_t ForEachDetail(const std::vector<NodeTrace>& nodes, const nlohmann::json& truth,
                              const Check& check) {
    size_t count = 0;
    for (const NodeTrace& node : nodes) {
      for (const collector::TracedProcess& process : node.processes) {
        EXPECT_EQ(process.detail_fault, "");
        for (const TracedCommunicator& communicator : process.communicators) {
          for (const nlohmann::json& rank : truth["ranks"]) {
            for (const nlohmann::json& of_truth : rank["communicators"]) {
              const uint64_t id = std::stoull(of_truth["id"].get<std::string>(), nullptr, 16);
              if (id != communicator.id || of_truth["rank"] != communicator.rank) continue;
              EXPECT_TRUE(communicator.detail.has_value());
              if (!communicator.detail) continue;
              ++count;
              check(communicator, *communicator.detail, of_truth);
            }
          }
        }
      }
    }
    return count;
  }
  static void ExpectNothingLost(const TracedDetail& detail) {
    EXPECT_EQ(detail.lost_operations + detail.lost_parts + detail.beyond_limit + detail.orphans,
              0u);
  }

  const collector::ScratchDirectory segments_, results_;
};

}  // namespace nccl_exporter
