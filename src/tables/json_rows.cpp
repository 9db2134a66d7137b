#include "src/tables/json_rows.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

std::vector<JsonRow> lines_of(std::string_view content) {
  std::vector<JsonRow> rows;
  std::int64_t line = 0;
  for (std::string_view rest = content; !rest.empty();) {
    const std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(text.size() + 1, rest.size()));
    ++line;
    if (!trimmed(text).empty()) rows.push_back({line, text});
  }
  return rows;
}

/// Where the element of an array or an object that begins at `begin` ends: at the comma behind it or
/// at what closes the whole. npos: nowhere.
std::size_t end_of_element(std::string_view text, std::size_t begin, char closing) {
  std::size_t depth = 0;
  bool is_in_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string) {
      if (c == '\n' && closing == '}') return text.npos;  // JSON has none there
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

std::vector<JsonRow> elements_of(std::string_view array, const std::string& path) {
  std::vector<JsonRow> rows;
  for (std::size_t begin = 1;;) {
    const std::size_t end = end_of_element(array, begin, ']');
    if (end == array.npos)
      throw DataError(concat(path, ": is a JSON array that does not end; copy the file anew"));
    const std::string_view element = trimmed(array.substr(begin, end - begin));
    const bool is_last = array[end] == ']';
    if (element.empty() && !(is_last && rows.empty()))
      throw DataError(concat(path,
                             ": is a JSON array with nothing between two commas, or behind the ",
                             "last one, after element ", rows.size(), "; write it anew"));
    if (!element.empty()) rows.push_back({std::ssize(rows) + 1, element});
    if (!is_last) {
      begin = end + 1;
      continue;
    }
    if (end + 1 != array.size())
      throw DataError(concat(path, ": something follows the JSON array that it begins with; want ",
                             "one array, or one JSON object a line"));
    return rows;
  }
}

/// Where the object that begins at `begin` ends: behind its brace. npos: nowhere.
std::size_t end_of_object(std::string_view text, std::size_t begin) {
  std::size_t at = begin + 1;
  while (at < text.size() && text[at] != '}') {
    at = end_of_element(text, at, '}');
    if (at == text.npos) return at;
    if (text[at] == ',') ++at;
  }
  return at < text.size() ? at + 1 : text.npos;
}

/// Objects that stand behind one another, the first of them over several lines; none where that is
/// not what the file is.
std::vector<JsonRow> objects_of(std::string_view content) {
  std::vector<JsonRow> rows;
  std::int64_t line = 1;
  for (std::size_t at = 0;;) {
    const std::size_t begin = std::min(content.find_first_not_of(kBlank, at), content.size());
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

/// Keys of an object that is an example itself.
bool is_of_example(std::string_view key) {
  static constexpr std::string_view kKeys[] = {
      "\"text\"",        "\"prompt\"",        "\"completion\"", "\"messages\"",
      "\"instruction\"", "\"conversations\"", "\"chosen\""};
  return std::ranges::find(kKeys, key) != std::end(kKeys);
}

/// The examples in the only list of objects that a file's one object holds; nothing where there is
/// none.
JsonRows wrapped_rows(std::string_view object, const std::string& path) {
  std::vector<Member> lists;
  for (const Member& member : members_of(object)) {
    if (is_of_example(member.key)) return {};
    const bool is_list = member.value.starts_with('[') && member.value.ends_with(']');
    if (is_list && trimmed(member.value.substr(1)).starts_with('{')) lists.push_back(member);
  }
  if (lists.empty()) return {};
  const std::string first(lists.front().key.substr(0, 60));
  if (lists.size() == 1) return {elements_of(lists.front().value, path), true, first};
  std::string names;
  for (const Member& list : lists)
    names += concat(names.empty() ? "" : ", ", list.key.substr(0, 60));
  throw DataError(concat(path, ": is one JSON object with the lists ", names.substr(0, 300),
                         "; want one of them: python3 -c \"import json; json.dump(json.load(open('",
                         path, "'))['", first.substr(1, first.size() - 2), "'], open('", path,
                         ".one.json', 'w'))\""));
}

}  // namespace

bool JsonRows::holds_objects() const {
  return std::ranges::any_of(rows,
                             [](const JsonRow& row) { return trimmed(row.text).starts_with('{'); });
}

JsonRows json_rows(std::string_view content, const std::string& path) {
  if (trimmed(content).starts_with('[')) return {elements_of(trimmed(content), path), true, {}};
  JsonRows found{objects_of(content), false, {}};
  if (found.rows.empty()) found.rows = lines_of(content);
  if (found.rows.size() == 1 && trimmed(found.rows[0].text).starts_with('{')) {
    JsonRows wrapped = wrapped_rows(trimmed(found.rows[0].text), path);
    if (wrapped.are_of_array) return wrapped;
  }
  return found;
}

}  // namespace hybrid_trainer
