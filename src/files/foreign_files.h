#pragma once

#include <set>

#include "src/files/json.h"

namespace hybrid_trainer {

/// Files that other programs write and this program reads.
enum class ForeignFile {
  kConfig,              // config.json
  kQuantizationConfig,  // quantization_config of config.json, written by bitsandbytes
  kGenerationConfig,    // generation_config.json
  kTokenizerConfig,     // tokenizer_config.json
  kAdapterConfig,       // adapter_config.json
  kGguf,                // values of a GGUF file for its architecture, without the prefix
};

/// Keys of an object in such a file that the reader of the file did not request.
struct UnreadKeys {
  /// "KEY: got VALUE, want VALUE" for keys that change the results but are not supported.
  std::vector<std::string> problems;
  std::vector<std::string> unknown;  // other keys, in the order of the object
};

/// Classifies the members of `object` that are not in `read`. Treats null as absent, and omits keys
/// without effect here (listed in src/files/foreign_files.cpp, with keys that change results).
UnreadKeys sort_unread_keys(const boost::json::object& object, ForeignFile file,
                            const std::set<std::string>& read);

/// Returns whether a key of generation_config.json changes the text of transformers' generate.
bool affects_generation(const std::string& key);

/// Warns in one line that these keys of the file at `path` are ignored, if there are any.
void warn_of_unknown_keys(const std::string& path, const std::vector<std::string>& keys);

/// Folder of additional chat templates, each in a file NAME.jinja.
inline constexpr std::string_view kTemplateFolder = "additional_chat_templates";
inline constexpr std::size_t kLargestTemplate = std::size_t{1} << 20;

struct NamedTemplate {
  std::string name, text;
  std::string place;  // for messages
};

/// Finds the chat templates among a tokenizer's files like transformers: chat_template.jinja is
/// "default", additional_chat_templates/NAME.jinja is NAME, and then come the templates in
/// tokenizer_config.json's chat_template, which is a text or a list of {name, template}. `folder`
/// is for messages. Throws DataError if there are templates and none is "default".
std::vector<NamedTemplate> named_templates(const std::map<std::string, std::string>& files,
                                           const std::string& folder);

const NamedTemplate* find_template(const std::vector<NamedTemplate>& templates,
                                   std::string_view name);

std::vector<std::string> additional_template_files(const std::string& folder);

}  // namespace hybrid_trainer
