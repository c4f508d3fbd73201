// Package recording writes recordings of events and replays recordings. It defines their format, passes events of a
// running agent to listeners, and lets the engine decide the events of a recording again. It does I/O only with the
// reader or writer of the caller, and does not influence the running agent.
//
// A recording has one JSON document per line. The first document describes the node, its configuration and its
// state. Every other document has an event, the facts for the decision about it, and the decision.
package recording
