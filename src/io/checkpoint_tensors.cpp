#include "src/io/checkpoint_tensors.h"

#include <algorithm>

#include "src/io/checkpoint_files.h"
#include "src/io/safetensors_header.h"

namespace hybrid_trainer {
namespace {

DType dtype_of(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  if (const auto dtype = stored_dtype_of(entry.dtype)) return *dtype;
  throw DataError(concat(file.path(), ": tensor \"", entry.name, "\" has dtype ", entry.dtype,
                         ", which no checkpoint has"));
}

void check_range(const SafetensorsFile& file, const std::string& name, const StoredTensor& tensor,
                 const StoredRange& range) {
  const SafetensorsEntry& entry = file.entry(name);
  const Shape shape = entry.tensor_shape(), want{range.last - range.first};
  if (dtype_of(file, entry) == tensor.dtype && shape == want) return;
  throw DataError(concat(file.path(), ": tensor \"", name, "\" is ", entry.dtype, " ", shape.text(),
                         ", the manifest wants ", safetensors_name_of(tensor.dtype), " ",
                         want.text()));
}

}  // namespace

SafetensorsFile open_checkpoint_file(const CheckpointInfo& checkpoint, const std::string& name) {
  SafetensorsFile file(checkpoint.path + "/" + name);
  std::size_t ranges = 0;
  for (const auto& [tensor_name, tensor] : checkpoint.tensors) {
    for (const StoredRange& range : tensor.ranges) {
      if (range.file != name) continue;
      check_range(file, tensor_name, tensor, range);
      ++ranges;
    }
  }
  if (are_of_ranks(checkpoint) && ranges != file.entries().size())
    throw DataError(concat(file.path(), ": holds ", file.entries().size(),
                           " tensors, the manifest wants ", ranges));
  return file;
}

void CheckpointTensors::read(const std::string& name, const StoredTensor& tensor,
                             std::int64_t first, const Tensor& into) {
  const Tensor flat = into.view({into.elements()});
  const std::int64_t last = first + into.elements();
  for (const StoredRange& range : tensor.ranges) {
    const std::int64_t begin = std::max(first, range.first), end = std::min(last, range.last);
    if (begin >= end) continue;
    auto file = files_.find(range.file);
    if (file == files_.end())
      file = files_.emplace(range.file, open_checkpoint_file(checkpoint_, range.file)).first;
    file->second.read_elements(name, begin - range.first, flat.rows(begin - first, end - first));
  }
}

std::map<std::string, StoredTensor> stored_tensors(const CheckpointInfo& checkpoint) {
  if (are_of_ranks(checkpoint)) return checkpoint.tensors;
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, digest] : checkpoint.files) {
    if (name == kStateName) continue;
    const SafetensorsFile file(checkpoint.path + "/" + name);
    for (const SafetensorsEntry& entry : file.entries()) {
      const Shape shape = entry.tensor_shape();
      tensors[entry.name] = {dtype_of(file, entry), shape, {{name, 0, shape.elements()}}};
    }
  }
  return tensors;
}

}  // namespace hybrid_trainer
