// Package bustest has what tests of the bus and of its users need: Fake, an in-memory bus, and Suite, the contract that
// Fake and the real bus both pass, so that Fake cannot lie.
package bustest
