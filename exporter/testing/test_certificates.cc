// SPDX-License-Identifier: Apache-2.0
// Keys are elliptic curves, because these are made in microseconds.
#include "exporter/testing/test_certificates.h"

#include <arpa/inet.h>

#include <array>
#include <atomic>
#include <ctime>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

gnutls_x509_privkey_t NewKey() {
  gnutls_x509_privkey_t key = nullptr;
  gnutls_x509_privkey_init(&key);
  gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
                               GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
  return key;
}

// Unsigned, valid for a day.
gnutls_x509_crt_t NewCertificate(gnutls_x509_privkey_t key, const std::string& name) {
  static std::atomic<uint8_t> serial = 1;
  gnutls_x509_crt_t certificate = nullptr;
  gnutls_x509_crt_init(&certificate);
  gnutls_x509_crt_set_version(certificate, 3);
  const uint8_t number = serial++;
  gnutls_x509_crt_set_serial(certificate, &number, sizeof number);
  gnutls_x509_crt_set_activation_time(certificate, std::time(nullptr) - 3600);
  gnutls_x509_crt_set_expiration_time(certificate, std::time(nullptr) + 86400);
  gnutls_x509_crt_set_key(certificate, key);
  gnutls_x509_crt_set_dn(certificate, ("CN=" + name).c_str(), nullptr);
  return certificate;
}

void AddName(gnutls_x509_crt_t certificate, std::string_view name) {
  constexpr std::array<std::pair<std::string_view, gnutls_x509_subject_alt_name_t>, 4> kKinds{
      {{"IP:", GNUTLS_SAN_IPADDRESS},
       {"DNS:", GNUTLS_SAN_DNSNAME},
       {"URI:", GNUTLS_SAN_URI},
       {"EMAIL:", GNUTLS_SAN_RFC822NAME}}};
  for (const auto& [prefix, kind] : kKinds) {
    if (!name.starts_with(prefix)) continue;
    std::string value(name.substr(prefix.size()));
    if (kind == GNUTLS_SAN_IPADDRESS) {
      std::array<char, 16> bytes{};
      const bool is_v4 = inet_pton(AF_INET, value.c_str(), bytes.data()) == 1;
      if (!is_v4) inet_pton(AF_INET6, value.c_str(), bytes.data());
      value.assign(bytes.data(), is_v4 ? 4 : 16);
    }
    gnutls_x509_crt_set_subject_alt_name(certificate, kind, value.data(),
                                         static_cast<unsigned>(value.size()), GNUTLS_FSAN_APPEND);
  }
}

// The PEM text that one of GnuTLS' functions exports.
template <typename Export>
std::string Pem(Export export_pem) {
  gnutls_datum_t text{};
  export_pem(&text);
  std::string pem(reinterpret_cast<const char*>(text.data), text.size);
  gnutls_free(text.data);
  return pem;
}

std::string PemOf(gnutls_x509_crt_t certificate) {
  return Pem([&](gnutls_datum_t* text) {
    gnutls_x509_crt_export2(certificate, GNUTLS_X509_FMT_PEM, text);
  });
}

}  // namespace

TestAuthority::TestAuthority() {
  static std::atomic<int> number = 0;
  key_ = NewKey();
  certificate_ = NewCertificate(key_, "test authority " + std::to_string(number++));
  gnutls_x509_crt_set_basic_constraints(certificate_, 1, -1);
  gnutls_x509_crt_sign2(certificate_, certificate_, key_, GNUTLS_DIG_SHA256, 0);
}

TestAuthority::~TestAuthority() {
  gnutls_x509_crt_deinit(certificate_);
  gnutls_x509_privkey_deinit(key_);
}

std::string TestAuthority::certificate() const { return PemOf(certificate_); }

TestAuthority::Issued TestAuthority::Issue(const std::vector<std::string>& alternative_names,
                                           Use use) const {
  gnutls_x509_privkey_t const key = NewKey();
  gnutls_x509_crt_t const certificate = NewCertificate(key, "test");
  for (const std::string& name : alternative_names) AddName(certificate, name);
  if (use == Use::kServersOnly)
    gnutls_x509_crt_set_key_purpose_oid(certificate, GNUTLS_KP_TLS_WWW_SERVER, 0);
  gnutls_x509_crt_sign2(certificate, certificate_, key_, GNUTLS_DIG_SHA256, 0);
  Issued issued{.certificate = PemOf(certificate),
                .key = Pem([&](gnutls_datum_t* text) {
                  gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, nullptr, 0, text);
                })};
  gnutls_x509_crt_deinit(certificate);
  gnutls_x509_privkey_deinit(key);
  return issued;
}

}  // namespace nccl_exporter::exporter
