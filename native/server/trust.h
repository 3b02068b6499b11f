// Proof of a shared secret, as in weft/rpc/trust.py: HMAC-SHA256 (FIPS 180-4, RFC 2104) of random numbers.
#ifndef WEFT_SERVER_TRUST_H_
#define WEFT_SERVER_TRUST_H_

#include <string>
#include <string_view>

namespace weft::rpc {

constexpr size_t kNonceBytes = 32, kProofBytes = 32;

std::string sha256(std::string_view data);
std::string hmac_sha256(std::string_view key, std::string_view data);
std::string random_bytes(size_t n);
// What one side ("client" or "server") sends to show that it knows the secret.
std::string proof(std::string_view secret, std::string_view side, std::string_view key, std::string_view server_nonce,
                  std::string_view client_nonce);
// Whether they are the same, in a time that does not tell how much of them is.
bool same(std::string_view a, std::string_view b);

}  // namespace weft::rpc
#endif  // WEFT_SERVER_TRUST_H_
