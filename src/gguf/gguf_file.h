#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "hybrid_trainer/core/dtype.h"
#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

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

/// The type of a number of ggml's, where it is one of these.
std::optional<GgufType> gguf_type_of(std::uint32_t number);
/// ggml's name of another number, or "number 99".
std::string unread_gguf_type(std::uint32_t number);
/// "f32, f16, …".
std::string gguf_types_text();

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
  /// Reads what stands before the tensors' data. Throws MissingInput, IoError, and DataError of a file
  /// that is none, or of another version, byte order or type than is read here. A damaged file is
  /// refused, too: all that it tells of must lie within it.
  explicit GgufFile(const std::filesystem::path& path);

  /// Whether the file begins as one, or has the name of one (.gguf) and may be damaged.
  static bool is_one(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  /// The open file, in which tensors are at their offsets.
  const InputFile& input() const { return file_; }
  const std::map<std::string, GgufValue>& values() const { return values_; }
  /// The value under a key, or null.
  const GgufValue* find(const std::string& key) const;
  /// Values of a kind, of any width; none where the key is absent. Throw DataError where it is of another kind.
  std::optional<std::string> text(const std::string& key) const;
  std::optional<std::int64_t> count(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  std::optional<bool> flag(const std::string& key) const;
  /// Arrays; empty where the key is absent.
  std::vector<std::string> texts(const std::string& key) const;
  std::vector<std::int64_t> counts(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;
  std::vector<bool> flags(const std::string& key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// The tensor of that name, or null.
  const GgufTensor* find_tensor(const std::string& name) const;
  /// Throws DataError where there is none.
  const GgufTensor& tensor(const std::string& name) const;
  /// What the tensor stands for, f32 on the host. Throws IoError.
  Tensor values_of(const GgufTensor& tensor) const;

 private:
  InputFile file_;
  std::map<std::string, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t> places_;  // of tensors, by name
};

}  // namespace hybrid_trainer
