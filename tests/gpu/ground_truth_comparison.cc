// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ground_truth_comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/gpu/announcements.h"

namespace nccl_exporter {
namespace {

using nlohmann::json;

// The median by CUDA events includes the launch and the wait for the GPU; the plugin's is that of
// the kernel or of the network alone, in buckets of 9 %.
constexpr double kLeastShareOfEventTime = 0.5;
constexpr double kLargestShareOfEventTime = 1.2;
// NCCL may lose a kernel's event when a communicator is destroyed at once, and time stamps of a GPU
// that processes share may be rejected.
constexpr double kLeastTimedShare = 0.8;
constexpr uint64_t kLostAtDestroy = 1;
constexpr char kSpreadsName[] = "spreads";  // the communicator with sends to oneself

const collector::ProcessSnapshot* ProcessOf(const collector::NodeSnapshot& snapshot, uint64_t pid) {
  for (const collector::ProcessSnapshot& process : snapshot.processes) {
    if (process.pid == pid) return &process;
  }
  return nullptr;
}

// Finds a communicator of a process: by its name if names are handed on, else the `order`-th one.
const collector::CommunicatorSnapshot* Find(const collector::ProcessSnapshot& process,
                                            const std::string& name, size_t order) {
  std::vector<const collector::CommunicatorSnapshot*> in_order;
  bool has_names = false;
  for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
    if (communicator.is_overflow) continue;
    if (communicator.name == name) return &communicator;
    has_names = has_names || !communicator.name.empty();
    in_order.push_back(&communicator);
  }
  if (has_names || order >= in_order.size()) return nullptr;
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const auto* a, const auto* b) { return a->slot < b->slot; });
  return in_order[order];
}

std::string Hexadecimal(uint64_t id) {
  char text[17];
  snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(id));
  return text;
}

// Calls `visit` with every communicator of the ground truth and its place in the snapshot, which
// must be there.
template <typename Truth, typename Visitor>
void ForEachPair(const collector::NodeSnapshot& snapshot, Truth& truth, Visitor visit) {
  for (auto& rank : truth["ranks"]) {
    const collector::ProcessSnapshot* process = ProcessOf(snapshot, rank["pid"]);
    ASSERT_NE(process, nullptr) << "no segment of rank " << rank["rank"];
    size_t order = 0;
    for (auto& communicator : rank["communicators"]) {
      const collector::CommunicatorSnapshot* found = Find(*process, communicator["name"], order++);
      ASSERT_NE(found, nullptr) << communicator["name"] << " of rank " << rank["rank"];
      visit(*found, communicator);
    }
  }
}

class CountComparison {
 public:
  CountComparison(const Exposition& scrape, const json& communicator)
      : scrape_(scrape),
        labels_{{"comm", communicator["id"]},
                {"rank", std::to_string(communicator["rank"].get<int>())}} {}

  void Check(const std::string& function, const json& expected) const {
    Labels labels = labels_;
    labels["function"] = function;
    Expect("nccl_api_calls_total", labels, expected["calls"]);
    labels = labels_;
    labels["collective"] = function;
    if (!TraitsOf(FunctionByName(function)).is_point_to_point) {
      for (const uint64_t bound : kSizeClassBounds) {
        labels["size"] = std::to_string(bound);
        const json counts = expected["sizes"].value(labels["size"], json::object());
        Expect("nccl_collective_operations_total", labels, counts.value("operations", 0.0));
        Expect("nccl_collective_bytes_total", labels, counts.value("bytes", 0.0));
      }
      return;
    }
    double operations = 0, bytes = 0;
    for (const auto& [size, counts] : expected["sizes"].items()) {
      operations += counts["operations"].get<double>();
      bytes += counts["bytes"].get<double>();
    }
    const std::string prefix = function == "Send" ? "nccl_p2p_send_" : "nccl_p2p_recv_";
    Expect(prefix + "operations_total", labels_, operations);
    Expect(prefix + "bytes_total", labels_, bytes);
  }

 private:
  void Expect(const std::string& name, const Labels& labels, double expected) const {
    EXPECT_EQ(scrape_.Value(name, labels).value_or(0), expected)
        << name << testing::PrintToString(labels);
  }

