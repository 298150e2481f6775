// SPDX-License-Identifier: Apache-2.0
// The daemon's side of extensions, between it and sockets that are played: each fault is counted
// and named, takes no longer than its time, and changes nothing of what is served.
#include "exporter/web/extension_families.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "collector/testing/scratch_directory.h"
#include "exporter/exposition/encoder.h"
#include "exporter/exposition/protobuf_wire.h"
#include "exporter/series/collect.h"
#include "exporter/series/snapshot_families.h"
#include "exporter/testing/one_family.h"

namespace nccl_exporter::exporter {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = ExtensionFamilies::Clock;

std::string Encoded(const std::vector<PlainFamily>& families) {
  Exposition exposition;
  AddFamilies(families, exposition);
  std::string bytes;
  EncodeProtobuf(exposition, bytes);
  return bytes;
}

PlainFamily OneSample(const std::string& name, double value) {
  return {.name = name,
          .help = "Its own.",
          .type = MetricType::kGauge,
          .samples = {{.labels = {}, .value = value}}};
}

std::string Answer(const std::string& body, const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

void Send(int peer, const std::string& bytes) {
  ::send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Until the other side has closed, or no longer than this.
void AwaitClose(int peer, milliseconds longest) {
  pollfd closed{.fd = peer, .events = POLLRDHUP, .revents = 0};
  ::poll(&closed, 1, static_cast<int>(longest.count()));
}

class ExtensionFamiliesTest : public testing::Test {
 protected:
  ExtensionFamiliesTest() : path_(scratch_.path() + "/socket") {}
  ~ExtensionFamiliesTest() override { Stop(); }

  // Each peer gets what `behavior` makes of it. None: no peer is accepted.
  void Play(std::function<void(int peer)> behavior) {
    Stop();
    socket_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(socket_, 0), 0);
    is_ending_ = false;
    if (behavior == nullptr) return;
    thread_ = std::thread([this, behavior = std::move(behavior)] {
      while (!is_ending_) {
        pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
        if (::poll(&ready, 1, 10) != 1) continue;
        const int peer = ::accept(socket_, nullptr, nullptr);
        char request[4096];
        if (::recv(peer, request, sizeof request, 0) > 0) behavior(peer);
        ::close(peer);
      }
    });
  }
  void PlayAnswer(const std::string& bytes) {
    Play([bytes](int peer) { Send(peer, bytes); });
  }
  void Stop() {
    is_ending_ = true;
    if (thread_.joinable()) thread_.join();
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
    ::unlink(path_.c_str());
  }

  // The value of the family nccl_ext_a_own; -1 where there is none.
  double Served() const {
    Exposition exposition;
    families_.AddTo(exposition);
    if (exposition.families.empty()) return -1;
    EXPECT_EQ(exposition.families.size(), 1u);
    EXPECT_EQ(exposition.families[0].name, "nccl_ext_a_own");
    return exposition.families[0].series[0].value;
  }

  // The line of the log, after a fetch that is a fault and changes nothing.
  std::string FaultOfFetch() {
    const uint64_t before = families_.faults();
    const double served = Served();
    testing::internal::CaptureStdout();
    const Clock::time_point began = Clock::now();
    families_.Fetch(now_);
    EXPECT_LT(Clock::now() - began, kExtensionDeadline + seconds(1));
    EXPECT_EQ(families_.faults(), before + 1);
    EXPECT_EQ(Served(), served);
    return testing::internal::GetCapturedStdout();
  }

  void FetchAnswer(double value) {
    const uint64_t before = families_.faults();
    PlayAnswer(Answer(Encoded({OneSample("nccl_ext_a_own", value)})));
    families_.Fetch(now_);
    EXPECT_EQ(families_.faults(), before);
    EXPECT_EQ(Served(), value);
  }

  const collector::ScratchDirectory scratch_;
  const std::string path_;
  ExtensionFamilies families_{path_};
  Clock::time_point now_ = Clock::now();
  int socket_ = -1;
  std::atomic<bool> is_ending_ = false;
  std::thread thread_;
};

TEST_F(ExtensionFamiliesTest, TheNewestAnswerIsServed) {
  EXPECT_EQ(Served(), -1);
  FetchAnswer(1);
  FetchAnswer(2);
  EXPECT_EQ(families_.faults(), 0u);
}

TEST_F(ExtensionFamiliesTest, TheyAreDetail) {
  FetchAnswer(1);
  for (const Collect collect : {Collect::kWhole, Collect::kDetail, Collect::kAlerts}) {
    Exposition exposition = ExpositionOfCatalogue({}, Collect::kWhole);
    families_.AddTo(exposition);
    KeepOnly(collect, exposition);
    EXPECT_EQ(exposition.families.back().series.empty(), collect == Collect::kAlerts);
  }
}

TEST_F(ExtensionFamiliesTest, WithoutASocketThereIsNoFault) {
  ExtensionFamilies none("");
  none.Fetch(now_);
  EXPECT_EQ(none.faults(), 0u);
}

TEST_F(ExtensionFamiliesTest, AHostThatIsGoneIsServedForAMinute) {
  FetchAnswer(1);
  Stop();
  EXPECT_NE(FaultOfFetch().find("No such file"), std::string::npos);
  EXPECT_EQ(FaultOfFetch(), "") << "it is said once";
  now_ += kExtensionRetention;
  FaultOfFetch();
  now_ += seconds(1);
  families_.Fetch(now_);
  EXPECT_EQ(Served(), -1);
  FetchAnswer(2);
  Stop();
  EXPECT_NE(FaultOfFetch(), "") << "it is said again";
}

TEST_F(ExtensionFamiliesTest, AnAnswerThatIsLateIsNone) {
  FetchAnswer(1);
  const std::string whole = Answer(Encoded({OneSample("nccl_ext_a_own", 2)}));
  Play([](int peer) { AwaitClose(peer, seconds(5)); });
  EXPECT_NE(FaultOfFetch().find("no answer in time"), std::string::npos);
  Play([&](int peer) {
    AwaitClose(peer, kExtensionDeadline * 2);
    Send(peer, whole);
  });
  FaultOfFetch();
  Play([&](int peer) {
    for (const char byte : whole) {
      Send(peer, std::string(1, byte));
      AwaitClose(peer, milliseconds(2));
    }
  });
  FaultOfFetch();
  FetchAnswer(3);
}

// As one whose process is stopped: the kernel queues some connections, and blocks the next ones.
TEST_F(ExtensionFamiliesTest, AHostThatAcceptsNoPeerIsLate) {
  FetchAnswer(1);
  Play(nullptr);
  for (int i = 0; i < 5; ++i) FaultOfFetch();
}

TEST_F(ExtensionFamiliesTest, GarbageIsNoAnswer) {
  FetchAnswer(1);
  const std::string body = Encoded({OneSample("nccl_ext_a_own", 2)});
  for (const std::string& garbage :
       {std::string("\0\xff\x16\x03\x01", 5),
        std::string("HTTP/1.1 200 OK\r\n\r\n") + body.substr(1), Answer(body, "500 No"),
        Answer(body, "404 None"), Answer("nccl_ext_a_own 2\n"),
        Answer(body.substr(0, body.size() - 1)), Answer(body + '\x7f'),
        Answer(body).substr(0, Answer(body).size() - 1), std::string()}) {
    PlayAnswer(garbage);
    FaultOfFetch();
  }
}

TEST_F(ExtensionFamiliesTest, FamiliesOfTheDaemonAreRefused) {
  FetchAnswer(1);
  PlainFamily twice = OneSample("nccl_ext_a_own", 2), labeled = twice;
  twice.samples.push_back(twice.samples[0]);
  labeled.samples[0].labels = {{"job", "x"}};
  for (const std::vector<PlainFamily>& wrong :
       {std::vector{OneSample("nccl_rank_info", 1)}, std::vector{OneSample("up", 1)},
        std::vector{OneSample("nccl_ext_A", 1)}, std::vector{twice}, std::vector{labeled},
        std::vector{OneSample("nccl_ext_a_own", 1), OneSample("nccl_ext_a_own", 2)}}) {
    PlayAnswer(Answer(Encoded(wrong)));
    FaultOfFetch();
  }
  const std::vector<uint64_t> counts{1, 2};
  Exposition histogram =
      OneFamily("nccl_ext_a_own", MetricType::kHistogram, "", {.value = 1, .counts = counts});
  histogram.families[0].scale = {.native = {}, .bounds = {1}, .ends = {1}};
  std::string bytes;
  EncodeProtobuf(histogram, bytes);
  PlayAnswer(Answer(bytes));
  EXPECT_NE(FaultOfFetch().find("neither a counter nor a gauge"), std::string::npos);
}

TEST_F(ExtensionFamiliesTest, FloodsAreRefused) {
  FetchAnswer(1);
  PlainFamily many = OneSample("nccl_ext_a_own", 2);
  for (size_t i = 0; i < kMostExtensionSamplesInAll; ++i)
    many.samples.push_back({.labels = {{"i", std::to_string(i)}}, .value = 0});
  EXPECT_EQ(FaultOfExtensions({many}), "it has more than 10,000 samples");
  PlayAnswer(Answer(Encoded({many})));
  FaultOfFetch();
  Play([](int peer) {
    const std::string endless(1 << 16, 'x');
    while (::send(peer, endless.data(), endless.size(), MSG_NOSIGNAL) > 0) continue;
  });
  FaultOfFetch();
  // The fewest bytes for a family, and for a label.
  PlayAnswer(Answer(std::string(kMostExtensionAnswerBytes - 1000, '\0')));
  FaultOfFetch();
  std::string labels, family, bytes;
  for (size_t i = 0; i < kMostExtensionAnswerBytes / 2 - 1000; ++i)
    wire::AppendBytes(1, "", labels);
  wire::AppendBytes(4, labels, family);
  wire::AppendBytes(1, family, bytes);
  PlayAnswer(Answer(bytes.substr(1)));
  FaultOfFetch();
  FetchAnswer(3);
}

}  // namespace
}  // namespace nccl_exporter::exporter
