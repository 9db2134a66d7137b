#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hybrid_trainer/memory/quantized_weight.h"

namespace hybrid_trainer {

/// One weight as a Hugging Face folder holds it; nothing is read before it is asked for.
class FolderWeight {
 public:
  virtual ~FolderWeight() = default;
  /// f32 in its shape on the host, padding rows 0; of quantized modules what their codes stand for.
  /// Throws DataError, IoError, as do the others.
  virtual Tensor values() const = 0;
  /// Fills f32 values on the host with them.
  virtual void read(const Tensor& values) const = 0;
  /// Whether a module of it is quantized; of a GGUF file whether all are.
  virtual bool is_quantized() const = 0;
  /// Its modules' codes as the folder has them, in the pool of `home`; a module without is quantized
  /// in the folder's form. Of a GGUF file the blocks, where all modules have some; on a simulated home
  /// nothing of them is read.
  virtual std::vector<QuantizedRows> quantized(const Stream& home) const = 0;
};

/// Quantization of a folder's products, by the quantization_config of config.json, as a value of
/// lora.base: nf4, fp4 or int8, quantized by bitsandbytes, or mxfp4; empty: not quantized. Throws
/// MissingInput, and DataError for another way to quantize.
std::string quantization_of_hugging_face(const std::filesystem::path& folder);

}  // namespace hybrid_trainer
