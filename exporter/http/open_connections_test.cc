// SPDX-License-Identifier: Apache-2.0
// Limits, time limits and their counts, over pairs of connected sockets.
#include "exporter/http/open_connections.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

#include "exporter/http/listening_sockets.h"

namespace nccl_exporter::exporter {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr OpenConnections::Limits kNoHurry{.all = 3,
                                           .of_one_address = 2,
                                           .request = hours(1),
                                           .idle = hours(1),
                                           .part = hours(1),
                                           .answer = hours(1)};

// Two ends of a TCP connection.
class Pair {
 public:
  Pair() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    socklen_t size = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener, any, size), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(getsockname(listener, any, &size), 0);
    client_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(client_, any, size), 0);
    server_ = accept(listener, nullptr, nullptr);
    close(listener);
  }
  ~Pair() {
    close(client_);
    close(server_);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  int server() const { return server_; }
  // Returns when they are in.
  void Send(const std::string& bytes) const {
    EXPECT_EQ(send(client_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    std::string read(bytes.size(), '\0');
    EXPECT_EQ(recv(server_, read.data(), read.size(), MSG_WAITALL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Whether it has been cut; waits for it.
  bool IsCut() const {
    char byte = '\0';
    return recv(client_, &byte, 1, 0) == 0;
  }
  bool IsOpen() const {
    char byte = '\0';
    return recv(client_, &byte, 1, MSG_DONTWAIT) < 0;
  }

 private:
  int client_ = -1;
  int server_ = -1;
};

class OpenConnectionsTest : public testing::Test {
 protected:
  std::vector<Refusal> refused_;
  const RefusalCounter on_refusal_ = [this](Refusal refusal) { refused_.push_back(refusal); };
};

TEST_F(OpenConnectionsTest, WhoeverWaitsLongestGivesWay) {
  OpenConnections open(kNoHurry, on_refusal_);
  const Pair a, b, c;
  OpenConnection& first = open.Add(a.server(), "1");
  OpenConnection& second = open.Add(b.server(), "1");
  OpenConnection& other = open.Add(c.server(), "2");
  EXPECT_TRUE(open.BeginAnswer(first));
  b.Send("GET");
  EXPECT_TRUE(open.MakeRoom("1"));
  EXPECT_TRUE(b.IsCut());
  EXPECT_TRUE(a.IsOpen());
  EXPECT_FALSE(open.BeginAnswer(second)) << "too late";
  open.EndUnanswered(second, Refusal::kUnreadableRequest);
  open.Remove(second);
  EXPECT_THAT(refused_, testing::ElementsAre(Refusal::kConnectionsPerAddress));
  EXPECT_TRUE(open.MakeRoom("1")) << "there is room now";
  EXPECT_TRUE(c.IsOpen());
  open.Remove(first);
  open.Remove(other);
}

TEST_F(OpenConnectionsTest, AnswersDoNotGiveWayToTheirOwnAddress) {
  OpenConnections open(kNoHurry, on_refusal_);
  const Pair a, b, c;
  std::vector<OpenConnection*> connections{&open.Add(a.server(), "1"), &open.Add(b.server(), "1"),
                                           &open.Add(c.server(), "2")};
  for (OpenConnection* const connection : connections) {
    EXPECT_TRUE(open.BeginAnswer(*connection));
    open.BeginSending(*connection);
  }
  EXPECT_FALSE(open.MakeRoom("1"));
  EXPECT_THAT(refused_, testing::ElementsAre(Refusal::kConnectionsPerAddress));
  open.EndAnswer(*connections[2], true);
  EXPECT_TRUE(open.MakeRoom("3"));
  EXPECT_TRUE(c.IsCut()) << "it waits for a request";
  for (OpenConnection* const connection : connections) open.Remove(*connection);
  EXPECT_THAT(refused_, testing::SizeIs(1))
      << "one that was kept for a later request is no refusal";
}

// Regression: slow readers of three addresses kept everybody else out.
TEST_F(OpenConnectionsTest, TheAnswerThatHasBeenSentTheLongestGivesWay) {
  OpenConnections open(kNoHurry, on_refusal_);
  const Pair a, b, c;
  std::vector<OpenConnection*> connections{&open.Add(a.server(), "1"), &open.Add(b.server(), "1"),
                                           &open.Add(c.server(), "2")};
  for (OpenConnection* const connection : connections) EXPECT_TRUE(open.BeginAnswer(*connection));
  open.BeginSending(*connections[1]);
  open.BeginSending(*connections[2]);
  EXPECT_TRUE(open.MakeRoom("3"));
  EXPECT_TRUE(b.IsCut());
  EXPECT_TRUE(a.IsOpen()) << "its answer is still made";
  open.EndAnswer(*connections[1], false);
  EXPECT_THAT(refused_, testing::ElementsAre(Refusal::kConnectionLimit));
  EXPECT_TRUE(open.GiveWay(Refusal::kAnswerBytes));
  EXPECT_TRUE(c.IsCut());
  open.EndAnswer(*connections[2], false);
  EXPECT_FALSE(open.GiveWay(Refusal::kAnswerBytes)) << "nothing is being sent";
  EXPECT_THAT(refused_, testing::ElementsAre(Refusal::kConnectionLimit, Refusal::kAnswerBytes));
  for (OpenConnection* const connection : connections) open.Remove(*connection);
}

TEST_F(OpenConnectionsTest, AnAddressWithoutAConnectionGetsOne) {
  OpenConnections open(kNoHurry, on_refusal_);
  const Pair a, b, c;
  std::vector<OpenConnection*> connections{&open.Add(a.server(), "2"), &open.Add(b.server(), "1"),
                                           &open.Add(c.server(), "1")};
  for (OpenConnection* const connection : connections) EXPECT_TRUE(open.BeginAnswer(*connection));
  EXPECT_FALSE(open.MakeRoom("2")) << "an answer that is made gives way to no equal";
  EXPECT_THAT(refused_, testing::ElementsAre(Refusal::kConnectionLimit));
  EXPECT_TRUE(open.MakeRoom("3"));
  EXPECT_TRUE(b.IsCut());
  EXPECT_TRUE(a.IsOpen() && c.IsOpen());
  for (OpenConnection* const connection : connections) open.Remove(*connection);
}

// Regression: wrong passwords of as many addresses as there may be connections kept everybody out.
TEST_F(OpenConnectionsTest, ThePasswordThatWaitsLongestGivesWay) {
  OpenConnections open(kNoHurry, on_refusal_);
  const Pair a, b, c;
  std::vector<OpenConnection*> connections{&open.Add(a.server(), "1"), &open.Add(b.server(), "2"),
                                           &open.Add(c.server(), "3")};
  for (OpenConnection* const connection : connections) {
    EXPECT_TRUE(open.BeginAnswer(*connection));
    open.SetChecked(*connection, true);
  }
  open.SetChecked(*connections[0], false);
  ASSERT_TRUE(open.MakeRoom("4"));
  EXPECT_TRUE(b.IsCut());
  EXPECT_TRUE(a.IsOpen()) << "its password was right";
  open.EndAnswer(*connections[1], false);
  open.Remove(*connections[1]);
  open.BeginSending(*connections[2]);
  const Pair d;
  connections[1] = &open.Add(d.server(), "4");
  EXPECT_TRUE(open.BeginAnswer(*connections[1]));
  open.SetChecked(*connections[1], true);
  ASSERT_TRUE(open.MakeRoom("5"));
  EXPECT_TRUE(d.IsCut()) << "before one that gets its answer";
  EXPECT_TRUE(a.IsOpen() && c.IsOpen());
  EXPECT_THAT(refused_, testing::ElementsAre(Refusal::kConnectionLimit));
  for (OpenConnection* const connection : connections) open.Remove(*connection);
}

TEST_F(OpenConnectionsTest, CutsARequestThatTakesTooLong) {
  OpenConnections::Limits limits = kNoHurry;
  limits.request = milliseconds(1);
  OpenConnections open(limits, on_refusal_);
  const Pair pair;
  pair.Send("GET /");
  OpenConnection& connection = open.Add(pair.server(), "1");
  EXPECT_TRUE(pair.IsCut());
  open.EndUnanswered(connection, Refusal::kUnreadableRequest);
  open.Remove(connection);
  EXPECT_THAT(refused_, testing::ElementsAre(Refusal::kUnreadableRequest));
}

TEST_F(OpenConnectionsTest, CutsAConnectionThatIsKeptForNothing) {
  OpenConnections::Limits limits = kNoHurry;
  limits.idle = milliseconds(1);
  OpenConnections open(limits, on_refusal_);
  const Pair pair;
  pair.Send("GET / HTTP/1.1");
  OpenConnection& connection = open.Add(pair.server(), "1");
  EXPECT_TRUE(open.BeginAnswer(connection));
  open.EndAnswer(connection, true);
  EXPECT_TRUE(pair.IsCut());
  open.Remove(connection);
  EXPECT_THAT(refused_, testing::IsEmpty());
}

TEST_F(OpenConnectionsTest, CutsWhoTakesNothingOfAnAnswer) {
  OpenConnections::Limits limits = kNoHurry;
  limits.part = milliseconds(1);
  OpenConnections open(limits, on_refusal_);
  const Pair pair;
  OpenConnection& connection = open.Add(pair.server(), "1");
  EXPECT_TRUE(open.BeginAnswer(connection));
  open.BeginSending(connection);
  EXPECT_TRUE(pair.IsCut());
  open.EndAnswer(connection, false);
  open.Remove(connection);
  EXPECT_THAT(refused_, testing::ElementsAre(Refusal::kSlowClient));
}

TEST_F(OpenConnectionsTest, CutsWhoTakesAnAnswerBitByBitForTooLong) {
  OpenConnections::Limits limits = kNoHurry;
  limits.answer = milliseconds(1);
  OpenConnections open(limits, on_refusal_);
  const Pair pair;
  OpenConnection& connection = open.Add(pair.server(), "1");
  EXPECT_TRUE(open.BeginAnswer(connection));
  open.BeginSending(connection);
  EXPECT_TRUE(pair.IsOpen()) << "an hour for the first part";
  open.OnSent(connection);
  EXPECT_TRUE(pair.IsCut());
  open.Remove(connection);
}

TEST_F(OpenConnectionsTest, AStopWaitsForAnswersAndForNothingElse) {
  OpenConnections open(kNoHurry, on_refusal_);
  const Pair waiting, answered;
  OpenConnection& first = open.Add(waiting.server(), "1");
  OpenConnection& second = open.Add(answered.server(), "1");
  EXPECT_TRUE(open.BeginAnswer(second));
  const std::future<void> stop = std::async(std::launch::async, [&] { open.Stop(hours(1)); });
  EXPECT_TRUE(waiting.IsCut());
  EXPECT_TRUE(answered.IsOpen());
  EXPECT_FALSE(open.MakeRoom("2"));
  open.EndAnswer(second, true);
  EXPECT_TRUE(answered.IsCut());
  stop.wait();
  open.Remove(first);
  open.Remove(second);
}

std::string ClientOf(int family, const char* text) {
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  auto* const in4 = reinterpret_cast<sockaddr_in*>(&any);
  auto* const in6 = reinterpret_cast<sockaddr_in6*>(&any);
  void* const address = family == AF_INET ? static_cast<void*>(&in4->sin_addr) : &in6->sin6_addr;
  EXPECT_EQ(inet_pton(family, text, address), 1);
  return ClientText(reinterpret_cast<const sockaddr*>(&any));
}

// A machine may have as many addresses of its network as it likes.
TEST(ClientTest, IsTheNetworkOfAnIpv6Address) {
  const std::string client = ClientOf(AF_INET6, "2001:db8:1:2:3:4:5:6");
  EXPECT_EQ(client, ClientOf(AF_INET6, "2001:db8:1:2:ffff:ffff:ffff:ffff"));
  EXPECT_NE(client, ClientOf(AF_INET6, "2001:db8:1:3:3:4:5:6"));
  EXPECT_NE(ClientOf(AF_INET, "10.0.0.1"), ClientOf(AF_INET, "10.0.0.2"));
  EXPECT_NE(ClientOf(AF_INET6, "::ffff:10.0.0.1"), ClientOf(AF_INET6, "::ffff:10.0.0.2"))
      << "IPv4 over a socket of both";
}

}  // namespace
}  // namespace nccl_exporter::exporter
