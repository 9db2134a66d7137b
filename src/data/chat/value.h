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

bool is_python_space(char32_t character);
std::size_t leading_space(std::string_view text);
/// Returns the position that is `characters` characters after the position `byte`, or before it if
/// `characters` is negative.
std::size_t moved(std::string_view text, std::size_t byte, std::int64_t characters);
/// Returns the position of `part` in linear time, or npos.
std::size_t position_of(std::string_view text, std::string_view part);
std::int64_t count_characters(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
/// Implements strip, lstrip and rstrip: removes white space, or the given characters.
std::string stripped(std::string_view text, Side side,
                     const std::optional<std::string>& characters = {});
/// Implements split: splits at white space or at the separator, at most `limit` times if `limit` is
/// not negative. Throws Problem if there are too many parts.
std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               std::int64_t limit);
/// Replaces `from` by `to`, at most `limit` times if `limit` is not negative. Throws Problem if the
/// result is too large.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t limit);

enum class Case { kUpper, kLower, kCapitalized, kTitle };
/// Throws Problem for non-ASCII letters, because their case depends on the Unicode version.
std::string in_case(std::string_view text, Case wanted);

std::string shortened(std::string_view text, std::size_t bytes = 80);
std::string float_text(double value);
/// Returns Python's repr() of a text.
std::string quoted_text(std::string_view text);
/// Returns a JSON string in the format of json.dumps.
std::string json_quoted(std::string_view text, bool ascii);

/// An error of a template. The caller that knows the line adds the line to the message.
struct Problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Value;
struct Macro;
using List = std::vector<Value>;
/// Python's dict with texts as keys, in insertion order.
using Dict = std::vector<std::pair<std::string, Value>>;

struct Undefined {
  std::string name;
};
struct None {};
/// Size of a value when written out. An item that a list contains several times counts each time.
struct Extent {
  std::size_t bytes = 0;
  int depth = 0;
};
struct Sequence {
  std::shared_ptr<const List> items;
  bool is_tuple = false;
  Extent extent{};
};
struct Mapping {
  std::shared_ptr<const Dict> entries;
  Extent extent{};
};
/// A namespace, which `set x.y = …` changes. The rendering that created it owns it.
struct Namespace {
  Dict* entries = nullptr;
};
/// The variable `loop` within a loop over these items.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t place = 0;
};
/// A function of the environment, or a method of a value, by name.
struct Function {
  std::string name;
  std::shared_ptr<const Value> self;  // null if the function is in the environment
};

/// Maximum bytes of a text, list or dict when written out.
inline constexpr std::size_t kMaxBytes = std::size_t{32} << 20;
inline constexpr int kMaxValueDepth = 100;

/// A Python value of a type used by templates. Texts are UTF-8 and counted in code points.
struct Value {
  std::variant<Undefined, None, bool, std::int64_t, double, std::string, Sequence, Mapping,
               Namespace, Loop, Function, std::shared_ptr<const Macro>>
      held;
  bool is_safe = false;  // whether the filter `safe` marked the text

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(held);
  }
  template <class T>
  const T* if_is() const {
    return std::get_if<T>(&held);
  }
};

/// Makes a list. Like the next two, throws Problem if the value exceeds a limit of size or depth.
Value list_of(List items);
Value tuple_of(List items);
Value dict_of(Dict entries);
Extent extent_of(const Value& value);
Extent extent_of(const Dict& entries);
/// Throws Problem naming `what` if `bytes` exceeds the limit.
void check_result_bytes(std::size_t bytes, std::string_view what);

/// A value as a number. True and False are numbers, as in Python; other values clear is_number.
struct Number {
  bool is_number = false, is_float = false;
  std::int64_t whole = 0;
  double real = 0;
};
Number number_of(const Value& value);

bool truth(const Value& value);
bool equal(const Value& left, const Value& right);
/// Returns left < right. Throws Problem if Python has no order for them.
bool less(const Value& left, const Value& right);
/// text_of returns Python's str() of a value, and repr_of returns its repr().
std::string text_of(const Value& value);
std::string repr_of(const Value& value);
/// Format of JSON, as written by json.dumps but without HTML escapes.
struct JsonStyle {
  bool one_line = true;
  std::string indent;
  bool ascii = false;
  bool sorted = false;
};
std::string json_of(const Value& value, const JsonStyle& style);

/// Returns the name of a value's Python type: "str", "list", …
std::string type_of(const Value& value);
/// Throws Problem naming the variable if the value is undefined.
void require_defined(const Value& value);
/// Returns the elements that a loop visits: the keys of a dict, the characters of a text.
std::shared_ptr<const List> elements_of(const Value& value);
std::int64_t length_of(const Value& value);
const Value* find(const Dict& dict, std::string_view key);
bool contains(const Value& container, const Value& item);
bool holds(const Value& left, const std::string& operation, const Value& right);

}  // namespace hybrid_trainer::jinja
