#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <sstream>

#include "src/io/checkpoint_files.h"

namespace hybrid_trainer {

std::string state_bytes(const State& state) {
  std::ostringstream out;
  cereal::PortableBinaryOutputArchive archive(out);
  archive(state.integers, state.reals, state.series, state.texts);
  return out.str();
}

void read_state_bytes(const std::string& bytes, State& state) {
  std::istringstream in(bytes);
  try {
    cereal::PortableBinaryInputArchive archive(in);
    archive(state.integers, state.reals, state.series, state.texts);
  } catch (const std::exception& problem) {
    throw DataError(concat("state.bin: not what this version writes: ", problem.what()));
  }
  if (in.peek() != std::istringstream::traits_type::eof()) {
    throw DataError("state.bin: has bytes after its end");
  }
}

}  // namespace hybrid_trainer
