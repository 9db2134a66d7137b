#include <boost/algorithm/string/replace.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {
namespace {

std::string bounded(const std::string& word, const Range& range) {
  const bool any = range.text() == Range{}.text();
  return any ? word : concat(word, " in ", range.text());
}

std::string default_text(const FieldNode& field) {
  if (field.is_list) return field.is_named ? "`{}`" : "`[]`";
  if (field.left_out) return "left out";
  struct Text {
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return shortest(value); }
    std::string operator()(const std::string& value) const { return concat('"', value, '"'); }
    std::string operator()(const std::vector<double>& values) const {
      std::vector<std::string> words;
      for (double value : values) words.push_back(shortest(value));
      return concat("[", join(words), "]");
    }
  };
  return concat("`", std::visit(Text{}, field.value), "`");
}

std::string allowed_text(const FieldNode& field) {
  if (field.is_list) return field.is_named ? "object of objects" : "list of objects";
  struct Text {
    const FieldNode& field;
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(bool) const { return "true, false"; }
    std::string operator()(std::int64_t) const { return bounded("whole number", field.range); }
    std::string operator()(double) const { return bounded("number", field.range); }
    std::string operator()(const std::string&) const {
      if (field.is_size) return "bytes, 16GiB";
      return field.choices.empty() ? "text" : join(field.choices);
    }
    std::string operator()(const std::vector<double>&) const {
      return bounded("list of numbers", field.range);
    }
  };
  return std::visit(Text{field}, field.value);
}

void append_group(std::string& out, const FieldNode& group, const std::string& path) {
  std::string rows;
  for (const FieldNode& field : group.fields) {
    if (field.is_group()) continue;
    rows += concat("| `", path, field.name, "` | ", default_text(field), " | ", allowed_text(field),
                   " | ", field.help, " |\n");
  }
  if (!path.empty()) {
    out += concat("## ", path.substr(0, path.size() - 1), "\n\n",
                  boost::replace_all_copy(group.help, ". ", ".\n"),  // lines that are not too long
                  group.help.empty() ? "" : "\n\n");
  }
  if (!rows.empty())
    out += "| key | default | allowed | meaning |\n| --- | --- | --- | --- |\n" + rows + "\n";
  for (const FieldNode& field : group.fields) {
    if (field.is_group()) append_group(out, field, path + field.name + ".");
    if (field.is_list)
      append_group(out, field, path + field.name + (field.is_named ? ".NAME." : "[]."));
  }
}

}  // namespace

std::string fields_markdown(const FieldNode& root) {
  std::string out;
  append_group(out, root, "");
  if (!out.empty()) out.pop_back();  // the final empty line
  return out;
}

}  // namespace hybrid_trainer