  const Exposition& scrape_;
  Labels labels_;
};

uint64_t Sum(const collector::FunctionSnapshot& function,
             uint64_t collector::SizeClassSnapshot::*member) {
  return std::accumulate(function.sizes.begin(), function.sizes.end(), uint64_t{0},
                         [member](uint64_t sum, const collector::SizeClassSnapshot& size) {
                           return sum + size.*member;
                         });
}

// The bucket that the median lies in.
int MedianBucket(const collector::FunctionSnapshot& function, uint64_t timed) {
  int bucket = 0;
  for (uint64_t below = function.duration[0]; below < (timed + 1) / 2;) {
    below += function.duration[static_cast<size_t>(++bucket)];
  }
  return bucket;
}

void ExpectMedianNear(const collector::FunctionSnapshot& function, uint64_t timed,
                      std::vector<double> event_ns) {
  std::nth_element(event_ns.begin(),
                   event_ns.begin() + static_cast<std::ptrdiff_t>(event_ns.size() / 2),
                   event_ns.end());
  const double by_events = event_ns[event_ns.size() / 2];
  const int bucket = MedianBucket(function, timed);
  ASSERT_GT(bucket, 0);
  ASSERT_LT(bucket, DurationBuckets::kBoundCount);
  EXPECT_GE(DurationBuckets::UpperBound(bucket) * 1e9, kLeastShareOfEventTime * by_events);
  EXPECT_LE(DurationBuckets::UpperBound(bucket - 1) * 1e9, kLargestShareOfEventTime * by_events);
}

void ExpectPlausible(const collector::CommunicatorSnapshot& found, const json& communicator) {
  const bool is_timed_by_events = !communicator["event_ns"].empty();
  for (const auto& [name, expected] : communicator["functions"].items()) {
    SCOPED_TRACE(name + " on " + communicator["name"].get<std::string>());
    const Function id = FunctionByName(name);
    const collector::FunctionSnapshot& function = found.functions[static_cast<size_t>(id)];
    const uint64_t operations = Sum(function, &collector::SizeClassSnapshot::operations);
    const uint64_t timed = Sum(function, &collector::SizeClassSnapshot::timed_operations);
    EXPECT_LE(timed, operations);
    EXPECT_EQ(std::accumulate(function.duration.begin(), function.duration.end(), uint64_t{0}),
              timed);
    EXPECT_EQ(timed > 0, Sum(function, &collector::SizeClassSnapshot::busy_ns) > 0);
    if (found.timing_source == TimingSource::kProxy) {
      EXPECT_EQ(timed, 0U);
      continue;
    }
    // Sends to oneself put the time stamps of NCCL 2.26 to 2.30 out of step: all of them may be
    // rejected.
    if (operations > 0 && communicator["name"] != kSpreadsName) {
      EXPECT_GT(timed, 0U);
    }
    if (is_timed_by_events && id == Function::kAllReduce) {
      EXPECT_GE(timed + kLostAtDestroy, operations);
      if (timed > 0)
        ExpectMedianNear(function, timed, communicator["event_ns"].get<std::vector<double>>());
    }
  }
}

}  // namespace

void FillInIds(const collector::NodeSnapshot& snapshot, json* truth) {
  std::map<std::string, std::string> id_of_name;
  std::set<std::string> ids;
  ForEachPair(snapshot, *truth,
              [&](const collector::CommunicatorSnapshot& found, json& communicator) {
                const std::string name = communicator["name"], id = Hexadecimal(found.id);
                communicator["id"] = id;
                // NCCL up to 2.26 reports nothing of a communicator without operations.
                if (!found.has_identity && communicator["functions"].empty()) return;
                EXPECT_EQ(found.rank, communicator["rank"].get<uint64_t>()) << name;
                if (found.ranks != 0) {
                  EXPECT_EQ(found.ranks, communicator["ranks"].get<uint64_t>()) << name;
                }
                EXPECT_TRUE(found.is_closed) << name;
                EXPECT_EQ(id_of_name.emplace(name, id).first->second, id)
                    << "another id on another rank: " << name;
                ids.insert(id);
              });
  EXPECT_EQ(ids.size(), id_of_name.size()) << "communicators share an id";
}

