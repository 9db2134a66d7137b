#include <algorithm>
#include <array>

#include "hybrid_trainer/core/error.h"
#include "src/data/tables/row_formats.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr std::string_view kJsonBlanks = " \t\r\n";

std::vector<JsonRow> lines_of(std::string_view content) {
  std::vector<JsonRow> rows;
  std::int64_t line = 0;
  for (std::string_view rest = content; !rest.empty();) {
    const std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(text.size() + 1, rest.size()));
    ++line;
    const bool is_marked = text.starts_with(kByteOrderMark);  // in concatenated files
    const std::string_view said = text.substr(is_marked ? kByteOrderMark.size() : 0);
    if (!trimmed(said).empty()) rows.push_back({line, said});
  }
  return rows;
}

/// Returns the position of the comma after an element or of the closing bracket, or npos.
std::size_t end_of_element(std::string_view text, std::size_t begin, char closing) {
  std::size_t depth = 0;
  bool is_in_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string) {
      if (c == '\n' && closing == '}') return text.npos;  // JSON has no line breaks in strings
      if (c == '\\') ++i;
      is_in_string = c != '"';
    } else if (c == '"') {
      is_in_string = true;
    } else if (depth == 0 && (c == ',' || c == closing)) {
      return i;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return text.npos;
}

struct Member {
  std::string_view key, value;  // the key with its quotes
};

std::vector<Member> members_of(std::string_view object) {
  std::vector<Member> members;
  for (std::size_t begin = 1;;) {
    const std::size_t end = end_of_element(object, begin, '}');
    if (end == object.npos) return members;
    const std::string_view member = trimmed(object.substr(begin, end - begin));
    const std::size_t quote = member.find('"', 1);
    const std::size_t colon = quote == member.npos ? quote : member.find(':', quote);
    if (colon == member.npos) return {};
    members.push_back({member.substr(0, quote + 1), trimmed(member.substr(colon + 1))});
    if (object[end] == '}') return members;
    begin = end + 1;
  }
}

std::string_view name_of(std::string_view key) { return key.substr(1, key.size() - 2); }

using Names = std::vector<std::string>;

bool names_one_of(const std::vector<Member>& members, const Names& wanted) {
  return std::ranges::any_of(members, [&](const Member& member) {
    return std::ranges::find(wanted, name_of(member.key)) != wanted.end();
  });
}

bool has_key(const std::vector<Member>& members, std::string_view name) {
  return std::ranges::any_of(members, [&](const auto& one) { return name_of(one.key) == name; });
}

bool is_message(const std::vector<Member>& members) {
  return has_key(members, "role") || (has_key(members, "from") && has_key(members, "value"));
}

/// Returns whether a list under this name is the content of one row, regardless of its elements.
bool is_chat_name(std::string_view name) {
  static constexpr std::array kNames{"messages", "conversations", "conversation",
                                     "chat",     "dialog",        "dialogue",
                                     "turns",    "segments",      "history"};
  return std::ranges::find(kNames, name) != kNames.end();
}

std::vector<Member> first_object_of(std::string_view list) {
  const std::string_view inside = trimmed(list.substr(1));
  return inside.starts_with('{') ? members_of(inside) : std::vector<Member>();
}

std::vector<JsonRow> elements_of(std::string_view array, const std::string& path) {
  std::vector<JsonRow> rows;
  for (std::size_t begin = 1;;) {
    const std::size_t end = end_of_element(array, begin, ']');
    if (end == array.npos)
      throw DataError(concat(path, ": is a JSON array without an end; copy the file again"));
    const std::string_view element = trimmed(array.substr(begin, end - begin));
    const bool is_last = array[end] == ']';
    if (element.empty() && !(is_last && rows.empty()))
      throw DataError(concat(path, ": is a JSON array with an empty element after element ",
                             rows.size(), "; remove the extra comma"));
    if (!element.empty()) rows.push_back({std::ssize(rows) + 1, element});
    if (!is_last) {
      begin = end + 1;
      continue;
    }
    const std::string_view behind = trimmed(array.substr(end + 1));
    if (behind.starts_with('[') && is_message(first_object_of(array)))
      throw DataError(concat(path, ": its lines are lists of messages without a key; want ",
                             R"({"messages": […]} on each line)"));
    if (end + 1 != array.size())
      throw DataError(concat(
          path, ": has data after its JSON array; want one array, or one JSON object per line"));
    return rows;
  }
}

/// Returns the position after the object that begins at `begin`, or npos if it does not end.
std::size_t end_of_object(std::string_view text, std::size_t begin) {
  std::size_t at = begin + 1;
  while (at < text.size() && text[at] != '}') {
    at = end_of_element(text, at, '}');
    if (at == text.npos) return at;
    if (text[at] == ',') ++at;
  }
  return at < text.size() ? at + 1 : text.npos;
}

