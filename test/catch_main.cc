// Catch2's main, compiled once. Tests abort with the seed of a failing property in the bug context.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
