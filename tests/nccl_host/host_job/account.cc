// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl_host/host_job/account.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace nccl_exporter::host_job {
namespace {

struct ThreadState {
  int depth = 0;
  std::map<Communicator, std::set<int>> roots;  // of the outermost group
  bool is_capturing = false;
  std::vector<AnnouncedCall> captured;
  std::set<Communicator> replayed;  // since the device was last waited for
};
thread_local ThreadState thread;

nlohmann::json ToJson(const std::map<std::pair<std::string, size_t>, uint64_t>& operations) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [operation, count] : operations)
    list.push_back({operation.first, operation.second, count});
  return list;
}

}  // namespace

void Account::Add(const AnnouncedCall& call) {
  const std::lock_guard lock(mutex_);
  ++calls_[call.function];
  CommunicatorState& state = states_[call.communicator];
  state.latest_call_was_captured = thread.is_capturing;
  if (thread.is_capturing) return thread.captured.push_back(call);
  ++operations_[{call.function, call.message_bytes}];
  // The device may come to a replay that was launched before this call only after it.
  if (std::exchange(state.has_replays_in_flight, false)) ++replays_after_eager_call_;
}

void Account::AddRoot(Communicator communicator, int root) {
  if (thread.depth > 0) thread.roots[communicator].insert(root);
}

void Account::AddUnfinished() {
  const std::lock_guard lock(mutex_);
  ++unfinished_;
}

void Account::BeginGroup() { ++thread.depth; }

void Account::EndGroup() {
  if (--thread.depth > 0) return;
  bool has_several = false;
  for (const auto& [communicator, roots] : std::exchange(thread.roots, {}))
    has_several |= roots.size() > 1;
  const std::lock_guard lock(mutex_);
  groups_of_several_roots_ += has_several;
}

void Account::BeginCapture() { thread.is_capturing = true; }

std::vector<AnnouncedCall> Account::EndCapture() {
  thread.is_capturing = false;
  return std::exchange(thread.captured, {});
}

void Account::AddReplay(const std::vector<AnnouncedCall>& captured) {
  const std::lock_guard lock(mutex_);
  bool is_after_eager_call = false;
  for (const AnnouncedCall& call : captured) {
    ++operations_[{call.function, call.message_bytes}];
    ++replayed_[{call.function, call.message_bytes}];
    CommunicatorState& state = states_[call.communicator];
    is_after_eager_call |= !state.latest_call_was_captured;
    state.has_replays_in_flight = true;
    thread.replayed.insert(call.communicator);
  }
  replays_after_eager_call_ += is_after_eager_call;
}

void Account::Synchronize() {
  const std::lock_guard lock(mutex_);
  for (const Communicator communicator : std::exchange(thread.replayed, {}))
    states_[communicator].has_replays_in_flight = false;
}

void Account::Write(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const nlohmann::json account = {{"calls", calls_},
                                  {"operations", ToJson(operations_)},
                                  {"replayed", ToJson(replayed_)},
                                  {"several_roots_in_one_group", groups_of_several_roots_},
                                  {"replays_after_eager_call", replays_after_eager_call_},
                                  {"unfinished", unfinished_}};
  // No name that begins as an account's does.
  const size_t name = path.rfind('/') + 1;
  const std::string unfinished = path.substr(0, name) + "new-" + path.substr(name);
  std::ofstream file(unfinished);
  file << account << '\n';
  file.close();
  Require(file && std::rename(unfinished.c_str(), path.c_str()) == 0 ? 0 : -1, path.c_str());
}

}  // namespace nccl_exporter::host_job
