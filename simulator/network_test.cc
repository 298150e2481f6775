// SPDX-License-Identifier: Apache-2.0
// Network operations of whole jobs: what a plugin can make of their events, and the ground truth.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <set>

#include "simulator/release/release.h"
#include "simulator/testing/recorded_job.h"

namespace nccl_exporter::sim {
namespace {

constexpr uint32_t kProxyMask = 2 | 4 | 8 | 16;  // Coll, P2p, ProxyOp, ProxyStep
const std::array<std::string, 4> kStateNames{"gpu", "peer", "network", "flush"};

uint64_t NumberOf(const std::string& line, const std::string& key) {
  const std::string value = RecordedJob::ValueOf(line, key);
  return value.empty() ? 0 : std::stoull(value);
}

// Two nodes of one rank, between which everything crosses the network.
JobOptions TwoNodes(int nccl_version, const std::string& layout = "dp") {
  JobOptions options;
  options.play.release = Release(nccl_version);
  options.play.most_channels = 2;
  options.workload.layout = layout;
  options.workload.shape = {.nodes = 2, .ranks_per_node = 1};
  options.steps = 3;
  return options;
}

// Adds up, event by event, the time of the oldest step that is under way.
class EventAccount {
 public:
  explicit EventAccount(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      if (line.starts_with("T ")) Read(line);
    }
  }

  // By direction and state.
  std::map<std::string, std::map<std::string, uint64_t>> ns;
  std::map<std::string, uint64_t> bytes, operations;
  int most_under_way = 0;
  int starts = 0, stops = 0;
  std::map<std::string, int> records;  // by state

 private:
  struct Operation {
    std::string direction;
    std::map<uint64_t, std::string> state = {};  // of the steps under way
    uint64_t since = 0;
  };

  void Account(Operation& operation, uint64_t now) {
    if (!operation.state.empty())
      ns[operation.direction][operation.state.begin()->second] += now - operation.since;
    operation.since = now;
  }

  void Read(const std::string& line) {
    const uint64_t now = NumberOf(line, "at=");
    const std::string handle = RecordedJob::HandleOf(line);
    if (line.starts_with("T +ProxyOp ")) {
      operations_[handle] = {.direction = NumberOf(line, "send=") != 0 ? "send" : "recv"};
    } else if (line.starts_with("T -ProxyOp ")) {
      ++operations[operations_.at(handle).direction];
      operations_.erase(handle);
    } else if (line.starts_with("T +ProxyStep ")) {
      ++starts;
      const std::string parent = RecordedJob::ValueOf(line, "parent=");
      Operation& operation = operations_.at(parent);
      const uint64_t step = NumberOf(line, "step=");
      steps_[handle] = {parent, step};
      if (operation.state.contains(step)) return;  // a repeated start
      Account(operation, now);
      operation.state[step] = operation.direction == "send" ? "gpu" : "peer";
      most_under_way = std::max(most_under_way, static_cast<int>(operation.state.size()));
    } else if (line.starts_with("T -ProxyStep ")) {
      ++stops;
      const auto& [parent, step] = steps_.at(handle);
      Account(operations_.at(parent), now);
      operations_.at(parent).state.erase(step);
    } else if (line.starts_with("T r") && line.find(" ProxyStep ") != std::string::npos) {
      const std::string state = line.substr(3, line.find(' ', 3) - 3);
      ++records[state];
      const auto& [parent, step] = steps_.at(handle);
      Operation& operation = operations_.at(parent);
      static const std::map<std::string, std::string> kStates{{"8", "gpu"},     {"20", "peer"},
                                                              {"9", "network"}, {"10", "network"},
                                                              {"11", "flush"},  {"12", "gpu"}};
      Account(operation, now);
      operation.state[step] = kStates.at(state);
      if (state == "9" || state == "11") bytes[operation.direction] += NumberOf(line, "ptimer=");
    }
  }

  std::map<std::string, Operation> operations_;                    // by handle
  std::map<std::string, std::pair<std::string, uint64_t>> steps_;  // parent and number, by handle
};

const nlohmann::json& NetworkOf(const RecordedJob& job) {
  return job.ranks[0]["communicators"][0]["network"];
}
uint64_t NsOf(const nlohmann::json& counts, const std::string& state) {
  return counts["state_ns"][state].get<uint64_t>();
}

void ExpectAddsUp(const nlohmann::json& counts) {
  uint64_t states_ns = 0;
  uint64_t between_ns = 0;
  for (const std::string& state : kStateNames) {
    states_ns += NsOf(counts, state);
    between_ns += counts["between_ns"][state].get<uint64_t>();
  }
  EXPECT_EQ(states_ns + between_ns, counts["total_ns"].get<uint64_t>());
  // The thread comes round at once after it did something: 50 ns for each step at most.
  EXPECT_LE(between_ns, 50 * counts["steps"].get<uint64_t>());
}

class EveryRelease : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Api2To7, EveryRelease,
                         testing::Values(22403, 22502, 22606, 22707, 22809, 23007, 23103, 23206));

