// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/plain_get.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "exporter/cli/client/http_address.h"

namespace nccl_exporter::exporter {
namespace {

// Listens at a port of its own, answers one connection with fixed bytes and closes it.
class OneAnswer {
 public:
  explicit OneAnswer(std::string bytes) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this, bytes = std::move(bytes)] {
      const int peer = ::accept(socket_, nullptr, nullptr);
      char request[1024];
      const ssize_t got = ::recv(peer, request, sizeof request, 0);
      request_.assign(request, got > 0 ? static_cast<size_t>(got) : 0);
      ::send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ::close(peer);
    });
  }
  ~OneAnswer() {
    Join();
    ::close(socket_);
  }
  OneAnswer(const OneAnswer&) = delete;
  OneAnswer& operator=(const OneAnswer&) = delete;

  PlainAnswer Get(size_t most_bytes = 1 << 20) {
    return PlainGet({.server = {.host = "127.0.0.1", .port = port_},
                     .path = "/path",
                     .patience = std::chrono::seconds(60),
                     .most_bytes = most_bytes});
  }
  const std::string& port() const { return port_; }
  const std::string& Request() {
    Join();
    return request_;
  }

 private:
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

  const int socket_;
  std::string port_;
  std::string request_;
  std::thread thread_;
};

TEST(PlainGetTest, TakesTheBodyByItsLength) {
  OneAnswer peer("HTTP/1.1 200 OK\r\nA: b\r\ncontent-LENGTH: 4\r\n\r\nbodyand more");
  const PlainAnswer answer = peer.Get();
  EXPECT_EQ(answer.fault, "");
  EXPECT_EQ(answer.status_line, "HTTP/1.1 200 OK");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "body");
  EXPECT_EQ(peer.Request(), "GET /path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
}

TEST(PlainGetTest, PostsABody) {
  OneAnswer peer("HTTP/1.1 503 No\r\nRetry-After:  7\r\nContent-Length: 0\r\n\r\n");
  const PlainAnswer answer = PlainPost({.server = {.host = "127.0.0.1", .port = peer.port()},
                                        .path = "/path",
                                        .patience = std::chrono::seconds(60),
                                        .most_bytes = 1000,
                                        .fields = "A: b\r\n"},
                                       "body");
  EXPECT_EQ(answer.fault, "");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(FieldOf(answer.head, "retry-after"), "7");
  EXPECT_EQ(FieldOf(answer.head, "retry"), "");
  EXPECT_EQ(peer.Request().substr(0, peer.Request().find("\r\n\r\n")),
            "POST /path HTTP/1.1\r\nHost: localhost\r\nA: b\r\nContent-Length: 4\r\n"
            "Connection: close");
}

