#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/data/images/picture.h"
#include "src/files/safetensors.h"

namespace hybrid_trainer {

inline std::filesystem::path image_golden(const std::string& name) {
  return std::filesystem::path(HT_TEST_DATA_DIR) / "images" / name;
}

/// The values of a tensor in file order.
template <class T>
std::vector<T> golden_values(const SafetensorsFile& file, const std::string& name) {
  std::vector<T> values(file.entry(name).bytes / sizeof(T));
  file.read_bytes(name, 0, values.data(), file.entry(name).bytes);
  return values;
}

inline Picture golden_picture(const SafetensorsFile& file, const std::string& name) {
  const std::vector<std::int64_t>& shape = file.entry(name).shape;
  return {shape[0], shape[1], golden_values<std::uint8_t>(file, name)};
}

/// A reproducible pseudo-random generator.
class PlainRandom {
 public:
  std::uint32_t next() { return state_ = state_ * 1664525 + 1013904223; }
  std::size_t below(std::size_t end) { return (next() >> 8) % end; }

 private:
  std::uint32_t state_ = 7;
};

}  // namespace hybrid_trainer
