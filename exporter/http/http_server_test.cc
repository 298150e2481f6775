// SPDX-License-Identifier: Apache-2.0
// The server over loopback: methods, headers, failures to start and an orderly end.
#include "exporter/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

#include "exporter/http/web_guard.h"
#include "exporter/testing/http_client.h"

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kAnyPort = "127.0.0.1:0";

HttpResponse Echo(const HttpRequest& request) {
  return {.headers = {{"X-Test", "yes"}},
          .body = request.path + '|' + request.accept + '|' + request.accept_encoding};
}

class RunningServer {
 public:
  explicit RunningServer(
      HttpHandler handler, RefusalCounter on_refusal = [](Refusal) {})
      : server_(std::move(handler), std::move(on_refusal)) {
    EXPECT_EQ(server_.Start({kAnyPort}), "");
  }
  int port() const { return server_.ports().at(0); }
  void Stop() { server_.Stop(); }

 private:
  HttpServer server_;
};

TEST(HttpServerTest, HandsPathAndHeadersToTheHandler) {
  const RunningServer server(Echo);
  const HttpAnswer answer =
      Get(server.port(), "/a%20b?query=1", {"Accept: x", "Accept-Encoding: gzip"});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "/a b|x|gzip");
  EXPECT_EQ(answer.headers.at("x-test"), "yes");
  EXPECT_EQ(answer.headers.at("content-type"), "text/plain; charset=utf-8");
  EXPECT_EQ(answer.headers.at("content-length"), std::to_string(answer.body.size()));
  EXPECT_THAT(answer.headers.at("date"),
              testing::MatchesRegex("[A-Z][a-z]+, [0-9]+ [A-Z][a-z]+ [0-9]+ [0-9:]+ GMT"));
}

TEST(HttpServerTest, HandsTheParametersOfTheQueryToTheHandler) {
  const RunningServer server([](const HttpRequest& request) {
    HttpResponse response;
    for (const auto& [name, value] : request.query) response.body += name + '=' + value + ';';
    return response;
  });
  EXPECT_EQ(Get(server.port(), "/?a[]=1&a%5B%5D=2%20x&b&c=").body, "a[]=1;a[]=2 x;b=;c=;");
  EXPECT_EQ(Get(server.port(), "/").body, "");
}

// The library is C: what is thrown through its frames ends the process.
TEST(HttpServerTest, LivesOnWhereMemoryIsShortOutsideOfTheHandler) {
  std::atomic<int> refusals = 0;
  const RunningServer server(Echo, [&](Refusal) {
    ++refusals;
    throw std::bad_alloc();
  });
  EXPECT_NE(Get(server.port(), "/" + std::string(kUrlLimitBytes, 'x')).status, 200);
  EXPECT_NE(Get(server.port(), "/", {"X-Long: " + std::string(kHeadersLimitBytes, 'x')}).status,
            200);
  EXPECT_EQ(refusals, 2);
  EXPECT_EQ(Get(server.port(), "/").status, 200);
}

TEST(HttpServerTest, JoinsSeveralAcceptHeaders) {
  const RunningServer server(Echo);
  EXPECT_EQ(Get(server.port(), "/", {"Accept: x;q=0.1", "accept: y"}).body, "/|x;q=0.1,y|");
}

TEST(HttpServerTest, AnswersHeadWithTheSameHeadersAndNoBody) {
  const RunningServer server(Echo);
  const HttpAnswer head = Request(server.port(), "HEAD", "/metrics");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), std::to_string(std::string("/metrics||").size()));
  const std::string bytes =
      Exchange(server.port(), "HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(bytes, testing::StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(bytes, testing::EndsWith("\r\n\r\n"));
}

TEST(HttpServerTest, RefusesOtherMethods) {
  const RunningServer server(Echo);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    const HttpAnswer answer = Request(server.port(), method, "/");
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(answer.headers.at("allow"), "GET, HEAD") << method;
  }
}

TEST(HttpServerTest, SurvivesWhatIsNoRequest) {
  const RunningServer server(Echo);
  for (const std::string& bytes :
       {std::string("nonsense\r\n\r\n"), std::string("GET\r\n\r\n"), std::string(100000, 'x')}) {
    EXPECT_THAT(Exchange(server.port(), bytes), testing::Not(testing::HasSubstr(" 200 ")));
  }
  EXPECT_EQ(Get(server.port(), "/").status, 200);
}

TEST(HttpServerTest, TurnsAnExceptionIntoStatus500) {
  const RunningServer server(
      [](const HttpRequest&) -> HttpResponse { throw std::runtime_error("out of luck"); });
  const HttpAnswer answer = Get(server.port(), "/");
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.body, "Internal error: out of luck\n");
}

