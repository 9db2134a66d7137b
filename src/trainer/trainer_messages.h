#pragma once

#include <functional>
#include <string>
#include <utility>

namespace hybrid_trainer {

/// What a trainer tells its listeners, line by line: phase changes, decisions and warnings. Warnings
/// also go into the next record.
class TrainerMessages {
 public:
  using Listener = std::function<void(const std::string&)>;
  /// Called with each line.
  void on_event(Listener listener) { listener_ = std::move(listener); }
  /// Called with each warning alone.
  void on_mishap(Listener listener) { mishap_listener_ = std::move(listener); }
  void tell(const std::string& text) const;
  void warn(const std::string& text);
  /// These two for the trainer's parts, which it outlives.
  Listener teller() {
    return [this](const std::string& text) { tell(text); };
  }
  Listener warner() {
    return [this](const std::string& text) { warn(text); };
  }
  /// Those since the last record, which the one who makes it takes away.
  std::string& warnings() { return warnings_; }

 private:
  Listener listener_, mishap_listener_;
  std::string warnings_;
};

}  // namespace hybrid_trainer
