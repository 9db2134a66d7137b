#include "hybrid_trainer/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "hybrid_trainer/core/nearest_name.h"
#include "src/io/safetensors_convert.h"
#include "src/io/safetensors_header.h"

namespace hybrid_trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t kLengthBytes = 8;

/// A Git LFS pointer file in place of the weights is a common mistake.
void refuse_git_lfs_pointer(const InputFile& file) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (file.bytes() < kPointer.size()) return;
  std::string front(kPointer.size(), '\0');
  file.read_at(front.data(), front.size(), 0);
  if (front == kPointer) {
    throw DataError(
        file.path().native() +
        ": is a Git LFS pointer, not the weights; run `git lfs pull` where it came from");
  }
}

/// The checked header length N.
std::size_t header_bytes(const InputFile& file) {
  const std::string& path = file.path().native();
  const std::size_t size = file.bytes();
  if (size < kLengthBytes) {
    throw DataError(
        concat(path, ": has ", size, " bytes; a safetensors file has at least ", kLengthBytes));
  }
  std::uint64_t length = 0;
  file.read_at(&length, sizeof length, 0);
  if (length > kMaxSafetensorsHeaderBytes) {
    throw DataError(concat(path, ": the header claims ", length, " bytes; at most ",
                           kMaxSafetensorsHeaderBytes,
                           " are allowed: this is no safetensors file"));
  }
  if (length > size - kLengthBytes) {
    throw DataError(concat(path, ": the header claims ", length, " bytes, the file has ",
                           size - kLengthBytes, " after its length: it is truncated"));
  }
  return length;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  refuse_git_lfs_pointer(file_);
  const std::size_t length = header_bytes(file_);
  std::string text(length, '\0');
  file_.read_at(text.data(), length, kLengthBytes);
  const std::size_t data_begin = kLengthBytes + length;
  SafetensorsHeader header =
      parse_safetensors_header(text, path, data_begin, file_.bytes() - data_begin);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < entries_.size(); ++i) index_[entries_[i].name] = i;
}

Shape SafetensorsEntry::tensor_shape() const {
  if (shape.size() > static_cast<std::size_t>(Shape::kMaxRank)) {
    throw DataError(concat("tensor \"", name, "\" has ", shape.size(), " dimensions; at most ",
                           Shape::kMaxRank, " are supported"));
  }
  Shape result;
  for (std::int64_t dimension : shape) result.append(dimension);
  if (shape.empty()) result.append(1);
  return result;
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = index_.find(name);
  if (found != index_.end()) return entries_[found->second];
  std::vector<std::string> names;
  for (const SafetensorsEntry& known : entries_) names.push_back(known.name);
  const std::string nearest = nearest_name(name, names);
  throw DataError(concat(
      path(), ": holds no tensor \"", name, "\"",
      nearest.empty() ? concat(" among its ", names.size()) : "; did you mean " + nearest + "?"));
}

bool SafetensorsFile::rename(const std::string& from, const std::string& to) {
  bool found = false;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::string& name = entries_[i].name;
    if (!name.starts_with(from)) continue;
    const std::string renamed = to + name.substr(from.size());
    if (!index_.emplace(renamed, i).second) continue;
    index_.erase(name);
    name = renamed;
    found = true;
  }
  return found;
}

void SafetensorsFile::read(const std::string& name, const Tensor& into) const {
  const SafetensorsEntry& from = entry(name);
  if (from.tensor_shape() != into.shape()) {
    throw DataError(concat(path(), ": tensor \"", name, "\" has shape ", from.tensor_shape().text(),
                           ", want ", into.shape().text()));
  }
  read_part(name, 0, into);
}

void SafetensorsFile::read_part(const std::string& name, std::int64_t part,
                                const Tensor& into) const {
  const SafetensorsEntry& from = entry(name);
  const std::size_t count = static_cast<std::size_t>(into.elements());
  const std::size_t first = static_cast<std::size_t>(part) * count;
  if (from.tensor_shape().elements() < static_cast<std::int64_t>(first + count))
    throw DataError(concat(path(), ": tensor \"", name, "\" has shape ", from.tensor_shape().text(),
                           ", which ends before part ", part, " of ", count, " elements"));
  if (from.dtype == safetensors_name_of(into.dtype())) {
    file_.read_at(into.raw(), into.bytes(), from.offset + first * size_of(into.dtype()));
    return;
  }
  const ElementConversion conversion = find_conversion(from.dtype, into.dtype());
  if (conversion.convert == nullptr) {
    throw DataError(concat(path(), ": tensor \"", name, "\" has dtype ", from.dtype,
                           ", which is not read as ", name_of(into.dtype())));
  }
  constexpr std::size_t kChunkElements = std::size_t{1} << 19;
  std::vector<char> chunk(std::min(count, kChunkElements) * conversion.from_bytes);
  for (std::size_t at = 0; at < count; at += kChunkElements) {
    const std::size_t elements = std::min(count - at, kChunkElements);
    file_.read_at(chunk.data(), elements * conversion.from_bytes,
                  from.offset + (first + at) * conversion.from_bytes);
    char* target = static_cast<char*>(into.raw()) + at * size_of(into.dtype());
    if (!conversion.convert(target, chunk.data(), elements)) {
      throw DataError(concat(path(), ": tensor \"", name, "\" holds a number that ",
                             name_of(into.dtype()), " cannot hold"));
    }
  }
}

void SafetensorsFile::read_elements(const std::string& name, std::int64_t first,
                                    const Tensor& into) const {
  const SafetensorsEntry& from = entry(name);
  const std::size_t each = size_of(into.dtype()), begin = static_cast<std::size_t>(first) * each;
  if (from.dtype != safetensors_name_of(into.dtype()) || begin > from.bytes ||
      from.bytes - begin < into.bytes()) {
    throw DataError(concat(path(), ": tensor \"", name, "\" is ", from.dtype, " of ", from.bytes,
                           " bytes; wanted are ", into.elements(), " ", name_of(into.dtype()),
                           " from element ", first, " on"));
  }
  file_.read_at(into.raw(), into.bytes(), from.offset + begin);
}

Tensor SafetensorsFile::load(const std::string& name, MemoryKind kind, const Stream& stream) const {
  const SafetensorsEntry& from = entry(name);
  const DType dtype = tensor_dtype_of(from.dtype).value_or(DType::kF32);
  const Tensor tensor = Tensor::empty(from.tensor_shape(), dtype, kind, stream);
  read(name, tensor);
  return tensor;
}

}  // namespace hybrid_trainer
