#include "hybrid_trainer/files/named_templates.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/strict_json.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kLargestConfig = std::size_t{64} << 20;
constexpr std::string_view kJinja = ".jinja";

void add(const json::value& value, const std::string& place, std::vector<NamedTemplate>& found) {
  if (value.is_string()) {
    found.push_back({"default", std::string(value.get_string()), place});
    return;
  }
  const auto refuse = [&](const char* wanted) {
    throw DataError(concat(place, ": want ", wanted));
  };
  if (!value.is_array()) refuse("a text, or a list of {name, template}");
  for (const json::value& entry : value.get_array()) {
    const json::object* object = entry.if_object();
    const json::value* name = object == nullptr ? nullptr : object->if_contains("name");
    const json::value* text = object == nullptr ? nullptr : object->if_contains("template");
    if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string())
      refuse("a list of {name, template}");
    const bool is_default = *name == json::value("default");
    found.push_back({std::string(name->get_string()), std::string(text->get_string()),
                     concat(place, is_default ? "" : " ",
                            is_default ? std::string_view() : name->get_string())});
  }
}

}  // namespace

std::vector<NamedTemplate> named_templates(const std::map<std::string, std::string>& files,
                                           const std::string& folder) {
  std::vector<NamedTemplate> found;
  const std::string within = folder.empty() ? "" : folder + "/";
  for (const auto& [name, text] : files) {
    const std::string path = concat(kTemplateFolder, "/");
    if (name == "chat_template.jinja") found.push_back({"default", text, within + name});
    if (name.starts_with(path) && name.ends_with(kJinja))
      found.push_back({name.substr(path.size(), name.size() - path.size() - kJinja.size()), text,
                       within + name});
  }
  const auto config = files.find("tokenizer_config.json");
  if (config != files.end() && find_template(found, "default") == nullptr) {
    const std::string place = within + config->first;
    const json::value value = parse_json_text(config->second, place, {.max_bytes = kLargestConfig});
    if (!value.is_object()) throw DataError(concat(place, ": want a JSON object"));
    const json::value* said = value.get_object().if_contains("chat_template");
    if (said != nullptr && !said->is_null()) add(*said, place + ": chat_template", found);
  }
  if (found.empty() || find_template(found, "default") != nullptr) return found;
  std::vector<std::string> known;
  for (const NamedTemplate& one : found) known.push_back(one.name);
  throw DataError(
      concat(found.front().place, ": none is named \"default\"; there are ", join(known)));
}

const NamedTemplate* find_template(const std::vector<NamedTemplate>& templates,
                                   std::string_view name) {
  const auto found = std::ranges::find(templates, name, &NamedTemplate::name);
  return found == templates.end() ? nullptr : &*found;
}

std::vector<std::string> additional_template_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / kTemplateFolder, absent))
    if (entry.is_regular_file() && entry.path().extension() == kJinja)
      files.push_back(concat(kTemplateFolder, "/", entry.path().filename().string()));
  std::ranges::sort(files);
  return files;
}

}  // namespace hybrid_trainer
