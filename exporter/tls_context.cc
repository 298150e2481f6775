// SPDX-License-Identifier: Apache-2.0
// OpenSSL contexts, made from texts that were read; a handshake moves to the newest when the client's hello is in.
#include "exporter/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/peer_names.h"

namespace nccl_exporter {

// All that a context is made of.
struct TlsContext::Material {
  TlsConfig config;
  std::string certificate;
  std::string key;
  std::string client_ca;
  std::string unreadable;  // what could not be read, and why

  bool operator==(const Material&) const = default;
};

namespace {

template <auto kFree>
struct Freer {
  template <typename Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;

[[noreturn]] void Fail(const std::string& what) {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  throw std::runtime_error(reason == nullptr ? what : what + ": " + reason);
}

void Require(bool holds, const std::string& what) {
  if (!holds) Fail(what);
}

std::string NameOf(const PemSource& source, const char* name) {
  return source.file.empty() ? std::string(name) : source.file;
}

std::vector<Certificate> Certificates(const std::string& pem, const std::string& name) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::vector<Certificate> certificates;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate);
  }
  Require(ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE && !certificates.empty(),
          name + ": no certificates");
  ERR_clear_error();
  return certificates;
}

void UseCertificate(SSL_CTX* context, const TlsConfig& config, const std::string& chain, const std::string& key) {
  const std::string chain_name = NameOf(config.certificate, "cert");
  const std::string key_name = NameOf(config.key, "key");
  std::vector<Certificate> certificates = Certificates(chain, chain_name);
  Require(SSL_CTX_use_certificate(context, certificates[0].get()) == 1, chain_name + ": unusable certificate");
  for (size_t i = 1; i < certificates.size(); ++i) {
    Require(SSL_CTX_add1_chain_cert(context, certificates[i].get()) == 1, chain_name + ": unusable chain");
  }
  const Bio bio(BIO_new_mem_buf(key.data(), static_cast<int>(key.size())));
  // Whoever would ask for a password would ask a terminal.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  const PrivateKey private_key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  Require(private_key != nullptr, key_name + ": no private key without a password");
  Require(SSL_CTX_use_PrivateKey(context, private_key.get()) == 1, key_name + " does not belong to " + chain_name);
}

void TrustClientsOf(SSL_CTX* context, const TlsConfig& config, const std::string& pem) {
  if (!config.client_ca.is_given()) return;
  const std::string name = NameOf(config.client_ca, "client_ca");
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for (const Certificate& certificate : Certificates(pem, name)) {
    Require(X509_STORE_add_cert(store, certificate.get()) == 1, name + ": unusable certificate");
    Require(SSL_CTX_add_client_CA(context, certificate.get()) == 1, name + ": unusable certificate");
  }
}

// By IANA's name, which Go cuts short for ChaCha20. Those of TLS 1.3 are all in force and no choice, as in Go.
std::string CipherList(SSL_CTX* context, const std::vector<std::string>& names) {
  Require(SSL_CTX_set_cipher_list(context, "ALL:eNULL") == 1, "no ciphers");
  const STACK_OF(SSL_CIPHER)* const ciphers = SSL_CTX_get_ciphers(context);
  std::string list;
  for (const std::string& name : names) {
    bool is_known = false;
    for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); ++i) {
      const SSL_CIPHER* const cipher = sk_SSL_CIPHER_value(ciphers, i);
      const std::string_view standard = SSL_CIPHER_standard_name(cipher);
      if (standard != name && standard != name + "_SHA256") continue;
      is_known = true;
      if (std::string_view(SSL_CIPHER_get_version(cipher)) == "TLSv1.3") continue;
      list.append(list.empty() ? "" : ":").append(SSL_CIPHER_get_name(cipher));
    }
    Require(is_known, "cipher_suites: unknown suite " + name);
  }
  return list;
}

std::string GroupList(const std::vector<std::string>& curves) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kGroups{
      {{"CurveP256", "P-256"},
       {"CurveP384", "P-384"},
       {"CurveP521", "P-521"},
       {"X25519", "X25519"},
       {"X25519MLKEM768", "X25519MLKEM768"}}};
  std::string list;
  for (const std::string& curve : curves) {
    const auto group = std::ranges::find(kGroups, curve, &std::pair<std::string_view, std::string_view>::first);
    Require(group != kGroups.end(), "curve_preferences: unknown curve " + curve);
    list.append(list.empty() ? "" : ":").append(group->second);
  }
  return list;
}

