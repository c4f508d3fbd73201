// Package recording owns recordings of events: their format, how running events reach
// those who listen, and the replay of a file by the engine alone. It does no I/O beside
// the reader and writer it is given, and changes no decision.
//
// A recording has one JSON document a line. The first describes the node, its
// configuration and its state; each other one is an event with the facts it was decided
// with, and the decision.
package recording
