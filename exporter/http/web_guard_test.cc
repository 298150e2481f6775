// SPDX-License-Identifier: Apache-2.0
// Passwords as a file asks for them, while it changes.
#include "exporter/http/web_guard.h"

#include <crypt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "exporter/http/basic_auth.h"

namespace nccl_exporter::exporter {
namespace {

// Made with the least cost, for the sake of the test's time.
std::string HashOf(const std::string& password) {
  crypt_data memory{};
  return crypt_r(password.c_str(), "$2b$04$abcdefghijklmnopqrstuu", &memory);
}

constexpr const char* kAliceSecret = "Basic YWxpY2U6c2VjcmV0";  // alice:secret
constexpr const char* kAliceWrong = "Basic YWxpY2U6d3Jvbmc=";   // alice:wrong
constexpr const char* kBobSecret = "basic  Ym9iOnNlY3JldA==";   // bob:secret

class WebGuardTest : public testing::Test {
 protected:
  WebGuardTest() : path_(std::getenv("TEST_TMPDIR") + std::string("/web.yml")) {}

  void Write(const std::string& yaml) const { std::ofstream(path_) << yaml; }
  int StatusOf(const HttpHandler& guard, const std::string& authorization) const {
    HttpRequest request{.path = "/", .accept = "", .accept_encoding = ""};
    request.authorization = authorization;
    return guard(request).status;
  }
  static HttpResponse Page(const HttpRequest&) {
    return {.headers = {{"X-Page", "1"}}, .body = "page"};
  }

