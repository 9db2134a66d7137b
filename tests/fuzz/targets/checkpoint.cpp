#include "src/files/checkpoint_files.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  const std::string bytes(input);
  unless_rejected([&] { parse_manifest(bytes, "manifest.json"); });
  State state;
  read_state_bytes(bytes, state);
  State copy;
  read_state_bytes(state_bytes(state), copy);
}
