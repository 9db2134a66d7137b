#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hybrid_trainer/io/safetensors.h"

namespace hybrid_trainer {

class OutputFile;

/// The contents of the JSON header of a safetensors file.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // sorted by offset
  std::map<std::string, std::string> metadata;
};

inline constexpr std::size_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// Name of a Tensor's dtype in the file ("F32"), and back.
const char* safetensors_name_of(DType dtype);
std::optional<DType> tensor_dtype_of(std::string_view safetensors_name);
/// The same for a file of our own, where F64 is kept too.
std::optional<DType> stored_dtype_of(std::string_view safetensors_name);

/// Parses and checks the header of `file` (only named in messages). `data_begin`: offset of the
/// byte buffer in the file; `data_bytes`: its length. Throws DataError.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file,
                                           std::size_t data_begin, std::size_t data_bytes);

/// Appends what write_safetensors puts into its file.
FileDigest append_safetensors(OutputFile& file, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const std::vector<CarriedTensor>& carried = {},
                              const std::vector<MadeTensor>& made = {});

}  // namespace hybrid_trainer
