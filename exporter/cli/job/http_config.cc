// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/job/http_config.h"

#include <gnutls/gnutls.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <stdexcept>

namespace nccl_exporter::exporter {
namespace {

// What Prometheus refuses to set, and what frames a request.
constexpr std::string_view kReservedHeaders[] = {"authorization",
                                                 "host",
                                                 "content-encoding",
                                                 "content-length",
                                                 "content-type",
                                                 "user-agent",
                                                 "connection",
                                                 "keep-alive",
                                                 "proxy-authenticate",
                                                 "proxy-authorization",
                                                 "www-authenticate",
                                                 "accept-encoding",
                                                 "transfer-encoding",
                                                 "te",
                                                 "trailer",
                                                 "upgrade",
                                                 "expect"};

[[noreturn]] void Refuse(const std::string& why) { throw std::invalid_argument(why); }

std::string TextOfFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kHttpConfigLimitBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || (!file.eof() && text.empty()))
    Refuse("cannot read " + path + (errno == 0 ? "" : std::string(": ") + std::strerror(errno)));
  if (text.size() > kHttpConfigLimitBytes) Refuse(path + " is longer than 1 MiB");
  return text;
}

// What a value of a field may have, by this client.
bool IsCarried(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 0x7F; });
}

std::string LowerCase(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// A token of HTTP.
bool IsFieldName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 ||
                        std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) !=
                            std::string_view::npos);
  });
}

class Reader {
 public:
  explicit Reader(std::string directory) : directory_(std::move(directory)) {}

  HttpConfig Read(const YAML::Node& root) const {
    HttpConfig config;
    if (!root.IsDefined() || root.IsNull()) return config;
    Check(root, "the file",
          {"basic_auth", "authorization", "bearer_token", "bearer_token_file", "tls_config",
           "http_headers"});
    const int logins = root["basic_auth"].IsDefined() + root["authorization"].IsDefined() +
                       (root["bearer_token"].IsDefined() || root["bearer_token_file"].IsDefined());
    if (logins > 1) Refuse("it has more than one login");
    if (root["basic_auth"].IsDefined()) config.authorization = Basic(root["basic_auth"]);
    if (root["authorization"].IsDefined()) config.authorization = Token(root["authorization"]);
    if (const std::string token = Secret(root, "bearer_token", "bearer_token_file"); !token.empty())
      config.authorization = "Bearer " + token;
    if (root["tls_config"].IsDefined()) config.tls = Tls(root["tls_config"]);
    if (!IsCarried(config.authorization))
      Refuse("its login has a character that HTTP does not carry");
    if (root["http_headers"].IsDefined()) config.fields = Fields(root["http_headers"]);
    return config;
  }

 private:
  static void Check(const YAML::Node& node, const std::string& name,
                    std::initializer_list<std::string_view> keys) {
    if (!node.IsMap()) Refuse(name + " has no keys");
    for (const auto& entry : node) {
      const auto key = entry.first.as<std::string>();
      if (std::ranges::find(keys, key) == keys.end())
        Refuse("'" + key + "' of " + name + " is not supported");
    }
  }

  static std::string Text(const YAML::Node& node, const std::string& key) {
    return node[key].IsDefined() ? node[key].as<std::string>() : "";
  }
  std::string Path(const YAML::Node& node, const std::string& key) const {
    return Resolved(Text(node, key));
  }
  std::string Resolved(const std::string& path) const {
    return path.empty() || path.starts_with('/') ? path : directory_ + '/' + path;
  }
  // In the configuration or in a file, without the line feed at its end.
  std::string Secret(const YAML::Node& node, const std::string& key,
                     const std::string& file) const {
    if (node[key].IsDefined() && node[file].IsDefined())
      Refuse("it has both '" + key + "' and '" + file + "'");
    return node[file].IsDefined() ? SecretOfFile(Path(node, file)) : Text(node, key);
  }
  static std::string SecretOfFile(const std::string& path) {
    const std::string text = TextOfFile(path);
    return text.substr(0, text.find_last_not_of(" \r\n\t") + 1);
  }

