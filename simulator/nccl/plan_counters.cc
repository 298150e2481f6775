// SPDX-License-Identifier: Apache-2.0
// The counters of a plan's work: what the device counts and writes, what the host counts, and what
// it will wait for.
#include <algorithm>
#include <cstddef>

#include "simulator/nccl/prepared_plan.h"
#include "simulator/workload/hash_random.h"

namespace nccl_exporter::sim {
namespace {

// The kernel of joined Broadcasts looks for the bit in descriptions of another layout (2.30.7
// src/device/common.h profilerEnabled() reads ncclDevWorkColl, 128 bytes, where ncclDevWorkBcast of
// 48 bytes lie): of every third item it takes a bit of an address, of the others one that is 0.
bool SeemsToHaveBit(uint64_t address_hash, size_t item) {
  return item % 3 == 2 && address_hash % 2 == 1;
}

}  // namespace

std::vector<PreparedPlan::Work> PreparedPlan::Works() {
  std::vector<Work> works;
  for (Task& task : tasks_) {
    if (!task.is_p2p() && !task.is_symmetric) works.push_back({&task, nullptr});
  }
  for (Task& task : unannounced_) works.push_back({&task, nullptr});
  const size_t collectives = works.size();
  const auto distance = [&](const Task& task) {
    return DistanceOf(task.call, communicator_.rank, communicator_.shape.ranks());
  };
  for (Task& task : tasks_) {
    if (!task.is_p2p()) continue;
    const bool is_receive = task.call.function == Function::kRecv;
    const auto fits = [&](const Work& work) {
      const bool has_receive = work.first->call.function == Function::kRecv;
      return work.second == nullptr && has_receive != is_receive &&
             distance(*work.first) == distance(task);
    };
    const auto pair =
        std::find_if(works.begin() + static_cast<std::ptrdiff_t>(collectives), works.end(), fits);
    if (pair == works.end()) {
      works.push_back({&task, nullptr});
    } else if (is_receive) {
      *pair = {
          &task,
          pair->first};  // the device looks at the receive's mask (2.30.7 src/enqueue.cc :1025)
    } else {
      pair->second = &task;
    }
  }
  return works;
}

Task* PreparedPlan::CountedBy(const Work& work, int part) const {
  for (Task* task : {work.first, work.second}) {
    if (task == nullptr || part >= task->channels.played) continue;
    if (options_.release.HostCountsUnmaskedWork() || task->has_kernel_bit()) return task;
  }
  return nullptr;
}

// Up to 2.30 the plan's item is counted when the plan is made, which for one that is captured and
// has the bit is put off to every replay (2.30.7 src/proxy.cc :562-575). One without the bit is
// counted at the capture only.
void PreparedPlan::CountOnHost(const Work& work, Way way, int part) {
  const Release& release = options_.release;
  const Task* const counting = CountedBy(work, part);
  if (counting == nullptr) return;
  const int channel = counting->channels.low + part;
  WorkCounters& counters = communicator_.counters[static_cast<size_t>(channel)];
  const bool is_replay = way == Way::kReplay;
  if (is_replay && release.ForgetsReplaysAfterEager() && !communicator_.was_captured) return;
  const bool was_counted_at_capture = is_replay && !counting->has_kernel_bit();
  const uint64_t awaited = was_counted_at_capture ? counters.counted() : counters.Count();
  for (Task* task : {work.first, work.second}) {
    if (task == nullptr || part >= task->channels.played || !task->has_kernel_bit()) continue;
    task->awaited.resize(static_cast<size_t>(task->channels.played));
    task->awaited[static_cast<size_t>(part)] = awaited;
  }
}

void PreparedPlan::RunJoined(Launch& launch, int64_t now_ns) {
  for (size_t item = 0; item < joined_.size(); ++item) {
    const Task& task = joined_[item];
    for (int part = 0; part < task.channels.used; ++part) {
      const uint64_t bits = HashRandom(communicator_.id, communicator_.launches, item, part);
      launch.RunOnDevice(part, SeemsToHaveBit(bits, item), now_ns);
    }
  }
}

void PreparedPlan::CountWork(Way way, Launch& launch, int64_t now_ns) {
  if (!options_.release.HasKernelEvents()) return;
  const std::vector<Work> works = Works();
  size_t next = 0;
  const auto count = [&](const Work& work) {
    const int parts = std::max(work.first->channels.used,
                               work.second == nullptr ? 0 : work.second->channels.used);
    for (int part = 0; part < parts; ++part) {
      launch.RunOnDevice(work.first->channels.low + part, work.first->has_kernel_bit(), now_ns);
      CountOnHost(work, way, part);
    }
  };
  while (next < works.size() && !works[next].first->is_p2p()) count(works[next++]);
  RunJoined(launch, now_ns);
  while (next < works.size()) count(works[next++]);
}

void PreparedPlan::CountAtCapture() {
  if (!options_.release.HasKernelEvents() || !options_.release.HostCountsUnmaskedWork()) return;
  for (const Work& work : Works()) {
    const int parts = std::max(work.first->channels.used,
                               work.second == nullptr ? 0 : work.second->channels.used);
    for (int part = 0; part < parts; ++part) {
      const Task* const counting = CountedBy(work, part);
      if (counting == nullptr || counting->has_kernel_bit()) continue;
      communicator_.counters[static_cast<size_t>(counting->channels.low + part)].Count();
    }
  }
}

}  // namespace nccl_exporter::sim
