// SPDX-License-Identifier: Apache-2.0
// The server by TLS, with libcurl for a peer: who gets in, and certificates that rotate under it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exporter/http/http_server.h"
#include "exporter/http/tls_context.h"
#include "exporter/testing/http_client.h"
#include "exporter/testing/test_certificates.h"

namespace nccl_exporter::exporter {
namespace {

class TlsServingTest : public testing::Test {
 protected:
  TlsServingTest() {
    Write("ca.pem", authority_.certificate());
    Use(authority_.Issue({"IP:127.0.0.1"}));
    config_.cert_file = Path("server.pem");
    config_.key_file = Path("server.key");
  }

  static std::string Path(const std::string& name) {
    return std::getenv("TEST_TMPDIR") + ('/' + name);
  }
  static void Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
  }
  static void Use(const TestAuthority::Issued& issued) {
    Write("server.pem", issued.certificate);
    Write("server.key", issued.key);
  }
  // A client with a certificate of that authority.
  static ClientTls Client(const TestAuthority& authority,
                          const std::vector<std::string>& names = {"DNS:prometheus"},
                          TestAuthority::Use use = TestAuthority::Use::kAnything) {
    const TestAuthority::Issued issued = authority.Issue(names, use);
    Write("client.pem", issued.certificate);
    Write("client.key", issued.key);
    return {.ca_file = Path("ca.pem"),
            .certificate_file = Path("client.pem"),
            .key_file = Path("client.key")};
  }

  void Start() {
    std::string error;
    Serve();
    const auto served = [this] {
      const std::lock_guard lock(mutex_);
      return served_;
    };
    tls_ = std::make_unique<TlsContext>(served, error);
    ASSERT_EQ(error, "");
    ASSERT_EQ(server_.Start({"127.0.0.1:0"}, tls_.get()), "");
  }
  std::string ErrorAtStart() const {
    std::string error;
    const TlsContext tls([this] { return config_; }, error);
    EXPECT_EQ(error.find('\n'), std::string::npos);
    return error;
  }
  // A client that speaks TLS 1.0 to 1.`minor`.
  ClientTls UpTo(int minor) const {
    ClientTls client = anybody_;
    client.newest_minor = minor;
    return client;
  }
  int StatusFor(const ClientTls& client) {
    Serve();
    return GetByTls(server_.ports()[0], "/", client).status;
  }

  // The server's threads read the configuration when a client comes.
  void Serve() {
    const std::lock_guard lock(mutex_);
    served_ = config_;
  }

  const TestAuthority authority_;
  const ClientTls anybody_{.ca_file = Path("ca.pem")};
  TlsConfig config_, served_;
  std::mutex mutex_;  // guards served_
  std::unique_ptr<TlsContext> tls_;
  HttpServer server_{[](const HttpRequest&) {
    return HttpResponse{.headers = {}, .body = std::string(1 << 20, 'p')};
  }};
};

TEST_F(TlsServingTest, ServesWhoTrustsTheAuthority) {
  Start();
  const HttpAnswer answer = GetByTls(server_.ports()[0], "/", anybody_);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.size(), size_t{1} << 20);
}

TEST_F(TlsServingTest, ARequestWithoutTlsGetsNoAnswer) {
  Start();
  EXPECT_EQ(Get(server_.ports()[0], "/").status, 0);
  EXPECT_EQ(StatusFor(anybody_), 200) << "others do";
}

TEST_F(TlsServingTest, RefusesOldVersions) {
  Start();
  EXPECT_EQ(StatusFor(UpTo(2)), 200);
  EXPECT_EQ(StatusFor(UpTo(1)), 0);
}

TEST_F(TlsServingTest, TakesUpACertificateThatIsReplaced) {
  Start();
  EXPECT_EQ(StatusFor(anybody_), 200);
  const TestAuthority next;
  Use(next.Issue({"IP:127.0.0.1"}));
  EXPECT_EQ(StatusFor(anybody_), 0) << "it is of another authority now";
  Write("next.pem", next.certificate());
  EXPECT_EQ(StatusFor({.ca_file = Path("next.pem")}), 200);
}

TEST_F(TlsServingTest, KeepsTheCertificateWhileItsSuccessorIsUnusable) {
  Start();
  Write("server.pem", authority_.Issue({"IP:127.0.0.1"}).certificate);
  EXPECT_EQ(StatusFor(anybody_), 200) << "the new certificate's key is not there yet";
  Write("server.pem", "no certificate");
  EXPECT_EQ(StatusFor(anybody_), 200);
}

