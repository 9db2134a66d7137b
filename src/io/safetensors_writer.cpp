#include <algorithm>
#include <boost/json/serialize.hpp>
#include <set>

#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/io/safetensors.h"
#include "src/io/safetensors_header.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

/// Large elements first, so that every tensor is aligned; then by name.
bool comes_before(const NamedTensor& a, const NamedTensor& b) {
  const std::size_t a_bytes = size_of(a.tensor.dtype()), b_bytes = size_of(b.tensor.dtype());
  return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
}

void check(const std::vector<NamedTensor>& tensors) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    const std::string what = "write_safetensors: the tensor \"" + name + "\" ";
    if (!tensor.defined()) throw Error(ExitCode::kInternal, what + "has no memory");
    if (name == "__metadata__") throw Error(ExitCode::kInternal, what + "has a reserved name");
    if (!names.insert(name).second) throw Error(ExitCode::kInternal, what + "comes twice");
  }
}

/// Length, JSON and padding to a multiple of 8.
std::string header_of(const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  json::object root;
  if (!metadata.empty()) {
    json::object texts;
    for (const auto& [key, text] : metadata) texts[key] = text;
    root["__metadata__"] = std::move(texts);
  }
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    json::array shape;
    for (int i = 0; i < tensor.shape().rank(); ++i) shape.emplace_back(tensor.size(i));
    root[name] = {{"dtype", safetensors_name_of(tensor.dtype())},
                  {"shape", std::move(shape)},
                  {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string text = json::serialize(root);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string front(sizeof length, '\0');
  for (std::size_t i = 0; i < sizeof length; ++i) front[i] = static_cast<char>(length >> (8 * i));
  return front + text;
}

}  // namespace

FileDigest append_safetensors(OutputFile& file, std::vector<NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  check(tensors);
  std::sort(tensors.begin(), tensors.end(), comes_before);
  const std::string header = header_of(tensors, metadata);
  constexpr std::size_t kPiece = std::size_t{8} << 20;  // which the checksum finds in the cache
  Checksum checksum;
  std::size_t written = 0;
  const auto append = [&](const void* data, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += kPiece) {
      const char* piece = static_cast<const char*>(data) + at;
      const std::size_t size = std::min(kPiece, bytes - at);
      file.write(piece, size);
      checksum.add(piece, size);
    }
    written += bytes;
  };
  append(header.data(), header.size());
  for (const NamedTensor& named : tensors) append(named.tensor.raw(), named.tensor.bytes());
  return {written, checksum.text()};
}

FileDigest write_safetensors(const std::string& path, std::vector<NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata) {
  FileDigest digest;
  replace_file(path, [&](OutputFile& file) {
    digest = append_safetensors(file, std::move(tensors), metadata);
  });
  return digest;
}

}  // namespace hybrid_trainer
