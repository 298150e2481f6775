// SPDX-License-Identifier: Apache-2.0
// Board on which the ranks of a job leave ids of communicators and meet. It lies in memory that
// processes share if they are forked after it was made. For any thread.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <new>

#include "tests/nccl_host/host_job/nccl_library.h"

namespace nccl_exporter::host_job {

class Board {
 public:
  static constexpr int kPlaces = 8192;  // each for one id and one meeting

  static Board& Make() {
    void* const memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Require(memory == MAP_FAILED ? -1 : 0, "mmap");
    return *new (memory) Board;
  }

  void Leave(int place, const UniqueId& id) {
    places_.at(place).id = id;
    places_.at(place).has_id.store(true, std::memory_order_release);
  }
  UniqueId Await(int place) const {
    while (!places_.at(place).has_id.load(std::memory_order_acquire)) usleep(kPollUs);
    return places_.at(place).id;
  }
  // Returns when so many ranks have come.
  void Meet(int place, int ranks) {
    places_.at(place).arrived.fetch_add(1);
    while (places_.at(place).arrived.load() < ranks) usleep(kPollUs);
  }

 private:
  static constexpr int kPollUs = 500;
  struct Place {
    std::atomic<bool> has_id = false;
    std::atomic<int> arrived = 0;
    UniqueId id{};
  };

  Board() = default;

  std::array<Place, kPlaces> places_;
};

}  // namespace nccl_exporter::host_job
