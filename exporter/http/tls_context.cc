// SPDX-License-Identifier: Apache-2.0
// CertificateCredentials and priorities of GnuTLS, made when a text they are made of has changed.
#include "exporter/http/tls_context.h"

#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "exporter/http/tls_priorities.h"

namespace nccl_exporter::exporter {

// All that the credentials are made of.
struct TlsContext::PemFiles {
  TlsConfig config;
  std::string certificate;
  std::string key;
  std::string client_ca;
  std::string unreadable;  // files that could not be read, and why

  bool operator==(const PemFiles&) const = default;
};

namespace {

gnutls_datum_t Datum(const std::string& text) {
  return {.data = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())),
          .size = static_cast<unsigned>(text.size())};
}

template <auto kFree>
struct Freer {
  template <typename Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};
using Priorities =
    std::unique_ptr<std::remove_pointer_t<gnutls_priority_t>, Freer<gnutls_priority_deinit>>;
using CertificateCredentials =
    std::unique_ptr<std::remove_pointer_t<gnutls_certificate_credentials_t>,
                    Freer<gnutls_certificate_free_credentials>>;

void Require(int status, const std::string& what) {
  if (status < 0) throw std::runtime_error(what + ": " + gnutls_strerror(status));
}

std::string NameOf(const PemSource& source, const char* name) {
  return source.file.empty() ? std::string(name) : source.file;
}

// Whether the certificate of the session's client is valid now, for that purpose, by the
// authorities that the session trusts. False if it has none.
bool IsGoodClient(gnutls_session_t session) {
  // GnuTLS takes purposes as text that it does not change.
  gnutls_typed_vdata_st purpose{
      .type = GNUTLS_DT_KEY_PURPOSE_OID,
      .data = reinterpret_cast<unsigned char*>(const_cast<char*>(GNUTLS_KP_TLS_WWW_CLIENT)),
      .size = 0};
  unsigned faults = 0;
  return gnutls_certificate_verify_peers(session, &purpose, 1, &faults) == GNUTLS_E_SUCCESS &&
         faults == 0;
}

// An IPv4 or IPv6 address in network byte order, as text; empty if it has another length.
std::string AddressText(const std::string& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  if (bytes.size() == 4 || bytes.size() == 16) {
    inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  }
  return text;
}

// The subject alternative names of a certificate, as text: DNS names, addresses, e-mail addresses
// and URIs.
std::vector<std::string> AlternativeNames(gnutls_x509_crt_t certificate) {
  constexpr size_t kLongestName = 4096;  // a longer one counts as none
  std::vector<std::string> names;
  for (unsigned i = 0;; ++i) {
    std::string name(kLongestName, '\0');
    size_t size = name.size();
    const int type =
        gnutls_x509_crt_get_subject_alt_name(certificate, i, name.data(), &size, nullptr);
    if (type == GNUTLS_E_SHORT_MEMORY_BUFFER) continue;
    if (type < 0) return names;
    name.resize(size);
    if (type == GNUTLS_SAN_IPADDRESS) names.push_back(AddressText(name));
    if (type == GNUTLS_SAN_DNSNAME || type == GNUTLS_SAN_RFC822NAME || type == GNUTLS_SAN_URI)
      names.push_back(name);
  }
}

// Whether a certificate in DER has one of the names. Every certificate has if no name is asked for.
bool HasAllowedName(const gnutls_datum_t& der, const std::vector<std::string>& allowed) {
  if (allowed.empty()) return true;
  gnutls_x509_crt_t certificate = nullptr;
  if (gnutls_x509_crt_init(&certificate) < 0) return false;
  std::vector<std::string> names;
  if (gnutls_x509_crt_import(certificate, &der, GNUTLS_X509_FMT_DER) >= 0)
    names = AlternativeNames(certificate);
  gnutls_x509_crt_deinit(certificate);
  return std::ranges::find_first_of(names, allowed) != names.end();
}

}  // namespace

// Keys and priorities with which sessions are made.
class TlsContext::Credentials {
 public:
  // Throws what is wrong.
  explicit Credentials(const PemFiles& material) : config_(material.config) {
    if (!material.unreadable.empty()) throw std::runtime_error(material.unreadable);
    std::string error;
    const std::string text = TlsPriorities(config_, error);
    if (!error.empty()) throw std::runtime_error(error);
    gnutls_priority_t priorities = nullptr;
    const char* wrong = "";
    if (gnutls_priority_init(&priorities, text.c_str(), &wrong) < 0)
      throw std::runtime_error(std::string("this GnuTLS does not know ") + wrong);
    priorities_.reset(priorities);
    gnutls_certificate_credentials_t credentials = nullptr;
    Require(gnutls_certificate_allocate_credentials(&credentials), "TLS credentials");
    credentials_.reset(credentials);
    UseCertificate(material);
    TrustClients(material.client_ca);
  }

  const TlsConfig& config() const { return config_; }

