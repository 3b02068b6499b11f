// How a connection begins: magic number, key, and where the server has a secret, proof of it.
#ifndef WEFT_SERVER_GREETING_H_
#define WEFT_SERVER_GREETING_H_

#include <string>

#include "wire.h"

namespace weft::rpc {

struct Greeted {
  bool accepted = false;
  double timeout_seconds = 0;  // as the client asks; 0 for any
};

// Reads no byte more than what is compared next. `admit` waits for a place, and is false where there is none.
Greeted greet(Connection* link, const std::string& key, const std::string& secret, bool (*admit)());

}  // namespace weft::rpc
#endif  // WEFT_SERVER_GREETING_H_
