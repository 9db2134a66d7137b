#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "hybrid_trainer/core/shape.h"

namespace hybrid_trainer {

/// Kinds of values of a GGUF file, with its numbers. Source: ggml, docs/gguf.md, version 3.
enum class GgufKind : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

/// A value; numbers are widened.
struct GgufValue {
  using Content = std::variant<std::uint64_t, std::int64_t, double, bool, std::string,
                               std::vector<std::uint64_t>, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<bool>, std::vector<std::string>>;
  GgufKind kind = GgufKind::kU32;  // of an array, of its elements
  Content content{};
  bool is_array() const { return content.index() >= 5; }
};

/// Types of tensors, with ggml's numbers. All but the first three are blocks of elements of a row.
enum class GgufType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
  kMXFP4 = 39
};
const char* name_of(GgufType type);  // "q8_0"

/// The bytes of so many elements of a row, which whole blocks hold.
struct GgufBlock {
  std::int64_t elements = 1;
  std::size_t bytes = 4;
};
GgufBlock block_of(GgufType type);

struct GgufTensor {
  std::string name;
  Shape shape{};  // rows first, as everywhere here; the file has columns first
  GgufType type = GgufType::kF32;
  std::size_t offset = 0;  // in the file
  std::size_t bytes() const;
};

/// A model file of llama.cpp: values by name, and tensors.
class GgufFile {
 public:
  /// Reads what stands before the tensors' data. Throws MissingInput, IoError, and DataError where the
  /// file is none, is of another version or of the other byte order, holds a type that is not read
  /// here, or is damaged: what it says must lie within it.
  explicit GgufFile(const std::filesystem::path& path);

  /// Whether the file begins as one.
  static bool is_one(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, GgufValue>& values() const { return values_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Throws DataError where there is none.
  const GgufTensor& tensor(const std::string& name) const;

 private:
  std::filesystem::path path_;
  std::map<std::string, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace hybrid_trainer
