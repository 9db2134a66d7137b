#include "hybrid_trainer/observability/step_record.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/observability/jsonl_sink.h"
#include "src/observability/step_record_json.h"

namespace hybrid_trainer {

namespace {

/// True for Decision and Recovery, whose first value means none and is null in JSON.
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
  explicit LineWriter(json::object& line) : line_(line) {}
  template <class Value>
  void operator()(const char* key, const StepFieldUse& use, const Value& value) const {
    if (use.written) line_.emplace(key, written(value));
  }

 private:
  template <class Value>
  static json::value written(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      return kFirstIsNull<Value> && value == Value{} ? json::value() : json::value(name_of(value));
    } else {
      return json::value(value);
    }
  }
  template <class Number>
  static json::value written(const std::optional<Number>& value) {
    return json_or_null(value);
  }
  static json::value written(const BytesByKind& bytes) { return json_of(bytes); }
  static json::value written(const ExpertLoads& loads) { return json_of(loads); }
  json::object& line_;
};

/// Parses an untrusted line of metrics.jsonl. Rejects values so large that sums would overflow.
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
      value = number_in<Value>(from);
    }
  }
  static void read(const json::value& from, double& value) {
    value = from.is_null() ? std::numeric_limits<double>::quiet_NaN() : number_in<double>(from);
  }
  template <class Value>
  static void read(const json::value& from, std::optional<Value>& value) {
    if (!from.is_null()) value = number_in<Value>(from);
  }
  template <class Number>
  static Number number_in(const json::value& from) {
    constexpr double kMax = std::is_floating_point_v<Number> ? 1e100
                            : std::is_unsigned_v<Number>     ? 1e18  // bytes
                                                             : 1e12;     // summed counts
    const double size = std::abs(from.to_number<double>());
    if (!(size <= kMax)) throw DataError(concat("the number ", size, " is out of range"));
    return from.to_number<Number>();
  }
  static void read(const json::value& from, bool& value) { value = from.as_bool(); }
  static void read(const json::value& from, std::string& value) {
    value = std::string_view(from.as_string());
  }
  static void read(const json::value& from, BytesByKind& bytes) {
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
      const json::value* const found =
          from.as_object().if_contains(name_of(static_cast<MemoryKind>(kind)));
      if (found != nullptr) bytes[kind] = number_in<std::size_t>(*found);
    }
  }
  static void read(const json::value& from, ExpertLoads& loads) {
    const auto numbers = [&](const char* key, auto& to) {
      for (const json::value& number : from.at(key).as_array())
        to.push_back(number_in<typename std::remove_reference_t<decltype(to)>::value_type>(number));
    };
    numbers("most", loads.most);
    numbers("least", loads.least);
    numbers("entropy", loads.entropy);
    numbers("dead", loads.dead);
    for (const std::size_t layers : {loads.least.size(), loads.entropy.size(), loads.dead.size()})
      if (layers != loads.most.size()) throw DataError("lists of layers differ in length");
    loads.balance_loss = number_in<double>(from.at("balance_loss"));
    loads.z_loss = number_in<double>(from.at("z_loss"));
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
class NonFiniteNumbers {
 public:
  explicit NonFiniteNumbers(std::string& text) : text_(text) {}
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

std::string right(const std::string& text, std::size_t width) {
  return std::string(text.size() < width ? width - text.size() : 0, ' ') + text;
}

}  // namespace

json::object json_of(const BytesByKind& bytes) {
  json::object object;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
    object.emplace(name_of(static_cast<MemoryKind>(kind)), bytes[kind]);
  return object;
}

json::object json_of(const ExpertLoads& loads) {
  const auto numbers = [](const auto& values) {
    json::array array;
    for (const auto value : values) {
      if constexpr (std::is_floating_point_v<std::remove_const_t<decltype(value)>>) {
        array.push_back(std::isfinite(value) ? json::value(value) : json::value(0));
      } else {
        array.emplace_back(value);
      }
    }
    return array;
  };
  const auto finite = [](double value) { return std::isfinite(value) ? value : 0; };
  return {{"most", numbers(loads.most)},
          {"least", numbers(loads.least)},
          {"entropy", numbers(loads.entropy)},
          {"dead", numbers(loads.dead)},
          {"balance_loss", finite(loads.balance_loss)},
          {"z_loss", finite(loads.z_loss)}};
}

std::string json_of_record(const StepRecord& record) {
  json::object line;
  StepRecord::visit_fields(LineWriter(line), record);
  return json_line(line);
}

std::string to_json_line(StepRecord record) {
  std::string lost;
  StepRecord::visit_fields(NonFiniteNumbers(lost), record);
  if (!lost.empty()) {
    record.event = record.event.empty() ? lost : lost + "; " + record.event;
    record.warns = true;
  }
  return json_of_record(record) + "\n";
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

void RoutingFlips::add(double share) {
  ++steps;
  sum += share;
  most = std::max(most, share);
}

std::string RoutingFlips::text() const {
  if (steps == 0) return "";
  return concat("mean ", units::fixed(100 * mean(), 1), " %, at most ", units::fixed(100 * most, 1),
                " % of the choices, in ", steps, " steps of Predict");
}

std::string json_text_of(const ExpertLoads& loads) {
  return boost::json::serialize(json_of(loads));
}

std::string text_of(const ExpertLoads& loads) {
  std::string text = "layer  busiest  idlest  entropy  dead\n";
  for (std::size_t i = 0; i < loads.most.size(); ++i)
    text += right(concat(i), 5) + right(units::fixed(loads.most[i], 2), 9) +
            right(units::fixed(loads.least[i], 2), 8) +
            right(units::fixed(loads.entropy[i], 3), 9) + right(concat(loads.dead[i]), 6) + "\n";
  return text +
         "busiest, idlest: tokens of the expert divided by the mean of all experts;\n"
         "entropy: entropy of the router, in nats; dead: experts without a token for " +
         concat(ExpertLoads::kDeadAfter, " steps;\nlayer: index among the layers with experts\n");
}

}  // namespace hybrid_trainer
