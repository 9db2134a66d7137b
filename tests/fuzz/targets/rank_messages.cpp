#include <cstring>

#include "src/distributed/rank_connection.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  endpoints_of(std::string(input));
  WatchMessage message;
  std::memcpy(&message, input.data(), std::min(input.size(), sizeof message));
  for (int peer = 0; peer < 4; ++peer) is_sound(message, peer, 4);
}