TEST(HttpServerTest, CarriesBodiesOfManyMegabytes) {
  const std::string body(20 << 20, 'm');
  const RunningServer server(
      [&](const HttpRequest&) { return HttpResponse{.headers = {}, .body = body}; });
  EXPECT_TRUE(Get(server.port(), "/").body == body);
}

TEST(HttpServerTest, SharedBodiesAreSentAndReleased) {
  const auto page = std::make_shared<const std::string>("shared");
  std::promise<void> released;
  std::shared_ptr<const void> until_sent(&released,
                                         [](std::promise<void>* promise) { promise->set_value(); });
  const RunningServer server([&](const HttpRequest&) {
    return HttpResponse{
        .headers = {}, .body = "own", .shared_body = page, .until_sent = std::move(until_sent)};
  });
  const HttpAnswer answer = Get(server.port(), "/");
  EXPECT_EQ(answer.body, "shared");
  EXPECT_EQ(answer.headers.at("content-length"), "6");
  released.get_future().wait();
}

TEST(HttpServerTest, RefusesRequestsThatAreTooLarge) {
  std::array<std::atomic<int>, kRefusalCount> refused{};
  const RunningServer server(Echo,
                             [&](Refusal refusal) { ++refused[static_cast<size_t>(refusal)]; });
  EXPECT_EQ(Get(server.port(), '/' + std::string(kUrlLimitBytes - 1, 'u')).status, 200);
  EXPECT_EQ(Get(server.port(), '/' + std::string(kUrlLimitBytes, 'u')).status, 414);
  EXPECT_EQ(Get(server.port(), "/?" + std::string(kUrlLimitBytes, 'u')).status, 414);
  EXPECT_EQ(Get(server.port(), "/", {"X-Long: " + std::string(kHeadersLimitBytes, 'h')}).status,
            431);
  EXPECT_EQ(refused[static_cast<size_t>(Refusal::kRequestTooLarge)], 3);
  EXPECT_EQ(refused[static_cast<size_t>(Refusal::kUnreadableRequest)], 0);
}