void ExpectReleaseKnown(const collector::NodeSnapshot& snapshot, bool kernel_timing) {
  for (const collector::ProcessSnapshot& process : snapshot.processes) {
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      if (communicator.is_overflow) continue;
      const int api_version = AnnouncementsOf(communicator.nccl_version).api_version;
      EXPECT_NE(communicator.nccl_version, 0) << communicator.name;
      EXPECT_EQ(communicator.api_version, api_version) << communicator.name;
      EXPECT_EQ(communicator.timing_source, !kernel_timing || api_version < 3 ? TimingSource::kProxy
                                            : api_version == 3 ? TimingSource::kKernelCpu
                                                               : TimingSource::kKernel)
          << communicator.name;
    }
  }
}

void ExpectCountsEqual(const Exposition& scrape, const json& truth) {
  std::set<std::pair<std::string, std::string>> known;
  for (const json& rank : truth["ranks"]) {
    for (const json& communicator : rank["communicators"]) {
      if (communicator["functions"].empty()) continue;
      known.emplace(communicator["id"], std::to_string(communicator["rank"].get<int>()));
      const CountComparison comparison(scrape, communicator);
      for (const auto& [function, expected] : communicator["functions"].items())
        comparison.Check(function, expected);
    }
  }
  for (const char* name : {"nccl_api_calls_total", "nccl_collective_operations_total",
                           "nccl_p2p_send_operations_total", "nccl_p2p_recv_operations_total"}) {
    for (const Sample& sample : scrape.Find(name)) {
      if (sample.value == 0) continue;
      EXPECT_TRUE(known.contains({sample.labels.at("comm"), sample.labels.at("rank")}))
          << name << testing::PrintToString(sample.labels);
    }
  }
}

void ExpectDurationsPlausible(const collector::NodeSnapshot& snapshot, const json& truth) {
  uint64_t operations = 0, to_time = 0, timed = 0;
  ForEachPair(snapshot, truth,
              [&](const collector::CommunicatorSnapshot& found, const json& communicator) {
                ExpectPlausible(found, communicator);
                const bool has_durations = found.timing_source != TimingSource::kProxy;
                for (size_t i = 0; i < found.functions.size(); ++i) {
                  const collector::FunctionSnapshot& function = found.functions[i];
                  operations += Sum(function, &collector::SizeClassSnapshot::operations);
                  if (!has_durations) continue;
                  to_time += Sum(function, &collector::SizeClassSnapshot::operations);
                  timed += Sum(function, &collector::SizeClassSnapshot::timed_operations);
                }
              });
  EXPECT_GT(operations, 0U);
  EXPECT_GE(static_cast<double>(timed), kLeastTimedShare * static_cast<double>(to_time));
}

std::string SummaryOf(const collector::NodeSnapshot& snapshot) {
  uint64_t operations = 0, timed = 0, communicators = 0;
  std::array<uint64_t, kLossCount> losses{};
  for (const collector::ProcessSnapshot& process : snapshot.processes) {
    for (size_t i = 0; i < losses.size(); ++i) losses[i] += process.losses[i];
    for (const collector::CommunicatorSnapshot& communicator : process.communicators) {
      communicators += communicator.is_overflow ? 0 : 1;
      for (size_t i = 0; i < communicator.functions.size(); ++i) {
        const collector::FunctionSnapshot& function = communicator.functions[i];
        operations += Sum(function, &collector::SizeClassSnapshot::operations);
        timed += Sum(function, &collector::SizeClassSnapshot::timed_operations);
      }
    }
  }
  std::ostringstream text;
  text << snapshot.processes.size() << " processes, " << communicators << " communicators, "
       << operations << " operations, " << timed << " timed";
  for (size_t i = 0; i < losses.size(); ++i) {
    if (losses[i] != 0) text << ", " << kLosses[i].reason << " " << losses[i];
  }
  return text.str();
}

}  // namespace nccl_exporter
