#include "src/observability/step_record_json.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

using BytesByKind = std::array<std::size_t, kMemoryKinds>;

/// The first of decisions and recoveries stands for none and is null.
template <class Named>
constexpr bool kFirstIsNull = !std::is_same_v<Named, Phase>;

template <class Named>
constexpr const auto& all_values() {
  if constexpr (std::is_same_v<Named, Phase>) {
    return kAllPhases;
  } else if constexpr (std::is_same_v<Named, Decision>) {
    return kAllDecisions;
  } else {
    return kAllRecoveries;
  }
}

class LineWriter {
 public:
  explicit LineWriter(JsonWriter& out) : out_(out) {}
  template <class Value>
  void operator()(const char* key, const StepFieldUse& use, const Value& value) const {
    if (use.written) write(key, value);
  }

 private:
  template <class Number>
  void write(const char* key, const Number& value) const {
    if constexpr (std::is_enum_v<Number>) {
      if (kFirstIsNull<Number> && value == Number{}) return out_.null(key);
      out_.string(key, name_of(value));
    } else {
      out_.number(key, value);
    }
  }
  void write(const char* key, const std::string& text) const { out_.string(key, text); }
  void write(const char* key, bool value) const { out_.boolean(key, value); }
  void write(const char* key, const BytesByKind& bytes) const {
    write_bytes_by_kind(out_, key, bytes);
  }
  JsonWriter& out_;
};

class LineReader {
 public:
  explicit LineReader(const json::object& line) : line_(line) {}
  template <class Value>
  void operator()(const char* key, const StepFieldUse& use, Value& value) const {
    if (use.required || line_.contains(key)) read(line_.at(key), value);
  }

 private:
  template <class Value>
  static void read(const json::value& from, Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      read_name(from, value);
    } else {
      value = from.to_number<Value>();
    }
  }
  static void read(const json::value& from, double& value) {
    value = from.is_null() ? std::numeric_limits<double>::quiet_NaN() : from.to_number<double>();
  }
  template <class Value>
  static void read(const json::value& from, std::optional<Value>& value) {
    if (!from.is_null()) value = from.to_number<Value>();
  }
  static void read(const json::value& from, bool& value) { value = from.as_bool(); }
  static void read(const json::value& from, std::string& value) {
    value = std::string_view(from.as_string());
  }
  static void read(const json::value& from, BytesByKind& bytes) {
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
      const json::value* const found =
          from.as_object().if_contains(name_of(static_cast<MemoryKind>(kind)));
      if (found != nullptr) bytes[kind] = found->to_number<std::size_t>();
    }
  }
  template <class Named>
  static void read_name(const json::value& name, Named& value) {
    if (kFirstIsNull<Named> && name.is_null()) return;
    const auto& known = all_values<Named>();
    const auto found = std::ranges::find_if(
        known, [&](const Named one) { return name.as_string() == name_of(one); });
    if (found == known.end())
      throw DataError(concat("unknown ", std::string_view(name.as_string())));
    value = *found;
  }
  const json::object& line_;
};

/// Appends the name of a number that JSON cannot represent.
class LostNumbers {
 public:
  explicit LostNumbers(std::string& text) : text_(text) {}
  template <class Value>
  void operator()(const char*, const StepFieldUse& use, const Value& value) const {
    if constexpr (std::is_convertible_v<Value, std::optional<double>>) {
      if (use.name != nullptr) add(use.name, std::optional<double>(value).value_or(0));
    }
  }

 private:
  void add(const char* what, double value) const {
    if (std::isfinite(value)) return;
    const char* const is = std::isnan(value) ? "NaN" : value > 0 ? "infinite" : "minus infinite";
    text_ += concat(text_.empty() ? "" : ", ", what, " is ", is);
  }
  std::string& text_;
};

}  // namespace

void write_bytes_by_kind(JsonWriter& out, std::string_view key, const BytesByKind& bytes) {
  out.begin_object(key);
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
    out.number(name_of(static_cast<MemoryKind>(kind)), bytes[kind]);
  out.end_object();
}

std::string to_json_line(StepRecord record) {
  std::string lost;
  StepRecord::visit_fields(LostNumbers(lost), record);
  if (!lost.empty()) {
    record.event = record.event.empty() ? lost : lost + "; " + record.event;
    record.warns = true;
  }
  JsonWriter out;
  out.begin_object();
  StepRecord::visit_fields(LineWriter(out), record);
  out.end_object();
  return out.text() + "\n";
}

std::optional<StepRecord> parse_json_line(std::string_view line) {
  try {
    const json::value value = json::parse({line.data(), line.size()});
    StepRecord record;
    StepRecord::visit_fields(LineReader(value.as_object()), record);
    for (const std::size_t bytes : record.device_memory.live)
      record.device_memory.live_total += bytes;
    return record;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace hybrid_trainer