int ProtocolOf(TlsVersion version) {
  constexpr std::array kProtocols{TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION};
  return kProtocols[static_cast<size_t>(version)];
}

int AcceptAnyone(int, X509_STORE_CTX*) { return 1; }

void RequestCertificate(SSL_CTX* context, const TlsConfig& config) {
  switch (config.client_auth) {
    case ClientAuth::kNone:
      return SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
    case ClientAuth::kRequest:
      return SSL_CTX_set_verify(context, SSL_VERIFY_PEER, AcceptAnyone);
    case ClientAuth::kRequireAny:
      return SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, AcceptAnyone);
    case ClientAuth::kVerifyIfGiven:
      return SSL_CTX_set_verify(context, SSL_VERIFY_PEER, AcceptAllowedName);
    case ClientAuth::kRequireAndVerify:
      return SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, AcceptAllowedName);
  }
}

void Configure(SSL_CTX* context, const TlsConfig& config) {
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_num_tickets(context, 0);
  if (config.prefers_server_cipher_suites) SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE);
  Require(SSL_CTX_set_min_proto_version(context, ProtocolOf(config.min_version)) == 1, "min_version");
  Require(SSL_CTX_set_max_proto_version(context, ProtocolOf(config.max_version)) == 1, "max_version");
  if (!config.cipher_suites.empty()) {
    const std::string list = CipherList(context, config.cipher_suites);
    Require(SSL_CTX_set_cipher_list(context, list.empty() ? "DEFAULT" : list.c_str()) == 1, "cipher_suites: " + list);
  }
  if (!config.curves.empty()) {
    const std::string list = GroupList(config.curves);
    Require(SSL_CTX_set1_groups_list(context, list.c_str()) == 1, "curve_preferences: " + list);
  }
  RequestCertificate(context, config);
  AllowNames(context, config.client_allowed_sans);
}

// What a connection copied from its context when it was made, and does not take over with a new one.
void Move(SSL* connection, SSL_CTX* context) {
  SSL_set_SSL_CTX(connection, context);
  SSL_set_verify(connection, SSL_CTX_get_verify_mode(context), SSL_CTX_get_verify_callback(context));
  SSL_set_min_proto_version(connection, static_cast<int>(SSL_CTX_get_min_proto_version(context)));
  SSL_set_max_proto_version(connection, static_cast<int>(SSL_CTX_get_max_proto_version(context)));
}

}  // namespace

TlsContext::TlsContext(TlsConfigSource source, std::string& error) : source_(std::move(source)) {
  material_ = std::make_unique<const Material>(Read(source_()));
  try {
    current_ = Make(*material_);
    front_ = Make(*material_);
    SSL_CTX_set_client_hello_cb(front_.get(), OnClientHello, this);
  } catch (const std::runtime_error& wrong) {
    error = wrong.what();
    front_ = nullptr;
  }
}

TlsContext::~TlsContext() = default;

TlsContext::Material TlsContext::Read(const TlsConfig& config) {
  Material material{.config = config, .certificate = {}, .key = {}, .client_ca = {}, .unreadable = {}};
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

TlsContext::SharedContext TlsContext::Make(const Material& material) {
  if (!material.unreadable.empty()) throw std::runtime_error(material.unreadable);
  ERR_clear_error();
  SharedContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  Require(context != nullptr, "no TLS");
  Configure(context.get(), material.config);
  UseCertificate(context.get(), material.config, material.certificate, material.key);
  TrustClientsOf(context.get(), material.config, material.client_ca);
  return context;
}

TlsContext::SharedContext TlsContext::Current() {
  const std::lock_guard lock(mutex_);
  Material material = Read(source_());
  if (material == *material_) return current_;
  material_ = std::make_unique<const Material>(std::move(material));
  try {
    current_ = Make(*material_);
    spdlog::info("TLS goes on with the files as they are now");
  } catch (const std::runtime_error& wrong) {
    spdlog::error("TLS goes on with what was usable last: {}", wrong.what());
  }
  return current_;
}

int TlsContext::OnClientHello(SSL* connection, int*, void* self) {
  try {
    Move(connection, static_cast<TlsContext*>(self)->Current().get());
    return SSL_CLIENT_HELLO_SUCCESS;
  } catch (const std::exception& failure) {  // OpenSSL is C: nothing may be thrown through it
    spdlog::error("no TLS handshake: {}", failure.what());
    return SSL_CLIENT_HELLO_ERROR;
  }
}

}  // namespace nccl_exporter
