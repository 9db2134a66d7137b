#include "src/gguf/gguf_writer.h"

#include <unistd.h>

#include "src/core/narrow.h"
#include "src/files/output_file.h"
#include "src/gguf/block_formats.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kAlignment = 32;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class HeaderWriter {
 public:
  const std::string& text() const { return text_; }
  template <class T>
  void number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void string(const std::string& value) {
    number<std::uint64_t>(value.size());
    text_ += value;
  }
  void kind(GgufKind kind) { number(narrow<std::uint32_t>(kind)); }
  void align() { text_.resize(aligned(text_.size()), '\0'); }

  void pair(const GgufPair& pair) {
    const auto& [key, value] = pair;
    string(key);
    if (value.is_array()) kind(GgufKind::kArray);
    kind(value.kind);
    std::visit([this, form = value.kind](const auto& content) { write(form, content); },
               value.content);
  }
  void tensor(const GgufTensor& tensor, std::size_t offset) {
    string(tensor.name);
    number(narrow<std::uint32_t>(tensor.shape.rank()));
    for (int i = tensor.shape.rank(); i-- > 0;) number(static_cast<std::uint64_t>(tensor.shape[i]));
    number(narrow<std::uint32_t>(tensor.type));
    number<std::uint64_t>(offset);
  }

 private:
  void write(GgufKind, const std::string& value) { string(value); }
  void write(GgufKind, bool value) { number<std::uint8_t>(value ? 1 : 0); }
  void write(GgufKind, double value) { number(static_cast<float>(value)); }
  void write(GgufKind, std::int64_t value) { number(narrow<std::int32_t>(value)); }
  void write(GgufKind kind, std::uint64_t value) {
    kind == GgufKind::kU8 ? number(narrow<std::uint8_t>(value))
                          : number(narrow<std::uint32_t>(value));
  }
  template <class T>
  void write(GgufKind kind, const std::vector<T>& values) {
    number<std::uint64_t>(values.size());
    for (const auto& value : values) write(kind, T(value));
  }
  std::string text_;
};

}  // namespace

GgufPair gguf_count(std::string key, std::int64_t value) {
  return {std::move(key), {GgufKind::kU32, static_cast<std::uint64_t>(value)}};
}
GgufPair gguf_bytes(std::string key, std::string_view values) {
  std::vector<std::uint64_t> bytes;
  for (const char byte : values) bytes.push_back(static_cast<unsigned char>(byte));
  return {std::move(key), {GgufKind::kU8, std::move(bytes)}};
}

void for_each_stacked(const GgufPlan& plan,
                      const std::function<void(const GgufTensor&, std::size_t)>& visit) {
  for (std::size_t first = 0, end = 0; first < plan.size(); first = end) {
    while (end < plan.size() && plan[end].name == plan[first].name) ++end;
    GgufTensor tensor = plan[first];
    if (end - first > 1) {
      tensor.shape = {static_cast<std::int64_t>(end - first)};
      for (int i = 0; i < plan[first].shape.rank(); ++i) tensor.shape.append(plan[first].shape[i]);
    }
    visit(tensor, end - first);
  }
}

void write_gguf(const std::filesystem::path& path, const std::vector<GgufPair>& values,
                const GgufPlan& tensors, const std::function<Tensor(std::size_t i)>& value_of) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, error)))
    throw CannotCreate(
        concat(path.string(), ": exists already; choose another name, or remove it"));
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(folder, error) || ::access(folder.c_str(), W_OK | X_OK) != 0)
    throw CannotCreate(concat(
        path.string(), ": cannot create it, since ", folder.string(),
        std::filesystem::is_directory(folder, error) ? " is not writable" : " is not a folder"));
  HeaderWriter header;
  for (const char letter : {'G', 'G', 'U', 'F'}) header.number(letter);
  header.number<std::uint32_t>(3);
  std::uint64_t stacked = 0;
  for_each_stacked(tensors, [&](const GgufTensor&, std::size_t) { ++stacked; });
  header.number(stacked);
  header.number<std::uint64_t>(values.size());
  for (const GgufPair& pair : values) header.pair(pair);
  std::size_t offset = 0;
  for_each_stacked(tensors, [&](const GgufTensor& tensor, std::size_t) {
    header.tensor(tensor, offset);
    offset += aligned(tensor.bytes());
  });
  header.align();
  create_file(path, [&](OutputFile& file) {
    file.write(header.text());
    std::size_t i = 0;
    for_each_stacked(tensors, [&](const GgufTensor& tensor, std::size_t count) {
      for (const std::size_t end = i + count; i < end; ++i) {
        const Tensor value = value_of(i);
        std::vector<std::byte> bytes(tensors[i].bytes());
        encode_blocks(tensor.type,
                      {value.data<float>(), static_cast<std::size_t>(value.elements())},
                      bytes.data());
        file.write(bytes.data(), bytes.size());
      }
      file.write(std::string(aligned(tensor.bytes()) - tensor.bytes(), '\0'));
    });
  });
}

}  // namespace hybrid_trainer