TEST(HttpServerTest, CountsWhatItCannotRead) {
  std::promise<Refusal> refused;
  const RunningServer server(Echo, [&](Refusal refusal) { refused.set_value(refusal); });
  EXPECT_THAT(Exchange(server.port(), "GET / HTTP/1.1\r\nno header\r\n\r\n"),
              testing::StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(refused.get_future().get(), Refusal::kUnreadableRequest);
}

TEST(HttpServerTest, CountsHalfARequest) {
  std::promise<Refusal> refused;
  const RunningServer server(Echo, [&](Refusal refusal) { refused.set_value(refusal); });
  close(Send(server.port(), "GET / HTTP/1.1\r\nHost: "));
  EXPECT_EQ(refused.get_future().get(), Refusal::kUnreadableRequest);
}

TEST(HttpServerTest, WhoSendsNothingIsNotRefused) {
  std::atomic<int> refused = 0;
  RunningServer server(Echo, [&](Refusal) { ++refused; });
  close(Send(server.port(), ""));
  EXPECT_EQ(Get(server.port(), "/").status, 200);
  server.Stop();
  EXPECT_EQ(refused, 0);
}

// A proxy in front would see other requests than we do.
TEST(HttpServerTest, ClosesAfterALengthThatIsAmbiguous) {
  for (const std::string lengths :
       {"Content-Length: 4\r\nTransfer-Encoding: chunked", "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: 4\r\nContent-Length: 4",
        "transfer-encoding: chunked\r\ncontent-length: 4"}) {
    std::atomic<int> refused = 0;
    const RunningServer server(
        Echo, [&](Refusal refusal) { refused += refusal == Refusal::kAmbiguousRequest ? 1 : 0; });
    const std::string bytes =
        Exchange(server.port(), "POST /1 HTTP/1.1\r\nHost: x\r\n" + lengths +
                                    "\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(bytes, testing::StartsWith("HTTP/1.1 400 ")) << lengths;
    EXPECT_THAT(bytes, testing::Not(testing::HasSubstr("/2"))) << lengths;
    EXPECT_EQ(refused, 1) << lengths;
  }
}

TEST(HttpServerTest, RefusesAZeroByteInPathAndQuery) {
  const RunningServer server(Echo);
  for (const char* const target : {"/metrics%00x", "/%00", "/?a=%00b"}) {
    EXPECT_THAT(
        Exchange(server.port(), "GET " + std::string(target) + " HTTP/1.1\r\nHost: x\r\n\r\n"),
        testing::StartsWith("HTTP/1.1 400 "))
        << target;
  }
}

// RFC 9112, 3.2.2: curl -x, and clients with a forward proxy.
TEST(HttpServerTest, AnswersAbsoluteTargets) {
  const RunningServer server([](const HttpRequest& request) {
    return HttpResponse{.headers = {}, .body = request.path + '|' + request.host};
  });
  const auto answer_to = [&](const std::string& target) {
    return Exchange(server.port(),
                    "GET " + target + " HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n");
  };
  EXPECT_THAT(answer_to("http://node:9828/metrics?x=1"),
              testing::EndsWith("\r\n\r\n/metrics|node:9828"));
  EXPECT_THAT(answer_to("HTTPS://[::1]"), testing::EndsWith("\r\n\r\n/|[::1]"));
  EXPECT_THAT(answer_to("/http://node/"), testing::EndsWith("\r\n\r\n/http://node/|other"));
}

TEST(ForHostsTest, AnswersForKnownHostsOnly) {
  int refused = 0;
  const HttpHandler guard = ForHosts({"node-1", "fd00::1"}, Echo, [&](Refusal refusal) {
    refused += refusal == Refusal::kForeignHost ? 1 : 0;
  });
  const auto status = [&](const std::string& host) {
    HttpRequest request{.path = "/", .accept = "", .accept_encoding = ""};
    request.host = host;
    return guard(request).status;
  };
  for (const char* const known : {"node-1", "NODE-1:9828", "[fd00::1]:9828", "[FD00::1]"})
    EXPECT_EQ(status(known), 200) << known;
  for (const char* const other :
       {"", "evil.example", "node-1.evil.example:9828", "fd00::2", "[::1]"})
    EXPECT_EQ(status(other), 421) << other;
  EXPECT_EQ(refused, 5);
}

TEST(HttpServerTest, AnswersSeveralRequestsOfOneConnection) {
  const RunningServer server(Echo);
  const std::string bytes =
      Exchange(server.port(),
               "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nHEAD /2 HTTP/1.1\r\nHost: x\r\n\r\n"
               "GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(bytes, testing::HasSubstr("/1||"));
  EXPECT_THAT(bytes, testing::Not(testing::HasSubstr("/2||")));
  EXPECT_THAT(bytes, testing::EndsWith("/3||"));
}

TEST(HttpServerTest, ReadsABodyThatItHasNoUseFor) {
  const RunningServer server(Echo);
  const std::string head =
      " / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n";
  const std::string body(100000, 'b');
  EXPECT_THAT(Exchange(server.port(), "GET" + head + body), testing::EndsWith("/||"));
  EXPECT_THAT(Exchange(server.port(), "POST" + head + body), testing::StartsWith("HTTP/1.1 405 "));
}

TEST(HttpServerTest, RefusesTheConnectionsOfOneAddressThatAreTooMany) {
  std::latch all_started(kConnectionsPerAddress);
  std::latch may_end(1);
  std::promise<Refusal> refused;
  const RunningServer server(
      [&](const HttpRequest&) {
        all_started.count_down();
        may_end.wait();
        return HttpResponse{.headers = {}, .body = "patient"};
      },
      [&](Refusal refusal) { refused.set_value(refusal); });
  std::vector<std::future<HttpAnswer>> answers;
  for (int i = 0; i < kConnectionsPerAddress; ++i) {
    answers.push_back(std::async(std::launch::async, [&] { return Get(server.port(), "/"); }));
  }
  all_started.wait();
  EXPECT_EQ(Get(server.port(), "/").status, 0);
  EXPECT_EQ(refused.get_future().get(), Refusal::kConnectionsPerAddress);
  may_end.count_down();
  for (std::future<HttpAnswer>& answer : answers) EXPECT_EQ(answer.get().body, "patient");
}

// Half requests of so many addresses that they take all connections: 127.0.0.1, 127.0.0.2 and so on
// are all ours.
class HalfRequests {
 public:
  explicit HalfRequests(int port) {
    for (int i = 0; i < kConnectionLimit; ++i) {
      const std::string from = "127.0.0." + std::to_string(2 + i / (kConnectionsPerAddress - 1));
      sockets_.push_back(Send(port, "GET /metrics HTTP/1.1\r\nHost: ", from));
      EXPECT_GE(sockets_.back(), 0);
    }
  }
  ~HalfRequests() {
    for (const int socket : sockets_) close(socket);
  }

 private:
  std::vector<int> sockets_;
};

TEST(HttpServerTest, HalfRequestsKeepNobodyOut) {
  std::promise<void> gave_way;  // one did: a second one would set the value again
  RunningServer server(Echo, [&](Refusal refusal) {
    if (refusal == Refusal::kConnectionLimit) gave_way.set_value();
  });
  const HalfRequests all_places(server.port());
  EXPECT_EQ(Get(server.port(), "/").status, 200);
  gave_way.get_future().wait();
  server.Stop();
}

// Regression: of as many addresses as there may be connections, none gave way.
TEST(HttpServerTest, PasswordsThatWaitKeepNobodyOut) {
  std::latch all_wait(kConnectionLimit), may_end(1);
  RunningServer server([&](const HttpRequest& request) {
    if (request.path != "/wait") return Echo(request);
    request.on_check(true);
    all_wait.count_down();
    may_end.wait();
    request.on_check(false);
    return Echo(request);
  });
  std::vector<int> waiting;
  for (int i = 0; i < kConnectionLimit; ++i) {
    const std::string from = "127.0.0." + std::to_string(2 + i);
    waiting.push_back(Send(server.port(), "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n", from));
  }
  all_wait.wait();
  EXPECT_EQ(Get(server.port(), "/").status, 200);
  may_end.count_down();
  server.Stop();
  for (const int connection : waiting) close(connection);
}

TEST(HttpServerTest, AConnectionThatIsKeptGivesWay) {
  std::atomic<int> refused = 0;
  RunningServer server(Echo, [&](Refusal) { ++refused; });
  std::vector<int> kept;
  for (int i = 0; i < kConnectionsPerAddress; ++i) {
    kept.push_back(Send(server.port(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
    char first = '\0';
    EXPECT_EQ(recv(kept.back(), &first, 1, 0), 1);  // it has been answered
  }
  EXPECT_EQ(Get(server.port(), "/").status, 200);
  EXPECT_EQ(refused, 0) << "nobody was";
  for (const int connection : kept) close(connection);
}

TEST(HttpServerTest, ServesIpv4AndIpv6AtOnce) {
  HttpServer server(Echo);
  ASSERT_EQ(server.Start({":0"}), "");
  EXPECT_EQ(Get(server.ports()[0], "/").status, 200);
  HttpServer by_address(Echo);
  const std::string error = by_address.Start({"[::1]:0"});
  if (!error.empty()) GTEST_SKIP() << "no IPv6 here: " << error;
  EXPECT_THAT(by_address.names(), testing::ElementsAre(testing::StartsWith("[::1]:")));
}

TEST(HttpServerTest, AClientThatTakesNothingDelaysNobody) {
  const std::string body(64 << 20, 'm');  // more than the socket buffers hold
  std::promise<Refusal> refused;
  const RunningServer server(
      [&](const HttpRequest&) { return HttpResponse{.headers = {}, .body = body}; },
      [&](Refusal refusal) { refused.set_value(refusal); });
  const int slow = Send(server.port(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(Get(server.port(), "/").body == body);
  close(slow);
  EXPECT_EQ(refused.get_future().get(), Refusal::kSlowClient);
}

TEST(HttpServerTest, ServesSeveralAddresses) {
  HttpServer server(Echo);
  ASSERT_EQ(server.Start({kAnyPort, ":0"}), "");
  ASSERT_EQ(server.ports().size(), 2u);
  for (const int port : server.ports()) EXPECT_EQ(Get(port, "/").status, 200);
}

TEST(HttpServerTest, SaysThatAPortIsInUse) {
  const RunningServer first(Echo);
  HttpServer second(Echo);
  const std::string taken = "127.0.0.1:" + std::to_string(first.port());
  const std::string error = second.Start({kAnyPort, taken});
  EXPECT_THAT(error, testing::HasSubstr(taken));
  EXPECT_THAT(error, testing::HasSubstr("in use"));
  EXPECT_THAT(error, testing::Not(testing::HasSubstr("\n")));
}

TEST(HttpServerTest, SaysThatAHostIsUnknown) {
  HttpServer server(Echo);
  EXPECT_THAT(server.Start({"no.such.host.invalid:0"}),
              testing::HasSubstr("no.such.host.invalid:0"));
}

TEST(HttpServerTest, AnswersTheRequestsInProgressBeforeItStops) {
  std::latch started(1);
  std::latch may_end(1);
  RunningServer server([&](const HttpRequest&) {
    started.count_down();
    may_end.wait();
    return HttpResponse{.headers = {}, .body = "late"};
  });
  const int port = server.port();
  std::future<HttpAnswer> answer =
      std::async(std::launch::async, [port] { return Get(port, "/"); });
  started.wait();
  std::thread stopper([&] { server.Stop(); });
  may_end.count_down();
  stopper.join();
  EXPECT_EQ(answer.get().body, "late");
  EXPECT_EQ(Get(port, "/").status, 0);
}

}  // namespace
}  // namespace nccl_exporter::exporter