/// Returns consecutive objects if the first one spans several lines, otherwise nothing.
std::vector<JsonRow> objects_of(std::string_view content) {
  std::vector<JsonRow> rows;
  std::int64_t line = 1;
  for (std::size_t at = 0;;) {
    const std::size_t begin = std::min(content.find_first_not_of(kJsonBlanks, at), content.size());
    line += std::count(content.begin() + static_cast<std::ptrdiff_t>(at),
                       content.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
    if (begin == content.size()) return rows;
    const std::size_t end = content[begin] == '{' ? end_of_object(content, begin) : content.npos;
    if (end == content.npos) return {};
    rows.push_back({line, content.substr(begin, end - begin)});
    const auto breaks = std::count(rows.back().text.begin(), rows.back().text.end(), '\n');
    if (rows.size() == 1 && breaks == 0) return {};  // lines
    line += breaks;
    at = end;
  }
}

/// Returns pandas' name for the orientation of a table that is not a list of rows; otherwise "".
std::string orientation_of(const std::vector<Member>& members) {
  const auto is_number = [](std::string_view name) {
    return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
  };
  bool are_lists = true, are_columns = true, are_rows = true;
  for (const auto& [key, value] : members) {
    const bool is_object = value.starts_with('{');
    const std::vector<Member> inner = is_object ? members_of(value) : std::vector<Member>();
    are_rows = are_rows && is_object && is_number(name_of(key));
    are_columns = are_columns && !inner.empty() && is_number(name_of(inner.front().key));
    const std::string_view first = value.starts_with('[') ? trimmed(value.substr(1)) : "]";
    if (is_chat_name(name_of(key)) && !first.starts_with('[')) return "";
    are_lists = are_lists && !first.starts_with('{') && !first.starts_with(']');
  }
  if (members.empty()) return "";
  if (are_lists && has_key(members, "columns") && has_key(members, "data")) return "split";
  return are_rows ? "index" : are_lists || are_columns ? "columns" : "";
}

/// Returns the rows in the only list of objects in a file's single object. Returns no rows if there
/// is no such list, or if the object itself is a row.
JsonRows wrapped_rows(std::string_view object, const std::string& path, const Names& wanted) {
  const std::vector<Member> members = members_of(object);
  if (const std::string orientation = orientation_of(members); !orientation.empty())
    throw DataError(concat(
        path, ": is one JSON object that stores a table by ",
        orientation == "index" ? "row index" : "column",
        R"(, as pandas' to_json writes it; want records: df.to_json(PATH, orient="records", )",
        "lines=True), or convert this file: python3 -c \"import pandas; pandas.read_json('", path,
        "', orient='", orientation, "').to_json('", path,
        ".jsonl', orient='records', lines=True)\""));
  std::vector<Member> lists, others;
  for (const Member& member : members) {
    const bool is_list = member.value.starts_with('[') && member.value.ends_with(']');
    (is_list && !first_object_of(member.value).empty() ? lists : others).push_back(member);
  }
  if (lists.empty() || names_one_of(others, wanted)) return {};
  for (const Member& list : lists) {
    const std::vector<Member> first = first_object_of(list.value);
    if (is_chat_name(name_of(list.key))) return {};
    if (names_one_of({list}, wanted) && (is_message(first) || !names_one_of(first, wanted)))
      return {};
  }
  const std::string first(lists.front().key.substr(0, 60));
  if (lists.size() == 1) {
    JsonRows rows{elements_of(lists.front().value, path), true, first};
    for (const Member& other : others) rows.others.emplace_back(name_of(other.key.substr(0, 60)));
    return rows;
  }
  std::string names;
  for (const Member& list : lists)
    names += concat(names.empty() ? "" : ", ", list.key.substr(0, 60));
  throw DataError(concat(path, ": is one JSON object with the lists ", names.substr(0, 300),
                         "; want one of them: python3 -c \"import json; json.dump(json.load(open('",
                         path, "'))['", first.substr(1, first.size() - 2), "'], open('", path,
                         ".one.json', 'w'))\""));
}

void check_elements(const JsonRows& found, const std::string& path, const Names& wanted) {
  if (found.rows.empty()) return;
  const std::string_view first = found.rows.front().text;
  if (first.starts_with('['))
    throw DataError(concat(path, ": is a JSON array of lists, whose elements have no keys; want ",
                           R"(objects, such as [{"prompt": …, "completion": …}, …])"));
  if (!first.starts_with('{') || names_one_of(members_of(first), wanted)) return;
  if (is_message(members_of(first)))
    throw DataError(concat(path, ": is a list of messages, which is one row; want ",
                           R"({"messages": […]} for each chat)"));
}

}  // namespace

bool JsonRows::holds_objects() const {
  return std::ranges::any_of(rows,
                             [](const JsonRow& row) { return trimmed(row.text).starts_with('{'); });
}

bool JsonRows::begins_with_object() const {
  return !rows.empty() && trimmed(rows.front().text).starts_with('{');
}

JsonRows json_rows(std::string_view content, const std::string& path, const Names& wanted) {
  if (trimmed(content).starts_with('[')) {
    JsonRows array{elements_of(trimmed(content), path), true, {}, {}};
    check_elements(array, path, wanted);
    return array;
  }
  JsonRows found{objects_of(content), false, {}, {}};
  if (found.rows.empty()) found.rows = lines_of(content);
  if (found.rows.size() == 1 && trimmed(found.rows[0].text).starts_with('{')) {
    JsonRows wrapped = wrapped_rows(trimmed(found.rows[0].text), path, wanted);
    if (wrapped.are_of_array) return wrapped;
  }
  return found;
}

}  // namespace hybrid_trainer