TEST_F(TlsServingTest, LetsInClientsOfTheAuthorityOnly) {
  config_.verifies_clients = true;
  config_.client_ca_file = Path("ca.pem");
  Start();
  EXPECT_EQ(StatusFor(anybody_), 0);
  EXPECT_EQ(StatusFor(Client(authority_)), 200);
  EXPECT_EQ(StatusFor(Client(TestAuthority())), 0);
  EXPECT_EQ(StatusFor(Client(authority_, {"DNS:prometheus"}, TestAuthority::Use::kServersOnly)), 0);
}

TEST_F(TlsServingTest, WhoIsLetInRotatesToo) {
  config_.verifies_clients = true;
  config_.client_ca_file = Path("clients.pem");
  Write("clients.pem", authority_.certificate());
  Start();
  const TestAuthority next;
  EXPECT_EQ(StatusFor(Client(next)), 0);
  Write("clients.pem", next.certificate());
  EXPECT_EQ(StatusFor(Client(next)), 200);
  EXPECT_EQ(StatusFor(Client(authority_)), 0);
  config_.client_allowed_sans = {"somebody"};
  EXPECT_EQ(StatusFor(Client(next)), 0);
  config_.verifies_clients = false;
  config_.client_ca_file.clear();
  config_.client_allowed_sans = {};
  EXPECT_EQ(StatusFor(anybody_), 200);
}

TEST_F(TlsServingTest, LetsInClientsOfTheAllowedNamesOnly) {
  config_.verifies_clients = true;
  config_.client_ca_file = Path("ca.pem");
  config_.client_allowed_sans = {"prometheus", "10.1.2.3", "fd00::1", "spiffe://cluster/prometheus",
                                 "p@example.org"};
  Start();
  EXPECT_EQ(StatusFor(Client(authority_, {"DNS:other", "DNS:prometheus"})), 200);
  EXPECT_EQ(StatusFor(Client(authority_, {"IP:10.1.2.3"})), 200);
  EXPECT_EQ(StatusFor(Client(authority_, {"IP:fd00::1"})), 200);
  EXPECT_EQ(StatusFor(Client(authority_, {"URI:spiffe://cluster/prometheus"})), 200);
  EXPECT_EQ(StatusFor(Client(authority_, {"EMAIL:p@example.org"})), 200);
  EXPECT_EQ(StatusFor(Client(authority_, {})), 0);
  EXPECT_EQ(StatusFor(Client(authority_, {"DNS:other", "IP:10.1.2.4"})), 0);
}

TEST_F(TlsServingTest, SpeaksTheOldVersionsThatItIsTold) {
  config_.min_version = TlsVersion::kTls10;
  Start();
  EXPECT_EQ(StatusFor(UpTo(0)), 200);
}

TEST_F(TlsServingTest, SpeaksNoVersionBelowTheLeast) {
  config_.min_version = TlsVersion::kTls11;
  Start();
  EXPECT_EQ(StatusFor(UpTo(1)), 200);
  EXPECT_EQ(StatusFor(UpTo(0)), 0);
  config_.min_version = TlsVersion::kTls13;
  EXPECT_EQ(StatusFor(UpTo(3)), 200);
  EXPECT_EQ(StatusFor(UpTo(2)), 0);
}

TEST_F(TlsServingTest, SaysWhatIsWrongAtTheStart) {
  config_.key_file = Path("missing.key");
  EXPECT_THAT(ErrorAtStart(), testing::HasSubstr("missing.key"));
  Write("other.key", authority_.Issue({"IP:127.0.0.1"}).key);
  config_.key_file = Path("other.key");
  EXPECT_THAT(ErrorAtStart(), testing::HasSubstr("does not belong to"));
  Use(authority_.Issue({"IP:127.0.0.1"}));
  config_.key_file = Path("server.key");
  config_.verifies_clients = true;
  config_.client_ca_file = Path("no-ca.pem");
  Write("no-ca.pem", "no certificate");
  EXPECT_THAT(ErrorAtStart(), testing::HasSubstr("no-ca.pem: "));
  Write("no-ca.pem", authority_.certificate() +
                         "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  EXPECT_THAT(ErrorAtStart(), testing::HasSubstr("no-ca.pem: ")) << "one of two is unreadable";
}

}  // namespace
}  // namespace nccl_exporter::exporter
