// SPDX-License-Identifier: Apache-2.0
#include "collector/segments/process_identities.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace nccl_exporter::collector {
namespace {

constexpr char kPodName[] = "POD_NAME";

// A communicator that has a rank twice is several of one id.
void JoinJobs(std::vector<ProcessSnapshot>& processes, ProvenIdentities& proven) {
  using Members = std::vector<std::pair<uint64_t, size_t>>;  // rank, and place of its process
  std::map<CommunicatorKey, Members> members_of;
  std::vector<size_t> oldest;  // of the job of the process in that place
  for (ProcessSnapshot& process : processes) {
    const size_t place = oldest.size();
    oldest.push_back(place);
    ProvenIdentity& own = proven[process.file];
    if (own.job != 0) process.first_communicator = own.job;
    if (process.first_communicator == 0) continue;
    CommunicatorKey job = CommunicatorKeyOf(process, {}, process.GivenJob());
    job.id = process.first_communicator;
    members_of[job].emplace_back(place, place);
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      if (!communicator.has_identity || communicator.is_closed) continue;
      Members& members = members_of[CommunicatorKeyOf(process, communicator, process.GivenJob())];
      const bool has_two_ranks = !members.empty() && members.back().second == place &&
                                 members.back().first != communicator.rank;
      if (has_two_ranks) own.has_no_global_rank = own.has_no_local_rank = true;
      members.emplace_back(communicator.rank, place);
    }
  }
  for (auto& [key, members] : members_of) {
    std::ranges::sort(members);
    const auto twice = std::ranges::adjacent_find(members, {}, &Members::value_type::first);
    if (twice != members.end()) continue;
    size_t job = oldest.size();
    for (const auto& [rank, place] : members) job = std::min(job, oldest[place]);
    for (const auto& [rank, place] : members)
      std::ranges::replace(oldest, size_t{oldest[place]}, job);
  }
  for (size_t i = 0; i < oldest.size(); ++i) {
    const uint64_t job = processes[oldest[i]].first_communicator;
    processes[i].first_communicator = proven[processes[i].file].job = job;
  }
}

// Where the job is not known yet, nothing is proven for good.
void DropShared(std::optional<uint32_t> RankNumbers::*number, bool ProvenIdentity::*has_none,
                std::vector<ProcessSnapshot>& processes, ProvenIdentities& proven) {
  std::map<CommunicatorKey, std::vector<FileKey>> sharing;
  for (const ProcessSnapshot& process : processes) {
    if (!process.is_alive || !(process.numbers.*number)) continue;
    CommunicatorKey key = CommunicatorKeyOf(process, {});
    key.id = *(process.numbers.*number);
    sharing[key].push_back(process.file);
  }
  ProvenIdentities for_now;
  for (const auto& [key, files] : sharing) {
    if (files.size() == 1) continue;
    for (const FileKey& file : files) (key.job.empty() ? for_now : proven)[file].*has_none = true;
  }
  for (ProcessSnapshot& process : processes) {
    if (!(proven[process.file].*has_none) && !(for_now[process.file].*has_none)) continue;
    (process.numbers.*number).reset();
    for (CommunicatorSnapshot& communicator : process.communicators)
      (communicator.numbers.*number).reset();
  }
}

void DistinguishEqualPids(std::vector<ProcessSnapshot>& processes, ProvenIdentities& proven) {
  std::map<CommunicatorKey, std::vector<const ProcessSnapshot*>> sharing;
  for (const ProcessSnapshot& process : processes) {
    if (!process.Identity(kPodName).empty()) continue;
    CommunicatorKey key = CommunicatorKeyOf(process, {});
    key.id = process.pid;
    sharing[key].push_back(&process);
  }
  ProvenIdentities for_now;
  for (const auto& [key, members] : sharing) {
    const bool is_one_container = std::ranges::all_of(members, [&](const ProcessSnapshot* process) {
      return process->host_name == members.front()->host_name;
    });
    if (is_one_container) continue;
    for (const ProcessSnapshot* process : members)
      (key.job.empty() ? for_now : proven)[process->file].shares_pid = true;
  }
  for (ProcessSnapshot& process : processes) {
    if (!proven[process.file].shares_pid && !for_now[process.file].shares_pid) continue;
    if (process.Identity(kPodName).empty())
      process.identity.emplace_back(kPodName, process.host_name);
  }
}

}  // namespace

void SettleIdentities(NodeSnapshot& snapshot, ProvenIdentities& proven) {
  std::vector<ProcessSnapshot>& processes = snapshot.processes;
  JoinJobs(processes, proven);
  DropShared(&RankNumbers::global_rank, &ProvenIdentity::has_no_global_rank, processes, proven);
  DropShared(&RankNumbers::local_rank, &ProvenIdentity::has_no_local_rank, processes, proven);
  DistinguishEqualPids(processes, proven);
}

}  // namespace nccl_exporter::collector
