#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hybrid_trainer::jinja {

// Python's str, on UTF-8.

/// str.isspace() of one character.
bool is_python_space(char32_t character);
/// Bytes of white space at the start.
std::size_t leading_space(std::string_view text);
/// The character that begins at a byte.
std::string_view character_at(std::string_view text, std::size_t at);
/// The byte so many characters further on, or further back.
std::size_t moved(std::string_view text, std::size_t byte, std::int64_t characters);
/// Where a part begins, or npos; in linear time, whatever the part is.
std::size_t position_of(std::string_view text, std::string_view part);
std::int64_t count_characters(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
/// strip, lstrip, rstrip: of white space, or of the characters given.
std::string stripped(std::string_view text, Side side,
                     const std::optional<std::string>& characters = {});
/// split: at white space, or at the separator; at most `limit` times where that is not negative.
/// Throws Problem where the parts would be too many.
std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               std::int64_t limit);
/// Throws Problem where the result would be too large.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t limit);

enum class Case { kUpper, kLower, kCapitalized, kTitle };
/// Throws Problem where a letter is not ASCII: what its other case is depends on Unicode's version.
std::string in_case(std::string_view text, Case wanted);

/// The start of a text, for messages.
std::string shortened(std::string_view text, std::size_t bytes = 80);
/// float.__repr__.
std::string float_text(double value);
/// str.__repr__.
std::string quoted_text(std::string_view text);
/// A JSON string as json.dumps writes it.
std::string json_quoted(std::string_view text, bool ascii);

/// What a template cannot go on with; whoever knows the line adds it.
struct Problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Value;
struct Macro;
using List = std::vector<Value>;
/// Python's dict with keys that are texts, in order of insertion.
using Dict = std::vector<std::pair<std::string, Value>>;

struct Undefined {
  std::string name;
};
struct None {};
/// How much a value is when it is written out: what a list holds twice counts twice.
struct Extent {
  std::size_t bytes = 0;
  int depth = 0;
};
/// A list or a tuple; nothing changes it.
struct Sequence {
  std::shared_ptr<const List> items;
  bool is_tuple = false;
  Extent extent{};
};
/// A dict; nothing changes it.
struct Mapping {
  std::shared_ptr<const Dict> entries;
  Extent extent{};
};
/// What `set x.y = …` changes; the rendering that made it owns it.
struct Namespace {
  Dict* entries = nullptr;
};
/// `loop`, within a loop over these items.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t place = 0;
};
/// A function of the environment by its name, or a method of a value.
struct Function {
  std::string name;
  std::shared_ptr<const Value> self;  // null: of the environment
};

/// A text, list or dict may have as many bytes, written out.
inline constexpr std::size_t kMostBytes = std::size_t{32} << 20;
/// Lists and dicts may be in one another as deeply.
inline constexpr int kDeepestValue = 100;

/// A value of Python, as far as templates have them. Texts are UTF-8 and counted in code points.
struct Value {
  std::variant<Undefined, None, bool, std::int64_t, double, std::string, Sequence, Mapping,
               Namespace, Loop, Function, std::shared_ptr<const Macro>>
      held;
  bool is_safe = false;  // a text that the filter `safe` marked

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(held);
  }
  template <class T>
  const T* if_is() const {
    return std::get_if<T>(&held);
  }
};

/// Each throws Problem where the value would be larger or deeper than is allowed.
Value list_of(List items);
Value tuple_of(List items);
Value dict_of(Dict entries);
Extent extent_of(const Value& value);
Extent extent_of(const Dict& entries);
/// Throws Problem, which names `what` would be so large, where that is not allowed.
void want_room(std::size_t bytes, std::string_view what);

bool truth(const Value& value);
/// Python's ==.
bool equal(const Value& left, const Value& right);
/// Whether left < right. Throws Problem where Python has no order for them.
bool less(const Value& left, const Value& right);
/// Python's str(), and repr().
std::string text_of(const Value& value);
std::string repr_of(const Value& value);
/// json.dumps without HTML's escapes; `indent` is empty for one line.
struct JsonStyle {
  bool one_line = true;
  std::string indent;
  bool ascii = false;
  bool sorted = false;
};
std::string json_of(const Value& value, const JsonStyle& style);

/// "str", "list", …
std::string type_of(const Value& value);
/// Throws Problem that names the variable where the value is undefined.
void want_defined(const Value& value);
/// The elements that a loop takes: of a dict its keys, of a text its characters.
std::shared_ptr<const List> elements_of(const Value& value);
std::int64_t length_of(const Value& value);
/// Null where there is no such key.
const Value* find(const Dict& dict, std::string_view key);
/// `item in container`.
bool contains(const Value& container, const Value& item);
/// left == right, left not in right and so on.
bool holds(const Value& left, const std::string& operation, const Value& right);

}  // namespace hybrid_trainer::jinja
