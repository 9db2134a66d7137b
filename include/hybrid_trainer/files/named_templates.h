#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

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
