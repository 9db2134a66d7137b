#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// Types of tensors, with ggml's codes. All except f32, f16 and bf16 store blocks of a row.
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

struct GgufBlock {
  std::int64_t elements = 1;
  std::size_t bytes = 4;
};
GgufBlock block_of(GgufType type);

/// Returns the type with this code in ggml, or nullopt if it is not supported.
std::optional<GgufType> gguf_type_of(std::uint32_t number);
/// Returns ggml's name of an unsupported type by its code, or "number 99" if unknown.
std::string unread_gguf_type(std::uint32_t number);
/// Returns "f32, f16, …".
std::string gguf_types_text();

/// Kinds of values, with their codes in GGUF files. Source: ggml, docs/gguf.md, version 3.
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

/// The value of a key. A number is stored in the widest type of its kind.
struct GgufValue {
  using Content = std::variant<std::uint64_t, std::int64_t, double, bool, std::string,
                               std::vector<std::uint64_t>, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<bool>, std::vector<std::string>>;
  GgufKind kind = GgufKind::kU32;  // for an array, the kind of its elements
  Content content{};
  bool is_array() const { return content.index() >= 5; }
};

struct GgufTensor {
  std::string name;
  Shape shape{};  // rows first, as in a Tensor; the file stores columns first
  GgufType type = GgufType::kF32;
  std::size_t offset = 0;  // offset in the file
  std::size_t bytes() const;
  /// Returns the element `index` along the first dimension.
  GgufTensor element(std::int64_t index) const;
};

/// A model file of llama.cpp: named values and tensors.
class GgufFile {
 public:
  /// Reads the part before the tensors' data. Throws DataError if the file is not GGUF, is damaged,
  /// or has an unsupported version, byte order or type. Also throws MissingInput and IoError.
  explicit GgufFile(const std::filesystem::path& path);

  /// Returns whether the file begins like GGUF, or has the extension .gguf and may be damaged.
  static bool is_one(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  /// Returns the open file, which contains the tensors at their offsets.
  const InputFile& input() const { return file_; }
  const std::map<std::string, GgufValue>& values() const { return values_; }
  const GgufValue* find(const std::string& key) const;
  /// Returns a value of any width, or nullopt if the key is absent. Like the next functions, throws
  /// DataError for a value of another kind.
  std::optional<std::string> text(const std::string& key) const;
  std::optional<std::int64_t> count(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  std::optional<bool> flag(const std::string& key) const;
  /// Returns an array; empty if the key is absent.
  std::vector<std::string> texts(const std::string& key) const;
  std::vector<std::int64_t> counts(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;
  std::vector<bool> flags(const std::string& key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(const std::string& name) const;
  /// Returns the tensor of that name. Throws DataError if there is none.
  const GgufTensor& tensor(const std::string& name) const;
  /// Returns the decoded tensor, f32 on the host. Throws IoError.
  Tensor values_of(const GgufTensor& tensor) const;

 private:
  InputFile file_;
  std::map<std::string, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t> places_;  // indices of tensors, by name
};

}  // namespace hybrid_trainer
