// SPDX-License-Identifier: Apache-2.0
// Authorities and certificates for tests, made on the spot.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>

namespace nccl_exporter {

class TestAuthority {
 public:
  TestAuthority();

  // In PEM.
  std::string certificate() const;

  struct Issued {
    std::string certificate;
    std::string key;
  };
  // For `alternative_names` in OpenSSL's words, "IP:127.0.0.1,DNS:prometheus".
  Issued Issue(const std::string& alternative_names) const;

 private:
  const std::shared_ptr<EVP_PKEY> key_;
  const std::shared_ptr<X509> certificate_;
};

}  // namespace nccl_exporter
