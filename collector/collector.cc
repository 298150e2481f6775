// SPDX-License-Identifier: Apache-2.0
// The collector's thread and its lock.
#include "collector/collector.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <system_error>
#include <utility>

#include "collector/segment_table.h"

namespace nccl_exporter {
namespace {

// How soon a writer's end is noticed and a dead one's time is over, when nobody scrapes.
constexpr std::chrono::milliseconds kRefreshInterval = std::chrono::seconds(1);

// After a change in a directory, further ones are gathered for this long: a job starts many processes at once, and
// whoever makes files without end must not keep the thread busy.
constexpr std::chrono::milliseconds kGatherInterval{50};

}  // namespace

Collector::Collector(CollectorOptions options) : Collector(std::move(options), Now) {}

Collector::Collector(CollectorOptions options, Clock clock)
    : clock_(std::move(clock)),
      table_(std::make_unique<SegmentTable>(std::move(options.directories), options.retention)),
      snapshots_([this] {
        const std::lock_guard lock(mutex_);
        return std::make_shared<const NodeSnapshot>(table_->Snapshot(clock_()));
      }),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_.is_open()) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Collector::~Collector() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_.number(), 1);
  thread_.join();
}

void Collector::Start() {
  assert(!thread_.joinable());
  thread_ = std::thread(&Collector::Run, this);
}

std::shared_ptr<const NodeSnapshot> Collector::Snapshot() { return snapshots_.Get(); }

void Collector::Run() {
  const int wakeup = table_->wakeup_descriptor();
  std::array<pollfd, 2> polled{pollfd{.fd = stop_.number(), .events = POLLIN, .revents = 0},
                               pollfd{.fd = wakeup, .events = POLLIN, .revents = 0}};
  const auto wait = [&](size_t descriptors, std::chrono::milliseconds limit) {
    ::poll(polled.data(), descriptors, static_cast<int>(limit.count()));
    return (polled[0].revents & POLLIN) != 0;
  };
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      table_->Refresh(clock_());
    }
    if (wait(1, kGatherInterval) || wait(2, kRefreshInterval)) return;
  }
}

}  // namespace nccl_exporter