  std::string Basic(const YAML::Node& node) const {
    Check(node, "basic_auth", {"username", "username_file", "password", "password_file"});
    const std::string login =
        Secret(node, "username", "username_file") + ':' + Secret(node, "password", "password_file");
    const gnutls_datum_t bytes{reinterpret_cast<unsigned char*>(const_cast<char*>(login.data())),
                               static_cast<unsigned>(login.size())};
    gnutls_datum_t encoded{};
    if (gnutls_base64_encode2(&bytes, &encoded) < 0) Refuse("its login cannot be encoded");
    std::string text = "Basic " + std::string(reinterpret_cast<char*>(encoded.data), encoded.size);
    gnutls_free(encoded.data);
    return text;
  }

  std::string Token(const YAML::Node& node) const {
    Check(node, "authorization", {"type", "credentials", "credentials_file"});
    const std::string type = Text(node, "type");
    return (type.empty() ? "Bearer" : type) + ' ' + Secret(node, "credentials", "credentials_file");
  }

  std::string Fields(const YAML::Node& node) const {
    if (!node.IsMap()) Refuse("http_headers has no keys");
    std::string fields;
    for (const auto& entry : node) {
      const auto name = entry.first.as<std::string>();
      const std::string place = "'" + name + "' of http_headers";
      if (!IsFieldName(name)) Refuse(place + " is no name of a header");
      if (std::ranges::find(kReservedHeaders, LowerCase(name)) != std::end(kReservedHeaders))
        Refuse(place + " cannot be set");
      Check(entry.second, place, {"values", "secrets", "files"});
      for (const std::string key : {"values", "secrets", "files"}) {
        const YAML::Node values = entry.second[key];
        if (values.IsDefined() && !values.IsSequence())
          Refuse(key + " of " + place + " is no list");
        for (const YAML::Node& value : values) {
          const auto text = value.as<std::string>();
          AddField(name, key == "files" ? SecretOfFile(Resolved(text)) : text, fields);
        }
      }
    }
    return fields;
  }
  static void AddField(const std::string& name, const std::string& value, std::string& fields) {
    if (!IsCarried(value))
      Refuse("'" + name + "' of http_headers has a character that HTTP does not carry");
    fields += name + ": " + value + "\r\n";
    if (fields.size() > kHttpHeadersLimitBytes) Refuse("its http_headers are longer than 16 KiB");
  }

  TlsSettings Tls(const YAML::Node& node) const {
    Check(node, "tls_config",
          {"ca_file", "cert_file", "key_file", "server_name", "insecure_skip_verify"});
    TlsSettings tls{.ca_file = Path(node, "ca_file"),
                    .certificate_file = Path(node, "cert_file"),
                    .key_file = Path(node, "key_file"),
                    .server_name = Text(node, "server_name")};
    if (node["insecure_skip_verify"].IsDefined())
      tls.skips_verification = node["insecure_skip_verify"].as<bool>();
    if (tls.certificate_file.empty() != tls.key_file.empty())
      Refuse("cert_file and key_file of tls_config need each other");
    return tls;
  }

  const std::string directory_;
};

std::string OneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace

std::optional<HttpConfig> ParseHttpConfig(std::string_view yaml, const std::string& directory,
                                          std::string& fault) {
  try {
    return Reader(directory).Read(YAML::Load(std::string(yaml)));
  } catch (const std::exception& wrong) {
    fault = OneLine(wrong.what());
    return std::nullopt;
  }
}

std::optional<HttpConfig> ReadHttpConfig(const std::string& path, std::string& fault) {
  if (path.empty()) return HttpConfig();
  std::optional<HttpConfig> config;
  try {
    const std::filesystem::path directory = std::filesystem::path(path).parent_path();
    config = ParseHttpConfig(TextOfFile(path), directory.empty() ? "." : directory.string(), fault);
    if (!config) fault = path + ": " + fault;
  } catch (const std::exception& wrong) {
    fault = OneLine(wrong.what());
  }
  return config;
}

}  // namespace nccl_exporter::exporter
