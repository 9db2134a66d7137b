#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "hybrid_trainer/models/model_family.h"
#include "memory/quantized_weight.h"
#include "src/files/safetensors.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

/// One weight of a Hugging Face folder, which is read on demand.
class FolderWeight {
 public:
  explicit FolderWeight(const Shape& shape) : shape_(shape) {}
  virtual ~FolderWeight() = default;
  /// Returns the values as f32 on the host, in the weight's shape. Padding rows are 0. Quantized
  /// modules are dequantized. All functions throw DataError, IoError.
  Tensor values() const;
  virtual void read(const Tensor& values) const = 0;
  /// Returns whether any module is quantized; for a GGUF file, whether all modules are.
  virtual bool is_quantized() const = 0;
  /// Returns the stored codes of the weight's modules, in the pool of `home`. Quantizes modules
  /// without codes in the form of the folder. For a GGUF file, returns the blocks of all modules,
  /// which must have blocks. Does not read the blocks if `home` is simulated.
  virtual std::vector<QuantizedRows> quantized(const Stream& home) const = 0;

 protected:
  const Shape& shape() const { return shape_; }

 private:
  Shape shape_;
};

/// The tensors of a Hugging Face folder. They are in model.safetensors or, if it does not exist, in
/// the shards that model.safetensors.index.json lists. Keeps only the headers in memory.
class HuggingFaceWeights {
 public:
  /// Throws MissingInput if neither file exists or a shard is missing, and DataError if the index
  /// is damaged, refers to a file outside the folder, or disagrees with the shards.
  explicit HuggingFaceWeights(const fs::path& folder);

  static bool are_in(const fs::path& folder);

  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// Returns the path of model.safetensors or of the index.
  const std::string& path() const { return path_; }
  bool contains(const std::string& name) const { return file_of_.count(name) > 0; }
  /// Throws DataError, which suggests the nearest name, if there is no such tensor.
  const SafetensorsFile& file_of(const std::string& name) const;

 private:
  void add_file(const std::string& path);
  void add_shards(const fs::path& folder);
  std::string path_;  // path of model.safetensors or of the index
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  // index into files_, by tensor name
};

/// Returns the tensors in which the folder stores `tensor`. Experts have separate tensors. Instead,
/// transformers 5 with save_original_format=False stacks a layer's experts: one tensor has all gate
/// and up maps (experts, 2·inner, width), another all down maps. Returns other tensors unchanged.
/// `contains`: whether the folder has a tensor, by its name without prefix.
std::vector<FileTensor> as_stored(const FileTensor& tensor, std::int64_t experts,
                                  const std::function<bool(const std::string& name)>& contains);

/// An open folder, with the prefix of its layout and the quantization of its products.
struct OpenFolder {
  const HuggingFaceWeights& weights;
  std::string prefix;        // may be empty
  std::string head_prefix;   // see HuggingFaceLayout
  std::string quantization;  // see quantization_of_hugging_face

  std::string name_of(const FileTensor& part) const {
    return (part.prefixed ? prefix : head_prefix) + part.name;
  }
  bool lacks(const FileTensor& part) const {
    return part.may_be_missing && !weights.contains(name_of(part));
  }
  /// Returns the names of the additional tensors of a part if it is a quantized matrix.
  std::vector<std::string> keys_of(const FileTensor& part) const;
  std::vector<std::string> names_of(const FileTensor& part) const;
};

class WeightInFiles final : public FolderWeight {
 public:
  WeightInFiles(const OpenFolder& folder, const std::vector<FileTensor>& parts, const Shape& shape)
      : FolderWeight(shape), folder_(folder), parts_(parts) {}
  void read(const Tensor& values) const override;
  bool is_quantized() const override;
  std::vector<QuantizedRows> quantized(const Stream& home) const override;

 private:
  void read_unchecked(const Tensor& values, const FileTensor& part) const;
  void read_part(const Tensor& values, const FileTensor& part) const;
  QuantizedRows quantized_part(const FileTensor& part, const Stream& home) const;
  const OpenFolder& folder_;
  const std::vector<FileTensor>& parts_;
};

}  // namespace hybrid_trainer
