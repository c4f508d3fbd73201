// Package recording owns recordings of events: their format, the path of running events to listeners, and the
// replay of a file by the engine alone. It does no I/O except through the reader and writer that the caller gives
// it, and changes no decision.
//
// A recording has one JSON document a line. The first document describes the node, its configuration and its state.
// Each other document is an event with the facts that the decision used, and the decision.
package recording
