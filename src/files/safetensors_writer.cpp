#include <algorithm>
#include <boost/json/serialize.hpp>
#include <set>

#include "src/files/output_file.h"
#include "src/files/safetensors.h"

namespace hybrid_trainer {

namespace json = boost::json;
namespace {

struct Piece {
  SafetensorsEntry entry;
  std::size_t element_bytes;
  const Tensor* tensor = nullptr;  // one of these three is set
  const SafetensorsFile* file = nullptr;
  const LazyTensor* made = nullptr;
  std::string name_in_file{};  // name of a tensor in `file`
};

Piece piece_of(const std::string& name, const Shape& shape, DType dtype) {
  const std::size_t each = size_of(dtype);
  SafetensorsEntry entry{.name = name,
                         .dtype = safetensors_name_of(dtype),
                         .shape = {},
                         .bytes = static_cast<std::size_t>(shape.elements()) * each};
  for (int i = 0; i < shape.rank(); ++i) entry.shape.push_back(shape[i]);
  return {.entry = std::move(entry), .element_bytes = each};
}

Piece piece_of(const NamedTensor& named) {
  Piece piece = piece_of(named.name, named.tensor.shape(), named.tensor.dtype());
  piece.tensor = &named.tensor;
  return piece;
}

Piece piece_of(const LazyTensor& made) {
  Piece piece = piece_of(made.name, made.shape, made.dtype);
  piece.made = &made;
  return piece;
}

Piece piece_of(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  std::size_t elements = 1;
  for (const std::int64_t size : entry.shape) elements *= static_cast<std::size_t>(size);
  return {.entry = entry,
          .element_bytes = elements == 0 ? 1 : entry.bytes / elements,
          .file = &file,
          .name_in_file = entry.name};
}

/// Orders tensors by element size, largest first, so that all are aligned, and then by name.
bool comes_before(const Piece& a, const Piece& b) {
  return a.element_bytes != b.element_bytes ? a.element_bytes > b.element_bytes
                                            : a.entry.name < b.entry.name;
}

void check(const std::vector<Piece>& pieces) {
  std::set<std::string> names;
  for (const Piece& piece : pieces) {
    const SafetensorsEntry& entry = piece.entry;
    const std::string what = "write_safetensors: the tensor \"" + entry.name + "\" ";
    if (piece.tensor != nullptr && !piece.tensor->defined())
      throw Error(ExitCode::kInternal, what + "has no memory");
    if (entry.name == "__metadata__")
      throw Error(ExitCode::kInternal, what + "has a reserved name");
    if (!names.insert(entry.name).second) throw Error(ExitCode::kInternal, what + "is given twice");
  }
}

/// Returns the header: its length, the JSON, and padding to a multiple of 8 bytes.
std::string header_of(const std::vector<Piece>& pieces,
                      const std::map<std::string, std::string>& metadata) {
  json::object root;
  if (!metadata.empty()) {
    json::object texts;
    for (const auto& [key, text] : metadata) texts[key] = text;
    root["__metadata__"] = std::move(texts);
  }
  std::size_t offset = 0;
  for (const Piece& piece : pieces) {
    const SafetensorsEntry& entry = piece.entry;
    root[entry.name] = {{"dtype", entry.dtype},
                        {"shape", json::array(entry.shape.begin(), entry.shape.end())},
                        {"data_offsets", {offset, offset + entry.bytes}}};
    offset += entry.bytes;
  }
  std::string text = json::serialize(root);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string front(sizeof length, '\0');
  for (std::size_t i = 0; i < sizeof length; ++i) front[i] = static_cast<char>(length >> (8 * i));
  return front + text;
}

Tensor made_tensor(const LazyTensor& made) {
  Tensor tensor = made.make();
  if (tensor.shape() == made.shape && tensor.dtype() == made.dtype) return tensor;
  throw Error(ExitCode::kInternal,
              concat("write_safetensors: the tensor \"", made.name, "\" was made as ",
                     name_of(tensor.dtype()), " ", tensor.shape().text(), ", want ",
                     name_of(made.dtype), " ", made.shape.text()));
}

}  // namespace

FileDigest append_safetensors(OutputFile& file, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const std::vector<CopiedTensor>& carried,
                              const std::vector<LazyTensor>& made) {
  std::vector<Piece> pieces;
  for (const NamedTensor& named : tensors) pieces.push_back(piece_of(named));
  for (const CopiedTensor& copy : carried) {
    pieces.push_back(piece_of(*copy.file, copy.file->entry(copy.name)));
    pieces.back().name_in_file = copy.name;
    if (!copy.renamed.empty()) pieces.back().entry.name = copy.renamed;
  }
  for (const LazyTensor& later : made) pieces.push_back(piece_of(later));
  check(pieces);
  std::sort(pieces.begin(), pieces.end(), comes_before);
  const std::string header = header_of(pieces, metadata);
  constexpr std::size_t kPiece = std::size_t{8} << 20;  // still cached when the checksum reads it
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
  std::string copied;
  for (const Piece& piece : pieces) {
    if (piece.tensor != nullptr) append(piece.tensor->raw(), piece.entry.bytes);
    if (piece.made != nullptr) append(made_tensor(*piece.made).raw(), piece.entry.bytes);
    for (std::size_t at = 0; piece.file != nullptr && at < piece.entry.bytes; at += kPiece) {
      copied.resize(std::min(kPiece, piece.entry.bytes - at));
      piece.file->read_bytes(piece.name_in_file, at, copied.data(), copied.size());
      append(copied.data(), copied.size());
    }
  }
  return {written, checksum.text()};
}

FileDigest write_safetensors(const std::string& path, std::vector<NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata,
                             const std::vector<CopiedTensor>& carried,
                             const std::vector<LazyTensor>& made) {
  FileDigest digest;
  replace_file(path, [&](OutputFile& file) {
    digest = append_safetensors(file, tensors, metadata, carried, made);
  });
  return digest;
}

}  // namespace hybrid_trainer
