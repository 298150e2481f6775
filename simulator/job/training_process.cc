// SPDX-License-Identifier: Apache-2.0
#include "simulator/job/training_process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "simulator/device/virtual_clock.h"
#include "simulator/job/ground_truth_file.h"

namespace nccl_exporter::sim {
namespace {

TimelineOptions TimelineOf(const JobOptions& options, int process) {
  const ClusterShape& shape = options.workload.shape;
  const int threads = shape.ranks_per_process / shape.ranks_per_thread;
  return {.seed = options.workload.seed,
          .period_ns = StepPeriodNs(options),
          .compute_ns = options.compute_ns(),
          .first_thread = process * threads,
          .last_thread = (process + 1) * threads,
          .incidents = options.incidents};
}

std::optional<std::string> PluginOf(const JobOptions& options) {
  if (!options.plugin.empty()) return options.plugin;
  const char* value = std::getenv("NCCL_PROFILER_PLUGIN");
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

int64_t StepPeriodNs(const JobOptions& options) {
  const Workload workload(options.workload);
  const auto asked_ns = static_cast<int64_t>(1e9 / options.steps_per_second);
  return std::max(asked_ns, SustainablePeriodNs(workload, {.seed = options.workload.seed,
                                                           .compute_ns = options.compute_ns()}));
}

TrainingProcess::TrainingProcess(const JobOptions& options, int process, const NcclLibrary& nccl,
                                 const CudaDriver* cuda, const std::atomic<bool>& stop_asked)
    : options_(options),
      process_(process),
      cuda_(cuda),
      workload_(options.workload),
      clock_mode_(options.is_real_time, stop_asked),
      plugin_(options.play.release, nccl, PluginOf(options)),
      feed_(workload_, TimelineOf(options, process)) {
  const ClusterShape& shape = workload_.shape();
  for (int i = 0; i < shape.ranks_per_process; ++i) AddRank(process * shape.ranks_per_process + i);
  for (size_t first = 0; first < ranks_.size();
       first += static_cast<size_t>(shape.ranks_per_thread)) {
    std::vector<CalledRank> called;
    for (size_t i = first; i < first + static_cast<size_t>(shape.ranks_per_thread); ++i) {
      called.push_back({*ranks_[i], *communicators_[i]});
    }
    threads_.push_back(
        std::make_unique<CallingThread>(options.play, plugin_, clock_mode_, std::move(called)));
  }
}

void TrainingProcess::AddRank(int rank) {
  const ClusterShape& shape = workload_.shape();
  const GpuClock clock(options_.workload.seed, rank, TheJobEpoch().realtime_ns,
                       options_.play.gpu_clock_granularity_ns);
  const auto use_gpu = [cuda = cuda_, node = shape.NodeOf(rank), gpu = shape.LocalRankOf(rank)] {
    if (cuda != nullptr) cuda->SetDevice(node, gpu);
  };
  const bool is_exact = options_.play.lists_operations || options_.play.faults.Any();
  const auto make_sink = [&play = options_.play, is_exact, &truths = truths_.emplace_back()](
                             const Communicator& its_shape) -> GroundTruthSink& {
    const uint64_t ranks =
        play.release.DescribesCommunicatorAtInit() ? static_cast<uint64_t>(its_shape.ranks()) : 0;
    return truths.emplace_back(ranks, play.release, is_exact);
  };
  communicators_.push_back(std::make_unique<CommunicatorSet>(
      options_.play, workload_.communicators(), plugin_, rank, use_gpu, make_sink));
  // A late poll finds only the work that came until then, and no operation of those that are listed
  // is delivered before its end: no thread runs ahead.
  const int64_t most_ahead_ns = is_exact ? 0 : EventQueue::kMostAheadNs;
  ranks_.push_back(std::make_unique<Rank>(
      rank, clock, clock_mode_, options_.play.release.HasProfilerThread(), use_gpu, most_ahead_ns));
}

bool TrainingProcess::IsKilled() const {
  return was_killed_ ||
         (options_.kill && workload_.shape().ProcessOf(options_.kill->rank) == process_ &&
          options_.kill->step < options_.steps);
}

bool TrainingProcess::HasHung() const {
  return std::any_of(threads_.begin(), threads_.end(),
                     [](const auto& thread) { return thread->HasHung(); });
}

// False: the thread makes no more calls.
bool TrainingProcess::PlayStep(CallingThread& calling, const ThreadStep& step) {
  bool goes_on = calling.Play(step);
  if (step.killed_ns < kNever) {
    calling.GoOnTo(step.killed_ns);
    was_killed_ = true;
    return false;
  }
  if (step.stopped_ns < kNever) {
    calling.GoOnTo(step.stopped_ns);
    if (options_.is_real_time && !clock_mode_.StopAsked())
      raise(SIGSTOP);  // the first process continues it in the end
    goes_on = false;
  }
  if (!goes_on) calling.GoOnTo(StepPeriodNs(options_) * options_.steps);
  return goes_on;
}

void TrainingProcess::RunThread(size_t thread) {
  CallingThread& calling = *threads_[thread];
  const int64_t end = IsKilled() ? options_.kill->step : options_.steps;
  for (int64_t step = 0; step < end && !clock_mode_.StopAsked(); ++step) {
    if (!PlayStep(calling, feed_.Next(thread))) return calling.Drain();
  }
  calling.Drain();
  if (IsKilled()) {
    if (options_.kill->is_in_flight && !clock_mode_.StopAsked())
      calling.PlayHanging(feed_.Next(thread));
    calling.Drain();
    return;
  }
  const std::chrono::duration<double> hold(options_.hold_seconds);
  clock_mode_.SleepUntil(std::chrono::steady_clock::now() +
                         std::chrono::duration_cast<std::chrono::nanoseconds>(hold));
  if (options_.finalizes) calling.Finalize();
}

void TrainingProcess::Run() {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < threads_.size(); ++i) threads.emplace_back([this, i] { RunThread(i); });
  for (std::thread& thread : threads) thread.join();
}

nlohmann::json TrainingProcess::Truth() const {
  const ClusterShape& shape = workload_.shape();
  nlohmann::json ranks = nlohmann::json::array();
  int64_t steps = 0;
  int64_t late_steps = 0;
  for (const auto& thread : threads_) {
    steps += thread->steps();
    late_steps += thread->late_steps();
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int rank = ranks_[i]->global_rank();
    if (cuda_ != nullptr) cuda_->SetDevice(shape.NodeOf(rank), shape.LocalRankOf(rank));
    const std::string uuid = cuda_ == nullptr ? "" : cuda_->Uuid(shape.LocalRankOf(rank));
    nlohmann::json truth =
        TruthOfRank(rank, shape.LocalRankOf(rank), shape.NodeOf(rank), getpid(), IsKilled(), uuid);
    truth["process_steps"] = steps;
    truth["process_late_steps"] = late_steps;
    const auto& made = communicators_[i]->All();
    for (size_t number = 0; number < made.size(); ++number) {
      truth["communicators"].push_back(TruthOf(*made[number], truths_[i][number], options_.play));
    }
    ranks.push_back(std::move(truth));
  }
  return ranks;
}

}  // namespace nccl_exporter::sim
