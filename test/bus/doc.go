// Package bus proves that the bus loses nothing and holds nothing stale, whatever happens to it: the whole path of
// package rig under constant changes, on real servers, one test for each fault, and random sequences of them
// (-seed, -histories, -duration).
package bus