TEST_P(EveryRelease, TellsAPluginWhatTheAccountSays) {
  const bool has_peer_wait = GetParam() >= 22700;
  for (const int overlap : {1, 2, 4, 8}) {
    for (const char* layout : {"dp", "pp"}) {
      JobOptions options = TwoNodes(GetParam(), layout);
      options.play.network_options.overlap = overlap;
      options.play.network_options.chunk_bytes = 131072;
      options.steps = 1;
      std::string error;
      options.incidents.push_back(
          ParseIncident("slow-rank:rank=1,percent=20", options.workload.shape, error).value());
      const RecordedJob job = Record(options, {kProxyMask, 0});
      const EventAccount account(job.lines);
      EXPECT_EQ(account.most_under_way, overlap);
      for (const std::string direction : {"send", "recv"}) {
        const nlohmann::json& reported = NetworkOf(job)[direction]["reported"];
        EXPECT_EQ(reported, NetworkOf(job)[direction]["all"]);
        ExpectAddsUp(reported);
        auto ns = account.ns.contains(direction) ? account.ns.at(direction)
                                                 : std::map<std::string, uint64_t>{};
        uint64_t gpu_ns = NsOf(reported, "gpu");
        // Without state 20 the wait for the peer is in that for the GPU.
        if (!has_peer_wait && direction == "send") {
          gpu_ns += NsOf(reported, "peer");
        } else {
          EXPECT_EQ(ns["peer"], NsOf(reported, "peer")) << layout << overlap << direction;
        }
        EXPECT_EQ(ns["gpu"], gpu_ns) << layout << overlap << direction;
        EXPECT_EQ(ns["network"], NsOf(reported, "network")) << layout << overlap << direction;
        EXPECT_EQ(ns["flush"], NsOf(reported, "flush")) << layout << overlap << direction;
        EXPECT_EQ(account.operations.contains(direction) ? account.operations.at(direction) : 0,
                  reported["operations"].get<uint64_t>());
        if (has_peer_wait && account.bytes.contains(direction)) {
          EXPECT_EQ(account.bytes.at(direction), reported["bytes"].get<uint64_t>());
        }
      }
      EXPECT_GT(account.stops, 0);
      EXPECT_EQ(account.records.contains("20"), has_peer_wait);
    }
  }
}

TEST(Network, RepeatsStartsAndTheWaitForThePeerAtEveryPoll) {
  JobOptions options = TwoNodes(23007);
  options.play.network_options.most_repeats = 10000;
  options.play.network_options.poll_ns = 200;
  options.steps = 1;
  std::string error;
  options.incidents.push_back(
      ParseIncident("slow-receiver:rank=0,times=30", options.workload.shape, error).value());
  // Rank 0 receives late; rank 1 gets no credit.
  const EventAccount receiver(Record(options, {kProxyMask, 0}, 0).lines);
  EXPECT_GT(receiver.starts, 10 * receiver.stops);
  const RecordedJob job = Record(options, {kProxyMask, 0}, 1);
  const EventAccount sender(job.lines);
  EXPECT_GT(sender.records.at("20"), 10 * sender.records.at("9"));
  EXPECT_EQ(sender.ns.at("send").at("peer"), NsOf(NetworkOf(job)["send"]["reported"], "peer"));
}

TEST(Network, ReportsTheStatesOfOperationsWithThoseOfStepsUpTo226) {
  const RecordedJob job = Record(TwoNodes(22606), {kProxyMask, 0});
  for (const std::string state : {"0", "1", "2", "3", "4", "5", "6", "7"})
    EXPECT_FALSE(job.Starting("T r" + state + " ProxyOp").empty()) << state;
  EXPECT_TRUE(job.Starting("T r19 ").empty());
  EXPECT_NE(job.Starting("T r8 ProxyStep")[0].find("args=NULL"), std::string::npos);
  const auto& operations = NetworkOf(job)["send"]["reported"];
  EXPECT_EQ(job.Starting("T r3 ProxyOp").size(), operations["steps"].get<size_t>());
}

