// SPDX-License-Identifier: Apache-2.0
// Passwords against bcrypt hashes, at a price that is paid once for each right password.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

// Checks take some 60 ms of CPU at the usual cost, one at a time. So many of one address may wait
// or be under way; the next is refused. So a flood of wrong passwords of one address delays the
// right one of another by one check.
inline constexpr int kPasswordChecksPerAddress = 1;

// So many may wait in all, half of the connections. The other half is there for requests whose
// password is known, and for those that are refused at once.
inline constexpr size_t kWaitingPasswordChecks = 32;

// Addresses whose tries are remembered. Then all are forgotten at once.
inline constexpr size_t kRememberedAddresses = 1024;

// Safe to use from any thread.
class BasicAuth {
 public:
  using Users = std::map<std::string, std::string>;  // name -> bcrypt hash

  enum class Verdict : uint8_t { kRight, kWrong, kBusy, kTooMany };

  BasicAuth();

  // Checks an Authorization header. A right password is known again by a keyed digest, one per
  // user, as long as the user's hash stays the same. Every other header costs a whole check, also
  // if the user is unknown, so the time does not show which users exist. If users have hashes of
  // different costs, the time shows the cost of a known user. kBusy: the address `client` has
  // another check; requests with equal headers share one. kTooMany: as many as may wait are of
  // addresses with fewer tries, or with as many. The next check is that of the address with the
  // fewest tries since the last right one that was checked, refused ones included. So an address
  // that comes for the first time overtakes a flood.
  Verdict Check(std::string_view header, const Users& users, const std::string& client);

  // Whole checks so far.
  uint64_t checks_made() const { return checks_made_; }

 private:
  using Digest = std::array<uint8_t, 32>;

  // A check that waits or is under way.
  struct PendingCheck {
    Digest digest{};
    uint64_t tries = 0;  // of its client when it came
    std::optional<Verdict> verdict{};
  };
  using SharedCheck = std::shared_ptr<PendingCheck>;
  static uint64_t TriesOf(const SharedCheck& check) { return check->tries; }

  // Checks when none with fewer tries waits. `lock` is that of mutex_.
  Verdict CheckInTurn(std::unique_lock<std::mutex>& lock, const Digest& digest,
                      const std::string& client, const std::string& password,
                      const std::string& hash);
  // The next three need mutex_.
  uint64_t CountTry(const std::string& client);
  // Whether there is room for one more that waits. Of those that wait, the one with most tries
  // gives way to one with fewer.
  bool MakeRoom(uint64_t tries);
  // Whether its turn has come.
  bool IsNext(const SharedCheck& check) const;
  Digest DigestOf(std::string_view name, std::string_view password, std::string_view hash) const;

  const std::array<uint8_t, 32> key_;    // random: digests are of no use outside of this process
  std::mutex mutex_;                     // guards what follows; not held during a check
  std::map<std::string, Digest> known_;  // the password that was right last, of users that exist
  std::condition_variable has_ended_;
  std::map<std::string, SharedCheck> of_clients_;
  std::map<std::string, uint64_t> tries_;  // of clients, since their last right password
  std::list<SharedCheck> waiting_;         // in the order in which they came
  bool is_checking_ = false;
  std::atomic<uint64_t> checks_made_ = 0;
};

}  // namespace nccl_exporter::exporter