// The peer reads 1 KiB and closes: the kernel resets the connection while the body is sent.
TEST(PlainGetTest, AnAnswerBeforeTheEndOfTheBodyIsTheAnswer) {
  OneAnswer peer("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
  const PlainAnswer answer = PlainPost({.server = {.host = "127.0.0.1", .port = peer.port()},
                                        .path = "/path",
                                        .patience = std::chrono::seconds(60),
                                        .most_bytes = 1000},
                                       std::string(64 << 20, 'x'));
  EXPECT_EQ(answer.status, 413) << answer.fault;
}

TEST(PlainGetTest, JoinsTheChunksOfABody) {
  OneAnswer peer(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nB;x=y\r\n and "
      "more!!\r\n0\r\n\r\n");
  const PlainAnswer answer = peer.Get();
  EXPECT_EQ(answer.fault, "");
  EXPECT_EQ(answer.body, "body and more!!");
}

TEST(PlainGetTest, ChunksThatAreNotWholeAreNoBody) {
  const auto body_of = [](const std::string& chunks) {
    PlainAnswer answer;
    return TakeApart("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, true, answer)
               ? answer.body
               : "not whole";
  };
  const std::string whole = "4\r\nbody\r\n0\r\n\r\n";
  EXPECT_EQ(body_of(whole), "body");
  for (size_t size = 0; size <= whole.find("0\r\n") + 1; ++size)
    EXPECT_EQ(body_of(whole.substr(0, size)), "not whole") << size;
  for (const char* const wrong : {"body", "-1\r\n", "ffffffffffffffff\r\na\r\n0\r\n\r\n",
                                  "10000000000000000\r\n", "4\r\nbodyxx0\r\n\r\n", "\r\n"})
    EXPECT_EQ(body_of(wrong), "not whole") << wrong;
  OneAnswer peer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n");
  EXPECT_EQ(peer.Get().fault, "an answer without its end");
}

TEST(PlainGetTest, AnAnswerThatEndsEarlyIsNoAnswer) {
  for (const char* bytes : {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody",
                            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nbody",
                            "HTTP/1.1 200 OK\r\n\r\nbody", "HTTP/1.1 200 OK\r\n"}) {
    OneAnswer peer(bytes);
    const PlainAnswer answer = peer.Get();
    EXPECT_EQ(answer.fault, "an answer without its end") << bytes;
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.is_connected);
  }
}

TEST(PlainGetTest, OtherProtocolsHaveNoStatus) {
  for (const char* bytes : {"\x15\x03\x03\r\n", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 abc\r\n\r\n"}) {
    OneAnswer peer(bytes);
    const PlainAnswer answer = peer.Get();
    EXPECT_EQ(answer.status, 0) << bytes;
    EXPECT_NE(answer.fault, "");
  }
}

TEST(PlainGetTest, ReadsNoMoreThanItsLimit) {
  OneAnswer peer("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + std::string(100000, 'x'));
  EXPECT_EQ(peer.Get(1000).fault, "an answer of more than 1000 bytes");
}

TEST(PlainGetTest, SaysWhereNobodyListens) {
  std::string port;
  {
    OneAnswer peer("");
    EXPECT_EQ(peer.Get().fault, "no answer");
    sockaddr_in address{};
    socklen_t size = sizeof address;
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    port = std::to_string(ntohs(address.sin_port));
    ::close(socket);
  }
  const PlainAnswer answer = PlainGet({.server = {.host = "127.0.0.1", .port = port},
                                       .path = "/",
                                       .patience = std::chrono::seconds(60),
                                       .most_bytes = 1000});
  EXPECT_FALSE(answer.is_connected);
  EXPECT_EQ(answer.fault, "Connection refused");
}

// The queue of a listener is full, so that its kernel drops what comes: as for an address whose
// packets are lost on the way.
TEST(PlainGetTest, AnAddressThatDropsAllLeavesTimeForTheNext) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in dropping{};
  dropping.sin_family = AF_INET;
  dropping.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof dropping;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&dropping), size), 0);
  ASSERT_EQ(::listen(listener, 0), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&dropping), &size);
  std::vector<int> queued;
  for (int i = 0; i < 8; ++i) {
    queued.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    ::connect(queued.back(), reinterpret_cast<sockaddr*>(&dropping), size);
  }

  OneAnswer peer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
  sockaddr_in answering = dropping;
  answering.sin_port = htons(static_cast<uint16_t>(std::stoi(peer.port())));
  addrinfo last{}, first{};
  first.ai_family = last.ai_family = AF_INET;
  first.ai_addrlen = last.ai_addrlen = size;
  last.ai_addr = reinterpret_cast<sockaddr*>(&answering);
  first.ai_addr = reinterpret_cast<sockaddr*>(&dropping);
  const PlainRequest request{.server = {.host = "two-addresses", .port = peer.port()},
                             .path = "/",
                             .patience = std::chrono::seconds(4),
                             .most_bytes = 1000};
  EXPECT_EQ(PlainGet({.server = {.host = "", .port = ""},
                      .path = "/",
                      .patience = std::chrono::milliseconds(50),
                      .most_bytes = 1000},
                     &first)
                .fault,
            "no answer in time");
  first.ai_next = &last;
  const PlainAnswer answer = PlainGet(request, &first);
  EXPECT_EQ(answer.fault, "");
  EXPECT_EQ(answer.body, "body");
  for (const int socket : queued) ::close(socket);
  ::close(listener);
}

// A peer that accepts and says nothing: its kernel accepts for it.
TEST(PlainGetTest, WaitsNoLongerThanItsPatience) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 2), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  PlainRequest request{
      .server = {.host = "127.0.0.1", .port = std::to_string(ntohs(address.sin_port))},
      .path = "/",
      .patience = std::chrono::milliseconds(50),
      .most_bytes = 1000};
  const PlainAnswer answer = PlainGet(request);
  EXPECT_EQ(answer.fault, "no answer in time");
  EXPECT_TRUE(answer.is_connected);
  request.server.is_tls = true;
  request.tls.skips_verification = true;
  EXPECT_EQ(PlainGet(request).fault, "TLS: The operation timed out");
  ::close(listener);
}

TEST(HttpAddressTest, IsAnUrlWithOrWithoutPortAndPrefix) {
  const auto text = [](std::string_view url) {
    std::string fault;
    const std::optional<HttpAddress> address = ParseHttpAddress(url, fault);
    EXPECT_EQ(address.has_value(), fault.empty()) << url;
    return address ? address->Text() : "";
  };
  EXPECT_EQ(text("https://mimir.example/prometheus/"), "https://mimir.example:443/prometheus");
  EXPECT_EQ(text("http://prometheus"), "http://prometheus:80");
  EXPECT_EQ(text("http://[::1]:9090"), "http://[::1]:9090");
  EXPECT_EQ(text("http://[::1]"), "http://[::1]:80");
  for (const char* const wrong :
       {"prometheus:9090", "ftp://a", "http://", "http://a:0", "http://a:99999", "http://::1:9090",
        "http://[127.0.0.1]:1", "http://user:word@a", "http://a/?b", "http://a/ b",
        "http://a\r\nHost: b"})
    EXPECT_EQ(text(wrong), "") << wrong;
}

}  // namespace
}  // namespace nccl_exporter::exporter
