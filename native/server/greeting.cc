#include "greeting.h"

#include <cmath>
#include <cstdlib>

#include "trust.h"

namespace weft::rpc {
namespace {

constexpr int32_t kMagic = 0xFF271, kSuccess = kMagic, kMismatch = kMagic + 2, kChallenge = kMagic + 3;
constexpr int32_t kMaxKeyBytes = 4096;

std::string number(int32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

int32_t read_number(Connection* link) {
  int32_t value;
  link->read(reinterpret_cast<char*>(&value), sizeof value);
  return value;
}

std::string read_bytes(Connection* link, size_t n) {
  std::string out(n, 0);
  link->read(&out[0], n);
  return out;
}

bool proves(Connection* link, const std::string& secret, const std::string& text) {
  std::string ours = random_bytes(kNonceBytes);
  link->write(number(kChallenge) + ours);
  std::string theirs = read_bytes(link, kNonceBytes), shown = read_bytes(link, kProofBytes);
  if (!same(shown, proof(secret, "client", text, ours, theirs))) return false;
  link->write(proof(secret, "server", text, ours, theirs));
  return true;
}

double timeout_of(const std::string& text) {
  size_t at = text.find(" -timeout=");
  double seconds = at == std::string::npos ? 0 : std::strtod(text.c_str() + at + 10, nullptr);
  return std::isfinite(seconds) && seconds > 0 ? seconds : 0;
}

}  // namespace

Greeted greet(Connection* link, const std::string& key, const std::string& secret, bool (*admit)()) {
  if (read_number(link) != kMagic) return {};
  int32_t size = read_number(link);
  if (size < 0 || size > kMaxKeyBytes) return {};
  std::string text = read_bytes(link, static_cast<size_t>(size));
  if (!same(text.substr(0, text.find(' ')), "client:" + key)) {
    link->write(number(kMismatch));
    return {};
  }
  if (!secret.empty() && !proves(link, secret, text)) return {};
  if (!admit()) {
    link->write(number(kMismatch));
    return {};
  }
  std::string name = "server:" + key;
  link->write(number(kSuccess) + number(static_cast<int32_t>(name.size())) + name);
  return {true, timeout_of(text)};
}

}  // namespace weft::rpc
