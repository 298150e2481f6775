// SPDX-License-Identifier: Apache-2.0
// The collector's thread and its lock.
#include "collector/collector.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <system_error>
#include <utility>

#include "collector/arrivals/arrival_observer.h"
#include "collector/gpu_numbers.h"
#include "collector/host/host_reader.h"
#include "collector/labels/label_files.h"
#include "collector/segments/segment_table.h"
#include "collector/trace/operation_recorder.h"

namespace nccl_exporter::collector {
namespace {

// Interval in which the end of a writer and of a dead one's retention is noticed without scrapes.
constexpr std::chrono::milliseconds kRefreshInterval = std::chrono::seconds(1);

// After a change in a directory, further ones are gathered for this long: a job starts many
// processes at once, and a process that makes files without end must not keep the thread busy.
constexpr std::chrono::milliseconds kGatherInterval{50};

// Interval in which a recording looks for new communicators: the ring of one holds 512 operations.
constexpr std::chrono::milliseconds kLookInterval{250};

// At the end of a recording, what was complete and not in the ring yet has so long: a launch is
// recorded when its last operation is.
constexpr std::chrono::milliseconds kLateDeliveries{100};

// Pause between two parts of a listing: a thread that waits for the lock gets it.
constexpr std::chrono::milliseconds kPauseBetweenParts{1};

}  // namespace

Collector::Collector(CollectorOptions options) : Collector(std::move(options), Now) {}

Collector::Collector(CollectorOptions options, Clock clock)
    : clock_(std::move(clock)),
      table_(std::make_unique<SegmentTable>(std::move(options.directories), options.retention,
                                            options.splits_durations)),
      arrivals_(std::make_unique<ArrivalObserver>()),
      host_(std::make_unique<HostReader>()),
      labels_(std::make_unique<LabelFiles>(std::move(options.label_directory))),
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
  {
    const std::lock_guard lock(mutex_);
    has_thread_ = true;
  }
  thread_ = std::thread(&Collector::Run, this);
}

std::shared_ptr<NodeSnapshot> Collector::Snapshot() { return Snapshot(nullptr); }

std::shared_ptr<NodeSnapshot> Collector::Snapshot(const Follow& follow) {
  std::unique_lock lock(mutex_);
  Moment now = clock_();
  for (table_->Discover(now); MustWaitForDiscovery(); table_->DiscoverMore(now)) {
    lock.unlock();
    std::this_thread::sleep_for(kPauseBetweenParts);
    lock.lock();
    now = clock_();
  }
  SegmentLooks looks = Look(now);
  arrivals_->Read(now);
  if (!follow) return SnapshotOf(std::move(looks), now);
  auto snapshot = SnapshotOf(looks, now);
  follow(*snapshot, looks, now);
  return snapshot;
}

std::shared_ptr<NodeSnapshot> Collector::SnapshotOf(SegmentLooks looks, const Moment& now) {
  auto snapshot = std::make_shared<NodeSnapshot>(table_->Read(std::move(looks), now));
  arrivals_->AddTo(*snapshot);
  NumberGpus(*snapshot);
  host_->AddTo(*snapshot, now.monotonic_ns);
  labels_->AddTo(*snapshot);
  return snapshot;
}

NodeTrace Collector::Recent(std::chrono::nanoseconds length, size_t most_operations) {
  OperationRecorder recorder(clock_().monotonic_ns - length.count(), false, most_operations);
  Snapshot([&](const auto&... seen) { recorder.Follow(seen...); });
  recorder.Read();
  return recorder.Finish();
}

NodeTrace Collector::Record(std::chrono::nanoseconds length,
                            const std::function<bool()>& is_wanted) {
  using SteadyClock = std::chrono::steady_clock;
  OperationRecorder recorder(clock_().monotonic_ns, true);
  const Follow follow = [&](const auto&... seen) { recorder.Follow(seen...); };
  const SteadyClock::time_point end = SteadyClock::now() + length;
  SteadyClock::time_point next_look = SteadyClock::now(), next_read = next_look;
  while (next_read < end && is_wanted()) {
    if (next_read >= next_look) {
      Snapshot(follow);
      next_look = SteadyClock::now() + kLookInterval;
    }
    recorder.Read();
    next_read = std::max(next_read + kRingReadInterval, SteadyClock::now());
    std::this_thread::sleep_until(std::min(next_read, end));
  }
  Snapshot(follow);
  recorder.Read();
  std::this_thread::sleep_for(kLateDeliveries);
  recorder.Read();
  recorder.Count(*Snapshot());
  return recorder.Finish();
}

// A node of which only a part is known looks as if the rest had ended.
bool Collector::MustWaitForDiscovery() const {
  return table_->IsDiscovering() && !(has_thread_ && table_->HasListedAll());
}

void Collector::Refresh() {
  const std::lock_guard lock(mutex_);
  const Moment now = clock_();
  table_->Discover(now);
  Look(now);
}

// The next part of a listing that is under way. Whether there are more.
bool Collector::GoOnDiscovering() {
  const std::lock_guard lock(mutex_);
  if (!table_->IsDiscovering()) return false;
  const Moment now = clock_();
  table_->DiscoverMore(now);
  if (table_->IsDiscovering()) return true;
  Look(now);
  return false;
}

SegmentLooks Collector::Look(const Moment& now) {
  SegmentLooks looks = table_->Look(now);
  arrivals_->Discover(looks, now, table_->KnownUntil(now));
  return looks;
}

bool Collector::ReadCompletions() {
  const std::lock_guard lock(mutex_);
  const Moment now = clock_();
  if (arrivals_->AwaitsDiscovery(now)) {
    table_->Discover(now);
    Look(now);
  }
  return arrivals_->Read(now);
}

void Collector::Run() {
  using SteadyClock = std::chrono::steady_clock;
  const int wakeup = table_->wakeup_descriptor();
  std::array<pollfd, 2> polled{pollfd{.fd = stop_.number(), .events = POLLIN, .revents = 0},
                               pollfd{.fd = wakeup, .events = POLLIN, .revents = 0}};
  SteadyClock::time_point refreshed = SteadyClock::now();
  Refresh();
  while (true) {
    const bool has_rings = ReadCompletions();
    const bool is_discovering = GoOnDiscovering();
    const auto since =
        std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - refreshed);
    const bool gathers = since < kGatherInterval;
    const auto until_refresh = std::max(kRefreshInterval - since, std::chrono::milliseconds(0));
    const auto limit = std::min(until_refresh, is_discovering ? kPauseBetweenParts
                                               : has_rings    ? kRingReadInterval
                                               : gathers      ? kGatherInterval
                                                              : until_refresh);
    polled[1].revents = 0;
    ::poll(polled.data(), gathers ? 1 : 2, static_cast<int>(limit.count()));
    if ((polled[0].revents & POLLIN) != 0) return;
    if (polled[1].revents == 0 && SteadyClock::now() - refreshed < kRefreshInterval) continue;
    refreshed = SteadyClock::now();
    Refresh();
  }
}

}  // namespace nccl_exporter::collector