// A thread that comes round seldom finds several receives that have ended.
TEST(Network, StopsUpTo226OneOfTheReceivesThatHaveEndedInAPoll) {
  for (const int version : {22403, 22606, 22707}) {
    JobOptions options = TwoNodes(version);
    options.play.network_options.poll_ns = 100000;
    options.play.network_options.chunk_bytes = 65536;
    options.steps = 1;
    const RecordedJob job = Record(options, {kProxyMask, 0});
    const EventAccount account(job.lines);
    const nlohmann::json& network = NetworkOf(job);
    const auto steps_of = [&](const char* direction) {
      return network[direction]["reported"]["steps"].get<int>();
    };
    const int steps = steps_of("send") + steps_of("recv");
    const bool loses_stops = version < 22700;
    EXPECT_EQ(account.stops < steps, loses_stops) << version;
    const size_t ends = job.Starting("T r7 ProxyOp").size();
    EXPECT_EQ(ends, loses_stops ? static_cast<size_t>(steps_of("recv")) : 0) << version;
  }
}

TEST(Network, CountsApartWhatThePluginIsShown) {
  for (const int version : {22707, 22809}) {
    const RecordedJob refused = Record(TwoNodes(version), {kProxyMask, 8});
    EXPECT_EQ(NetworkOf(refused)["send"]["reported"]["operations"], 0);
    EXPECT_GT(NetworkOf(refused)["send"]["all"]["operations"], 0);
    // From 2.28 on a step is started all the same, and has no states.
    EXPECT_EQ(refused.Starting("T +ProxyStep").empty(), version < 22800);
    EXPECT_TRUE(refused.Starting("T r20").empty());
    EXPECT_TRUE(refused.Starting("T r10").empty());

    const RecordedJob without_steps = Record(TwoNodes(version), {2 | 4 | 8, 0});
    EXPECT_TRUE(without_steps.Starting("T +ProxyStep").empty());
    EXPECT_EQ(NetworkOf(without_steps)["recv"]["reported"]["operations"], 0);
    for (const std::string state : {"gpu", "network", "flush"}) {
      const auto ns = static_cast<int64_t>(NsOf(NetworkOf(refused)["recv"]["all"], state));
      const auto other = static_cast<int64_t>(NsOf(NetworkOf(without_steps)["recv"]["all"], state));
      EXPECT_LE(std::abs(ns - other), ns / 100) << state;
    }

    const RecordedJob unreported = Record(TwoNodes(version), {2 | 4, 0});
    EXPECT_TRUE(unreported.Starting("T ").empty());
    EXPECT_EQ(NetworkOf(unreported)["send"]["all"]["bytes"],
              NetworkOf(refused)["send"]["all"]["bytes"]);
  }
}

// The bits are those of the time at which the task is made.
TEST(Network, FollowsTheMaskThatItsTaskWasMadeWith) {
  JobOptions options = TwoNodes(22809, "pp");
  const RecordedJob job =
      Record(options, {.mask = kProxyMask, .mask_after_send = 2 | 4, .mask_after_receive = 2 | 4});
  const nlohmann::json& network = NetworkOf(job);
  const auto sum = [&](const char* which) {
    return network["send"][which]["operations"].get<int>() +
           network["recv"][which]["operations"].get<int>();
  };
  EXPECT_GT(sum("reported"), 0);
  EXPECT_GT(sum("all"), 2 * sum("reported"));
}

TEST(Network, PassesOperationsOfAnotherProcessWithItsPid) {
  JobOptions options = TwoNodes(23007);
  options.play.network_options.uses_pxn = true;
  const RecordedJob job = Record(options, {kProxyMask, 0});
  std::set<std::string> foreign;
  for (const std::string& line : job.Starting("T +ProxyOp")) {
    const bool is_odd_send = NumberOf(line, "send=") != 0 && NumberOf(line, "channel=") % 2 == 1;
    EXPECT_EQ(NumberOf(line, "pid=") != static_cast<uint64_t>(getpid()), is_odd_send);
    if (is_odd_send) foreign.insert(RecordedJob::HandleOf(line));
  }
  EXPECT_FALSE(foreign.empty());
  EXPECT_EQ(NetworkOf(job)["foreign_taken"].get<size_t>(), foreign.size());
  const nlohmann::json& send = NetworkOf(job)["send"];
  EXPECT_EQ(send["all"]["operations"].get<size_t>(),
            send["reported"]["operations"].get<size_t>() + foreign.size());
}

