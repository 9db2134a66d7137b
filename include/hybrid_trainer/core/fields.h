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

/// A number of bytes as people write it: "16GiB", "500 MB", "1000000". Units are B, kB, MB, GB, TB
/// (powers of 1000) and KiB, MiB, GiB, TiB (of 1024), in any case. 0: none is given.
struct MemorySize {
  std::uint64_t bytes = 0;

  /// Nothing for what is no such text, or more than 2^62 bytes.
  static std::optional<MemorySize> parse(std::string_view text);
  /// Returns whether a text names its unit, or is 0: "16" is more likely meant as GiB than as bytes.
  static bool has_unit(std::string_view text);
  /// Nothing where none is given.
  std::optional<std::size_t> limit() const {
    return bytes == 0 ? std::optional<std::size_t>() : bytes;
  }
  /// The shortest text that parse reads as this: "16GiB", "1000001".
  std::string text() const;
  friend bool operator==(const MemorySize&, const MemorySize&) = default;
};

/// Whether `name` is `pattern`, in which each * stands for any characters.
bool matches_pattern(std::string_view name, std::string_view pattern);

/// Allowed values of a number. `text()` gives "[0, 1)".
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

/// What must be true of the value of a key of the whole configuration, as text.
struct KeyTest {
  /// kHasOneOf: the text is empty or contains one of the values.
  enum class Kind { kIsOneOf, kIsNoneOf, kIsMoreThan, kIsLessThan, kIsAtMost, kHasOneOf };

  /// "memory.weights"; "optimizer.groups[].name" is that of each group that gives one. "ranks" is the
  /// number of ranks, if that is known; a test of a key that is not there does not pass.
  std::string key;
  Kind kind = Kind::kIsOneOf;
  std::vector<std::string> values;  // of a number, the one that it is compared with, or its key
};

/// A key has an effect only if one of the tests passes. `why` says why it has none; empty: by values.
struct KeyNeed {
  std::vector<KeyTest> any_of;
  std::string why{};

  /// The same test of each of the keys.
  static KeyNeed of(const std::vector<std::string>& keys, const std::vector<std::string>& values,
                    const std::string& why, KeyTest::Kind kind = KeyTest::Kind::kIsOneOf);
};

/// What a run that goes on may do with a key.
enum class OnResume {
  kSame,        // another value is refused: the saved state would mean something else
  kMayChange,   // it affects how further steps are done
  kMayBecome0,  // 0 alone
  kStays,       // the run's own value stays, whatever is asked for
};

/// Who has a key of a struct that serves several kinds, of which each has some of the keys.
enum class KeyOwner {
  kOwn,    // the kind that the struct is of
  kKin,    // a kind like it: documented, but not written
  kOther,  // none of these: read alone, so that its value can be checked
};

/// What a user asks first, and a key answers.
enum class Question { kNone, kModel, kData, kLength, kSpeed, kMemory };

/// One member of a config struct: its JSON key, the member, a one-sentence description, its allowed
/// values, and what else there is to know. A struct lists its members once:
///   template <class Self, class Visitor> static void visit_fields(Self& self, Visitor&& visit) {
///     visit(Field{"decay_share", self.decay_share, "Last share of the run, over which wsd decays.",
///                 Range::between(0, 1)}
///               .on_resume(OnResume::kMayChange)
///               .needs("schedule.name", {"wsd"}));
///   }
/// and JSON, command line, validation, warnings, help and docs/CONFIG.md follow from it. T is bool, an
/// integer, double, std::string, MemorySize, std::vector<double>, an enum with enum_names(), another
/// struct with visit_fields, a std::vector of such structs of single values, or a std::optional of
/// what is no struct, whose key may be left out. Of a vector whose structs have a member pointer kName,
/// that member, which visit_fields leaves out, is the key of each in one JSON object.
template <class T>
struct Field {
  const char* name;
  T& value;
  const char* help;
  Range range{};
  std::vector<std::string> choices{};  // for a std::string limited to these values
  OnResume resume = OnResume::kSame;   // of a group: of all its keys
  Question question = Question::kNone;
  std::vector<KeyNeed> all_needs{};  // of a group: of all its keys
  bool is_constant = false;

  Field on_resume(OnResume value) && {
    resume = value;
    return std::move(*this);
  }
  /// One of the keys that `hybrid config --essential` prints.
  Field essential(Question asked) && {
    question = asked;
    return std::move(*this);
  }
  /// Without effect unless the key has one of the values.
  Field needs(const char* key, const std::vector<std::string>& values, const char* why = "") && {
    return std::move(*this).needs_any(KeyNeed::of({key}, values, why));
  }
  /// Without effect while the key has one of the values.
  Field unless(const char* key, const std::vector<std::string>& values, const char* why = "") && {
    return std::move(*this).needs_any(KeyNeed::of({key}, values, why, KeyTest::Kind::kIsNoneOf));
  }
  /// Without effect unless the need is met.
  Field needs_any(KeyNeed need) && {
    all_needs.push_back(std::move(need));
    return std::move(*this);
  }
};
template <class T>
Field(const char*, T&, const char*) -> Field<T>;

/// A member that C++ code may set and users do not: JSON has it only where it differs from its
/// default, so that a run is resumed as it began, and help and docs/CONFIG.md leave it out.
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

/// An enum whose values have names in configs comes with `enum_names(E)`, which returns the names
/// in order of value as a const std::vector<std::string>&.
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

/// The element of a named list, by its name.
template <class T>
concept NamedElement = FieldStruct<T> && requires {
  T::kName;
};
/// Where an element of a list stands: "groups[0]", or of a named one "parts.video.*".
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

/// Names of the rows of a table, each of which has a `name`.
template <class Rows>
std::vector<std::string> names_of(Rows&& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

/// The row that a config's key names. Throws ConfigError with the nearest names.
template <class Rows>
const auto& named_row(const Rows& rows, const std::string& key, const std::string& name) {
  for (const auto& row : rows) {
    if (name == row.name) return row;
  }
  throw ConfigError({choice_problem(key, name, names_of(rows))});
}

/// The problem of one value, or nothing.
template <class Value>
void collect_value_problems(const std::string& at, const Value& value, const Range& range,
                            const std::vector<std::string>& choices,
                            std::vector<std::string>& problems);

/// Problems of all fields of `config`, each as "path: got VALUE, want RANGE". The names are
/// prefixed with `path`.
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
