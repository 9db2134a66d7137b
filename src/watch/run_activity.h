#pragma once

#include <string>

namespace hybrid_trainer {

/// Whether a process of this machine holds the lock of a run's folder. It takes no lock itself, so that
/// no trainer that starts meets it.
bool is_locked(const std::string& lock);

/// The command line of the process whose number a lock's file holds; "" where it has ended, or runs on
/// another machine.
std::string command_of_holder(const std::string& lock);

}  // namespace hybrid_trainer
