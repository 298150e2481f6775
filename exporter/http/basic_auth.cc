// SPDX-License-Identifier: Apache-2.0
// libcrypt's bcrypt, GnuTLS' HMAC and its comparison in constant time.
#include "exporter/http/basic_auth.h"

#include <crypt.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <strings.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

std::array<uint8_t, 32> RandomKey() {
  std::array<uint8_t, 32> key{};
  if (gnutls_rnd(GNUTLS_RND_KEY, key.data(), key.size()) < 0)
    throw std::runtime_error("cannot get random numbers");
  return key;
}

std::optional<std::string> DecodeBase64(std::string text) {
  const gnutls_datum_t encoded{.data = reinterpret_cast<unsigned char*>(text.data()),
                               .size = static_cast<unsigned>(text.size())};
  gnutls_datum_t decoded{};
  if (text.empty() || gnutls_base64_decode2(&encoded, &decoded) < 0) return std::nullopt;
  std::string bytes(reinterpret_cast<const char*>(decoded.data), decoded.size);
  gnutls_free(decoded.data);
  return bytes;
}

// In constant time.
template <typename Bytes>
bool IsSame(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && gnutls_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool Matches(const std::string& password, const std::string& hash) {
  const auto memory = std::make_unique<crypt_data>();  // 32 KiB
  const char* const computed = crypt_r(password.c_str(), hash.c_str(), memory.get());
  const bool matches =
      computed != nullptr && IsSame(std::string_view(computed), std::string_view(hash));
  gnutls_memset(memory.get(), 0, sizeof *memory);
  return matches;
}

// Name and password of an Authorization header, or nothing where it is no Basic one.
std::optional<std::pair<std::string, std::string>> ParseBasicAuthorization(
    std::string_view header) {
  constexpr std::string_view kScheme = "basic ";
  if (header.size() <= kScheme.size() ||
      strncasecmp(header.data(), kScheme.data(), kScheme.size()) != 0)
    return std::nullopt;
  header.remove_prefix(std::min(header.find_first_not_of(' ', kScheme.size()), header.size()));
  const std::optional<std::string> text = DecodeBase64(std::string(header));
  // bcrypt ends a password at a zero byte: what follows would not be checked.
  if (!text || text->find('\0') != std::string::npos) return std::nullopt;
  const size_t colon = text->find(':');
  if (colon == std::string::npos) return std::nullopt;
  return std::pair(text->substr(0, colon), text->substr(colon + 1));
}

}  // namespace

BasicAuth::BasicAuth() : key_(RandomKey()) {}

BasicAuth::Digest BasicAuth::DigestOf(std::string_view name, std::string_view password,
                                      std::string_view hash) const {
  std::string text(hash);
  text.append(1, '\0').append(name).append(1, '\0').append(password);
  Digest digest{};
  const int status = gnutls_hmac_fast(GNUTLS_MAC_SHA256, key_.data(), key_.size(), text.data(),
                                      text.size(), digest.data());
  gnutls_memset(text.data(), 0, text.size());
  if (status < 0)
    throw std::runtime_error(
        "cannot compute the digest of a password");  // all digests would be alike
  return digest;
}

uint64_t BasicAuth::CountTry(const std::string& client) {
  if (tries_.size() >= kRememberedAddresses && !tries_.contains(client)) tries_.clear();
  return ++tries_[client];
}

bool BasicAuth::MakeRoom(uint64_t tries) {
  if (waiting_.size() < kWaitingPasswordChecks) return true;
  const auto most = std::ranges::max_element(waiting_, {}, TriesOf);
  if (TriesOf(*most) <= tries) return false;
  (*most)->verdict = Verdict::kTooMany;
  waiting_.erase(most);
  has_ended_.notify_all();
  return true;
}

bool BasicAuth::IsNext(const SharedCheck& check) const {
  return !is_checking_ && *std::ranges::min_element(waiting_, {}, TriesOf) == check;
}

BasicAuth::Verdict BasicAuth::CheckInTurn(std::unique_lock<std::mutex>& lock, const Digest& digest,
                                          const std::string& client, const std::string& password,
                                          const std::string& hash) {
  const uint64_t tries = CountTry(client);
  if (const auto found = of_clients_.find(client); found != of_clients_.end()) {
    const SharedCheck other = found->second;
    if (!IsSame(other->digest, digest)) return Verdict::kBusy;
    has_ended_.wait(lock, [&] { return other->verdict.has_value(); });
    return *other->verdict;
  }
  if (!MakeRoom(tries)) return Verdict::kTooMany;
  const auto check = std::make_shared<PendingCheck>(PendingCheck{.digest = digest, .tries = tries});
  std::list<SharedCheck> last{check};
  of_clients_.emplace(client, check);
  waiting_.splice(waiting_.end(), last);
  has_ended_.wait(lock, [&] { return check->verdict || IsNext(check); });
  if (check->verdict) {
    of_clients_.erase(client);
    return *check->verdict;
  }
  waiting_.remove(check);
  is_checking_ = true;
  lock.unlock();
  bool matches = false;
  // Also where memory is short, the next one gets its turn.
  const std::shared_ptr<void> at_the_end(nullptr, [&](void*) {
    lock.lock();
    check->verdict = matches ? Verdict::kRight : Verdict::kWrong;
    is_checking_ = false;
    of_clients_.erase(client);
    has_ended_.notify_all();
  });
  matches = Matches(password, hash);
  ++checks_made_;
  return matches ? Verdict::kRight : Verdict::kWrong;
}

BasicAuth::Verdict BasicAuth::Check(std::string_view header, const Users& users,
                                    const std::string& client) {
  const auto given = ParseBasicAuthorization(header);
  if (!given || users.empty()) return Verdict::kWrong;
  const auto& [name, password] = *given;
  const auto user = users.find(name);
  const bool exists = user != users.end();
  const std::string& hash = exists ? user->second : users.begin()->second;
  const Digest digest = DigestOf(name, password, hash);
  std::unique_lock lock(mutex_);
  const auto known = known_.find(name);
  if (exists && known != known_.end() && IsSame(known->second, digest)) return Verdict::kRight;
  const Verdict verdict = CheckInTurn(lock, digest, client, password, hash);
  if (verdict != Verdict::kRight) return verdict;
  if (!exists) return Verdict::kWrong;
  tries_.erase(client);
  known_[name] = digest;
  return Verdict::kRight;
}

}  // namespace nccl_exporter::exporter
