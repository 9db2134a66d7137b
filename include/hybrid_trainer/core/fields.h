#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

/// A human-readable number of bytes: "16GiB", "500 MB", "1000000". Units are B, kB, MB, GB, TB
/// (powers of 1000) and KiB, MiB, GiB, TiB (powers of 1024), in upper or lower case. 0 means unset.
struct MemorySize {
  std::uint64_t bytes = 0;

  /// Returns nullopt for invalid text or more than 2^62 bytes.
  static std::optional<MemorySize> parse(std::string_view text);
  /// Returns whether the text has a unit or is 0. "16" without a unit probably means GiB.
  static bool has_unit(std::string_view text);
  /// Returns the bytes, or nullopt if unset.
  std::optional<std::size_t> limit() const {
    return bytes == 0 ? std::optional<std::size_t>() : bytes;
  }
  /// Returns the shortest text that parses to this value: "16GiB", "1000001".
  std::string text() const;
  friend bool operator==(const MemorySize&, const MemorySize&) = default;
};

/// Returns whether `name` matches `pattern`, in which * matches any characters.
bool matches_pattern(std::string_view name, std::string_view pattern);

/// Interval of allowed values. `text()` returns "[0, 1)".
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
  bool contains(double value) const {  // false for NaN
    return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
  }
  std::string text() const;
  static Range at_least(double low) {
    return {low, std::numeric_limits<double>::infinity(), false, true};
  }
  static Range above(double low) {
    return {low, std::numeric_limits<double>::infinity(), true, true};
  }
  static Range between(double low, double high) { return {low, high, false, false}; }
  static Range fraction() { return {0, 1, false, true}; }  // [0, 1)
};

/// A condition on the value of a configuration key. Values are compared as text.
struct KeyTest {
  /// kHasOneOf holds if the text is empty or contains one of the values.
  enum class Kind { kIsOneOf, kIsNoneOf, kIsMoreThan, kIsLessThan, kIsAtMost, kHasOneOf };

  /// A path such as "memory.weights"; "optimizer.groups[].name" tests every group that sets a name.
  /// "ranks" is the number of ranks, if known. A test of a missing key fails.
  std::string key;
  Kind kind = Kind::kIsOneOf;
  std::vector<std::string> values;  // for numeric tests: one number, or the key of a number
};

/// Condition for a key to have an effect: at least one of the tests passes. `why` explains why the
/// key has no effect; if it is empty, the message lists the required values.
struct KeyNeed {
  std::vector<KeyTest> any_of;
  std::string why{};

  /// Returns a need that is met if the test passes for at least one of the keys.
  static KeyNeed of(const std::vector<std::string>& keys, const std::vector<std::string>& values,
                    const std::string& why, KeyTest::Kind kind = KeyTest::Kind::kIsOneOf);
};

/// How a resumed run may change a key.
enum class OnResume {
  kSame,        // another value is an error: it would reinterpret the saved state
  kMayChange,   // the new value applies to further steps
  kMayBecome0,  // only 0 is accepted
  kStays,       // the run keeps the saved value and ignores the new one
};

/// Relation of a key's model family to the family that the struct's values describe.
enum class KeyOwner {
  kOwn,      // the same family
  kRelated,  // a related family: documented but not written
  kOther,    // another family: only read, so that its value can be checked
};

/// A letter of a pattern such as "ma", and its word in a JSON list: ["mamba2", "attention"].
struct LetterWord {
  char letter;
  std::string word;
};
/// Lists the letters with their words: "m (mamba2) and a (attention)".
std::string text_of(const std::vector<LetterWord>& letters);

/// A new user's question that a key answers. Groups the keys in `hybrid config --essential`.
enum class Question { kNone, kModel, kData, kLength, kSpeed, kMemory };

/// One member of a config struct: JSON key, reference, one-sentence description, allowed values and
/// resume rules. A struct lists its members once:
///   template <class Self, class Visitor> static void visit_fields(Self& self, Visitor&& visit) {
///     visit(Field{"decay_share", self.decay_share, "Last share of the run, over which wsd decays.",
///                 Range::between(0, 1)}
///               .on_resume(OnResume::kMayChange)
///               .needs("schedule.name", {"wsd"}));
///   }
/// and JSON, command line, validation, warnings, help and docs/CONFIG.md derive from it. T is bool,
/// an integer, double, std::string, MemorySize, std::vector<double>, an enum with enum_names(), a
/// struct with visit_fields, a std::vector of structs of scalars, or a std::optional of a scalar,
/// whose key is optional. A vector whose structs have a member pointer kName is a JSON object keyed
/// by that member, which visit_fields omits.
template <class T>
struct Field {
  const char* name;
  T& value;
  const char* help;
  Range range{};
  std::vector<std::string> choices{};  // for a std::string limited to these values
  OnResume resume = OnResume::kSame;   // a group's rule applies to all its keys
  Question question = Question::kNone;
  std::vector<KeyNeed> all_needs{};  // a group's needs apply to all its keys
  bool is_constant = false;
  std::vector<LetterWord> letters{};  // words that JSON may list instead of letters

