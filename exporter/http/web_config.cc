// SPDX-License-Identifier: Apache-2.0
// The schema as tables of keys, each with what reads its value: a key that is in no table is an
// error.
#include "exporter/http/web_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <span>
#include <stdexcept>

namespace nccl_exporter::exporter {
namespace {

// Thrown within this file only.
class ConfigError : public std::runtime_error {
 public:
  ConfigError(const YAML::Node& node, const std::string& what)
      : std::runtime_error("line " + std::to_string(node.Mark().line + 1) + ": " + what) {}
};

// Target of the parser. Paths in the file are relative to its directory, as exporter-toolkit has
// it.
struct Reading {
  WebConfig config;
  std::string directory;
};

// One key of a map. `read` throws a ConfigError that names the line.
struct Key {
  std::string_view name;
  void (*read)(const YAML::Node& value, Reading& reading);
};

// A key or value as an error message may show it: short, and without line feeds.
std::string Shown(std::string text) {
  constexpr size_t kLongest = 60;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
  return text.size() > kLongest ? text.substr(0, kLongest) + "..." : text;
}

// A key without a value counts as absent. A key that is given twice is an error: YAML parsers
// differ in which of the two they take, and one of them may be the one that keeps strangers out.
void ReadMap(const YAML::Node& map, const std::string& where, std::span<const Key> keys,
             Reading& reading) {
  if (map.IsNull()) return;
  if (!map.IsMap()) throw ConfigError(map, where + " is not a map");
  std::vector<std::string> seen;
  for (const auto& entry : map) {
    if (!entry.first.IsScalar()) throw ConfigError(map, "a key in " + where + " is not a string");
    const std::string name = entry.first.Scalar();
    const auto key = std::ranges::find(keys, name, &Key::name);
    if (key == keys.end())
      throw ConfigError(entry.first, "unknown key '" + Shown(name) + "' in " + where);
    if (std::ranges::find(seen, name) != seen.end())
      throw ConfigError(entry.first, "key '" + name + "' given twice");
    seen.push_back(name);
    if (!entry.second.IsNull()) key->read(entry.second, reading);
  }
}

// A zero byte would end the text early where it is handed to C libraries.
std::string Text(const YAML::Node& value) {
  if (!value.IsScalar()) throw ConfigError(value, "a string is expected");
  if (value.Scalar().find('\0') != std::string::npos)
    throw ConfigError(value, "a string with a zero byte");
  return value.Scalar();
}

// Only these two words: YAML 1.1 also takes "yes" and "on", YAML 1.2 does not.
bool Bool(const YAML::Node& value) {
  const std::string text = Text(value);
  if (text != "true" && text != "false") throw ConfigError(value, "true or false is expected");
  return text == "true";
}

std::vector<std::string> List(const YAML::Node& value) {
  if (!value.IsSequence()) throw ConfigError(value, "a list is expected");
  std::vector<std::string> list;
  for (const YAML::Node& element : value) list.push_back(Text(element));
  return list;
}

template <typename Value, size_t kSize>
Value OneOf(const YAML::Node& value,
            const std::array<std::pair<std::string_view, Value>, kSize>& names) {
  const std::string text = Text(value);
  std::string choices;
  for (const auto& [name, meaning] : names) {
    if (name == text) return meaning;
    choices += (choices.empty() ? "" : ", ") + std::string(name);
  }
  throw ConfigError(value, "'" + Shown(text) + "' is not one of " + choices);
}

constexpr std::array<std::pair<std::string_view, TlsVersion>, 4> kTlsVersions{
    {{"TLS10", TlsVersion::kTls10},
     {"TLS11", TlsVersion::kTls11},
     {"TLS12", TlsVersion::kTls12},
     {"TLS13", TlsVersion::kTls13}}};

constexpr std::array<std::pair<std::string_view, ClientAuth>, 5> kClientAuths{
    {{"NoClientCert", ClientAuth::kNone},
     {"RequestClientCert", ClientAuth::kRequest},
     {"RequireAnyClientCert", ClientAuth::kRequireAny},
     {"VerifyClientCertIfGiven", ClientAuth::kVerifyIfGiven},
     {"RequireAndVerifyClientCert", ClientAuth::kRequireAndVerify}}};

std::string Path(const YAML::Node& value, const Reading& reading) {
  const std::string path = Text(value);
  if (path.empty()) return path;
  return (std::filesystem::path(reading.directory) / path).string();
}

TlsConfig& Tls(Reading& reading) { return *reading.config.tls; }

constexpr const char* kNoCipherSuites =
    "cipher_suites is not supported: GnuTLS chooses, within min_version and max_version; remove "
    "the key";

constexpr Key kTlsKeys[] = {
    {"cert_file", [](const YAML::Node& v, Reading& r) { Tls(r).certificate.file = Path(v, r); }},
    {"cert", [](const YAML::Node& v, Reading& r) { Tls(r).certificate.inline_text = Text(v); }},
    {"key_file", [](const YAML::Node& v, Reading& r) { Tls(r).key.file = Path(v, r); }},
    {"key", [](const YAML::Node& v, Reading& r) { Tls(r).key.inline_text = Text(v); }},
    {"client_ca_file", [](const YAML::Node& v, Reading& r) { Tls(r).client_ca.file = Path(v, r); }},
    {"client_ca", [](const YAML::Node& v, Reading& r) { Tls(r).client_ca.inline_text = Text(v); }},
    {"client_auth_type",
     [](const YAML::Node& v, Reading& r) { Tls(r).client_auth = OneOf(v, kClientAuths); }},
    {"client_allowed_sans",
     [](const YAML::Node& v, Reading& r) { Tls(r).client_allowed_sans = List(v); }},
    {"min_version",
     [](const YAML::Node& v, Reading& r) { Tls(r).min_version = OneOf(v, kTlsVersions); }},
    {"max_version",
     [](const YAML::Node& v, Reading& r) { Tls(r).max_version = OneOf(v, kTlsVersions); }},
    {"cipher_suites", [](const YAML::Node& v, Reading&) { throw ConfigError(v, kNoCipherSuites); }},
    {"curve_preferences", [](const YAML::Node& v, Reading& r) { Tls(r).curves = List(v); }},
    {"prefer_server_cipher_suites",
     [](const YAML::Node& v, Reading& r) { Tls(r).prefers_server_cipher_suites = Bool(v); }},
};

// A text and a file exclude each other: one of them would be ignored in silence.
void CheckPem(const YAML::Node& node, const PemSource& source, const std::string& name) {
  if (!source.file.empty() && !source.inline_text.empty()) {
    throw ConfigError(node, "both " + name + " and " + name + "_file are given");
  }
}

// Combinations that would serve less protection than they seem to ask for are errors, not warnings.
void ReadTls(const YAML::Node& value, Reading& reading) {
  TlsConfig& tls = reading.config.tls.emplace();
  ReadMap(value, "tls_server_config", kTlsKeys, reading);
  CheckPem(value, tls.certificate, "cert");
  CheckPem(value, tls.key, "key");
  CheckPem(value, tls.client_ca, "client_ca");
  if (!tls.certificate.is_given())
    throw ConfigError(value, "tls_server_config has neither cert_file nor cert");
  if (!tls.key.is_given())
    throw ConfigError(value, "tls_server_config has neither key_file nor key");
  const bool verifies = tls.client_auth == ClientAuth::kVerifyIfGiven ||
                        tls.client_auth == ClientAuth::kRequireAndVerify;
  if (verifies != tls.client_ca.is_given()) {
    throw ConfigError(value, verifies ? "client_auth_type requires a client CA, and none is given"
                                      : "a client CA is given that client_auth_type does not use");
  }
  if (!verifies && !tls.client_allowed_sans.empty()) {
    throw ConfigError(value,
                      "client_allowed_sans has no effect if client certificates are not verified");
  }
  if (tls.min_version > tls.max_version)
    throw ConfigError(value, "min_version is above max_version");
}

// The headers that exporter-toolkit lets a file set.
constexpr std::string_view kHeaders[] = {"Content-Security-Policy", "X-Frame-Options",
                                         "X-Content-Type-Options", "X-XSS-Protection",
                                         "Strict-Transport-Security"};

void ReadHeaders(const YAML::Node& value, Reading& reading) {
  if (!value.IsMap()) throw ConfigError(value, "headers is not a map");
  for (const auto& entry : value) {
    const std::string name = Text(entry.first);
    if (std::ranges::find(kHeaders, name) == std::end(kHeaders)) {
      throw ConfigError(entry.first, "header '" + Shown(name) + "' cannot be set");
    }
    const std::string text = entry.second.IsNull() ? "" : Text(entry.second);
    // A line feed would begin a header of its own.
    const bool is_plain = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
    if (!is_plain)
      throw ConfigError(entry.second, "header '" + name + "' has a value that cannot be sent");
    auto& headers = reading.config.headers;
    if (std::ranges::find(headers, name, &std::pair<std::string, std::string>::first) !=
        headers.end()) {
      throw ConfigError(entry.first, "header '" + name + "' given twice");
    }
    if (!text.empty()) headers.emplace_back(name, text);
  }
}

constexpr Key kHttpKeys[] = {
    {"http2", [](const YAML::Node& v, Reading&) { Bool(v); }},  // HTTP/2 is never offered
    {"headers", ReadHeaders},
};

bool IsBcrypt(const std::string& hash) {
  static const std::regex kBcrypt(R"(\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53})");
  return std::regex_match(hash, kBcrypt);
}

// A hash that is too expensive is refused here: each request with a password would hold a thread
// for seconds.
void ReadUsers(const YAML::Node& value, Reading& reading) {
  constexpr int kMinCost = 4;
  if (!value.IsMap()) throw ConfigError(value, "basic_auth_users is not a map");
  for (const auto& entry : value) {
    const std::string name = Text(entry.first);
    const std::string hash = entry.second.IsNull() ? "" : Text(entry.second);
    const std::string user = "user '" + Shown(name) + "'";
    if (name.empty() || name.find(':') != std::string::npos)
      throw ConfigError(entry.first, user + ": no valid name");
    if (!IsBcrypt(hash))
      throw ConfigError(entry.second, user + ": the password is not hashed with bcrypt");
    const int cost = (hash[4] - '0') * 10 + (hash[5] - '0');
    if (cost < kMinCost || cost > kMaxBcryptCost) {
      throw ConfigError(entry.second, user + ": the cost of the hash is not between " +
                                          std::to_string(kMinCost) + " and " +
                                          std::to_string(kMaxBcryptCost));
    }
    if (!reading.config.users.emplace(name, hash).second)
      throw ConfigError(entry.first, user + " given twice");
  }
}

constexpr Key kTopKeys[] = {
    {"tls_server_config", ReadTls},
    {"http_server_config",
     [](const YAML::Node& v, Reading& r) { ReadMap(v, "http_server_config", kHttpKeys, r); }},
    {"basic_auth_users", ReadUsers},
};

// The whole file; empty, and `error` set, where it cannot be read.
std::string Content(const std::string& path, std::string& error) {
  errno = 0;
  std::error_code failure;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, failure)) {
    error = path + ": " + (errno == 0 ? "cannot be opened" : std::strerror(errno));
    return "";
  }
  std::string content(kWebConfigLimitBytes + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  // One byte more than may be distinguishes a file that is too large from one that just fits.
  content.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) error = path + ": cannot be read";
  if (content.size() > kWebConfigLimitBytes)
    error = path + ": larger than " + std::to_string(kWebConfigLimitBytes);
  return error.empty() ? content : "";
}

}  // namespace

WebConfig ParseWebConfig(std::string_view yaml, const std::string& directory, std::string& error) {
  Reading reading{.config = {}, .directory = directory};
  try {
    ReadMap(YAML::Load(std::string(yaml)), "the file", kTopKeys, reading);
  } catch (const ConfigError& wrong) {
    error = wrong.what();
  } catch (const YAML::Exception& wrong) {
    error = "line " + std::to_string(wrong.mark.line + 1) + ": " + Shown(wrong.msg);
  }
  return std::move(reading.config);
}

WebConfigText ReadWebConfigText(const std::string& path) {
  WebConfigText text;
  text.yaml = Content(path, text.unreadable);
  return text;
}

WebConfig ParseWebConfig(const WebConfigText& text, const std::string& path, std::string& error) {
  error = text.unreadable;
  if (!error.empty()) return {};
  WebConfig config =
      ParseWebConfig(text.yaml, std::filesystem::path(path).parent_path().string(), error);
  if (!error.empty()) error = path + ": " + error;
  return config;
}

std::string ReadPem(const PemSource& source, std::string& error) {
  return source.file.empty() ? source.inline_text : Content(source.file, error);
}

}  // namespace nccl_exporter::exporter
