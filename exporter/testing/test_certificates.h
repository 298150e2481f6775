// SPDX-License-Identifier: Apache-2.0
// Authorities and certificates for tests, made when a test runs.
#pragma once

#include <gnutls/x509.h>

#include <string>
#include <string_view>
#include <vector>

namespace nccl_exporter::exporter {

class TestAuthority {
 public:
  TestAuthority();
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  // In PEM.
  std::string certificate() const;

  struct Issued {
    std::string certificate;
    std::string key;
  };
  // The purpose of a certificate.
  enum class Use { kAnything, kServersOnly };
  // For names like "IP:127.0.0.1", "DNS:prometheus", "URI:spiffe://a/b" and "EMAIL:a@b".
  Issued Issue(const std::vector<std::string>& alternative_names, Use use = Use::kAnything) const;

 private:
  gnutls_x509_privkey_t key_ = nullptr;
  gnutls_x509_crt_t certificate_ = nullptr;
};

}  // namespace nccl_exporter::exporter