  const std::string path_;
  std::vector<Refusal> refused_;
  const RefusalCounter on_refusal_ = [this](Refusal refusal) { refused_.push_back(refusal); };
};

TEST_F(WebGuardTest, LetsInWhoKnowsThePassword) {
  Write("basic_auth_users: {alice: '" + HashOf("secret") + "'}");
  std::string error;
  WebConfigFile file(path_, error);
  ASSERT_EQ(error, "");
  const HttpHandler guard = WithPasswords(file, Page, on_refusal_);
  for (int i = 0; i < 2; ++i) {  // the second time from memory
    EXPECT_EQ(StatusOf(guard, kAliceSecret), 200);
    EXPECT_EQ(StatusOf(guard, kAliceWrong), 401);
    EXPECT_EQ(StatusOf(guard, kBobSecret), 401);
    for (const char* const nothing :
         {"", "Basic", "Basic ", "Bearer abc", "Basic %%%%", "Basic YWxpY2U="}) {
      EXPECT_EQ(StatusOf(guard, nothing), 401) << nothing;
    }
  }
  EXPECT_THAT(refused_, testing::SizeIs(16));
  EXPECT_THAT(refused_, testing::Each(Refusal::kUnauthorized));
  EXPECT_THAT(guard({.path = "/", .accept = "", .accept_encoding = ""}).headers,
              testing::Contains(testing::Pair("WWW-Authenticate", testing::StartsWith("Basic "))));
}

TEST(BasicAuthTest, AWrongPasswordCostsACheckWhoeverTheUserIs) {
  const BasicAuth::Users users{{"alice", HashOf("secret")}};
  BasicAuth auth;
  EXPECT_EQ(auth.Check(kBobSecret, users, "1"), BasicAuth::Verdict::kWrong);
  EXPECT_EQ(auth.checks_made(), 1u) << "of a user that is unknown";
  EXPECT_EQ(auth.Check(kAliceWrong, users, "1"), BasicAuth::Verdict::kWrong);
  EXPECT_EQ(auth.checks_made(), 2u);
  EXPECT_EQ(auth.Check(kAliceSecret, users, "1"), BasicAuth::Verdict::kRight);
  EXPECT_EQ(auth.checks_made(), 3u);
  EXPECT_EQ(auth.Check(kAliceSecret, users, "1"), BasicAuth::Verdict::kRight);
  EXPECT_EQ(auth.checks_made(), 3u) << "a right one is known again";
  EXPECT_EQ(auth.Check(kAliceWrong, users, "1"), BasicAuth::Verdict::kWrong);
  EXPECT_EQ(auth.checks_made(), 4u) << "a wrong one never is";
}

// A hash of usual cost takes so long that requests sent meanwhile wait.
std::string SlowHashOf(const std::string& password) {
  crypt_data memory{};
  return crypt_r(password.c_str(), "$2b$11$abcdefghijklmnopqrstuu", &memory);
}

// Regression: eight wrong passwords of one address kept the right one of another out.
TEST(BasicAuthTest, WrongPasswordsOfOneAddressDelayAnotherByOneCheck) {
  const BasicAuth::Users users{{"alice", SlowHashOf("secret")}};
  BasicAuth auth;
  std::atomic<int> busy = 0;
  std::atomic<bool> is_over = false;
  std::vector<std::thread> flood;
  for (int i = 0; i < 10; ++i) {
    flood.emplace_back([&, i] {
      const std::string wrong = "Basic YWxpY2U6d3Jvbmc" + std::to_string(i);
      while (!is_over) {
        busy += auth.Check(wrong, users, "1") == BasicAuth::Verdict::kBusy ? 1 : 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  while (busy == 0) std::this_thread::yield();
  EXPECT_EQ(auth.Check(kAliceSecret, users, "2"), BasicAuth::Verdict::kRight);
  is_over = true;
  for (std::thread& thread : flood) thread.join();
}

// Wrong passwords of some addresses, each with a request after the other, without a pause.
class Flood {
 public:
  Flood(BasicAuth& auth, const BasicAuth::Users& users, int addresses) {
    for (int i = 0; i < addresses; ++i) {
      threads_.emplace_back([this, &auth, &users, i] {
        for (int tries = 0; !is_over_; ++tries) {
          auth.Check(kAliceWrong, users, "flood " + std::to_string(i));
          refused_once_ += tries == 0 ? 1 : 0;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
    }
    while (refused_once_ < addresses) std::this_thread::yield();
  }
  ~Flood() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> is_over_ = false;
  std::atomic<int> refused_once_ = 0;
  std::vector<std::thread> threads_;
};

// A hash of such a cost that a flood without a pause still has as many checks waiting as may be.
std::string FloodedHashOf(const std::string& password) {
  crypt_data memory{};
  return crypt_r(password.c_str(), "$2b$08$abcdefghijklmnopqrstuu", &memory);
}

// Regression: without a limit in all, each address of a flood delayed a right password by a check.
TEST(BasicAuthTest, AnAddressThatComesForTheFirstTimeOvertakesAFlood) {
  const BasicAuth::Users users{{"alice", FloodedHashOf("secret")}};
  BasicAuth auth;
  const Flood flood(auth, users, static_cast<int>(kWaitingPasswordChecks) + 8);
  EXPECT_EQ(auth.Check(kAliceSecret, users, "1"), BasicAuth::Verdict::kRight);
  const uint64_t checks = auth.checks_made();
  EXPECT_EQ(auth.Check(kAliceSecret, users, "2"), BasicAuth::Verdict::kRight);
  EXPECT_LE(auth.checks_made(), checks + 1) << "a known one does not wait";
}

TEST_F(WebGuardTest, CountsPasswordsThatAreTooMany) {
  Write("basic_auth_users: {alice: '" + FloodedHashOf("secret") + "'}");
  std::string error;
  WebConfigFile file(path_, error);
  std::atomic<int> too_many = 0;
  const HttpHandler guard = WithPasswords(
      file, Page, [&](Refusal refusal) { too_many += refusal == Refusal::kPasswordChecksInAll; });
  std::atomic<int> checked = 0, busy = 0;
  std::vector<std::thread> clients;
  for (size_t i = 0; i < kWaitingPasswordChecks + 8; ++i) {
    clients.emplace_back([&, i] {
      HttpRequest request{.path = "/", .accept = "", .accept_encoding = ""};
      request.authorization = kAliceWrong;
      request.client = std::to_string(i);
      request.on_check = [&](bool is_checked) { checked += is_checked ? 1 : -1; };
      while (too_many == 0) busy += guard(request).status == 503 ? 1 : 0;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(too_many, 0);
  EXPECT_EQ(busy, too_many);
  EXPECT_EQ(checked, 0) << "each check has an end";
}

// Two scrape jobs of one server, after a restart of the daemon.
TEST(BasicAuthTest, RequestsWithEqualPasswordsShareACheck) {
  const BasicAuth::Users users{{"alice", SlowHashOf("secret")}};
  BasicAuth auth;
  std::vector<std::future<BasicAuth::Verdict>> checks;
  for (int i = 0; i < 4; ++i) {
    checks.push_back(
        std::async(std::launch::async, [&] { return auth.Check(kAliceSecret, users, "1"); }));
  }
  for (auto& check : checks) EXPECT_EQ(check.get(), BasicAuth::Verdict::kRight);
  EXPECT_EQ(auth.checks_made(), 1u);
}

TEST_F(WebGuardTest, ObeysTheFileAsItIsNow) {
  Write("");
  std::string error;
  WebConfigFile file(path_, error);
  const HttpHandler guard = WithPasswords(file, Page, on_refusal_);
  EXPECT_EQ(StatusOf(guard, ""), 200);
  Write("basic_auth_users: {alice: '" + HashOf("secret") + "'}");
  EXPECT_EQ(StatusOf(guard, ""), 401);
  EXPECT_EQ(StatusOf(guard, kAliceSecret), 200);
  Write("basic_auth_users: {alice: '" + HashOf("changed") + "'}");
  EXPECT_EQ(StatusOf(guard, kAliceSecret), 401)
      << "a password that was right is forgotten with its hash";
}

TEST_F(WebGuardTest, StaysClosedWhenTheFileBecomesWrong) {
  Write("basic_auth_users: {alice: '" + HashOf("secret") + "'}");
  std::string error;
  WebConfigFile file(path_, error);
  const HttpHandler guard = WithPasswords(file, Page, on_refusal_);
  for (const char* const wrong :
       {"nonsense: 1", "[", "tls_server_config: {cert_file: a, key_file: b}"}) {
    Write(wrong);
    EXPECT_EQ(StatusOf(guard, ""), 401) << wrong;
    EXPECT_EQ(StatusOf(guard, kAliceSecret), 200) << wrong;
  }
  std::remove(path_.c_str());
  EXPECT_EQ(StatusOf(guard, ""), 401);
}

TEST_F(WebGuardTest, SaysAtTheStartWhatIsWrong) {
  std::string error;
  WebConfigFile missing("/nonexistent/web.yml", error);
  EXPECT_EQ(error, "/nonexistent/web.yml: No such file or directory");
}

}  // namespace
}  // namespace nccl_exporter::exporter