  Field on_resume(OnResume value) && {
    resume = value;
    return std::move(*this);
  }
  /// Lists the key in `hybrid config --essential`.
  Field essential(Question asked) && {
    question = asked;
    return std::move(*this);
  }
  /// Lets JSON and --set also accept a list of words instead of letters.
  Field spelled(std::vector<LetterWord> words) && {
    letters = std::move(words);
    return std::move(*this);
  }
  /// Declares that the field has no effect unless `key` has one of the values.
  Field needs(const char* key, const std::vector<std::string>& values, const char* why = "") && {
    return std::move(*this).needs_any(KeyNeed::of({key}, values, why));
  }
  /// Declares that the field has no effect if `key` has one of the values.
  Field unless(const char* key, const std::vector<std::string>& values, const char* why = "") && {
    return std::move(*this).needs_any(KeyNeed::of({key}, values, why, KeyTest::Kind::kIsNoneOf));
  }
  /// Declares that the field has no effect unless the need is met.
  Field needs_any(KeyNeed need) && {
    all_needs.push_back(std::move(need));
    return std::move(*this);
  }
};
template <class T>
Field(const char*, T&, const char*) -> Field<T>;

/// Makes the field of a member that only C++ code sets. Help and docs/CONFIG.md omit it. JSON
/// contains the field only if its value differs from the default, so that a resumed run uses the
/// same value.
template <class T>
Field<T> constant(const char* name, T& value, Range range = {}) {
  Field<T> field{name, value, "", range};
  field.is_constant = true;
  return field;
}
template <class T>
Field(const char*, T&, const char*, Range) -> Field<T>;
template <class T>
Field(const char*, T&, const char*, Range, std::vector<std::string>) -> Field<T>;

/// An enum whose names enum_names(E) returns in value order as const std::vector<std::string>&.
template <class T>
concept NamedEnum = std::is_enum_v<T> && requires(T value) {
  enum_names(value);
};

template <class T>
concept FieldStruct = requires(T& value) {
  T::visit_fields(value, [](auto&&) {});
};

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsFieldStructList = false;
template <FieldStruct T>
inline constexpr bool kIsFieldStructList<std::vector<T>> = true;

template <class T>
concept NamedElement = FieldStruct<T> && requires {
  T::kName;
};
/// Returns the path of a list element: "groups[0]", or "parts.video" if the list is keyed by name.
template <class T>
std::string path_of_element(const std::string& list, const T& element, std::size_t index) {
  if constexpr (NamedElement<T>) {
    return list + "." + element.*T::kName;
  } else {
    return list + "[" + std::to_string(index) + "]";
  }
}

std::string range_problem(const std::string& path, double value, const Range& range);
std::string choice_problem(const std::string& path, const std::string& value,
                           const std::vector<std::string>& choices);

template <class Rows>
std::vector<std::string> names_of(Rows&& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

/// Returns the row named by a config key. Throws ConfigError with the nearest names.
template <class Rows>
const auto& named_row(const Rows& rows, const std::string& key, const std::string& name) {
  for (const auto& row : rows) {
    if (name == row.name) return row;
  }
  throw ConfigError({choice_problem(key, name, names_of(rows))});
}

template <class Value>
void collect_value_problems(const std::string& at, const Value& value, const Range& range,
                            const std::vector<std::string>& choices,
                            std::vector<std::string>& problems);

/// Appends the fields' problems as "path: got VALUE, want RANGE", with names prefixed by `path`.
template <FieldStruct T>
void collect_range_problems(const T& config, const std::string& path,
                            std::vector<std::string>& problems);

template <class Value>
void collect_value_problems(const std::string& at, const Value& value, const Range& range,
                            const std::vector<std::string>& choices,
                            std::vector<std::string>& problems) {
  if constexpr (FieldStruct<Value>) {
    collect_range_problems(value, at, problems);
  } else if constexpr (kIsFieldStructList<Value>) {
    for (std::size_t i = 0; i < value.size(); ++i)
      collect_range_problems(value[i], path_of_element(at, value[i], i), problems);
  } else if constexpr (kIsOptional<Value>) {
    if (value) collect_value_problems(at, *value, range, choices, problems);
  } else if constexpr (std::is_same_v<Value, std::vector<double>>) {
    for (double v : value) {
      if (!range.contains(v)) problems.push_back(range_problem(at, v, range));
    }
  } else if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
    const double v = static_cast<double>(value);
    if (!range.contains(v) || !std::isfinite(v)) problems.push_back(range_problem(at, v, range));
  } else if constexpr (std::is_same_v<Value, std::string>) {
    bool known = choices.empty();
    for (const auto& choice : choices) known = known || choice == value;
    if (!known) problems.push_back(choice_problem(at, value, choices));
  }
}

template <FieldStruct T>
void collect_range_problems(const T& config, const std::string& path,
                            std::vector<std::string>& problems) {
  T::visit_fields(config, [&](const auto& field) {
    const std::string at = path.empty() ? field.name : path + "." + field.name;
    collect_value_problems(at, field.value, field.range, field.choices, problems);
  });
}

}  // namespace hybrid_trainer