  void Apply(gnutls_session_t session) const {
    gnutls_priority_set(session, priorities_.get());
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials_.get());
    switch (config_.client_auth) {
      case ClientAuth::kNone:
        return gnutls_certificate_server_set_request(session, GNUTLS_CERT_IGNORE);
      case ClientAuth::kRequest:
      case ClientAuth::kVerifyIfGiven:
        return gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
      case ClientAuth::kRequireAny:
      case ClientAuth::kRequireAndVerify:
        return gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
    }
  }

 private:
  void UseCertificate(const PemFiles& material) {
    const std::string chain_name = NameOf(config_.certificate, "cert");
    const std::string key_name = NameOf(config_.key, "key");
    CheckCertificates(material.certificate, chain_name);
    const gnutls_datum_t chain = Datum(material.certificate);
    const gnutls_datum_t key = Datum(material.key);
    const int status =
        gnutls_certificate_set_x509_key_mem(credentials_.get(), &chain, &key, GNUTLS_X509_FMT_PEM);
    if (status == GNUTLS_E_CERTIFICATE_KEY_MISMATCH) {
      throw std::runtime_error(key_name + " does not belong to " + chain_name);
    }
    Require(status, key_name + ": no usable private key");
  }

  void TrustClients(const std::string& pem) {
    if (!config_.client_ca.is_given()) return;
    const std::string name = NameOf(config_.client_ca, "client_ca");
    CheckCertificates(pem, name);
    const gnutls_datum_t authorities = Datum(pem);
    Require(gnutls_certificate_set_x509_trust_mem(credentials_.get(), &authorities,
                                                  GNUTLS_X509_FMT_PEM),
            name);
  }

  // Every certificate in the text must be readable, and there must be one.
  static void CheckCertificates(const std::string& pem, const std::string& name) {
    gnutls_x509_crt_t* list = nullptr;
    unsigned size = 0;
    const gnutls_datum_t text = Datum(pem);
    Require(gnutls_x509_crt_list_import2(&list, &size, &text, GNUTLS_X509_FMT_PEM, 0),
            name + ": no certificates");
    for (unsigned i = 0; i < size; ++i) gnutls_x509_crt_deinit(list[i]);
    gnutls_free(list);
  }

  const TlsConfig config_;
  Priorities priorities_;
  CertificateCredentials credentials_;
};

TlsContext::TlsContext(TlsConfigSource source, std::string& error) : source_(std::move(source)) {
  material_ = std::make_unique<const PemFiles>(Read(source_()));
  try {
    current_ = std::make_shared<const Credentials>(*material_);
  } catch (const std::runtime_error& wrong) {
    error = wrong.what();
  }
}

TlsContext::~TlsContext() = default;

TlsContext::PemFiles TlsContext::Read(const TlsConfig& config) {
  PemFiles material{
      .config = config, .certificate = {}, .key = {}, .client_ca = {}, .unreadable = {}};
  const auto read = [&](const PemSource& source) {
    std::string error;
    std::string text = ReadPem(source, error);
    if (material.unreadable.empty()) material.unreadable = error;
    return text;
  };
  material.certificate = read(config.certificate);
  material.key = read(config.key);
  material.client_ca = read(config.client_ca);
  return material;
}

std::shared_ptr<const TlsContext::Credentials> TlsContext::Current() {
  const std::lock_guard lock(mutex_);
  PemFiles material = Read(source_());
  if (material == *material_) return current_;
  material_ = std::make_unique<const PemFiles>(std::move(material));
  fault_.clear();
  try {
    current_ = std::make_shared<const Credentials>(*material_);
    spdlog::info("TLS uses the current files again");
  } catch (const std::runtime_error& wrong) {
    fault_ = wrong.what();
    spdlog::error("TLS keeps the last usable files: {}", fault_);
  }
  return current_;
}

std::string TlsContext::FaultNow() {
  Current();
  const std::lock_guard lock(mutex_);
  return fault_;
}

std::shared_ptr<const void> TlsContext::Prepare(gnutls_session_t session) {
  std::shared_ptr<const Credentials> credentials = Current();
  credentials->Apply(session);
  // The place for what a cache of sessions needs, which there is none of. The session's own pointer
  // is the library's.
  gnutls_db_set_ptr(session, const_cast<Credentials*>(credentials.get()));
  gnutls_session_set_verify_function(session, Verify);
  return credentials;
}

// Called in a handshake when the client's certificate is in, or should be. 0 lets it in.
int TlsContext::Verify(gnutls_session_t session) {
  const TlsConfig& config = static_cast<const Credentials*>(gnutls_db_get_ptr(session))->config();
  const bool verifies = config.client_auth == ClientAuth::kVerifyIfGiven ||
                        config.client_auth == ClientAuth::kRequireAndVerify;
  if (!verifies) return 0;
  unsigned size = 0;
  const gnutls_datum_t* const chain = gnutls_certificate_get_peers(session, &size);
  if (chain == nullptr || size == 0)
    return config.client_auth == ClientAuth::kVerifyIfGiven ? 0 : -1;
  return IsGoodClient(session) && HasAllowedName(chain[0], config.client_allowed_sans) ? 0 : -1;
}

}  // namespace nccl_exporter::exporter
