// SPDX-License-Identifier: Apache-2.0
#include "simulator/job/job_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "simulator/release/fault.h"
#include "simulator/workload/call_list.h"
#include "simulator/workload/layout.h"

namespace nccl_exporter::sim {
namespace {

constexpr int kBadUsage = 2;

// Options as they are written; what follows from several of them is worked out by Resolve.
struct ParsedOptions {
  JobOptions& options;
  std::vector<std::string> environment_of_ranks = {};
  int api_version = 6;
  int nccl_version = 0;  // 0: that of the API version
  double duration_seconds = 0;
  bool has_thread_per_rank = false;
  std::string pace = "fast";
  std::string network = "inter";
  std::string elastic = "";
  std::string log_level = "warn";
  Kill kill{.rank = -1, .step = 0, .is_in_flight = false};
  ChildOptions child{.process = -1, .epoch_monotonic_ns = 0, .truth_part = ""};
};

std::string LayoutHelp() {
  std::string help = "parallel layout:";
  for (const Layout& layout : Layouts())
    help += fmt::format("\n  {}: {}", layout.name, layout.help);
  return help;
}

std::vector<std::string> LayoutNames() {
  std::vector<std::string> names;
  for (const Layout& layout : Layouts()) names.emplace_back(layout.name);
  return names;
}

void AddCluster(CLI::App& app, ParsedOptions& parsed) {
  WorkloadOptions& workload = parsed.options.workload;
  ClusterShape& shape = workload.shape;
  const char* const kGroup = "Cluster";
  app.add_option("--nodes", shape.nodes, "nodes of the job")
      ->check(CLI::Range(1, 4096))
      ->group(kGroup);
  app.add_option("--ranks-per-node", shape.ranks_per_node, "ranks on a node")
      ->check(CLI::Range(1, 64))
      ->group(kGroup);
  app.add_option("--ranks-per-process", shape.ranks_per_process, "GPUs of one process")
      ->check(CLI::Range(1, 64))
      ->group(kGroup);
  app.add_flag(
         "--thread-per-rank", parsed.has_thread_per_rank,
         "one thread per GPU of a process; without it one thread calls for all GPUs, in one group")
      ->group(kGroup);
  app.add_option("--node", parsed.options.node, "play the ranks of this node only; -1: all")
      ->check(CLI::Range(-1, 4095))
      ->group(kGroup);
  app.add_option("--network", parsed.network,
                 "operations that cross the network: all, inter (between nodes), none")
      ->check(CLI::IsMember({"all", "inter", "none"}))
      ->group(kGroup);
}

void AddWorkload(CLI::App& app, ParsedOptions& parsed) {
  WorkloadOptions& workload = parsed.options.workload;
  PlayOptions& play = parsed.options.play;
  const char* const kGroup = "Workload";
  app.add_option("--layout", workload.layout, LayoutHelp())
      ->check(CLI::IsMember(LayoutNames()))
      ->group(kGroup);
  app.add_option("--calls", workload.calls, CallListHelp())->group(kGroup);
  app.add_option("--steps", parsed.options.steps, "training steps")
      ->check(CLI::NonNegativeNumber)
      ->group(kGroup);
  app.add_option("--duration", parsed.duration_seconds,
                 "length of the job in seconds, instead of --steps")
      ->check(CLI::PositiveNumber)
      ->group(kGroup);
  app.add_option("--rate", parsed.options.steps_per_second, "maximum number of steps per second")
      ->check(CLI::Range(0.001, 100000.0))
      ->group(kGroup);
  app.add_option("--seed", workload.seed, "seed of all random choices")->group(kGroup);
  app.add_option("--aggregate", workload.aggregate, "number of calls of the layout per group")
      ->check(CLI::Range(1, 64))
      ->group(kGroup);
  app.add_flag("--graph", play.captures_graphs,
               "capture the groups of a step in CUDA graphs and replay them")
      ->group(kGroup);
  app.add_flag("--nonblocking", play.is_nonblocking,
               "non-blocking communicators: launches come from another thread")
      ->group(kGroup);
  app.add_flag("--collnet", play.uses_collnet, "large AllReduces between nodes use CollNet")
      ->group(kGroup);
  app.add_flag("--symmetric", play.uses_symmetric,
               "buffers are symmetric windows: groups with only AllReduce, AllGather and "
               "ReduceScatter run on symmetric kernels")
      ->group(kGroup);
  app.add_option("--channels", play.most_channels, "maximum number of channels of a collective")
      ->check(CLI::Range(1, 32))
      ->group(kGroup);
  app.add_option("--split-at-step", workload.split_at_step,
                 "split the first communicator in this step")
      ->group(kGroup);
  app.add_option("--shrink-at-step", workload.shrink_at_step,
                 "shrink the first communicator in this step")
      ->group(kGroup);
  app.add_option("--elastic", parsed.elastic, ElasticHelp())->group(kGroup);
  app.add_option("--compute-share", parsed.options.compute_share,
                 "share of a step's period in which the GPUs compute")
      ->check(CLI::Range(0.0, 1.0))
      ->group(kGroup);
  app.add_option("--host-work", play.host_work_ms,
                 "CPU time in ms that a thread takes before its calls of a step; with --pace real")
      ->check(CLI::Range(0.0, 1000.0))
      ->group(kGroup);
  app.add_option("--incident", parsed.options.incident_texts, IncidentHelp())->group(kGroup);
  app.add_option("--recreate-every", play.recreate_every,
                 "destroy all communicators and create them again after every so many steps")
      ->check(CLI::NonNegativeNumber)
      ->group(kGroup);
}

void AddNccl(CLI::App& app, ParsedOptions& parsed) {
  JobOptions& options = parsed.options;
  const char* const kGroup = "NCCL";
  app.add_option("--api-version", parsed.api_version, "version of the profiler API")
      ->check(CLI::Range(1, 7))
      ->group(kGroup);
  app.add_option("--nccl-version", parsed.nccl_version,
                 "release of NCCL, such as 22809 for 2.28.9; 0: a typical one")
      ->group(kGroup);
  app.add_option("--plugin", options.plugin,
                 "value of NCCL_PROFILER_PLUGIN; default: that of the environment")
      ->group(kGroup);
  app.add_option(
         "--cuda", options.cuda,
         "replacement of CUDA's driver; empty: the one next to this program, if there is one")
      ->group(kGroup);
  app.add_option("--nccl-debug", parsed.log_level,
                 "what NCCL's logger prints: none, warn, info, trace")
      ->check(CLI::IsMember({"none", "warn", "info", "trace"}))
      ->group(kGroup);
  app.add_flag("!--no-comm-names", options.play.names_communicators, "communicators have no names")
      ->group(kGroup);
  app.add_option("--gpu-granularity", options.play.gpu_clock_granularity_ns,
                 "tick of the GPUs' clocks, in ns")
      ->check(CLI::Range(1, 1000000))
      ->group(kGroup);
  app.add_option("--fault", options.faults, FaultHelp())->group(kGroup);
}

void AddNetwork(CLI::App& app, ParsedOptions& parsed) {
  NetworkOptions& network = parsed.options.play.network_options;
  const char* const kGroup = "Network";
  app.add_option("--network-overlap", network.overlap,
                 "steps of an operation that are under way at once")
      ->check(CLI::IsMember({1, 2, 4, 8}))
      ->group(kGroup);
  app.add_option("--network-poll", network.poll_ns,
                 "time from one look of the progress thread to the next, in ns")
      ->check(CLI::Range(50, 10000000))
      ->group(kGroup);
  app.add_option("--network-repeats", network.most_repeats,
                 "how often an operation may repeat a start or state 20 while it waits")
      ->check(CLI::Range(0, 10000))
      ->group(kGroup);
  app.add_option("--network-chunk", network.chunk_bytes, "bytes of a step")
      ->check(CLI::Range(4096, 1 << 30))
      ->group(kGroup);
  app.add_flag("--pxn", network.uses_pxn,
               "sends of odd channels go through the process of a neighbour (PXN)")
      ->group(kGroup);
}

void AddProcesses(CLI::App& app, ParsedOptions& parsed) {
  JobOptions& options = parsed.options;
  const char* const kGroup = "Processes";
  app.add_option(
         "--pace", parsed.pace,
         "fast: as fast as possible, with time stamps that end about now; real: in real time")
      ->check(CLI::IsMember({"fast", "real"}))
      ->group(kGroup);
  app.add_option("--segment-dir", options.segment_directory,
                 "set NCCL_EXPORTER_DIR; %n is the number of the node")
      ->group(kGroup);
  app.add_option("--slurm-job-id", options.slurm_job_id,
                 "set SLURM_JOB_ID, SLURM_STEP_ID and SLURM_PROCID")
      ->group(kGroup);
  app.add_option("--env", options.environment,
                 "set NAME=VALUE; %n: node, %r: process, %l: process of its node")
      ->group(kGroup);
  app.add_option("--env-of", parsed.environment_of_ranks,
                 "RANK:NAME=VALUE or FIRST-LAST:NAME=VALUE: as --env, for these ranks only")
      ->group(kGroup);
  app.add_option("--truth", options.ground_truth_file, "write the ground truth to this file")
      ->group(kGroup);
  app.add_flag("--truth-operations", options.play.lists_operations,
               "also list every operation with the duration of its kernel")
      ->group(kGroup);
  app.add_option("--hold", options.hold_seconds,
                 "seconds for which the processes stay alive after the last step")
      ->check(CLI::NonNegativeNumber)
      ->group(kGroup);
  app.add_flag("!--no-finalize", options.finalizes, "exit without destroying the communicators")
      ->group(kGroup);
  app.add_option("--kill-rank", parsed.kill.rank,
                 "the process of this rank kills itself; the others go on")
      ->group(kGroup);
  app.add_option("--kill-step", parsed.kill.step, "kill the process before this step")
      ->group(kGroup);
  app.add_flag("--kill-in-flight", parsed.kill.is_in_flight,
               "kill the process in this step, after it has started its first group")
      ->group(kGroup);
  // Between the first process and those that it starts.
  app.add_option("--child-process", parsed.child.process)->group("");
  app.add_option("--child-epoch", parsed.child.epoch_monotonic_ns)->group("");
  app.add_option("--child-truth", parsed.child.truth_part)->group("");
}

void AddAll(CLI::App& app, ParsedOptions& parsed) {
  app.option_defaults()->always_capture_default();
  app.footer(
      "Exit codes: 0; 1 a process failed; 2 bad options; 3 ncclCommDestroy would never return.");
  AddCluster(app, parsed);
  AddWorkload(app, parsed);
  AddNccl(app, parsed);
  AddNetwork(app, parsed);
  AddProcesses(app, parsed);
}

Network NetworkByName(const std::string& name) {
  if (name == "all") return Network::kAll;
  return name == "inter" ? Network::kBetweenNodes : Network::kNone;
}

// Returns what is wrong, or nothing.
std::string ResolveCluster(ParsedOptions& parsed) {
  ClusterShape& shape = parsed.options.workload.shape;
  if (shape.ranks_per_node % shape.ranks_per_process != 0) {
    return fmt::format("--ranks-per-process {} does not divide --ranks-per-node {}",
                       shape.ranks_per_process, shape.ranks_per_node);
  }
  shape.ranks_per_thread = parsed.has_thread_per_rank ? 1 : shape.ranks_per_process;
  if (parsed.options.node >= shape.nodes)
    return fmt::format("--node {}: the job has {} nodes", parsed.options.node, shape.nodes);
  if (parsed.kill.rank >= shape.ranks())
    return fmt::format("--kill-rank {}: the job has {} ranks", parsed.kill.rank, shape.ranks());
  if (const std::string& calls = parsed.options.workload.calls; !calls.empty()) {
    LayoutBuilder unused(shape);
    if (const std::string error = WriteCallList(calls, unused); !error.empty())
      return "--calls: " + error;
  }
  if (parsed.options.workload.shrink_at_step >= 0 && shape.ranks() < 2)
    return "--shrink-at-step needs two ranks";
  return "";
}

std::string ResolveRelease(ParsedOptions& parsed) {
  const int native = NativeApiVersion(parsed.nccl_version);
  if (parsed.nccl_version == 0) {
    parsed.nccl_version = kTypicalNcclVersions[static_cast<size_t>(parsed.api_version - 1)];
  } else if (native == 0) {
    return fmt::format(
        "--nccl-version {}: not a release with profiler plugins, 2.23 (22304) or later",
        parsed.nccl_version);
  } else if (native != parsed.api_version) {
    return fmt::format("--nccl-version {} speaks profiler API v{}: --api-version {}",
                       parsed.nccl_version, native, native);
  }
  parsed.options.play.release = Release(parsed.nccl_version);
  return "";
}

std::string ResolveElastic(ParsedOptions& parsed) {
  WorkloadOptions& workload = parsed.options.workload;
  if (parsed.elastic.empty()) return "";
  if (Workload(workload).communicators()[0].ranks() < 2)
    return "--elastic needs two ranks in the first communicator";
  std::string error;
  workload.elastic =
      ParseElasticChange(parsed.elastic, parsed.options.play.release.nccl_version(), error);
  return error;
}

std::string ResolveFaults(JobOptions& options) {
  for (const std::string& fault : options.faults) {
    if (std::string error = options.play.faults.Add(fault, options.play.release); !error.empty())
      return error;
  }
  if (options.play.faults.Has(Fault::kDriftGraph) && !options.play.captures_graphs) {
    return "--fault drift-graph needs --graph";
  }
  return "";
}

std::string ResolveEnvironment(ParsedOptions& parsed) {
  const auto is_pair = [](std::string_view text) {
    return text.find('=') != std::string::npos && text.front() != '=';
  };
  for (const std::string& pair : parsed.options.environment) {
    if (!is_pair(pair)) return fmt::format("--env {}: not NAME=VALUE", pair);
  }
  for (const std::string& text : parsed.environment_of_ranks) {
    JobOptions::OfRanks of_ranks;
    int length = 0;
    if (std::sscanf(text.c_str(), "%d-%d:%n", &of_ranks.first, &of_ranks.last, &length) != 2 ||
        length == 0) {
      length = 0;
      if (std::sscanf(text.c_str(), "%d:%n", &of_ranks.first, &length) != 1) length = 0;
      of_ranks.last = of_ranks.first;
    }
    of_ranks.pair = text.substr(static_cast<size_t>(length));
    if (length == 0 || !is_pair(of_ranks.pair))
      return fmt::format("--env-of {}: not RANKS:NAME=VALUE", text);
    parsed.options.environment_of_ranks.push_back(std::move(of_ranks));
  }
  return "";
}

std::string ResolveIncidents(JobOptions& options) {
  std::string error;
  for (const std::string& text : options.incident_texts) {
    if (const std::optional<Incident> incident =
            ParseIncident(text, options.workload.shape, error)) {
      options.incidents.push_back(*incident);
    }
  }
  return error;
}

std::string Resolve(ParsedOptions& parsed) {
  JobOptions& options = parsed.options;
  if (const std::string error = ResolveEnvironment(parsed); !error.empty()) return error;
  static const std::map<std::string, int> kLogLevels{
      {"none", 0}, {"warn", 2}, {"info", 3}, {"trace", 5}};
  options.log_level = kLogLevels.at(parsed.log_level);
  options.is_real_time = parsed.pace == "real";
  options.play.seed = options.workload.seed;
  options.play.network = NetworkByName(parsed.network);
  if (parsed.duration_seconds > 0) {
    options.steps =
        static_cast<int64_t>(std::ceil(parsed.duration_seconds * options.steps_per_second));
  }
  if (parsed.kill.rank >= 0) options.kill = parsed.kill;
  if (parsed.child.process >= 0) options.child = parsed.child;
  const std::string cluster_error = ResolveCluster(parsed);
  if (!cluster_error.empty()) return cluster_error;
  if (const std::string error = ResolveIncidents(options); !error.empty()) return error;
  const std::string release_error = ResolveRelease(parsed);
  if (!release_error.empty()) return release_error;
  if (const std::string error = ResolveElastic(parsed); !error.empty()) return error;
  return ResolveFaults(options);
}

}  // namespace

std::optional<int> ParseJobOptions(int argc, const char* const* argv, JobOptions& options) {
  CLI::App app("Calls a profiler plugin as NCCL does, without a GPU.", "nccl-sim");
  ParsedOptions parsed{.options = options};
  AddAll(app, parsed);
  std::string error;
  try {
    app.parse(argc, argv);
    error = Resolve(parsed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& parse_error) {
    error = parse_error.what();
  }
  if (error.empty()) return std::nullopt;
  fmt::print(stderr, "nccl-sim: {}\n", error.substr(0, error.find('\n')));
  return kBadUsage;
}

std::string JobOptionsHelp() {
  CLI::App app("Calls a profiler plugin as NCCL does, without a GPU.", "nccl-sim");
  JobOptions options;
  ParsedOptions parsed{.options = options};
  AddAll(app, parsed);
  return app.help();
}

}  // namespace nccl_exporter::sim
