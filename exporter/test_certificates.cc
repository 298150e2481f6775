// SPDX-License-Identifier: Apache-2.0
// Elliptic curves, since their keys are made at once.
#include "exporter/test_certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>

namespace nccl_exporter {
namespace {

using Key = std::shared_ptr<EVP_PKEY>;
using Certificate = std::shared_ptr<X509>;

Key NewKey() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }

void AddExtension(X509* certificate, int id, const std::string& value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, id, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Unsigned, valid for a day.
Certificate NewCertificate(EVP_PKEY* key, const std::string& name, const X509_NAME* issuer) {
  static std::atomic<long> serial = 1;
  Certificate certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 86400);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const uint8_t*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), issuer == nullptr ? subject : issuer);
  return certificate;
}

Certificate NewAuthority(EVP_PKEY* key) {
  static std::atomic<int> number = 0;
  Certificate certificate = NewCertificate(key, "test authority " + std::to_string(number++), nullptr);
  AddExtension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  X509_sign(certificate.get(), key, EVP_sha256());
  return certificate;
}

template <typename Write>
std::string Pem(Write write) {
  const std::shared_ptr<BIO> bio(BIO_new(BIO_s_mem()), BIO_free_all);
  write(bio.get());
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

std::string PemOf(X509* certificate) {
  return Pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); });
}

}  // namespace

TestAuthority::TestAuthority() : key_(NewKey()), certificate_(NewAuthority(key_.get())) {}

std::string TestAuthority::certificate() const { return PemOf(certificate_.get()); }

TestAuthority::Issued TestAuthority::Issue(const std::string& alternative_names) const {
  const Key key = NewKey();
  const Certificate certificate = NewCertificate(key.get(), "test", X509_get_subject_name(certificate_.get()));
  AddExtension(certificate.get(), NID_subject_alt_name, alternative_names);
  X509_sign(certificate.get(), key_.get(), EVP_sha256());
  return {.certificate = PemOf(certificate.get()),
          .key = Pem(
              [&](BIO* bio) { PEM_write_bio_PKCS8PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr); })};
}

}  // namespace nccl_exporter