TEST(Network, LeavesOffInTheMiddleOfAnAbortedTransfer) {
  JobOptions options = TwoNodes(23007);
  options.faults = {"aborted-transfer:every=2"};
  EXPECT_EQ(options.play.faults.Add(options.faults[0], options.play.release), "");
  const RecordedJob job = Record(options, {kProxyMask | 64, 0});
  const nlohmann::json& network = NetworkOf(job);
  const uint64_t started = network["reported_started"].get<uint64_t>();
  const uint64_t stopped = network["send"]["reported"]["operations"].get<uint64_t>() +
                           network["recv"]["reported"]["operations"].get<uint64_t>();
  EXPECT_EQ(started, job.Starting("T +ProxyOp").size());
  EXPECT_EQ(stopped, job.Starting("T -ProxyOp").size());
  EXPECT_LT(stopped, started);
  EXPECT_GT(stopped, started / 4);
  EXPECT_LT(job.Starting("T -ProxyStep").size(), job.Starting("T +ProxyStep").size());
  EXPECT_GT(job.TruthOf("AllReduce")["completed"], 0);  // by the events of the kernels
}

// The communicator's mask has the bits only for its first calls.
TEST(Network, StopsStaleHandlesWhereNothingIsReported) {
  JobOptions options = TwoNodes(22809, "pp");
  options.steps = 2;
  EXPECT_EQ(options.play.faults.Add("stale-transfer:every=1", options.play.release), "");
  const RecordedJob job =
      Record(options, {.mask = kProxyMask, .mask_after_send = 2 | 4, .mask_after_receive = 2 | 4});
  std::map<std::string, int> starts, stops;
  for (const std::string& line : job.Starting("T +ProxyOp")) ++starts[RecordedJob::HandleOf(line)];
  for (const std::string& line : job.Starting("T -ProxyOp")) ++stops[RecordedJob::HandleOf(line)];
  const nlohmann::json& network = NetworkOf(job);
  const auto reported = network["reported_started"].get<size_t>();
  EXPECT_GT(reported, 0u);
  EXPECT_EQ(starts.size(), 2 * reported);
  EXPECT_GT(stops.size(), reported);  // some of the stale ones, later
}

// Each with the share that it has of the time of the rank that shows it.
TEST(Network, ShowsEachCauseWhereItIs) {
  struct Case {
    std::string incident;
    int rank;
    std::string direction, state;
  };
  for (const Case& c : {Case{"slow-rank:rank=0,percent=60", 1, "recv", "network"},
                        {"slow-gpu:rank=0,percent=60", 0, "send", "gpu"},
                        {"slow-gpu:rank=0,percent=60", 1, "recv", "network"},
                        {"slow-gpu:rank=0,percent=60", 0, "recv", "gpu"},
                        {"slow-gpu:rank=0,percent=60", 1, "send", "peer"},
                        {"slow-adapter:rank=0,times=20", 0, "send", "network"},
                        {"slow-link:times=20", 1, "send", "network"},
                        {"slow-receiver:rank=0,times=20", 0, "recv", "peer"},
                        {"slow-receiver:rank=0,times=20", 1, "send", "peer"},
                        {"slow-flush:rank=0,times=20", 0, "recv", "flush"}}) {
    JobOptions options = TwoNodes(23007, "single");
    options.compute_share = 0.05;
    options.play.network_options.chunk_bytes = 4096;
    std::string error;
    const RecordedJob healthy = Record(options, {kProxyMask, 0}, c.rank);
    options.incidents.push_back(ParseIncident(c.incident, options.workload.shape, error).value());
    const RecordedJob job = Record(options, {kProxyMask, 0}, c.rank);
    const auto ns = [&](const RecordedJob& played) {
      return NsOf(NetworkOf(played)[c.direction]["reported"], c.state);
    };
    const auto added = [&](const RecordedJob& played) {
      return NetworkOf(played)[c.direction]["reported"]["total_ns"].get<uint64_t>();
    };
    // Most of what the incident adds is in this state.
    EXPECT_GT(ns(job), ns(healthy)) << c.incident << ' ' << c.rank << c.direction << c.state;
    EXPECT_GT(2 * (ns(job) - ns(healthy)), added(job) - added(healthy))
        << c.incident << ' ' << c.rank << c.direction << c.state;
  }
}

}  // namespace
}  // namespace nccl_exporter::sim
