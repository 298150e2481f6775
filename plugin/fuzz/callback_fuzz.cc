// SPDX-License-Identifier: Apache-2.0
// Plays random callbacks to the plugin, from seeds, on one thread or several; says what it played,
// or what broke.
#include <barrier>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "plugin/chain/chain.h"
#include "plugin/fuzz/callback_fuzz_clock.h"
#include "plugin/fuzz/callback_fuzz_player.h"

namespace nccl_exporter::plugin::fuzz {
namespace {

struct Plan {
  uint64_t callbacks = 100'000;
  uint32_t threads = 1;
  uint64_t seed = 1;
  bool with_kernel_timing = true;
  uint64_t seconds = 0;  // play on for so long, one seed after the other
  // Where to leave the segment as it is before the end of the last session.
  const char* copy = nullptr;
};

Role RoleOf(uint32_t thread, uint32_t threads) {
  if (threads == 1) return {};
  Role role{.users = (threads + 1) / 2, .reporters = threads / 2};
  role.is_user = thread % 2 == 0;
  role.is_reporter = !role.is_user;
  role.index = thread / 2;
  return role;
}

// Rounds, between which nothing moves and the account is compared with the segment. Returns the
// callbacks played.
uint64_t Play(Session& session, const Plan& plan) {
  constexpr uint64_t kCallbacksInRound = 2000;  // of each thread
  std::vector<Player> players;
  for (uint32_t i = 0; i < plan.threads; ++i) {
    players.emplace_back(session, Bytes(plan.seed * 1000 + i), RoleOf(i, plan.threads));
  }
  const auto played = [&] {
    uint64_t sum = 0;
    for (const Player& player : players) sum += player.callbacks();
    return sum;
  };
  Bytes leaps(plan.seed * 1000 + 999);
  bool is_over = false;
  const auto between_rounds = [&]() noexcept {
    session.Check();
    is_over = played() >= plan.callbacks;
    if (leaps.OneIn(4)) AdvanceClock((uint64_t{leaps.Next()} + 1) << 23);  // up to 2 s
  };
  std::barrier rounds(plan.threads, between_rounds);
  const auto run = [&](Player& player) {
    while (!is_over) {
      for (const uint64_t end = player.callbacks() + kCallbacksInRound; player.callbacks() < end;)
        player.Step();
      rounds.arrive_and_wait();
    }
  };
  std::vector<std::jthread> threads;
  for (uint32_t i = 1; i < plan.threads; ++i) threads.emplace_back(run, std::ref(players[i]));
  run(players[0]);
  threads.clear();
  if (plan.copy != nullptr) session.CopySegment(plan.copy);
  session.Clear();
  return played();
}

// A session that never got there has tested nothing. Only one thread plays the same again.
bool HasReachedAll(const Session& session, bool with_kernel_timing) {
  constexpr Loss kExpected[] = {
      Loss::kNoFreeCommunicatorSlot, Loss::kIncompleteAtFinalize, Loss::kUnknownContext,
      Loss::kForeignProcess,         Loss::kUnknownHandle,        Loss::kStaleHandle,
      Loss::kAfterCompletion,        Loss::kNetworkIncomplete,    Loss::kNetworkStepMismatch};
  bool all = !with_kernel_timing || session.timed() != 0;
  if (with_kernel_timing && session.LossesOf(Loss::kInFlightFull) == 0) {
    std::printf("in no session was a ring of operations full\n");
    all = false;
  }
  for (const Loss loss : kExpected) {
    if (session.LossesOf(loss) != 0) continue;
    std::printf("no session has raised %s\n", TraitsOf(loss).reason.data());
    all = false;
  }
  return all;
}

bool Parse(int count, char** arguments, Plan* plan, uint64_t* seeds) {
  for (int i = 1; i + 1 < count; i += 2) {
    const uint64_t value = std::strtoull(arguments[i + 1], nullptr, 10);
    if (std::strcmp(arguments[i], "--callbacks") == 0) {
      plan->callbacks = value;
    } else if (std::strcmp(arguments[i], "--threads") == 0) {
      plan->threads = static_cast<uint32_t>(value);
    } else if (std::strcmp(arguments[i], "--seed") == 0) {
      plan->seed = value;
    } else if (std::strcmp(arguments[i], "--seeds") == 0) {
      *seeds = value;
    } else if (std::strcmp(arguments[i], "--kernel-timing") == 0) {
      plan->with_kernel_timing = value != 0;
    } else if (std::strcmp(arguments[i], "--seconds") == 0) {
      plan->seconds = value;
    } else if (std::strcmp(arguments[i], "--copy-segment") == 0) {
      plan->copy = arguments[i + 1];
    } else {
      return false;
    }
  }
  return count % 2 == 1 && plan->threads >= 1 && plan->threads <= 2 * Session::kBerths &&
         *seeds >= 1;
}

int Main(int count, char** arguments) {
  Plan plan;
  uint64_t seeds = 1;
  if (!Parse(count, arguments, &plan, &seeds)) {
    std::fputs(
        "usage: callback_fuzz [--callbacks N] [--threads T] [--seed S] [--seeds COUNT] "
        "[--kernel-timing 0|1]\n"
        "                     [--seconds SECONDS] [--copy-segment PATH]\n",
        stderr);
    return 2;
  }
  Session session(plan.with_kernel_timing);
  uint64_t played = 0;
  const std::time_t end = std::time(nullptr) + static_cast<std::time_t>(plan.seconds);
  for (uint64_t i = 0; i < seeds || (plan.seconds != 0 && std::time(nullptr) < end);
       ++i, ++plan.seed) {
    Plan share = plan;
    share.callbacks = plan.callbacks / seeds;
    SetSeed(plan.seed);
    played += Play(session, share);
  }
  std::printf("%" PRIu64 " callbacks on %u threads, %" PRIu64 " operations timed, losses:", played,
              plan.threads, session.timed());
  for (int i = 0; i < kLossCount; ++i) {
    const Loss loss = static_cast<Loss>(i);
    std::printf(" %s=%" PRIu64, TraitsOf(loss).reason.data(), session.LossesOf(loss));
  }
  std::printf("\n");
  if (Chain::library != nullptr && Chain::Get() == nullptr) {
    std::printf("the chained plugin was never called\n");
    return 1;
  }
  constexpr uint64_t kEnough = 100'000;
  const bool is_judged = plan.threads == 1 && played >= kEnough;
  return !is_judged || HasReachedAll(session, plan.with_kernel_timing) ? 0 : 1;
}

}  // namespace
}  // namespace nccl_exporter::plugin::fuzz

int main(int count, char** arguments) {
  return nccl_exporter::plugin::fuzz::Main(count, arguments);
}
