#pragma once

#include <functional>
#include <map>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/files/checksum.h"

namespace hybrid_trainer {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", "I32", "U16", "U8", "F16", "F64", "I64" or another valid one
  std::vector<std::int64_t> shape;  // empty for a scalar
  std::size_t offset = 0;           // offset of the first byte in the file
  std::size_t bytes = 0;
  /// Returns the shape for a Tensor, (1) for a scalar. Throws DataError above Shape::kMaxRank.
  Shape tensor_shape() const;
};

/// An open safetensors file with a checked header. The header has a limited size and is UTF-8
/// without duplicate keys. The tensors do not overlap and cover the rest of the file.
class SafetensorsFile {
 public:
  /// Throws MissingInput, or DataError naming the file and the problem.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path().native(); }
  const std::vector<SafetensorsEntry>& entries() const {
    return entries_;
  }  // sorted by their offsets
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return index_.count(name) > 0; }
  /// Returns the header's description of a tensor. Throws DataError, which suggests the nearest
  /// name, if there is no such tensor.
  const SafetensorsEntry& entry(const std::string& name) const;

  /// Replaces the prefix `from` of names by `to`, unless the new name exists. Returns whether any
  /// name changed.
  bool rename(const std::string& from, const std::string& to);

  /// Reads a tensor into a tensor of the same shape. Copies the elements if the dtypes are equal.
  /// Otherwise converts F32, BF16, F16, F64 and I64 to F32 or BF16, and I64 to I32 if every value
  /// fits. Throws DataError for other shapes or dtypes, and IoError.
  void read(const std::string& name, const Tensor& into) const;
  /// Reads part `part` of a tensor that consists of equal parts, each with as many elements as
  /// `into`. Converts like read. Throws DataError if the tensor is too short.
  void read_part(const std::string& name, std::int64_t part, const Tensor& into) const;
  /// Reads consecutive elements in row-major order, from `first` on, into `into`. Throws DataError
  /// if the dtype differs or the tensor is too short, and IoError.
  void read_elements(const std::string& name, std::int64_t first, const Tensor& into) const;
  /// Reads `bytes` bytes of the tensor from byte `begin` on. Throws DataError if the tensor does
  /// not exist, and IoError.
  void read_bytes(const std::string& name, std::size_t begin, void* to, std::size_t bytes) const {
    file_.read_at(to, bytes, entry(name).offset + begin);
  }
  /// Returns a new tensor with the file's dtype, or F32 if a Tensor cannot have that dtype.
  Tensor load(const std::string& name, MemoryKind kind, const Stream& stream) const;

 private:
  InputFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor of another file, which must outlive this object.
struct CopiedTensor {
  const SafetensorsFile* file;
  std::string name;
  std::string renamed{};  // name in the written file; empty if it is the same
};

/// A tensor that is created when it is written, so that not all need memory at the same time.
struct LazyTensor {
  std::string name;
  Shape shape;
  DType dtype;
  std::function<Tensor()> make;
};

/// Writes a safetensors file through a temporary file, with fsync and rename. Its bytes do not
/// depend on the order of the tensors. `metadata` should contain {"format", "pt"}, which Hugging
/// Face's readers require. Copies tensors of other files, of any dtype and rank, unchanged. Throws
/// IoError; an old file then remains. Throws Error if a name occurs twice, a tensor has no memory,
/// or a created tensor differs from its description.
FileDigest write_safetensors(const std::string& path, std::vector<NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata = {{"format",
                                                                                    "pt"}},
                             const std::vector<CopiedTensor>& carried = {},
                             const std::vector<LazyTensor>& made = {});

class OutputFile;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // sorted by offset
  std::map<std::string, std::string> metadata;
};

inline constexpr std::size_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// Converts between a Tensor's dtype and its name in the file ("F32").
std::string safetensors_name_of(DType dtype);
std::optional<DType> tensor_dtype_of(std::string_view safetensors_name);
/// Converts like tensor_dtype_of, but for this program's own files, in which F64 stays F64.
std::optional<DType> stored_dtype_of(std::string_view safetensors_name);

/// Parses and checks a header. `file` is the name of the file in messages. The tensors' bytes begin
/// at `data_begin` in the file, and their number is `data_bytes`. Throws DataError.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file,
                                           std::size_t data_begin, std::size_t data_bytes);

/// Appends the contents of a safetensors file, as write_safetensors writes them, to `file`.
FileDigest append_safetensors(OutputFile& file, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const std::vector<CopiedTensor>& carried = {},
                              const std::vector<LazyTensor>& made = {});

}  // namespace hybrid_trainer
