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
#include <regex>
#include <span>
#include <stdexcept>

namespace nccl_exporter::exporter {
namespace {

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

// Keys of the toolkit that are not taken: certificates have files, GnuTLS chooses ciphers and
// curves, and headers are those that the daemon always sends.
bool IsLeftOut(std::string_view key) {
  constexpr std::array<std::string_view, 8> kLeftOut{"cert",
                                                     "key",
                                                     "client_ca",
                                                     "cipher_suites",
                                                     "max_version",
                                                     "curve_preferences",
                                                     "prefer_server_cipher_suites",
                                                     "http_server_config"};
  return std::ranges::find(kLeftOut, key) != kLeftOut.end();
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
      throw ConfigError(entry.first, IsLeftOut(name)
                                         ? name + " is not supported: remove the key"
                                         : "unknown key '" + Shown(name) + "' in " + where);
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

// Whether clients are verified. The toolkit's other modes let in clients without a good
// certificate.
constexpr std::array<std::pair<std::string_view, bool>, 2> kClientAuths{
    {{"NoClientCert", false}, {"RequireAndVerifyClientCert", true}}};

std::string Path(const YAML::Node& value, const Reading& reading) {
  const std::string path = Text(value);
  if (path.empty()) return path;
  return (std::filesystem::path(reading.directory) / path).string();
}

TlsConfig& Tls(Reading& reading) { return *reading.config.tls; }

constexpr Key kTlsKeys[] = {
    {"cert_file", [](const YAML::Node& v, Reading& r) { Tls(r).cert_file = Path(v, r); }},
    {"key_file", [](const YAML::Node& v, Reading& r) { Tls(r).key_file = Path(v, r); }},
    {"client_ca_file", [](const YAML::Node& v, Reading& r) { Tls(r).client_ca_file = Path(v, r); }},
    {"client_auth_type",
     [](const YAML::Node& v, Reading& r) { Tls(r).verifies_clients = OneOf(v, kClientAuths); }},
    {"client_allowed_sans",
     [](const YAML::Node& v, Reading& r) { Tls(r).client_allowed_sans = List(v); }},
    {"min_version",
     [](const YAML::Node& v, Reading& r) { Tls(r).min_version = OneOf(v, kTlsVersions); }},
};

// Combinations that would serve less protection than they seem to ask for are errors, not warnings.
void ReadTls(const YAML::Node& value, Reading& reading) {
  TlsConfig& tls = reading.config.tls.emplace();
  ReadMap(value, "tls_server_config", kTlsKeys, reading);
  if (tls.cert_file.empty()) throw ConfigError(value, "tls_server_config has no cert_file");
  if (tls.key_file.empty()) throw ConfigError(value, "tls_server_config has no key_file");
  if (tls.verifies_clients == tls.client_ca_file.empty()) {
    throw ConfigError(value, tls.verifies_clients
                                 ? "client_auth_type requires a client CA, and none is given"
                                 : "a client CA is given that client_auth_type does not use");
  }
  if (!tls.verifies_clients && !tls.client_allowed_sans.empty()) {
    throw ConfigError(value,
                      "client_allowed_sans has no effect if client certificates are not verified");
  }
}

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
    {"basic_auth_users", ReadUsers},
};

}  // namespace

WebConfig ParseWebConfig(std::string_view yaml, const std::string& directory) {
  Reading reading{.config = {}, .directory = directory};
  try {
    ReadMap(YAML::Load(std::string(yaml)), "the file", kTopKeys, reading);
  } catch (const YAML::Exception& wrong) {
    throw std::runtime_error("line " + std::to_string(wrong.mark.line + 1) + ": " +
                             Shown(wrong.msg));
  }
  return std::move(reading.config);
}

FileText ReadFileText(const std::string& path) {
  FileText read{.path = path, .text = {}};
  errno = 0;
  std::error_code failure;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, failure)) {
    read.unreadable = path + ": " + (errno == 0 ? "cannot be opened" : std::strerror(errno));
    return read;
  }
  // One byte more than may be distinguishes a file that is too large from one that just fits.
  read.text.resize(kWebConfigLimitBytes + 1);
  file.read(read.text.data(), static_cast<std::streamsize>(read.text.size()));
  read.text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) read.unreadable = path + ": cannot be read";
  if (read.text.size() > kWebConfigLimitBytes)
    read.unreadable = path + ": larger than " + std::to_string(kWebConfigLimitBytes);
  return read;
}

WebConfigFile::WebConfigFile(const std::string& path, std::string& error)
    : LastUsable(
          "web configuration", [path] { return ReadFileText(path); },
          [](const FileText& file, const WebConfig* in_force) {
            if (!file.unreadable.empty()) throw std::runtime_error(file.unreadable);
            try {
              WebConfig config = ParseWebConfig(
                  file.text, std::filesystem::path(file.path).parent_path().string());
              if (in_force != nullptr && config.tls.has_value() != in_force->tls.has_value())
                throw std::runtime_error("only a restart switches TLS on or off");
              return config;
            } catch (const std::runtime_error& wrong) {
              throw std::runtime_error(file.path + ": " + wrong.what());
            }
          },
          error) {}

}  // namespace nccl_exporter::exporter
