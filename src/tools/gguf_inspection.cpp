#include "src/tools/gguf_inspection.h"

#include <algorithm>

#include "hybrid_trainer/gguf/gguf_file.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

constexpr std::size_t kShown = 4;          // of an array
constexpr std::size_t kLongestText = 200;  // of a value

json::value shown(const std::string& text) {
  return json::value(text.size() <= kLongestText ? text : text.substr(0, kLongestText) + "…");
}
template <class T>
json::value shown(const T& number) {
  return json::value(number);
}
template <class T>
json::value shown(const std::vector<T>& values) {
  json::array first;
  for (std::size_t i = 0; i < std::min(values.size(), kShown); ++i)
    first.push_back(shown(static_cast<const T&>(values[i])));
  return json::object{{"length", values.size()}, {"first", std::move(first)}};
}

}  // namespace

json::object inspect_gguf(const std::filesystem::path& path) {
  const GgufFile file(path);
  json::object values;
  for (const auto& [key, value] : file.values())
    values[key] = std::visit([](const auto& content) { return shown(content); }, value.content);
  json::array tensors;
  std::int64_t elements = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    json::array shape;
    for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
    tensors.push_back(json::object{{"name", tensor.name},
                                   {"dtype", name_of(tensor.type)},
                                   {"shape", std::move(shape)},
                                   {"bytes", tensor.bytes()}});
    elements += tensor.shape.elements();
  }
  return {{"kind", "gguf"},
          {"path", path.string()},
          {"bytes", std::filesystem::file_size(path)},
          {"elements", elements},
          {"values", std::move(values)},
          {"tensors", std::move(tensors)}};
}

}  // namespace hybrid_trainer
