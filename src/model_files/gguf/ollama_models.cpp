#include <algorithm>
#include <cstdlib>

#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/model_files/gguf/gguf_model.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kHost = "registry.ollama.ai";
constexpr const char* kOwner = "library";
constexpr const char* kKindOfLayer = "application/vnd.ollama.image.";

/// Returns the path of a model's manifest: manifests/HOST/OWNER/MODEL/TAG.
fs::path manifest_of(const fs::path& folder, const std::string& name) {
  const std::size_t slash = name.find_last_of('/');
  const std::size_t colon = name.find(':', slash == name.npos ? 0 : slash);
  const std::string tag = colon == name.npos ? "latest" : name.substr(colon + 1);
  const std::string path = name.substr(0, colon);
  const auto parts = std::ranges::count(path, '/') + 1;
  const fs::path manifests = folder / "manifests";
  if (parts == 1) return manifests / kHost / kOwner / path / tag;
  if (parts == 2) return manifests / kHost / path / tag;
  return manifests / path / tag;
}

/// Returns Ollama's name of the model that a manifest describes.
std::string name_of(const fs::path& manifest) {
  const fs::path place = manifest.parent_path();
  const std::string own = concat(kHost, "/", kOwner, "/"), host = concat(kHost, "/");
  std::string name = place.generic_string();
  if (name.starts_with(own)) {
    name.erase(0, own.size());
  } else if (name.starts_with(host)) {
    name.erase(0, host.size());
  }
  return concat(name, ":", manifest.filename().string());
}

struct OllamaLayer {
  std::string kind, digest;
};

std::vector<OllamaLayer> layers_of(const fs::path& manifest) {
  std::vector<OllamaLayer> layers;
  try {
    const json::value content = read_json(manifest);
    for (const json::value& layer : content.at("layers").as_array()) {
      std::string kind(layer.at("mediaType").as_string());
      if (kind.starts_with(kKindOfLayer)) kind.erase(0, std::string_view(kKindOfLayer).size());
      layers.push_back({std::move(kind), std::string(layer.at("digest").as_string())});
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // Boost.JSON: a missing key or a wrong type
    throw DataError(concat(manifest.string(),
                           ": is not an Ollama manifest: want \"layers\", each with \"mediaType\" "
                           "and \"digest\"; pull the model again"));
  }
  return layers;
}

}  // namespace

fs::path ollama_folder() {
  if (const char* const said = std::getenv("OLLAMA_MODELS"); said != nullptr && *said != '\0')
    return said;
  const char* const home = std::getenv("HOME");
  const fs::path own = fs::path(home == nullptr ? "." : home) / ".ollama" / "models";
  const fs::path of_service = "/usr/share/ollama/.ollama/models";
  std::error_code error;
  return !fs::exists(own, error) && fs::exists(of_service, error) ? of_service : own;
}

std::vector<std::string> ollama_models(const fs::path& folder) {
  std::vector<std::string> names;
  const fs::path manifests = folder / "manifests";
  std::error_code error;
  for (fs::recursive_directory_iterator entry(manifests, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_regular_file(error))
      names.push_back(name_of(entry->path().lexically_relative(manifests)));
  }
  std::ranges::sort(names);
  return names;
}

fs::path ollama_model(const fs::path& folder, const std::string& name) {
  const fs::path manifest = manifest_of(folder, name);
  std::error_code error;
  if (name.empty() || !fs::is_regular_file(manifest, error)) {
    const std::vector<std::string> there = ollama_models(folder);
    throw MissingInput(concat("Ollama has no model \"", name, "\" in ", folder.string(),
                              there.empty() ? ", or any other model; download one with `ollama "
                                              "pull`, or set OLLAMA_MODELS to another folder"
                                            : name_hint(name, there)));
  }
  std::vector<std::string> files;
  for (const OllamaLayer& layer : layers_of(manifest)) {
    if (layer.kind == "adapter")
      throw DataError(
          concat("Ollama's model ", name,
                 " is an adapter of another model, which is not supported; give its base model"));
    if (layer.kind == "model") files.push_back(layer.digest);
  }
  if (files.size() != 1)
    throw DataError(concat("Ollama's model ", name, " has ", files.size(),
                           " weight files; want one GGUF file"));
  std::string file = files.front();
  const bool is_digest = (file.starts_with("sha256:") || file.starts_with("sha256-")) &&
                         file.size() > 7 &&
                         file.find_first_not_of("0123456789abcdef", 7) == file.npos;
  if (!is_digest)  // only files in `blobs` are allowed
    throw DataError(concat(manifest.string(), ": the digest of the weights is \"",
                           file.substr(0, 80), "\"; want sha256: and hexadecimal digits; pull the ",
                           "model again"));
  for (const char separator : {'-', ':'}) {  // a colon before Ollama 0.1.30
    std::ranges::replace(file, separator == '-' ? ':' : '-', separator);
    const fs::path path = folder / "blobs" / file;
    if (fs::exists(path, error)) return path;
  }
  throw MissingInput(concat((folder / "blobs" / files.front()).string(),
                            ": does not exist; it contained the weights of Ollama's model ", name,
                            "; pull it again"));
}

}  // namespace hybrid_trainer
