#pragma once

#include <set>

#include "src/files/json.h"

namespace hybrid_trainer {

/// The files that other programs write and this one reads.
enum class ForeignFile {
  kConfig,              // config.json
  kQuantizationConfig,  // quantization_config in it, of bitsandbytes
  kGenerationConfig,    // generation_config.json
  kTokenizerConfig,     // tokenizer_config.json
  kAdapterConfig,       // adapter_config.json
  kGguf,                // a GGUF file's values for its architecture, without that name
};

/// Keys of an object in such a file that its reader did not ask for.
struct UnreadKeys {
  /// "KEY: got VALUE, want VALUE": they change what is computed, and nothing here honors them.
  std::vector<std::string> problems;
  std::vector<std::string> unknown;  // in the object's order
};

/// Sorts the members of `object` that are not in `read`. A null is as good as absent; keys that are
/// known to change nothing here are left out. src/files/foreign_files.cpp lists both kinds.
UnreadKeys sort_unread_keys(const boost::json::object& object, ForeignFile file,
                            const std::set<std::string>& read);

/// Whether a key of generation_config.json changes the text that transformers' generate writes.
bool changes_writing(const std::string& key);

/// Warns in one line that these keys of the file at `path` are ignored, unless there are none.
void warn_of_unknown_keys(const std::string& path, const std::vector<std::string>& keys);

/// Folder of the chat templates besides the default one, as NAME.jinja.
inline constexpr std::string_view kTemplateFolder = "additional_chat_templates";
inline constexpr std::size_t kLargestTemplate = std::size_t{1} << 20;

struct NamedTemplate {
  std::string name, text;
  std::string place;  // for messages
};

/// The chat templates among a tokenizer's files, as transformers finds them: chat_template.jinja is
/// "default", additional_chat_templates/NAME.jinja is NAME; those that tokenizer_config.json has as
/// chat_template, a text or a list of {name, template}, come after them. `folder` is for messages. Throws
/// DataError if there are some and none is "default".
std::vector<NamedTemplate> named_templates(const std::map<std::string, std::string>& files,
                                           const std::string& folder);

/// The template of that name, or null.
const NamedTemplate* find_template(const std::vector<NamedTemplate>& templates,
                                   std::string_view name);

/// Paths of a folder's additional chat templates, relative to it.
std::vector<std::string> additional_template_files(const std::string& folder);

}  // namespace hybrid_trainer
